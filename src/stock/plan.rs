//! Planning: which call each shard gets next (rules 5, 7, 8, 10).
//!
//! Part of the engine; run by the stock task after anything changed. First every lane's waiting items are looked
//! at: those that can win go into the shard's next call, at most as many units as are free there or arriving;
//! those that cannot are refused from memory. Then shards with nothing to do give units to those that miss some.

use std::collections::HashMap;

use super::board::Left;
use super::calls::{BringIn, Call, CallBody, Item, ShardId};
use super::engine::Stock;
use super::lane::{InFlight, Waiting};
use super::purchase::Outcome;
use crate::protocol::SkuKey;

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
        if !self.is_worth_a_look(now_ms, shard) {
            return;
        }
        let waiting = std::mem::take(&mut self.lanes[shard].waiting);
        for mut waiting in waiting {
            match self.look(now_ms, shard, &waiting, &mut HashMap::new()) {
                Look::Tell(outcome) => self.tell(&mut waiting, outcome),
                Look::Send | Look::Wait { .. } => self.lanes[shard].waiting.push_back(waiting),
            }
        }
    }

    /// Whether the view changed since the lane was last looked at. Freshness and jitter run out by themselves, so
    /// that a look is worth repeating after a short time all the same.
    fn is_worth_a_look(&mut self, now_ms: u64, shard: ShardId) -> bool {
        let lane = &mut self.lanes[shard];
        let seen = lane.looked_at.is_some_and(|(revision, at_ms)| {
            revision == self.view_revision && now_ms.saturating_sub(at_ms) < Self::poll_interval_ms()
        });
        if !seen {
            lane.looked_at = Some((self.view_revision, now_ms));
        }
        !seen
    }

    fn plan_reserve(&mut self, now_ms: u64, shard: ShardId) -> Option<Call> {
        let has_new_items = std::mem::take(&mut self.lanes[shard].has_new_items);
        if !self.is_worth_a_look(now_ms, shard) && !has_new_items {
            return None;
        }
        let mut bring_in: Vec<BringIn> = Vec::new();
        let mut overdue: Vec<SkuKey> = Vec::new();
        let mut arriving: HashMap<SkuKey, u32> = HashMap::new();
        for (announced, units, since_ms) in self.view.arriving(shard) {
            let sum = arriving.entry(announced.sku).or_default();
            *sum = sum.saturating_add(units);
            if now_ms.saturating_sub(since_ms) >= self.settings.orphan_wait_ms {
                overdue.push(announced.sku);
            }
            bring_in.push(announced);
        }
        let mut budget: HashMap<SkuKey, u32> = HashMap::new();
        for (sku, units) in arriving {
            budget.insert(sku, self.view.free(sku, shard).saturating_add(units));
        }
        self.lanes[shard].missing.clear();
        let waiting = std::mem::take(&mut self.lanes[shard].waiting);
        let mut sent: Vec<Waiting<T>> = Vec::new();
        for mut waiting in waiting {
            match self.look(now_ms, shard, &waiting, &mut budget) {
                Look::Send if sent.len() < self.settings.batch_items_max => sent.push(waiting),
                Look::Send => self.lanes[shard].waiting.push_back(waiting),
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
        if sent.is_empty() && overdue.is_empty() {
            return None;
        }
        self.gather_again(now_ms, shard, &overdue);
        let items: Vec<Item> = sent.iter().map(|waiting| waiting.item).collect();
        Some(self.launch(now_ms, shard, CallBody::Reserve { bring_in, items }, sent))
    }

    /// What had come for items of several units was not enough, and is brought in without them: they try again
    /// later, so that of two lanes that gather the same units one gets them all.
    fn gather_again(&mut self, now_ms: u64, shard: ShardId, overdue: &[SkuKey]) {
        let gathers = |waiting: &Waiting<T>| {
            waiting.item.quantity > 1 && waiting.not_before_ms <= now_ms && overdue.contains(&waiting.item.sku)
        };
        if !self.lanes[shard].waiting.iter().any(gathers) {
            return;
        }
        for waiting in std::mem::take(&mut self.lanes[shard].waiting) {
            let still = if gathers(&waiting) { self.after_gathering(now_ms, waiting) } else { Some(waiting) };
            self.lanes[shard].waiting.extend(still);
        }
        self.lanes[shard].missing.retain(|sku, _| !overdue.contains(sku));
        self.lanes[shard].has_new_items = true;
    }

    fn look(
        &self,
        now_ms: u64,
        shard: ShardId,
        waiting: &Waiting<T>,
        budget: &mut HashMap<SkuKey, u32>,
    ) -> Look {
        let item = &waiting.item;
        if let Some(outcome) = self.standing_outcome(waiting) {
            return Look::Tell(outcome);
        }
        let wanted = u32::from(item.quantity);
        let here = budget.entry(item.sku).or_insert_with(|| self.view.free(item.sku, shard));
        if waiting.in_doubt || *here >= wanted && waiting.not_before_ms <= now_ms {
            *here = here.saturating_sub(wanted);
            return Look::Send;
        }
        match self.left(item.sku, now_ms) {
            Left::Exactly(0) => Look::Tell(Outcome::SoldOut),
            Left::Exactly(left) if left < wanted => Look::Tell(Outcome::Insufficient(left)),
            // More than one unit is gathered only if the whole view holds as many.
            _ if waiting.not_before_ms > now_ms
                || wanted > 1 && self.view.seen_anywhere(item.sku) < wanted =>
            {
                Look::Wait { missing: 0 }
            }
            _ => {
                let missing = wanted.saturating_sub(*here);
                *here = here.saturating_sub(wanted);
                Look::Wait { missing }
            }
        }
    }

    /// For every SKU that a lane misses, one shard that is idle and has some moves out what is missing. One pull
    /// at a time per (SKU, target).
    fn plan_pulls(&mut self, now_ms: u64, calls: &mut Vec<Call>) {
        for target in ShardId::ALL {
            let missing: Vec<(SkuKey, u32)> =
                self.lanes[target].missing.iter().map(|(sku, units)| (*sku, *units)).collect();
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
