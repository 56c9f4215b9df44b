//! What replies, and their absence, do to the engine (rules 2, 8, 9).
//!
//! Part of the engine; run by the stock task. A reply counts only for the call in flight; whatever it says, each
//! item of the call is either told an outcome or waits again, never both and never neither.

use super::board::Left;
use super::calls::{Done, ItemAnswer, Mark, Reply, ShardId, mark_of};
use super::engine::Stock;
use super::lane::{InFlight, Waiting};
use super::purchase::Outcome;
use crate::protocol::{ActivityId, UserId};

impl<T> Stock<T> {
    /// No reply came to the copy of call `number` that is out; it is sent again. Other numbers are ignored.
    pub fn on_no_reply(&mut self, now_ms: u64, shard: ShardId, number: u64) {
        let Some(flight) = self.lanes[shard].in_flight.as_mut() else { return };
        if flight.call.number == number && flight.resend_at_ms.is_none() {
            let back_off_ms = 10_u64.saturating_mul(1 << flight.copies.min(6));
            let jitter_ms = self.random.u64(0..=back_off_ms);
            flight.resend_at_ms = Some(now_ms.saturating_add(jitter_ms));
        }
    }

    /// Takes in the reply to call `number`. Only the number in flight is listened to.
    pub fn on_reply(&mut self, now_ms: u64, shard: ShardId, number: u64, reply: Reply) {
        let in_flight = self.lanes[shard].in_flight.take_if(|flight| flight.call.number == number);
        let Some(mut flight) = in_flight else { return };
        let news = std::mem::take(&mut flight.news);
        match reply {
            Reply::Done(done) => self.on_done(now_ms, shard, flight, &done, &news),
            Reply::Gen(generation) => {
                self.raise_generation(generation);
                self.re_enter(now_ms, shard, flight.items);
            }
            Reply::Recovering => self.re_enter(now_ms, shard, flight.items),
            Reply::Stale => {
                tracing::error!(
                    process = self.process.0,
                    shard = shard.number(),
                    number,
                    "the store has seen a later call under this process's number: another process uses it. \
                     This one stops selling; restart it"
                );
                self.fenced = true;
                for mut waiting in flight.items {
                    self.tell_unconfirmed(&mut waiting);
                }
            }
        }
        self.news.extend(news);
    }

    /// The call was refused, but an earlier copy may have been executed before the shard closed or changed its
    /// generation: the items go back in front, under the same order numbers, and are asked for until it is known.
    fn re_enter(&mut self, now_ms: u64, shard: ShardId, items: Vec<Waiting<T>>) {
        let pause_ms = self.random.u64(5..=25);
        self.lanes[shard].not_before_ms = now_ms.saturating_add(pause_ms);
        self.lanes[shard].put_back_in_doubt(items);
    }

    /// `news`: what the feed has told of the items already.
    fn on_done(
        &mut self,
        now_ms: u64,
        shard: ShardId,
        flight: InFlight<T>,
        done: &Done,
        news: &[(UserId, Mark)],
    ) {
        // Under a generation that was raised meanwhile, what the feed told is forgotten.
        let mut learnt = if done.generation == self.generation { news } else { &[] }.iter().peekable();
        self.view.apply_reply(now_ms, shard, done.generation, done.seq, &done.counters);
        self.republish(done.counters.iter().map(|counters| counters.sku));
        let mut back = Vec::new();
        for (mut waiting, answer) in flight.items.into_iter().zip(&done.answers) {
            match *answer {
                ItemAnswer::Reserved => {
                    let mark = mark_of(&waiting.item);
                    self.recoveries.confirm(mark.order);
                    if waiting.ticket.is_some() {
                        // What came with the feed is at least as far along.
                        if learnt.next_if(|(_, known)| known.order == mark.order).is_none() {
                            self.buyers.learn(waiting.item.user, mark);
                        }
                        self.tell(&mut waiting, Outcome::Queued(mark));
                    } else {
                        self.learn(waiting.item.user, mark);
                    }
                }
                ItemAnswer::Already(mark) => {
                    self.learn(waiting.item.user, mark);
                    self.tell(&mut waiting, Outcome::Already(mark));
                }
                ItemAnswer::NotAgain => {
                    self.resolve_refused(&waiting.item);
                    // Where one may buy again, only the feed tells whether it was the number alone that was wrong.
                    let again = self.sells_again(waiting.item.sku.activity);
                    self.tell(&mut waiting, if again { Outcome::Busy } else { Outcome::NotAgain });
                }
                ItemAnswer::NotLoaded => {
                    self.resolve_refused(&waiting.item);
                    self.tell(&mut waiting, Outcome::Busy);
                }
                ItemAnswer::TooOften { retry_after_ms } => {
                    self.resolve_refused(&waiting.item);
                    self.tell(&mut waiting, Outcome::TooOften { retry_after_ms });
                }
                ItemAnswer::EmptyHere => self.on_empty_here(now_ms, waiting, &mut back),
            }
        }
        self.lanes[shard].put_back(back.into_iter());
    }

