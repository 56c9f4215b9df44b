//! What is decided of a batch, for models that keep their rows in memory.

use std::collections::{BTreeMap, HashMap};

use super::super::settle_batch::Batch;
use super::{Kind, Known, Plan};
use crate::protocol::{ActivityId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};
use crate::store::orders_modes::OrdersModes;
use crate::store::sql::mysql::{Release, Reservation, Settlement};

/// The rows that there are: orders with whether they are of Redis, the ledger, units that are not sold.
pub(crate) struct Rows {
    pub(crate) orders: Vec<(UserId, Mark, bool)>,
    pub(crate) ledger: Vec<Release>,
    pub(crate) available: BTreeMap<SkuKey, u64>,
    pub(crate) pay_within_ms: HashMap<ActivityId, u64>,
}

/// What is to be written.
pub(crate) struct Decided {
    pub(crate) settlements: Vec<Settlement>,
    pub(crate) orders: Vec<(ShardId, UserId, Mark)>,
    /// Reservations that fail, and whether they have a row of their own.
    pub(crate) failed: Vec<(Reservation, bool)>,
    pub(crate) owed_again: Vec<Release>,
}

/// Decides as a settlement does.
pub(crate) fn decide(generation: Gen, reservations: &[Reservation], rows: Rows, now_ms: u64) -> Decided {
    let mut known = Known { available: rows.available.into_iter().collect(), ..Known::default() };
    for (user, mark, is_of_redis) in rows.orders {
        known.numbers.insert(mark.order, (user, mark));
        known.held.entry((mark.sku.activity, user)).or_default().push((mark, is_of_redis));
    }
    for release in rows.ledger {
        known.ledgered.insert((release.mark.order, release.user), release);
    }
    let modes = OrdersModes::default();
    let batch = Batch { generation, reservations, pay_within_ms: rows.pay_within_ms, modes: &modes };
    let mut plan = Plan::default();
    let judged = reservations.iter().enumerate();
    let settlements = judged.map(|(at, one)| known.judge(&batch, at, one, now_ms, &mut plan)).collect();
    let failed = plan
        .failed
        .iter()
        .filter_map(|failed| Some((*reservations.get(failed.at)?, failed.kind != Kind::Collision)));
    Decided {
        settlements,
        failed: failed.collect(),
        orders: plan.orders,
        owed_again: plan.owed_again.into_values().collect(),
    }
}
