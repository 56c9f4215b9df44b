//! Feeds requests that are refused, for `scripts/instruction-bar` to count the instructions that each costs.
//!
//! `refusal-instructions WAKES [WORK DEPTH]` prints one line for each measurement, in the order they are made: work,
//! depth (the requests of one wake) and requests. Each measurement is one call of [`feed_counted`], which callgrind
//! is told to count and to write out. With WORK and DEPTH it makes that one measurement, for a profile.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "a measurement that cannot be made stops")]

use bytes::BytesMut;
use rushgate::gateway::Conversation;
use rushgate::protocol::Status;
use rushgate_micro::requests::answers;
use rushgate_micro::{Scene, Work};

/// Requests in a wake.
const DEPTHS: [u32; 3] = [1, 16, 64];
/// Users of a back end. All are known to the limits before anything is counted.
const USERS: u32 = 8_192;
/// What a wake's replies need, and more.
const REPLIES_BYTES: usize = 64 * 1024;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (wakes, only) = parse(&args).expect("usage: refusal-instructions WAKES [WORK DEPTH]");
    let scene = Scene::open();
    for work in Work::ALL {
        for depth in DEPTHS {
            if only.as_ref().is_none_or(|only| *only == (work.name(), depth)) {
                measure(&scene, work, depth, wakes);
            }
        }
    }
}

/// How many wakes, and of what if not of everything.
fn parse(args: &[String]) -> Option<(u32, Option<(&str, u32)>)> {
    match args {
        [wakes] => Some((wakes.parse().ok()?, None)),
        [wakes, work, depth] => Some((wakes.parse().ok()?, Some((work, depth.parse().ok()?)))),
        _ => None,
    }
}

fn measure(scene: &Scene, work: Work, depth: u32, wakes: u32) {
    let mut conversation = scene.conversation(work);
    let wakes: Vec<Vec<u8>> =
        (0..wakes).map(|wake| work.wake(wake.wrapping_mul(depth) % USERS, depth)).collect();
    let mut replies = BytesMut::with_capacity(REPLIES_BYTES);
    feed(&mut conversation, &wakes, &mut replies);
    check(&mut conversation, work, &wakes);
    feed_counted(&mut conversation, &wakes, &mut replies);
    let requests = u64::from(depth).saturating_mul(u64::try_from(wakes.len()).unwrap_or(u64::MAX));
    println!("{} {depth} {requests}", work.name());
}

/// The name that callgrind looks for.
#[inline(never)]
fn feed_counted(conversation: &mut Conversation, wakes: &[Vec<u8>], replies: &mut BytesMut) {
    feed(conversation, wakes, replies);
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "what is counted is to be one function and what it calls")]
fn feed(conversation: &mut Conversation, wakes: &[Vec<u8>], replies: &mut BytesMut) {
    for wake in wakes {
        replies.clear();
        let ending = conversation.feed(wake, replies);
        assert_eq!(ending, None, "the conversation ended");
    }
}

/// Every request is answered, and with what the work is about.
fn check(conversation: &mut Conversation, work: Work, wakes: &[Vec<u8>]) {
    let (opcode, status) = work.answer();
    for wake in wakes {
        let mut replies = BytesMut::new();
        let ending = conversation.feed(wake, &mut replies);
        assert_eq!(ending, None, "the conversation ended");
        for (answered, told) in answers(&replies) {
            // Once a second the limit lets one pass.
            let is_let_pass = work == Work::RateLimited && told == Some(Status::SoldOut);
            assert!(answered == Some(opcode) && (told == Some(status) || is_let_pass), "{work:?}: {told:?}");
        }
    }
}
