//! What becomes of those who wait in an activity that is over: closed by an operator, or at the end of its window.
//!
//! Part of the engine; told by the stock task whenever something closes, opens or ends. Whoever waits in one that is
//! over is told ENDED at once, and so is who comes later, by a BUY that was let in a moment before, or back from a store
//! that had nothing for him. What is at the store, or may be, runs to its end: nobody takes that back.

use super::calls::ShardId;
use super::engine::Stock;
use super::lane::Waiting;
use super::over::Over;
use super::purchase::Outcome;
use crate::protocol::ActivityId;

impl<T> Stock<T> {
    /// From now on these activities are over, and no others; those who wait in them are told.
    pub fn set_over(&mut self, is_over: impl Fn(ActivityId) -> bool + Send + Sync + 'static) {
        self.over = Over::new(is_over);
        for shard in ShardId::ALL {
            for _ in 0..self.lanes[shard].waiting.len() {
                let Some(mut waiting) = self.lanes[shard].waiting.pop_front() else { break };
                if self.is_over_for(&waiting) {
                    self.tell_over(&mut waiting);
                    self.lanes[shard].look_again();
                } else {
                    self.lanes[shard].waiting.push_back(waiting);
                }
            }
        }
    }

    /// Whether there is nothing to wait for. Of whom nobody knows whether the store holds his order, the store decides.
    pub(super) fn is_over_for(&self, waiting: &Waiting<T>) -> bool {
        !waiting.in_doubt && !waiting.promised && self.over.holds(waiting.item.sku.activity)
    }

    /// The duplicate rung comes before.
    pub(super) fn tell_over(&mut self, waiting: &mut Waiting<T>) {
        let outcome = self.standing_outcome(waiting).unwrap_or(Outcome::Ended);
        self.tell(waiting, outcome);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;
    use crate::protocol::{SkuId, SkuKey, UserId};
    use crate::stock::calls::{Done, Gen, ItemAnswer, ProcessNumber, Reply, SkuCounters, Snapshot};
    use crate::stock::{Board, Buyers, Purchase, Settings};

    const SALE: ActivityId = ActivityId(7);
    const SKU: SkuKey = SkuKey { activity: SALE, sku: SkuId(1) };

    fn counters(free: u32) -> Vec<SkuCounters> {
        vec![SkuCounters { sku: SKU, free, out: Vec::new(), brought_in: Vec::new() }]
    }

    /// An engine that knows of one free unit in each shard.
    fn engine() -> Stock<u32> {
        let (buyers, board) = (Arc::<Buyers>::default(), Arc::<Board>::default());
        let mut stock = Stock::new(Settings::default(), ProcessNumber(1), Gen(1), buyers, board, 1);
        for shard in ShardId::ALL {
            let counters = counters(1);
            stock
                .on_snapshot(1, &Snapshot { shard, generation: Gen(1), seq: 1, counters, marks: Vec::new() });
            stock.on_current(shard, 1);
        }
        stock
    }

    fn buy(stock: &mut Stock<u32>, ticket: u32) {
        let purchase = Purchase { user: UserId(1), sku: SKU, quantity: 1, patience_ms: 0 };
        stock.push(1, ticket, purchase).unwrap();
    }

    #[test]
    fn who_comes_to_the_queue_after_his_activity_was_closed_is_told_ended_and_not_sold_to() {
        let mut stock = engine();
        stock.set_over(|activity| activity == SALE);
        // Let in by the funnel a moment before.
        buy(&mut stock, 1);
        assert_eq!(stock.take_outcomes(), [(1, Outcome::Ended)]);
        assert!(stock.poll_calls(2).is_empty());
        stock.set_over(|_| false);
        buy(&mut stock, 2);
        assert_eq!((stock.poll_calls(2).len(), stock.take_outcomes().len()), (1, 0));
    }

    #[test]
    fn who_comes_back_from_the_store_with_nothing_after_his_activity_was_closed_is_told_ended() {
        let mut stock = engine();
        buy(&mut stock, 1);
        let call = stock.poll_calls(1).pop().unwrap();
        stock.set_over(|activity| activity == SALE);
        assert!(stock.take_outcomes().is_empty(), "he is at the store");
        let answers = vec![ItemAnswer::EmptyHere];
        let done = Done { generation: Gen(1), seq: 1, counters: counters(0), answers };
        stock.on_reply(2, call.shard, call.number, Reply::Done(done));
        // Other shards have units: he would have waited for one of them.
        assert_eq!(stock.take_outcomes(), [(1, Outcome::Ended)]);
        assert!(stock.poll_calls(3).is_empty());
    }
}
