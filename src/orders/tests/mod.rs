//! A simulated week of sales: what is bought, settled, paid, cancelled, closed, given back and sold again, with random faults,
//! against stores in memory. Time is a number of theirs; there are no sockets and no servers.
//!
//! **Real code, driven**: the sweeper ([`Overdues`]), the taking of notices ([`Notices`]: signatures, windows, bodies,
//! answers) and the watch over parked payments ([`Parked`]), step by step, on [`PaymentStore`] in memory; what is asked of a
//! payment centre and answered as it goes over the wire (`payment::asking`); what a payment does to an order
//! (`payment::judge`); which way states go (`OrderState::may_become`, `rank`, `is_live`); how feed entries become batches
//! ([`Assembly`]), what a settlement decides of each row (`settle_carefully`), what Redis is told of it (`finisher::learnt`);
//! what a recovery makes of what is left, handed in and in SQL (`store::shared::merge`). **In memory**: rows and the
//! transactions that write them, the shards as rules 1 to 4 and 14 have them, the payment centre, the order of events.
//!
//! After every step units are conserved in each shard, in SQL and over both, nobody holds two orders, no state went back, no
//! order was paid twice, none was closed that its payment centre had not closed. At the end nothing is under way, both sides
//! agree, and every payment has paid its order or is owed back.
//!
//! A seed is a week. `SALE_WEEK_RUNS` of them run from `SALE_WEEK_SEED` on; `SALE_WEEK_TRACE=1` tells each step. A seed that
//! fails prints the command that replays it.
//!
//! [`Overdues`]: super::payments::Overdues
//! [`Notices`]: super::payments::Notices
//! [`Parked`]: super::payments::Parked
//! [`PaymentStore`]: crate::store::payments::PaymentStore
//! [`Assembly`]: super::batch::Assembly

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests"
)]

mod books;
mod centre;
mod checks;
mod payments;
mod shards;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Counts, World};

use super::finisher::learnt;
use crate::protocol::{OrderNumber, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};
use crate::store::sql::mysql::{Reservation, Settlement};

const RUNS_DEFAULT: u64 = 100;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

fn run_one(seed: u64, trace: bool) -> Result<Counts, String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let mut world = World::new(seed, trace);
            world.run().await;
            world.counts
        })
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

#[test]
fn rule_14_what_is_over_is_told_by_the_ledger_alone_also_when_its_entry_comes_again() {
    let sku = SkuKey { activity: shards::ACTIVITY, sku: SkuId(1) };
    let state = OrderState::Reserved;
    let mark = Mark { order: OrderNumber(9), sku, quantity: 1, attempt: 1, state, pay_by_ms: 0 };
    let user = UserId(5);
    let one = Reservation { shard: ShardId::of(user), entry: (Gen(1), 1), user, mark };
    for state in [OrderState::Closed, OrderState::Failed, OrderState::RefundDue] {
        assert_eq!(learnt(&one, &Settlement::WasSettled(Mark { state, ..mark })), None, "{state:?}");
    }
    for state in [OrderState::PendingPayment, OrderState::Paid] {
        assert!(learnt(&one, &Settlement::WasSettled(Mark { state, ..mark })).is_some(), "{state:?}");
    }
}

#[test]
fn a_week_of_sales_with_faults_keeps_every_unit_and_every_payment() {
    let first = setting("SALE_WEEK_SEED").unwrap_or(1);
    let runs = setting("SALE_WEEK_RUNS").unwrap_or(RUNS_DEFAULT);
    let trace = setting("SALE_WEEK_TRACE").is_some_and(|on| on > 0);
    let mut total = Counts::default();
    for seed in first..first + runs {
        match run_one(seed, trace) {
            Ok(counts) => total.add(&counts),
            Err(cause) => panic!(
                "seed {seed}: {cause}\nreplay: SALE_WEEK_SEED={seed} SALE_WEEK_RUNS=1 SALE_WEEK_TRACE=1 cargo test --lib \
                 a_week_of_sales -- --nocapture"
            ),
        }
    }
    eprintln!("{runs} weeks: {total:?}");
    // A week that never meets a case proves nothing about it.
    if runs >= 100 {
        total.check_all_met();
    }
}
