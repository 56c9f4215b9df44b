//! The engine: one gateway process's side of the stock protocol (rules 5 to 10).
//!
//! Synchronous and without I/O: the stock task feeds it requests, replies, feed events and the time, and takes
//! calls and outcomes from it; a model test does the same with losses and delays. It never waits, never reads a
//! clock, and never says `SOLD_OUT` unless the whole view, still and fresh, says so. A call whose reply is lost is
//! given out again under its number until the store has answered it.

use std::sync::Arc;

use super::again::Again;
use super::board::{Board, Left};
use super::buyers::{Buyers, Standing};
use super::calls::{
    Call, CallBody, Change, Event, Gen, Item, Mark, ProcessNumber, SHARDS, ShardId, Snapshot,
};
use super::lane::{InFlight, Lane, Waiting};
use super::order_numbers::OrderNumbers;
use super::over::Over;
use super::per_shard::PerShard;
use super::promises::Recoveries;
use super::purchase::{Outcome, Purchase, Settings};
use super::view::{Applied, View};
use crate::protocol::{SkuKey, UserId};

/// One process's engine. `T` is whatever the caller needs to deliver an [`Outcome`].
#[derive(Debug)]
pub struct Stock<T> {
    pub(super) settings: Settings,
    pub(super) process: ProcessNumber,
    pub(super) generation: Gen,
    order_numbers: OrderNumbers,
    pub(super) view: View,
    pub(super) lanes: PerShard<Lane<T>>,
    pub(super) buyers: Arc<Buyers>,
    board: Arc<Board>,
    outcomes: Vec<(T, Outcome)>,
    pub(super) news: Vec<(UserId, Mark)>,
    pub(super) recoveries: Recoveries,
    pub(super) over: Over,
    pub(super) again: Again,
    /// Activities that this store sells no more.
    pub(super) taken: Over,
    /// Another process uses this one's number: nothing is called any more.
    pub(super) fenced: bool,
    pub(super) random: fastrand::Rng,
}

