//! The model test of the stock engine: several gateways' engines against a store in memory that executes numbered
//! calls exactly by the rules, with a network between that delays, loses, reorders and repeats.
//!
//! One seed is one run. `STOCK_MODEL_RUNS` runs per family (default below) from `STOCK_MODEL_SEED` on;
//! `STOCK_MODEL_FAMILY` picks one family, `STOCK_MODEL_TRACE=1` prints what happens. A failing seed prints the
//! command that replays it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    clippy::format_push_string,
    missing_docs,
    missing_debug_implementations,
    reason = "tests"
)]

#[path = "stock_model/gateway.rs"]
mod gateway;
#[path = "stock_model/ledger.rs"]
mod ledger;
#[path = "stock_model/plan.rs"]
mod plan;
#[path = "stock_model/recovery.rs"]
mod recovery;
#[path = "stock_model/store.rs"]
mod store;
#[path = "stock_model/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use plan::{Family, Plan};
use world::{Counts, World};

const RUNS_DEFAULT: u64 = 400;
/// These take longer.
const RECOVERY_RUNS_DEFAULT: u64 = 250;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

fn run_one(seed: u64, family: Family, trace: bool) -> Result<Counts, String> {
    let run = || {
        let plan = Plan::of(seed, family);
        if trace {
            eprintln!("{plan:#?}");
        }
        let mut world = World::new(seed, plan, trace);
        world.run();
        world.counts
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

fn run_family(family: Family) {
    let only = std::env::var("STOCK_MODEL_FAMILY").ok();
    if only.is_some_and(|name| Family::parse(&name) != Some(family)) {
        return;
    }
    let default = if family == Family::Recovery { RECOVERY_RUNS_DEFAULT } else { RUNS_DEFAULT };
    let runs = setting("STOCK_MODEL_RUNS").unwrap_or(default);
    let first = setting("STOCK_MODEL_SEED").unwrap_or(1);
    let trace = setting("STOCK_MODEL_TRACE").is_some_and(|on| on > 0);
    let keep_going = setting("STOCK_MODEL_KEEP_GOING").is_some_and(|on| on > 0);
    let next = AtomicU64::new(first);
    let failures: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
    let total = Mutex::new(Counts::default());
    let work = || {
        while keep_going || failures.lock().unwrap().is_empty() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + runs {
                break;
            }
            match run_one(seed, family, trace) {
                Ok(counts) => total.lock().unwrap().add(&counts),
                Err(cause) => failures.lock().unwrap().push((seed, cause)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..if trace { 1 } else { 2 } {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    eprintln!("{family:?}: {:?}, {} failures", total.into_inner().unwrap(), failures.len());
    for (seed, cause) in failures.iter().skip(1) {
        eprintln!("{family:?} seed {seed}: {}", cause.chars().take(300).collect::<String>());
    }
    if let Some((seed, cause)) = failures.first() {
        panic!(
            "{family:?} seed {seed}: {cause}\nreplay: STOCK_MODEL_FAMILY={family:?} STOCK_MODEL_SEED={seed} \
             STOCK_MODEL_RUNS=1 STOCK_MODEL_TRACE=1 cargo test --test stock_model -- --nocapture"
        );
    }
}

#[test]
fn everything_by_chance_holds() {
    run_family(Family::Mixed);
}

#[test]
fn a_sound_network_leaves_no_excuse() {
    run_family(Family::Calm);
}

#[test]
fn single_units_sell_to_the_last_one() {
    run_family(Family::NOfN);
}

#[test]
fn several_units_are_gathered_and_nobody_who_fits_is_refused() {
    run_family(Family::Gather);
}

#[test]
fn crashes_restarts_and_additions_lose_nothing() {
    run_family(Family::Disasters);
}

#[test]
fn recoveries_keep_every_promise_or_fail_it_explicitly() {
    run_family(Family::Recovery);
}
