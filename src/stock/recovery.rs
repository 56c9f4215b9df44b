//! What a recovery does to the engine (rules 11.3, 11.4 and 12): the hand-in, the start anew under the new
//! generation, and the promises that a rebuilt shard does not hold any more.
//!
//! Part of the engine; run by the stock task. Whoever tells of a newer generation (a reply, a feed, a snapshot, the
//! recovery's call) ends all open calls first: their numbers are in flight no longer, so that no reply of the older
//! generation is listened to once the first mark was copied. Nothing is forgotten by that. A shard's marks are those
//! of its next snapshot; what is missing there and was made by this process is offered again under its number, and
//! what is refused then is the caller's to fail, explicitly.

use std::collections::{HashMap, HashSet};

use super::calls::{Gen, Item, Mark, RecoveryCall, SHARDS, ShardId, Snapshot, mark_of};
use super::engine::Stock;
use super::lane::Waiting;
use super::order_numbers::process_of;
use super::per_shard::PerShard;
use super::promises::Promise;
use crate::protocol::{OrderNumber, OrderState, UserId};

fn per_shard<V: Copy>(values: &[V; SHARDS], absent: V) -> PerShard<V> {
    PerShard::new(|shard| values.get(shard.index()).copied().unwrap_or(absent))
}

impl<T> Stock<T> {
    /// Takes part in a recovery: the marks to hand in, those of its closed shards. From now on nothing that was told
    /// under an older generation counts. Marks that may have been written off by a rebuild which this process missed
    /// are left out; they are offered again when the shard is open.
    pub fn hand_in(&mut self, call: &RecoveryCall) -> Vec<(UserId, Mark)> {
        if call.generation < self.generation {
            return Vec::new();
        }
        self.raise_generation(call.generation);
        let (closed, rebuilt) = (per_shard(&call.closed, false), per_shard(&call.rebuilt, Gen(0)));
        let recoveries = &self.recoveries;
        let takes_part = PerShard::new(|shard| closed[shard] && recoveries.marks_of[shard] >= rebuilt[shard]);
        let is_the_stores = |user, mark: &Mark| {
            // What came further was in SQL first, which the leader reads as well.
            takes_part[ShardId::of(user)]
                && mark.state == OrderState::Reserved
                && !recoveries.promises.contains_key(&mark.order)
        };
        let marks = self.buyers.marks(is_the_stores);
        self.recoveries.handed_in = (call.generation, takes_part);
        marks
    }

    /// What was handed in under this generation was in time.
    pub fn on_handed_in(&mut self, generation: Gen) {
        let recoveries = &mut self.recoveries;
        if recoveries.handed_in.0 != generation {
            return;
        }
        for (shard, marks_of) in recoveries.marks_of.iter_mut() {
            if recoveries.handed_in.1[shard] {
                *marks_of = generation.max(*marks_of);
            }
        }
    }

    /// Promises refused since the last time: each is to be failed, and its end told by
    /// [`on_failed`](Self::on_failed).
    pub fn take_broken(&mut self) -> Vec<(UserId, Mark)> {
        std::mem::take(&mut self.recoveries.broken)
    }

    /// How many promises were offered again since the last time.
    pub const fn take_offered(&mut self) -> u64 {
        std::mem::replace(&mut self.recoveries.offered, 0)
    }

    /// A broken promise has its end: FAILED, or what was settled after all.
    pub fn on_failed(&mut self, user: UserId, mark: Mark) {
        self.buyers.end(user, mark);
        self.news.push((user, mark));
    }

    /// Starts anew under a newer generation. Marks stay known until their shard tells of its own.
    pub(super) fn raise_generation(&mut self, generation: Gen) {
        self.generation = self.generation.max(generation);
        if !self.view.raise_generation(generation) {
            return;
        }
        for shard in ShardId::ALL {
            self.recoveries.anew[shard] = true;
            self.drop_call(shard);
        }
        let skus = self.view.skus();
        self.republish(skus.into_iter());
    }

