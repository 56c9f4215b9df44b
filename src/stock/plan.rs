//! Planning: which call each shard gets next (rules 5, 7, 8, 10).
//!
//! Part of the engine; run by the stock task after anything changed. First every lane's waiting items are looked
//! at: those that can win go into the shard's next call, at most as many units as are free there or arriving;
//! those that cannot are refused from memory. Then shards with nothing to do give units to those that miss some.

use std::collections::HashMap as StdHashMap;

use foldhash::fast::RandomState;

use super::board::Left;
use super::calls::{BringIn, Call, CallBody, Item, ShardId};
use super::engine::Stock;
use super::lane::{InFlight, Waiting};
use super::purchase::Outcome;
use crate::protocol::SkuKey;

type HashMap<K, V> = StdHashMap<K, V, RandomState>;

/// Up to so many waiting items, new ones are looked at as soon as they come.
const SHORT_QUEUE_ITEMS: usize = 512;

/// A lane that misses no more SKUs than this is looked at for pulls in every poll.
const FEW_SKUS: usize = 64;

/// What one walk over a lane's waiting items has seen of an SKU.
struct SkuLook {
    /// Units that those before did not claim: free here, or arriving.
    here: u32,
    left: Left,
}

/// What becomes of one waiting item at one look.
enum Look {
    Send,
    Tell(Outcome),
    Wait { missing: u32 },
}

