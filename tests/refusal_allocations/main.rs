//! Nothing is allocated on the way of a refusal: not from the socket and back to it, and not by a conversation alone.
//!
//! The allocator counts what the whole process does, so this binary has one test and a client that allocates nothing
//! itself: whatever is counted while it asks, the gateway's worker has allocated. In the scene nothing else runs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod client;
#[path = "../../bench/micro/src/lib.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the measurements, which use all of it")]
mod micro;

use bytes::BytesMut;
use client::{Client, Exchange};
use micro::{Scene, Work};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Requests in a wake.
const DEPTHS: [u32; 2] = [1, 64];
/// Long enough for the worker's sweep to come by.
const ROUNDS: u32 = 200;

#[test]
fn a_refusal_allocates_nothing() {
    let scene = Scene::open();
    let mut counted = Vec::new();
    for (work, depth) in Work::ALL.into_iter().flat_map(|work| DEPTHS.map(|depth| (work, depth))) {
        let mut client = Client::log_in(&scene, work);
        let mut exchange = Exchange::new(work, depth, ROUNDS);
        client.check(&mut exchange);
        counted.push((work.name(), depth, allocations(|| client.run(&mut exchange))));
        let (mut conversation, mut replies) = (scene.conversation(work), BytesMut::with_capacity(64 * 1024));
        exchange.feed(&mut conversation, &mut replies);
        let fed = allocations(|| exchange.feed(&mut conversation, &mut replies));
        counted.push((work.name(), depth, fed));
    }
    counted.retain(|(work, depth, allocations)| {
        // The list of an activity's articles: one for each request.
        let allowed = if *work == Work::Activity.name() { u64::from(depth * ROUNDS) } else { 0 };
        *allocations > allowed
    });
    assert!(counted.is_empty(), "(work, depth, allocations in {ROUNDS} wakes): {counted:?}");
}

#[track_caller]
fn allocations(what: impl FnOnce()) -> u64 {
    let profiler = dhat::Profiler::builder().testing().build();
    what();
    let blocks = dhat::HeapStats::get().total_blocks;
    drop(profiler);
    blocks
}
