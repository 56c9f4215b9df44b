//! Whole wakes: what one read finds, answered. Everything that a refusal costs but the socket.
#![allow(missing_docs, reason = "benches")]

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rushgate_micro::requests::answers;
use rushgate_micro::{Scene, Work};
use std::hint::black_box;

/// Requests in a wake.
const DEPTHS: [u32; 3] = [1, 16, 64];
/// Users of a back end: beyond what a cache holds of them.
const USERS: u32 = 1_000_000;

fn wakes(criterion: &mut Criterion) {
    let scene = Scene::open();
    for work in Work::ALL {
        let mut group = criterion.benchmark_group(work.name());
        for depth in DEPTHS {
            group.throughput(Throughput::Elements(u64::from(depth)));
            let mut conversation = scene.conversation(work);
            let users = if work.is_service() { USERS } else { depth };
            let wakes = (0..users).step_by(usize::try_from(depth).unwrap_or(1));
            let wakes: Vec<Vec<u8>> = wakes.map(|first| work.wake(first, depth)).collect();
            let mut out = BytesMut::with_capacity(64 * 1024);
            for wake in &wakes {
                out.clear();
                let ending = conversation.feed(wake, &mut out);
                assert_eq!(ending, None, "the conversation ended");
                assert_eq!(answers(&out).len(), usize::try_from(depth).unwrap_or(0), "all are answered");
            }
            let mut next = wakes.iter().cycle();
            group.bench_function(depth.to_string(), |bench| {
                bench.iter(|| {
                    out.clear();
                    let wake = next.next().map(Vec::as_slice).unwrap_or_default();
                    black_box(conversation.feed(black_box(wake), &mut out))
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, wakes);
criterion_main!(benches);
