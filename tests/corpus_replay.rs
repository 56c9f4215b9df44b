//! Every file of `fuzz/corpus/` through the fuzz targets' own bodies, on stable Rust and without a fuzzer: what was
//! found once is never lost again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

#[path = "../fuzz/bodies/connection/mod.rs"]
mod connection;
#[path = "../fuzz/bodies/decode.rs"]
mod decode;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use connection::gateway::Bench;
use rushgate::protocol::Status;

/// More would make a clone slow, fewer would be no corpus.
const FILES: std::ops::RangeInclusive<usize> = 50..=500;
const BYTES_MAX: usize = 1 << 20;
/// What a conversation without limits, drain, deadlines, blocks, payments or a store in trouble is never told, or not for
/// sure.
const UNHEARD: [Status; 16] = [
    Status::Blocked,
    Status::NotEligible,
    Status::NotAgain,
    Status::TooManyUnpaid,
    Status::RateLimited,
    Status::Busy,
    Status::Insufficient,
    Status::ChallengeRequired,
    Status::TokenRequired,
    Status::GoingAway,
    Status::TooManyConnections,
    Status::TimedOut,
    Status::TooManyInFlight,
    Status::Unconfirmed,
    Status::Cancelling,
    Status::NotCancellable,
];

/// Runs a body with each file of a corpus; which of them it does not pass.
fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(FILES.contains(&files.len()), "{} files in {}", files.len(), folder.display());
    let mut bytes = 0;
    let mut failed = Vec::new();
    for file in files {
        let data = fs::read(&file).unwrap();
        bytes += data.len();
        if catch_unwind(AssertUnwindSafe(|| run(&data))).is_err() {
            failed.push(file);
        }
    }
    assert!(failed.is_empty(), "these fail, for the reasons above: {failed:#?}");
    assert!(bytes <= BYTES_MAX, "{bytes} bytes in {}", folder.display());
}

#[test]
fn the_corpus_of_decode() {
    replay("decode", decode::run);
}

#[test]
fn the_corpus_of_connection() {
    let folder = tempfile::TempDir::new().unwrap();
    let bench = Bench::open(folder.path());
    let heard = RefCell::new(HashSet::new());
    replay("connection", |data| heard.borrow_mut().extend(connection::run(&bench, data)));
    let heard = heard.into_inner();
    let missing: Vec<_> =
        Status::ALL.iter().filter(|status| !heard.contains(status) && !UNHEARD.contains(status)).collect();
    assert!(missing.is_empty(), "the corpus no longer reaches {missing:?}: run the fuzzer again");
    assert_eq!(bench.gateway.not_ready(), Vec::<&str>::new(), "a task of the gateway's died");
}

#[test]
fn the_golden_vectors_are_seeds_too() {
    for json in [include_str!("vectors/valid.json"), include_str!("vectors/invalid.json")] {
        let entries: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
        for entry in entries {
            let digits = entry["hex"].as_str().unwrap().as_bytes();
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
            for how in [0x00, 0x01, 0x02, 0x7D, 0x81, 0xFE] {
                decode::run(&[&[how], &bytes[..]].concat());
            }
        }
    }
}

/// Beside the corpus, so that a change to the language of scripts is noticed before the fuzzer has run again.
#[test]
fn random_scripts_by_the_thousand() {
    let folder = tempfile::TempDir::new().unwrap();
    let bench = Bench::open(folder.path());
    let mut random = fastrand::Rng::with_seed(1);
    for seed in 0..3000 {
        // Most of them behind the way in, on a connection of either kind.
        let mut data = vec![0x0E, random.u8(0..3)];
        let mut bytes = vec![0; random.usize(0..400)];
        random.fill(&mut bytes);
        data.extend(bytes);
        let outcome = catch_unwind(AssertUnwindSafe(|| connection::run(&bench, &data)));
        assert!(outcome.is_ok(), "script {seed} fails: {data:?}");
    }
    assert_eq!(bench.gateway.not_ready(), Vec::<&str>::new(), "a task of the gateway's died");
}