impl<T> Stock<T> {
    /// The calls to send now: new ones, and copies of those whose reply was lost.
    pub fn poll_calls(&mut self, now_ms: u64) -> Vec<Call> {
        let mut calls = Vec::new();
        if !self.may_call() {
            return calls;
        }
        for shard in ShardId::ALL {
            if let Some(flight) = self.lanes[shard].in_flight.as_mut() {
                if flight.resend_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                    flight.resend_at_ms = None;
                    flight.copies = flight.copies.saturating_add(1);
                    flight.lost_at_ms = now_ms.saturating_add(self.settings.call_timeout_ms);
                    calls.push(flight.call.clone());
                }
                self.refuse_waiting(now_ms, shard);
            } else if self.may_plan(now_ms, shard) {
                calls.extend(self.plan_reserve(now_ms, shard));
            }
        }
        self.plan_pulls(now_ms, &mut calls);
        calls
    }

    /// How often `poll_calls` and `tick` want to be called though nothing came in; milliseconds.
    pub const fn poll_interval_ms() -> u64 {
        5
    }

    /// While a call is out, those who wait behind it are still told when there is nothing left.
    fn refuse_waiting(&mut self, now_ms: u64, shard: ShardId) {
        let Some(looked_at) = self.worth_a_look(now_ms, shard) else { return };
        let mut looks = HashMap::default();
        let mut told = Vec::new();
        for (index, waiting) in self.lanes[shard].waiting.iter().enumerate().skip(looked_at) {
            if let Look::Tell(outcome) = self.look(now_ms, shard, waiting, &mut looks, false) {
                told.push((index, outcome));
            }
        }
        self.lanes[shard].looked_at_items = self.lanes[shard].waiting.len().saturating_sub(told.len());
        if told.is_empty() {
            return;
        }
        let mut told = told.into_iter().peekable();
        for index in 0..self.lanes[shard].waiting.len() {
            let Some(mut waiting) = self.lanes[shard].waiting.pop_front() else { break };
            match told.next_if(|(at, _)| *at == index) {
                Some((_, outcome)) => self.tell(&mut waiting, outcome),
                None => self.lanes[shard].waiting.push_back(waiting),
            }
        }
    }

    /// How many at the front of the queue need no look, or `None`: nobody does. All need one when what the shard has or
    /// gets has changed since the last, or so much time went by that other shards may have changed, or freshness or a
    /// pause run out; else those who came since, at once while the queue is short. What those before them claim makes
    /// no difference to whether one is told something.
    fn worth_a_look(&mut self, now_ms: u64, shard: ShardId) -> Option<usize> {
        let revision = self.view.revision(shard);
        let lane = &mut self.lanes[shard];
        let short = lane.waiting.len() <= SHORT_QUEUE_ITEMS;
        let seen = lane.looked_at.is_some_and(|(looked_at_revision, at_ms)| {
            looked_at_revision == revision && now_ms.saturating_sub(at_ms) < Self::poll_interval_ms()
        });
        if seen {
            return (lane.has_new_items && short).then(|| {
                lane.has_new_items = false;
                lane.looked_at_items
            });
        }
        lane.has_new_items = false;
        lane.looked_at = Some((revision, now_ms));
        Some(0)
    }

    fn plan_reserve(&mut self, now_ms: u64, shard: ShardId) -> Option<Call> {
        self.worth_a_look(now_ms, shard)?;
        let mut bring_in: Vec<BringIn> = Vec::new();
        let mut overdue: Vec<SkuKey> = Vec::new();
        let mut looks: HashMap<SkuKey, SkuLook> = HashMap::default();
        for (announced, units, since_ms) in self.view.arriving(shard) {
            let seen =
                looks.entry(announced.sku).or_insert_with(|| self.look_at(now_ms, shard, announced.sku));
            seen.here = seen.here.saturating_add(units);
            if now_ms.saturating_sub(since_ms) >= self.settings.orphan_wait_ms {
                overdue.push(announced.sku);
            }
            bring_in.push(announced);
        }
        let sent = self.choose(now_ms, shard, &mut looks);
        if sent.is_empty() && overdue.is_empty() {
            return None;
        }
        self.gather_again(now_ms, shard, &overdue);
        let item = |waiting: &Waiting<T>| Item { promised: waiting.promised, ..waiting.item };
        let items: Vec<Item> = sent.iter().map(item).collect();
        Some(self.launch(now_ms, shard, CallBody::Reserve { bring_in, items }, sent))
    }

    /// Takes what the next call carries out of the queue, tells those who cannot win, and notes what the others
    /// miss. Ends when the call is full.
    fn choose(
        &mut self,
        now_ms: u64,
        shard: ShardId,
        looks: &mut HashMap<SkuKey, SkuLook>,
    ) -> Vec<Waiting<T>> {
        self.lanes[shard].missing.clear();
        let mut sent: Vec<Waiting<T>> = Vec::new();
        let mut not_looked_at = self.lanes[shard].waiting.len();
        while not_looked_at > 0 && sent.len() < self.settings.batch_items_max {
            let Some(mut waiting) = self.lanes[shard].waiting.pop_front() else { break };
            not_looked_at = not_looked_at.saturating_sub(1);
            match self.look(now_ms, shard, &waiting, looks, true) {
                Look::Send => sent.push(waiting),
                Look::Tell(outcome) => self.tell(&mut waiting, outcome),
                Look::Wait { missing } => {
                    let lane = &mut self.lanes[shard];
                    if missing > 0 {
                        let sum = lane.missing.entry(waiting.item.sku).or_default();
                        *sum = sum.saturating_add(missing);
                    }
                    lane.waiting.push_back(waiting);
                }
            }
        }
        let lane = &mut self.lanes[shard];
        lane.looked_at_items = lane.waiting.len().saturating_sub(not_looked_at);
        lane.waiting.rotate_left(not_looked_at);
        sent
    }

    /// What had come for items of several units was not enough, and is brought in without them: they try again
    /// later, so that of two lanes that gather the same units one gets them all.
    fn gather_again(&mut self, now_ms: u64, shard: ShardId, overdue: &[SkuKey]) {
        let gathers = |waiting: &Waiting<T>| {
            waiting.item.quantity > 1
                && waiting.not_before_ms <= now_ms
                && overdue.contains(&waiting.item.sku)
        };
        if !self.lanes[shard].waiting.iter().any(gathers) {
            return;
        }
        for waiting in std::mem::take(&mut self.lanes[shard].waiting) {
            let still = if gathers(&waiting) { self.after_gathering(now_ms, waiting) } else { Some(waiting) };
            self.lanes[shard].waiting.extend(still);
        }
        self.lanes[shard].missing.retain(|sku, _| !overdue.contains(sku));
        self.lanes[shard].look_again();
    }

    fn look_at(&self, now_ms: u64, shard: ShardId, sku: SkuKey) -> SkuLook {
        SkuLook { here: self.view.free(sku, shard), left: self.left(sku, now_ms) }
    }

    /// `sends`: whether the shard can be called. While a call is out, whoever could be sent waits, and is asked for a
    /// standing when it is his turn.
    fn look(
        &self,
        now_ms: u64,
        shard: ShardId,
        waiting: &Waiting<T>,
        looks: &mut HashMap<SkuKey, SkuLook>,
        sends: bool,
    ) -> Look {
        let item = &waiting.item;
        let wanted = u32::from(item.quantity);
        let seen = looks.entry(item.sku).or_insert_with(|| self.look_at(now_ms, shard, item.sku));
        let ready = waiting.not_before_ms <= now_ms;
        // The duplicate rung comes before any outcome, and is not asked for those who go on waiting.
        let told = |outcome| Look::Tell(self.standing_outcome(waiting).unwrap_or(outcome));
        if waiting.in_doubt || ready && seen.here >= wanted {
            if !waiting.in_doubt && !sends {
                seen.here = seen.here.saturating_sub(wanted);
                return Look::Wait { missing: 0 };
            }
            if let Some(outcome) = self.standing_outcome(waiting) {
                return Look::Tell(outcome);
            }
            seen.here = seen.here.saturating_sub(wanted);
            return Look::Send;
        }
        match seen.left {
            Left::Exactly(0) => told(Outcome::SoldOut),
            Left::Exactly(left) if left < wanted => told(Outcome::Insufficient(left)),
            // More than one unit is gathered only if the whole view holds as many.
            _ if !ready || wanted > 1 && self.view.seen_anywhere(item.sku) < wanted => {
                Look::Wait { missing: 0 }
            }
            _ => {
                let missing = wanted.saturating_sub(seen.here);
                seen.here = seen.here.saturating_sub(wanted);
                Look::Wait { missing }
            }
        }
    }

    /// For every SKU that a lane misses, one shard that is idle and has some moves out what is missing. One pull
    /// at a time per (SKU, target).
    fn plan_pulls(&mut self, now_ms: u64, calls: &mut Vec<Call>) {
        for target in ShardId::ALL {
            let lane = &mut self.lanes[target];
            let since_ms = now_ms.saturating_sub(lane.pulls_looked_at_ms);
            if lane.missing.len() > FEW_SKUS && since_ms < Self::poll_interval_ms() {
                continue;
            }
            lane.pulls_looked_at_ms = now_ms;
            let to_be_had = |&(sku, _): &(SkuKey, u32)| self.view.free_everywhere(sku) > 0;
            let missing = self.lanes[target].missing.iter().map(|(sku, units)| (*sku, *units));
            let missing: Vec<(SkuKey, u32)> = missing.filter(to_be_had).collect();
            for (sku, units) in missing {
                if self.is_pulled(now_ms, sku, target) {
                    continue;
                }
                // Two lanes that miss units of each other would swap them for ever: the lower one takes.
                let idle = |source: &ShardId| {
                    let gives = target < *source || !self.lanes[*source].missing.contains_key(&sku);
                    *source != target && gives && self.may_plan(now_ms, *source)
                };
                let free = |source: &ShardId| self.view.free(sku, *source);
                let Some(source) = ShardId::all().filter(idle).max_by_key(free) else { continue };
                let want = units.min(free(&source));
                if want > 0 {
                    calls.push(self.launch(
                        now_ms,
                        source,
                        CallBody::MoveOut { sku, target, want },
                        Vec::new(),
                    ));
                }
            }
        }
    }

    /// Whether units are on their way that what the lane misses does not count in yet: a pull without a reply, or
    /// units that arrive while the lane cannot plan, so that it has not looked again since.
    fn is_pulled(&self, now_ms: u64, sku: SkuKey, target: ShardId) -> bool {
        let pulls = |flight: &InFlight<T>| flight.pull() == Some((sku, target));
        self.lanes.iter().any(|(_, lane)| lane.in_flight.as_ref().is_some_and(pulls))
            || !self.may_plan(now_ms, target)
                && self.view.arriving(target).any(|(announced, _, _)| announced.sku == sku)
    }

    /// Whether a shard may be called now.
    fn may_plan(&self, now_ms: u64, shard: ShardId) -> bool {
        let lane = &self.lanes[shard];
        lane.in_flight.is_none() && lane.not_before_ms <= now_ms && !self.view.needs_snapshot(shard)
    }
}
