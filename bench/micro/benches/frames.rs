//! Frames: finding them in what was read, reading requests, writing refusals.
#![allow(missing_docs, clippy::expect_used, reason = "benches")]

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rushgate::protocol::frame::FRAME_BYTES_MAX_AFTER_AUTH;
use rushgate::protocol::{Head, Opcode, Reply, Request, Status, decode, encode};
use rushgate_micro::Work;
use std::hint::black_box;

fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for (name, work, depth) in [
        ("app_buy", Work::SoldOut, 1),
        ("service_buy", Work::ServiceSoldOut, 1),
        ("app_buys_64", Work::SoldOut, 64),
    ] {
        let bytes = work.wake(0, depth);
        group.throughput(Throughput::Elements(u64::from(depth)));
        group.bench_function(name, |bench| bench.iter(|| frames(black_box(&bytes))));
    }
    group.finish();
}

/// How many there are.
fn frames(mut bytes: &[u8]) -> u32 {
    let mut frames = 0_u32;
    while let Ok(Some((frame, frame_bytes))) = decode(bytes, FRAME_BYTES_MAX_AFTER_AUTH) {
        black_box(frame);
        frames = frames.saturating_add(1);
        bytes = bytes.get(frame_bytes..).unwrap_or_default();
    }
    frames
}

fn parsing(criterion: &mut Criterion) {
    let bytes = Work::SoldOut.wake(0, 1);
    let (frame, _) = decode(&bytes, FRAME_BYTES_MAX_AFTER_AUTH).expect("a frame").expect("a whole one");
    criterion.bench_function("parse/buy", |bench| {
        bench.iter(|| Request::parse(black_box(Opcode::Buy), black_box(frame.body)).is_ok());
    });
}

fn encoding(criterion: &mut Criterion) {
    let mut out = BytesMut::with_capacity(4096);
    let head = Head::reply(Opcode::Buy, 7, Status::SoldOut, 0);
    criterion.bench_function("encode/refusal", |bench| {
        bench.iter(|| {
            out.clear();
            encode(&mut out, black_box(head), |_| {}, |body| Reply::Empty.write(body));
            black_box(&out);
        });
    });
}

criterion_group!(benches, decoding, parsing, encoding);
criterion_main!(benches);