    /// Whatever the shard does with the call, or has done: its reply is not listened to any more.
    pub(super) fn drop_call(&mut self, shard: ShardId) {
        let lane = &mut self.lanes[shard];
        let Some(mut flight) = lane.in_flight.take() else { return };
        // Whoever still waits is told of his order when it is known under the new generation.
        let news = std::mem::take(&mut flight.news);
        self.news.extend(news.into_iter().filter(|(_, mark)| !flight.owes_a_word(mark.order)));
        lane.put_back_in_doubt(flight.items);
    }

    pub(super) fn learn_snapshot(&mut self, now_ms: u64, snapshot: &Snapshot) {
        let shard = snapshot.shard;
        self.recoveries.marks_of[shard] = snapshot.generation;
        if !std::mem::take(&mut self.recoveries.anew[shard]) {
            for (user, mark) in &snapshot.marks {
                self.learn(*user, *mark);
            }
            return;
        }
        let (process, recoveries) = (self.process, &self.recoveries);
        let is_kept = |mark: &Mark| {
            process_of(mark.order) == Some(process)
                && (mark.state == OrderState::Reserved || recoveries.promises.contains_key(&mark.order))
        };
        let anew = self.buyers.start_anew(shard, &snapshot.marks, is_kept);
        for (_, mark) in &snapshot.marks {
            self.recoveries.confirm(mark.order);
        }
        self.offer_again(now_ms, shard, &anew.missing);
        // Whoever waits here is told of his order at the next look.
        let waits = |waiting: &&Waiting<T>| waiting.ticket.is_some();
        let owed: HashSet<OrderNumber> =
            self.lanes[shard].waiting.iter().filter(waits).map(|waiting| waiting.item.order).collect();
        self.news.extend(anew.news.into_iter().filter(|(_, mark)| !owed.contains(&mark.order)));
    }

    /// Rule 11.4: what this process has made and a rebuilt shard does not hold is asked for once more, ahead of those
    /// who wait. Some of it may still wait for an answer anyway.
    fn offer_again(&mut self, now_ms: u64, shard: ShardId, missing: &[(UserId, Mark)]) {
        if missing.is_empty() {
            return;
        }
        let mut lost: HashMap<OrderNumber, (UserId, Mark)> = HashMap::new();
        for (user, mark) in missing {
            if self.recoveries.promises.get(&mark.order) != Some(&Promise::Broken) {
                self.recoveries.promises.insert(mark.order, Promise::Open);
                lost.insert(mark.order, (*user, *mark));
            }
        }
        self.recoveries.offered = self.recoveries.offered.saturating_add(lost.len() as u64);
        let lane = &mut self.lanes[shard];
        // Who was patient may be told UNCONFIRMED earlier now.
        lane.late_at_ms = 0;
        for waiting in &mut lane.waiting {
            if lost.remove(&waiting.item.order).is_some() {
                waiting.promised = true;
                waiting.in_doubt = true;
            }
        }
        let missing = missing.iter().filter(|(_, mark)| lost.contains_key(&mark.order));
        let patience_until_ms = now_ms.saturating_add(self.settings.patience_ms);
        let offered: Vec<Waiting<T>> = missing
            .map(|(user, mark)| Waiting {
                ticket: None,
                item: item_of(*user, mark),
                in_doubt: true,
                promised: true,
                patience_until_ms,
                unconfirmed_at_ms: u64::MAX,
                gathers: 0,
                not_before_ms: 0,
            })
            .collect();
        self.lanes[shard].put_back_in_doubt(offered);
    }

    /// The store does not take it back. Its user hears of the end when it is written.
    pub(super) fn break_promise(&mut self, waiting: &mut Waiting<T>) {
        waiting.promised = false;
        let mark = mark_of(&waiting.item);
        self.recoveries.promises.insert(mark.order, Promise::Broken);
        self.recoveries.broken.push((waiting.item.user, mark));
        self.tell_unconfirmed(waiting);
    }
}

const fn item_of(user: UserId, mark: &Mark) -> Item {
    let Mark { order, sku, quantity, attempt, .. } = *mark;
    Item { user, sku, order, quantity, attempt, promised: true }
}
