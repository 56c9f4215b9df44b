//! The rows of one transaction, with the gateway's own numbers: shards by user, order numbers by process.

use rushgate::protocol::UserId;
use rushgate::stock::OrderNumbers;
use rushgate::stock::calls::{ProcessNumber, SHARDS, ShardId};

/// Beside the answers: version, kind, generation, seq, one SKU's counters, lengths.
const REPLY_HEAD_BYTES: usize = 44;
/// "Reserved", as it lies in a stored reply.
const RESERVED: u8 = 1;

/// One row of `orders`, as far as rows differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) shard: u8,
    pub(crate) user: u64,
    pub(crate) number: u64,
}

/// One transaction's rows.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In the table's own order.
    pub(crate) orders: Vec<Order>,
    /// Orders in each shard.
    pub(crate) per_shard: [u32; SHARDS],
}

/// Users one after the other, each with the next order number.
#[derive(Debug)]
pub(crate) struct Source {
    next_user: u64,
    numbers: OrderNumbers,
}

impl Source {
    pub(crate) const fn new() -> Self {
        Self { next_user: 1, numbers: OrderNumbers::new(ProcessNumber(1)) }
    }

    /// Fills `batch` with the next orders.
    pub(crate) fn fill(&mut self, batch: &mut Batch, orders: u32) {
        batch.orders.clear();
        batch.per_shard = [0; SHARDS];
        for _ in 0..orders {
            let Some(number) = self.numbers.next() else { break };
            let user = self.next_user;
            self.next_user = user.saturating_add(1);
            let shard = ShardId::of(UserId(user));
            if let Some(count) = batch.per_shard.get_mut(shard.index()) {
                *count = count.saturating_add(1);
            }
            batch.orders.push(Order { shard: shard.number(), user, number: number.0 });
        }
        batch.orders.sort_unstable_by_key(|order| (order.shard, order.user));
    }
}

/// A stored reply for so many orders: as long as the gateway's.
pub(crate) fn reply(orders: u32) -> Vec<u8> {
    let orders = usize::try_from(orders).unwrap_or_default();
    vec![RESERVED; REPLY_HEAD_BYTES.saturating_add(orders)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]
    use super::*;

    #[test]
    fn every_user_and_number_comes_once_and_rows_lie_in_the_tables_order() {
        let (mut source, mut batch) = (Source::new(), Batch::default());
        source.fill(&mut batch, 100);
        source.fill(&mut batch, 1_000);
        assert_eq!(batch.per_shard.iter().sum::<u32>(), 1_000);
        assert!(batch.orders.is_sorted_by_key(|order| (order.shard, order.user)));
        let mut users: Vec<u64> = batch.orders.iter().map(|order| order.user).collect();
        users.sort_unstable();
        assert_eq!(users, (101..=1_100).collect::<Vec<u64>>());
        assert!(batch.orders.iter().all(|order| order.number & ((1 << 36) - 1) == order.user));
        assert_eq!(
            reply(batch.per_shard[0]).len(),
            44 + batch.orders.iter().filter(|o| o.shard == 0).count()
        );
    }
}