    fn on_empty_here(&mut self, now_ms: u64, mut waiting: Waiting<T>, back: &mut Vec<Waiting<T>>) {
        self.resolve_refused(&waiting.item);
        waiting.in_doubt = false;
        if waiting.ticket.is_none() && !waiting.promised {
            return;
        }
        if self.is_over_for(&waiting) {
            return self.tell_over(&mut waiting);
        }
        back.extend(self.after_gathering(now_ms, waiting));
    }

    /// An item did not get the units it needs. One of several units tries again after a growing pause, but not for
    /// ever: others are as quick. How many are left is told only where it is known.
    pub(super) fn after_gathering(&mut self, now_ms: u64, mut waiting: Waiting<T>) -> Option<Waiting<T>> {
        let wanted = u32::from(waiting.item.quantity);
        if wanted == 1 || waiting.in_doubt {
            return Some(waiting);
        }
        waiting.gathers = waiting.gathers.saturating_add(1);
        if waiting.gathers < self.settings.gathers_max {
            let jitter_ms = self.random.u64(0..=(5_u64 << waiting.gathers.min(8)));
            waiting.not_before_ms = now_ms.saturating_add(jitter_ms);
            return Some(waiting);
        }
        let outcome = match self.left(waiting.item.sku, now_ms) {
            Left::Exactly(0) => Outcome::SoldOut,
            Left::Exactly(left) if left < wanted => Outcome::Insufficient(left),
            // A promise is not broken before it is known that it cannot be kept.
            _ if waiting.promised => {
                waiting.gathers = 0;
                return Some(waiting);
            }
            _ => Outcome::Busy,
        };
        self.tell(&mut waiting, outcome);
        None
    }

    /// Tells BUSY and UNCONFIRMED to whom their time is up, and notices calls whose reply is overdue.
    pub fn tick(&mut self, now_ms: u64) {
        for shard in ShardId::ALL {
            self.tell_late_waiters(now_ms, shard);
            self.tell_unconfirmed_in_flight(now_ms, shard);
            let Some(flight) = &self.lanes[shard].in_flight else { continue };
            if flight.resend_at_ms.is_none() && flight.lost_at_ms <= now_ms {
                let number = flight.call.number;
                self.on_no_reply(now_ms, shard, number);
            }
        }
    }

    fn tell_unconfirmed_in_flight(&mut self, now_ms: u64, shard: ShardId) {
        let is_time = |flight: &mut InFlight<T>| flight.unconfirmed_at_ms <= now_ms;
        let Some(mut flight) = self.lanes[shard].in_flight.take_if(is_time) else { return };
        for waiting in &mut flight.items {
            if waiting.ticket.is_some() && waiting.unconfirmed_at_ms <= now_ms {
                self.tell_unconfirmed(waiting);
            }
        }
        flight.unconfirmed_at_ms = InFlight::unconfirmed_at_ms_of(&flight.items);
        self.lanes[shard].in_flight = Some(flight);
    }

    /// Forgets the orders of activities that are archived: nothing of them changes here any more.
    pub fn forget(&self, is_archived: impl Fn(ActivityId) -> bool) {
        self.buyers.forget(is_archived);
    }

    /// Whoever was never sent, or whose call certainly came to nothing, is BUSY; of the others the gateway does not
    /// know yet, and goes on asking.
    fn tell_late_waiters(&mut self, now_ms: u64, shard: ShardId) {
        if self.lanes[shard].late_at_ms > now_ms {
            return;
        }
        let is_late = |waiting: &Waiting<T>| waiting.late_at_ms() <= now_ms;
        self.lanes[shard].late_at_ms = u64::MAX;
        for _ in 0..self.lanes[shard].waiting.len() {
            let Some(mut waiting) = self.lanes[shard].waiting.pop_front() else { break };
            if is_late(&waiting) && waiting.promised && !waiting.in_doubt {
                // The shard may have got units, or may hold nothing of the activity any more.
                waiting.in_doubt = true;
                waiting.patience_until_ms = now_ms.saturating_add(self.settings.patience_ms);
            } else if is_late(&waiting) {
                let standing = self.standing_outcome(&waiting);
                if let Some(outcome) = standing.or((!waiting.in_doubt).then_some(Outcome::Busy)) {
                    self.tell(&mut waiting, outcome);
                    continue;
                }
                self.tell_unconfirmed(&mut waiting);
            }
            self.lanes[shard].put(waiting);
        }
        // What the late ones missed is no longer missed.
        self.lanes[shard].look_again();
    }
}
