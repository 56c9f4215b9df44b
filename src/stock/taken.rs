//! What becomes of an activity that was taken over (rule 20): no call to this store tells of it any more.
//!
//! Part of the engine; told by the stock task whenever the catalogue says so. Whoever waits is BUSY: no shard will ever
//! sell to him, and where he comes to next he is sold to. What is reserved, as far as is known here, is handed to whoever
//! fails promises, who offers it to those that sell the activity now. Told once more it hands in nothing twice.

use super::calls::ShardId;
use super::engine::Stock;
use super::lane::{InFlight, Waiting};
use super::over::Over;
use super::promises::Promise;
use super::purchase::Outcome;
use crate::protocol::ActivityId;

impl<T> Stock<T> {
    /// From now on these activities are taken over, and no others.
    pub fn set_taken(&mut self, is_taken: impl Fn(ActivityId) -> bool + Send + Sync + 'static) {
        self.taken = Over::new(is_taken);
        for shard in ShardId::ALL {
            let taken = &self.taken;
            let tells =
                |flight: &InFlight<T>| flight.items.iter().any(|one| taken.holds(one.item.sku.activity));
            // Others in it are asked for again, under their numbers.
            if self.lanes[shard].in_flight.as_ref().is_some_and(tells) {
                self.drop_call(shard);
            }
            for _ in 0..self.lanes[shard].waiting.len() {
                let Some(waiting) = self.lanes[shard].waiting.pop_front() else { break };
                if self.taken.holds(waiting.item.sku.activity) {
                    self.leave(waiting);
                    self.lanes[shard].look_again();
                } else {
                    self.lanes[shard].waiting.push_back(waiting);
                }
            }
        }
        for (user, mark) in self.buyers.unsettled() {
            let promises = &mut self.recoveries.promises;
            if self.taken.holds(mark.sku.activity)
                && promises.insert(mark.order, Promise::Broken) != Some(Promise::Broken)
            {
                self.recoveries.broken.push((user, mark));
            }
        }
    }

    fn leave(&mut self, mut waiting: Waiting<T>) {
        if waiting.promised {
            return self.break_promise(&mut waiting);
        }
        let outcome = self.standing_outcome(&waiting).unwrap_or(Outcome::Busy);
        self.resolve_refused(&waiting.item);
        self.tell(&mut waiting, outcome);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

    use std::sync::Arc;

    use super::*;
    use crate::protocol::{OrderNumber, OrderState, SkuId, SkuKey, UserId};
    use crate::stock::calls::{CallBody, Done, Gen, ItemAnswer, ProcessNumber, Reply, SkuCounters, Snapshot};
    use crate::stock::{Board, Buyers, Purchase, Settings, Standing};

    const TAKEN: ActivityId = ActivityId(7);
    const OTHER: ActivityId = ActivityId(8);

    fn sku(activity: ActivityId) -> SkuKey {
        SkuKey { activity, sku: SkuId(1) }
    }

    fn counters(free: u32) -> Vec<SkuCounters> {
        let one =
            |activity| SkuCounters { sku: sku(activity), free, out: Vec::new(), brought_in: Vec::new() };
        vec![one(TAKEN), one(OTHER)]
    }

    fn engine() -> (Stock<u32>, Arc<Buyers>) {
        let (buyers, board) = (Arc::<Buyers>::default(), Arc::<Board>::default());
        let mut stock =
            Stock::new(Settings::default(), ProcessNumber(1), Gen(1), Arc::clone(&buyers), board, 1);
        for shard in ShardId::ALL {
            let (counters, marks) = (counters(5), Vec::new());
            stock.on_snapshot(1, &Snapshot { shard, generation: Gen(1), seq: 1, counters, marks });
            stock.on_current(shard, 1);
        }
        (stock, buyers)
    }

    fn buy(stock: &mut Stock<u32>, ticket: u32, user: u64, activity: ActivityId) -> Result<(), u32> {
        let purchase = Purchase { user: UserId(user), sku: sku(activity), quantity: 1, patience_ms: 0 };
        stock.push(1, ticket, purchase)
    }

    /// Two users of one shard.
    fn neighbours() -> (u64, u64) {
        let first = ShardId::of(UserId(1));
        (1, (2..1_000).find(|user| ShardId::of(UserId(*user)) == first).unwrap())
    }

    #[test]
    fn rule_20_who_waits_for_a_store_that_is_gone_is_busy_and_others_are_asked_for_again() {
        let (mut stock, buyers) = engine();
        let (first, second) = neighbours();
        buy(&mut stock, 1, first, TAKEN).unwrap();
        buy(&mut stock, 2, second, OTHER).unwrap();
        let sent = stock.poll_calls(1);
        assert_eq!(sent.len(), 1);
        stock.tick(100_000);
        assert!(matches!(buyers.standing(TAKEN, UserId(first)), Some(Standing::Unconfirmed(_))));
        let _ = stock.take_outcomes();
        stock.set_taken(|activity| activity == TAKEN);
        assert_eq!(buyers.standing(TAKEN, UserId(first)), None, "no shard will ever hold it");
        let call = stock.poll_calls(100_001).pop().unwrap();
        assert!(call.number > sent[0].number, "a number is never used for another body");
        let CallBody::Reserve { items, .. } = &call.body else { panic!("{call:?}") };
        assert_eq!(items.iter().map(|item| item.user).collect::<Vec<_>>(), [UserId(second)]);
        // The late reply to the first call is not listened to.
        let answers = vec![ItemAnswer::Reserved, ItemAnswer::Reserved];
        let done = Done { generation: Gen(1), seq: 2, counters: counters(4), answers };
        stock.on_reply(100_002, sent[0].shard, sent[0].number, Reply::Done(done));
        assert_eq!(buyers.standing(TAKEN, UserId(first)), None);
        assert_eq!(buy(&mut stock, 3, first, TAKEN), Err(3), "nor does anybody come to wait there");
    }

    #[test]
    fn rule_20_what_is_reserved_is_handed_on_once_and_what_became_of_it_is_told() {
        let (mut stock, buyers) = engine();
        buy(&mut stock, 1, 1, TAKEN).unwrap();
        let call = stock.poll_calls(1).pop().unwrap();
        let answers = vec![ItemAnswer::Reserved];
        let done = Done { generation: Gen(1), seq: 2, counters: counters(4), answers };
        stock.on_reply(2, call.shard, call.number, Reply::Done(done));
        stock.set_taken(|activity| activity == TAKEN);
        let broken = stock.take_broken();
        let [(user, mark)] = broken[..] else { panic!("{broken:?}") };
        assert_eq!((user, mark.state), (UserId(1), OrderState::Reserved));
        stock.set_taken(|activity| activity == TAKEN);
        assert!(stock.take_broken().is_empty(), "it is on its way");
        let failed = crate::stock::calls::Mark { state: OrderState::Failed, ..mark };
        stock.on_failed(user, failed);
        assert_eq!(stock.take_news().last(), Some(&(user, failed)));
        assert_eq!(buyers.standing(TAKEN, user), Some(Standing::Order(failed)));
        assert_ne!(mark.order, OrderNumber(0));
        stock.set_taken(|_| false);
        assert!(buy(&mut stock, 2, 2, TAKEN).is_ok(), "it was given back");
    }
}