impl<T> Stock<T> {
    /// The engine of a process that has registered and called nothing yet.
    pub fn new(
        settings: Settings,
        process: ProcessNumber,
        generation: Gen,
        buyers: Arc<Buyers>,
        board: Arc<Board>,
        seed: u64,
    ) -> Self {
        Self {
            settings,
            process,
            generation,
            order_numbers: OrderNumbers::new(process),
            view: View::new(generation),
            lanes: PerShard::new(|_| Lane::new()),
            buyers,
            board,
            outcomes: Vec::new(),
            news: Vec::new(),
            recoveries: Recoveries::new(),
            over: Over::default(),
            again: Again::default(),
            taken: Over::default(),
            fenced: false,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The same, giving its orders the numbers of a reserve: no engine of the process's other store gives them.
    #[must_use]
    pub fn of_reserve(self) -> Self {
        Self { order_numbers: OrderNumbers::of_reserve(self.process), ..self }
    }

    /// Takes in a purchase that passed the funnel. Gives the ticket back when its shard's queue is full or the
    /// process is fenced: the client is told BUSY. Whoever comes when his activity is over has his outcome at once.
    pub fn push(&mut self, now_ms: u64, ticket: T, purchase: Purchase) -> Result<(), T> {
        let shard = ShardId::of(purchase.user);
        let is_full = self.lanes[shard].waiting.len() >= self.settings.queue_items_max;
        if self.fenced || is_full || self.taken.holds(purchase.sku.activity) {
            return Err(ticket);
        }
        let Some(order) = self.order_numbers.next() else { return Err(ticket) };
        let patience_ms = match u64::from(purchase.patience_ms) {
            0 => self.settings.patience_ms,
            asked => self.settings.patience_ms.min(asked),
        };
        let item = Item {
            user: purchase.user,
            sku: purchase.sku,
            order,
            quantity: purchase.quantity.max(1),
            attempt: self.attempt_of(purchase.sku.activity, purchase.user),
            promised: false,
        };
        let mut waiting = Waiting {
            ticket: Some(ticket),
            item,
            in_doubt: false,
            promised: false,
            patience_until_ms: now_ms.saturating_add(patience_ms),
            unconfirmed_at_ms: now_ms.saturating_add(self.settings.unconfirmed_after_ms),
            gathers: 0,
            not_before_ms: 0,
        };
        if self.is_over_for(&waiting) {
            self.tell_over(&mut waiting);
        } else {
            self.lanes[shard].put(waiting);
        }
        Ok(())
    }

    /// Items that wait or are in flight.
    pub fn unfinished(&self) -> usize {
        let count = |lane: &Lane<T>| {
            lane.waiting.len().saturating_add(lane.in_flight.as_ref().map_or(0, |flight| flight.items.len()))
        };
        self.lanes.iter().map(|(_, lane)| count(lane)).fold(0, usize::saturating_add)
    }

    /// Items that wait for a shard's next call.
    pub fn waiting(&self, shard: ShardId) -> usize {
        self.lanes[shard].waiting.len()
    }

    /// When the longest unanswered call was first sent.
    pub fn oldest_call_ms(&self) -> Option<u64> {
        let sent = |lane: &Lane<T>| lane.in_flight.as_ref().map(|flight| flight.first_sent_ms);
        self.lanes.iter().filter_map(|(_, lane)| sent(lane)).min()
    }

    /// Whether nothing waits, is in flight or is on its way between shards: time alone changes nothing then.
    pub fn is_idle(&self) -> bool {
        self.unfinished() == 0 && ShardId::all().all(|target| self.view.arriving(target).next().is_none())
    }

    /// Whether another process was seen to use this one's number.
    pub const fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Outcomes since the last time, each ticket once.
    pub fn take_outcomes(&mut self) -> Vec<(T, Outcome)> {
        std::mem::take(&mut self.outcomes)
    }

    /// Marks that came to be or moved on, learnt since the last time: what `RESULT_PUSH` tells. Nothing of an order
    /// whose ticket has not been told yet; to be taken after the outcomes.
    pub fn take_news(&mut self) -> Vec<(UserId, Mark)> {
        std::mem::take(&mut self.news)
    }

    /// Shards whose snapshot is missing.
    pub fn snapshots_wanted(&self) -> impl Iterator<Item = ShardId> {
        ShardId::all().filter(|shard| self.view.needs_snapshot(*shard))
    }

    /// Where to read the feeds on.
    pub fn feed_positions(&self) -> [(Gen, u64); SHARDS] {
        ShardId::ALL.map(|shard| self.view.position(shard))
    }

    /// Takes in a snapshot.
    pub fn on_snapshot(&mut self, now_ms: u64, snapshot: &Snapshot) {
        self.raise_generation(snapshot.generation);
        if !self.view.apply_snapshot(now_ms, snapshot) {
            return;
        }
        self.learn_snapshot(now_ms, snapshot);
        let caught_up = self.view.take_caught_up(snapshot.shard);
        let told = snapshot.counters.iter().map(|counters| counters.sku);
        self.republish(told.chain(caught_up));
    }

    /// Takes in events of a shard's feed, in their order; a gap asks for a snapshot.
    pub fn on_events(&mut self, now_ms: u64, shard: ShardId, events: &[Event]) {
        for event in events {
            match self.view.apply_event(now_ms, shard, event) {
                Applied::Old => continue,
                Applied::Gap => {
                    self.raise_generation(event.generation);
                    self.on_gap(shard);
                    break;
                }
                Applied::Next => {}
            }
            if let Change::Marked(marks) = &event.change {
                for (user, mark) in marks {
                    self.learn(*user, *mark);
                }
            }
        }
        let told = events.iter().flat_map(|event| &event.counters).map(|counters| counters.sku);
        let mut touched: Vec<SkuKey> = told.chain(self.view.take_caught_up(shard)).collect();
        touched.sort_unstable();
        touched.dedup();
        self.republish(touched.into_iter());
    }

    /// The shard's feed no longer reaches back to the position asked for.
    pub fn on_gap(&mut self, shard: ShardId) {
        self.view.lose(shard);
        self.republish(std::iter::empty());
    }

    /// A read of the shard's feed that began at `at_ms` found its end.
    pub fn on_current(&mut self, shard: ShardId, at_ms: u64) {
        self.view.current(shard, at_ms);
        self.board.set_fresh_until(self.fresh_until_ms());
    }

    fn fresh_until_ms(&self) -> u64 {
        match self.view.current_since_ms() {
            0 => 0,
            since_ms => since_ms.saturating_add(self.settings.view_lag_ms_max),
        }
    }

    /// How many units are left, as far as it may be said at `now_ms`.
    pub(super) fn left(&self, sku: SkuKey, now_ms: u64) -> Left {
        if now_ms > self.fresh_until_ms() { Left::Unknown } else { self.view.left(sku) }
    }

    /// Sends the lane's next call: it becomes the one in flight.
    pub(super) fn launch(
        &mut self,
        now_ms: u64,
        shard: ShardId,
        body: CallBody,
        items: Vec<Waiting<T>>,
    ) -> Call {
        let lane = &mut self.lanes[shard];
        lane.last_number = lane.last_number.saturating_add(1);
        let call = Call {
            process: self.process,
            generation: self.generation,
            shard,
            number: lane.last_number,
            body,
        };
        lane.in_flight = Some(InFlight {
            call: call.clone(),
            orders: InFlight::orders_of(&items),
            found_at: 0,
            unconfirmed_at_ms: InFlight::unconfirmed_at_ms_of(&items),
            items,
            news: Vec::new(),
            resend_at_ms: None,
            copies: 1,
            first_sent_ms: now_ms,
            lost_at_ms: now_ms.saturating_add(self.settings.call_timeout_ms),
        });
        call
    }

    pub(super) const fn may_call(&self) -> bool {
        !self.fenced
    }

    pub(super) fn tell(&mut self, waiting: &mut Waiting<T>, outcome: Outcome) {
        if waiting.promised && outcome.is_refusal() {
            return self.break_promise(waiting);
        }
        if let Some(ticket) = waiting.ticket.take() {
            self.outcomes.push((ticket, outcome));
        }
    }

    pub(super) fn tell_unconfirmed(&mut self, waiting: &mut Waiting<T>) {
        let item = waiting.item;
        self.buyers.doubt(item.sku.activity, item.user, item.order);
        self.tell(waiting, Outcome::Unconfirmed(item.order));
    }

    pub(super) fn resolve_refused(&self, item: &Item) {
        self.buyers.resolve_refused(item.sku.activity, item.user, item.order);
    }

    pub(super) fn learn(&mut self, user: UserId, mark: Mark) {
        self.recoveries.confirm(mark.order);
        if !self.buyers.learn(user, mark) {
            return;
        }
        // Who waits for the reply is told of his order by the reply first.
        if let Some(flight) = &mut self.lanes[ShardId::of(user)].in_flight
            && flight.owes_a_word(mark.order)
        {
            flight.news.push((user, mark));
        } else {
            self.news.push((user, mark));
        }
    }

    pub(super) fn republish(&mut self, skus: impl Iterator<Item = SkuKey>) {
        let fresh_until_ms = self.fresh_until_ms();
        if fresh_until_ms == 0 {
            self.board.set_fresh_until(0);
        }
        for sku in skus {
            let (left, free_seen) = self.view.settle(sku);
            self.board.slot(sku).publish(left, free_seen);
        }
        self.board.set_fresh_until(fresh_until_ms);
    }

    /// Rule 10: what a waiter would be told if he came in anew.
    pub(super) fn standing_outcome(&self, waiting: &Waiting<T>) -> Option<Outcome> {
        let item = &waiting.item;
        match self.buyers.standing(item.sku.activity, item.user)? {
            // Only this process says that there is one.
            Standing::Order(mark) if mark.order == item.order && self.recoveries.is_open(item.order) => None,
            Standing::Order(mark) if mark.order == item.order => Some(Outcome::Queued(mark)),
            Standing::Order(mark) if mark.state.is_live() => Some(Outcome::Already(mark)),
            Standing::Order(mark) => match self.attempt_after(&mark) {
                None => Some(Outcome::NotAgain),
                Some(attempt) if attempt == item.attempt => None,
                // He came before it was known what he had bought. His next BUY has the right number.
                Some(_) => Some(Outcome::Busy),
            },
            // Its own fate, or the other's, is learnt by asking again.
            Standing::Unconfirmed(_) if waiting.in_doubt => None,
            Standing::Unconfirmed(order) => Some(Outcome::Unconfirmed(order)),
        }
    }
}
