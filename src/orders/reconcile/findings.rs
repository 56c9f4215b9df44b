//! What a look finds, and SQL's side of it made findable. Pure data.

use std::collections::{HashMap, HashSet};

use super::difference::{Difference, Identity};
use super::evidence::Evidence;
use super::figures::{Explained, Figures};
use crate::protocol::{OrderNumber, OrderState, UserId};
use crate::stock::calls::ShardId;
use crate::store::sql::mysql::{LedgerRow, PlacedOrder};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) figures: Figures,
    pub(super) explained: Explained,
    pub(super) differences: Vec<Difference>,
}

impl Findings {
    /// Shards that have fewer free units than their own sums leave.
    pub(super) fn short_shards(&self) -> Vec<ShardId> {
        let is_short = |shard: &ShardId| {
            let mut figures = self.figures.values().filter_map(|sku| sku.shards.get(shard.index()));
            figures.any(|figures| figures.excess() < 0)
        };
        ShardId::all().filter(is_short).collect()
    }

    /// Keeps what another look found as well.
    pub(super) fn keep(&mut self, seen: &HashSet<Identity>) {
        self.differences.retain(|one| seen.contains(&one.identity()));
    }

    pub(super) fn identities(&self) -> HashSet<Identity> {
        self.differences.iter().map(Difference::identity).collect()
    }
}

/// SQL's side, findable.
pub(super) struct Sql<'a> {
    pub(super) rows: HashMap<OrderNumber, &'a PlacedOrder>,
    pub(super) ledger: HashMap<(OrderNumber, UserId), &'a LedgerRow>,
    /// By user, of his orders that did not fail.
    pub(super) last_attempts: HashMap<UserId, u8>,
}

impl<'a> Sql<'a> {
    pub(super) fn of(evidence: &'a Evidence) -> Self {
        let rows = evidence.sql.orders.iter().map(|order| (order.mark.order, order)).collect();
        let key = |row: &'a LedgerRow| ((row.order.mark.order, row.order.user), row);
        let mut last_attempts = HashMap::new();
        for order in evidence.sql.orders.iter().filter(|order| order.mark.state != OrderState::Failed) {
            let last = last_attempts.entry(order.user).or_insert(0);
            *last = order.mark.attempt.max(*last);
        }
        Self { rows, ledger: evidence.sql.ledger.iter().map(key).collect(), last_attempts }
    }

    /// The user's order of this number.
    pub(super) fn row(&self, user: UserId, order: OrderNumber) -> Option<&'a PlacedOrder> {
        self.rows.get(&order).copied().filter(|row| row.user == user)
    }
}
