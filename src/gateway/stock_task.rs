//! The stock task: drives the stock engine between the door, the store and the feeds.
//!
//! One task per gateway, and one more where there is a reserve (`reserve`). It takes admitted BUYs from the door, sends the engine's calls to the store (each in a
//! task of its own, so that nothing cancels one midway), reads the feeds, answers tickets and pushes news. It
//! never decides anything about stock itself. A store that fails is asked again; the engine tells the clients.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::Core;
use super::arrival::{Arrival, Told};
use super::counters::{Event, Sheet};
use super::delivery::Delivery;
use super::desk::{Desk, Sells};
use super::door::{Admitted, Ticket};
use super::on_sale::OnSale;
use super::recoveries::Recoveries;
use super::trouble::{Trouble, Unanswered};
use crate::protocol::{ActivityState, OrderState};
use crate::stock::calls::{Call, Gen, RecoveryCall, ShardId};
use crate::stock::{Outcome, PerShard, Stock};
use crate::store::{FEED_PAGE_EVENTS, FeedRead, HandIn, ReservationStore, StoreError, crash_point, watched};

/// After a read that failed.
const FEED_BACK_OFF: Duration = Duration::from_millis(50);
/// Copies of a shard's call that may be out at a time; a store that hangs is not sent ever more.
const COPIES_MAX: u32 = 3;
/// Calls, reads and snapshots under way at a time: three copies a shard, one read, 16 snapshots; and what recoveries
/// want written.
const ARRIVALS_MAX: usize = 128;

/// What the rest of the gateway may know of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StockState {
    /// All 16 shards are known, and their feeds were read to the end since the start: the gateway may open.
    pub(super) is_known: bool,
    /// Purchases that wait or are in flight, and broken promises whose end is not written yet.
    pub(super) unfinished: usize,
    /// When the longest unanswered call was first sent; monotonic milliseconds.
    pub(super) oldest_call_ms: Option<u64>,
    /// Another process uses this one's number.
    pub(super) is_fenced: bool,
}

pub(super) struct StockTask<S> {
    core: Arc<Core>,
    desk: Desk,
    sheet: Arc<Sheet>,
    delivery: Delivery,
    store: Arc<S>,
    stock: Stock<Ticket>,
    recoveries: Recoveries<S>,
    state: watch::Sender<StockState>,
    /// The feeds were read to their end at least once.
    has_read_feeds: bool,
    /// The last read of the feeds did.
    feeds_brought_events: bool,
    copies_out: PerShard<u32>,
    /// Who has come through the door, for a moment.
    admitted: Vec<Admitted>,
    /// What was on sale at the last look, and when the next window ends (sale clock).
    on_sale: Arc<OnSale>,
    next_end_ms: u64,
    ticked_at_ms: u64,
    call_trouble: Trouble,
    feed_trouble: Trouble,
}

impl<S: ReservationStore> StockTask<S> {
    pub(super) fn new(
        core: Arc<Core>,
        desk: Desk,
        store: Arc<S>,
        stock: Stock<Ticket>,
        state: watch::Sender<StockState>,
    ) -> Self {
        let sheet = core.counters.sheet();
        let (calls, feeds) = desk.troubles();
        Self {
            on_sale: core.funnel.on_sale.load_full(),
            delivery: Delivery::new(Arc::clone(&core), Arc::clone(&sheet), desk.sells),
            desk,
            sheet,
            core,
            recoveries: Recoveries::new(Arc::clone(&store)),
            store,
            stock,
            state,
            has_read_feeds: false,
            feeds_brought_events: false,
            copies_out: PerShard::new(|_| 0),
            admitted: Vec::new(),
            next_end_ms: 0,
            ticked_at_ms: 0,
            call_trouble: Trouble::new(calls),
            feed_trouble: Trouble::new(feeds),
        }
    }

    /// Runs until the gateway stops it (by dropping the task) after everything accepted has been answered.
    pub(super) async fn run(mut self) {
        let (arrivals_in, mut arrivals) = mpsc::channel(ARRIVALS_MAX);
        let mut tick = tokio::time::interval(Duration::from_millis(Stock::<Ticket>::poll_interval_ms()));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut snapshots_asked: Vec<ShardId> = Vec::new();
        let mut reading = false;
        let store = Arc::clone(&self.store);
        let mut recovery = std::pin::pin!(store.next_recovery(Gen(0)));
        loop {
            self.ask_snapshots(&mut snapshots_asked, &arrivals_in);
            if !reading && snapshots_asked.is_empty() {
                reading = true;
                self.read_feeds(&arrivals_in);
            }
            self.send_calls(&arrivals_in);
            self.deliver();
            self.recoveries.fail(self.stock.take_broken(), &arrivals_in);
            tokio::select! {
                biased;
                call = recovery.as_mut(), if !self.recoveries.is_handing_in() => {
                    self.hand_in(&call, &arrivals_in);
                    recovery.set(store.next_recovery(call.generation));
                }
                Some(arrival) = arrivals.recv() => {
                    self.take_in_events_at_hand();
                    self.take_in(arrival, &mut snapshots_asked, &mut reading);
                    while let Ok(arrival) = arrivals.try_recv() {
                        self.take_in(arrival, &mut snapshots_asked, &mut reading);
                    }
                }
                () = self.desk.door.wake.notified() => {}
                _ = tick.tick(), if !self.stock.is_idle() => {}
            }
            self.empty_door();
            let now_ms = self.now_ms();
            // It looks at everything that waits, for times that are whole milliseconds.
            if self.ticked_at_ms != now_ms {
                self.ticked_at_ms = now_ms;
                self.stock.tick(now_ms);
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.core.clock.now().mono_ms()
    }

    /// Takes in who has come through the door. What is on sale is looked at in between: at least as new as what let
    /// them in, so that nobody is told ENDED by a door that was opened before he came, or sold to behind one that was
    /// closed while he waited at it.
    fn empty_door(&mut self) {
        let mut admitted = std::mem::take(&mut self.admitted);
        for shard in ShardId::all() {
            admitted.extend(self.desk.door.take(shard));
        }
        self.end_waiting();
        let mut refused = Vec::new();
        for Admitted { ticket, purchase, arrived_ms } in admitted.drain(..) {
            if let Err(ticket) = self.stock.push(arrived_ms, ticket, purchase) {
                refused.push((ticket, Outcome::Busy));
            }
        }
        self.admitted = admitted;
        self.delivery.deliver(refused, Vec::new());
    }

    /// Those who wait in an activity that was closed, or whose window has ended, are told so; so are those who come to
    /// wait there afterwards, who had climbed the funnel a moment before.
    fn end_waiting(&mut self) {
        let sale_ms = self.core.clock.now().sale_ms;
        let on_sale = self.core.funnel.on_sale.load();
        if Arc::ptr_eq(&self.on_sale, &on_sale) && sale_ms < self.next_end_ms {
            return;
        }
        self.on_sale = Arc::clone(&on_sale);
        self.next_end_ms = self.on_sale.next_end_ms(sale_ms);
        let known = Arc::clone(&self.on_sale);
        self.stock.set_over(move |activity| {
            let sale = known.sale(activity);
            sale.is_none_or(|sale| sale.state(sale_ms) == ActivityState::Ended)
        });
        let known = Arc::clone(&self.on_sale);
        self.stock.set_again(move |activity| known.sale(activity).map_or(0, |sale| sale.buy_again_max));
        let (taken, of_store) = (Arc::clone(&on_sale), self.desk.sells == Sells::Store);
        self.stock.set_taken(move |activity| of_store && taken.is_taken(activity));
        // Their orders are told from the database.
        self.stock.forget(|activity| on_sale.is_archived(activity));
    }

    /// A recovery asks for this gateway's marks. Nothing that it was told under an older generation counts from here.
    fn hand_in(&mut self, call: &RecoveryCall, arrivals: &mpsc::Sender<Arrival>) {
        let marks = self.stock.hand_in(call);
        tracing::warn!(
            generation = call.generation.0,
            shards = call.closed.iter().filter(|closed| **closed).count(),
            marks = marks.len(),
            "a recovery has begun; this gateway hands in the orders it knows of"
        );
        self.recoveries.hand_in(call.generation, marks, arrivals);
    }

    /// What the store says to what was handed in, or to a promise that was failed.
    fn on_recovery(&mut self, told: &Told) {
        self.recoveries.take_in(told);
        match *told {
            Told::HandedIn { generation, answer: HandIn::InTime } => {
                self.stock.on_handed_in(generation);
                self.sheet.event(Event::HandedIn, 1);
            }
            Told::HandedIn { generation, answer: HandIn::TooLate } => {
                tracing::warn!(
                    generation = generation.0,
                    "the recovery went on without this gateway's marks"
                );
            }
            Told::Failed { user, mark } => {
                self.stock.on_failed(user, mark);
                if mark.state == OrderState::Failed {
                    tracing::error!(
                        activity = %mark.sku.activity, sku = %mark.sku.sku, user = user.0, order = mark.order.0,
                        "an acknowledged order ended FAILED"
                    );
                    self.sheet.event(Event::PromiseFailed, 1);
                }
            }
            Told::NotYet(_) => {}
        }
    }

    fn take_in(&mut self, arrival: Arrival, snapshots_asked: &mut Vec<ShardId>, reading: &mut bool) {
        let now_ms = self.now_ms();
        match arrival {
            Arrival::Answered { call: Call { shard, number, .. }, reply: Ok(reply) } => {
                self.copies_out[shard] = self.copies_out[shard].saturating_sub(1);
                self.sheet.event(Event::CallAnswered, 1);
                self.call_trouble.over();
                self.stock.on_reply(now_ms, shard, number, reply);
            }
            Arrival::Answered { call, reply: Err(error) } => {
                self.copies_out[call.shard] = self.copies_out[call.shard].saturating_sub(1);
                self.call_trouble.happened(&Unanswered { call: &call, why: &error });
                self.sheet.event(Event::CallRepeated, 1);
                self.stock.on_no_reply(now_ms, call.shard, call.number);
            }
            Arrival::Snapshot { shard, snapshot } => {
                snapshots_asked.retain(|asked| *asked != shard);
                match snapshot {
                    Ok(snapshot) => self.stock.on_snapshot(now_ms, &snapshot),
                    Err(error) => self.feed_trouble.happened(&error),
                }
            }
            Arrival::Recovery(told) => self.on_recovery(&told),
            Arrival::Feeds { began_ms, reads } => {
                *reading = false;
                match reads {
                    Ok(reads) => {
                        self.feed_trouble.over();
                        self.on_feeds(now_ms, began_ms, reads);
                    }
                    Err(error) => self.feed_trouble.happened(&error),
                }
            }
        }
    }

    /// What the answers that have arrived did, where the store's feeds are in this process: known from its event, an
    /// order needs to be looked at only once, and its push goes out with its answer.
    fn take_in_events_at_hand(&mut self) {
        let now_ms = self.now_ms();
        for (shard, events) in self.store.events_at_hand(&self.stock.feed_positions()) {
            self.stock.on_events(now_ms, shard, &events);
        }
    }

    fn on_feeds(&mut self, now_ms: u64, began_ms: u64, reads: Vec<(ShardId, FeedRead)>) {
        self.feeds_brought_events = !reads.is_empty();
        let mut read_to_the_end = PerShard::new(|_| true);
        let mut is_complete = true;
        for (shard, read) in reads {
            match read {
                FeedRead::Events(events) => {
                    read_to_the_end[shard] = events.len() < FEED_PAGE_EVENTS;
                    self.stock.on_events(now_ms, shard, &events);
                }
                FeedRead::Gap => self.stock.on_gap(shard),
                FeedRead::Unread => {
                    read_to_the_end[shard] = false;
                    is_complete = false;
                }
            }
        }
        self.has_read_feeds |= is_complete;
        // What the read did not bring had not happened when it began.
        for shard in ShardId::all().filter(|shard| read_to_the_end[*shard]) {
            self.stock.on_current(shard, began_ms);
        }
    }

    fn ask_snapshots(&self, asked: &mut Vec<ShardId>, arrivals: &mpsc::Sender<Arrival>) {
        for shard in self.stock.snapshots_wanted() {
            if asked.contains(&shard) {
                continue;
            }
            asked.push(shard);
            let (store, arrivals) = (Arc::clone(&self.store), arrivals.clone());
            tokio::spawn(async move {
                let snapshot = watched::answered("reading a shard", store.snapshot(shard)).await;
                if snapshot.is_err() {
                    tokio::time::sleep(FEED_BACK_OFF).await;
                }
                // Gone only when the stock task is.
                let _ = arrivals.send(Arrival::Snapshot { shard, snapshot }).await;
            });
        }
    }

    fn read_feeds(&self, arrivals: &mpsc::Sender<Arrival>) {
        let (store, core, arrivals) = (Arc::clone(&self.store), Arc::clone(&self.core), arrivals.clone());
        let positions = self.stock.feed_positions();
        let lag_max = Duration::from_millis(self.core.settings.stock.view_lag_ms_max);
        let (linger, wait) = self.desk.pace(self.now_ms(), lag_max, self.feeds_brought_events);
        tokio::spawn(async move {
            if !linger.is_zero() {
                tokio::time::sleep(linger).await;
            }
            let began_ms = core.clock.now().mono_ms();
            let reads = watched::answered("reading the feeds", store.read_feeds(&positions, wait)).await;
            if reads.is_err() {
                tokio::time::sleep(FEED_BACK_OFF).await;
            }
            let _ = arrivals.send(Arrival::Feeds { began_ms, reads }).await;
        });
    }

    /// Sends what is ready; what the store answers together is one task's.
    fn send_calls(&mut self, arrivals: &mpsc::Sender<Arrival>) {
        let ready = self.stock.poll_calls(self.now_ms());
        if ready.is_empty() {
            return;
        }
        let sent = ready.into_iter().filter(|call| self.may_send(call)).collect();
        for calls in self.store.together(sent) {
            let (store, arrivals) = (Arc::clone(&self.store), arrivals.clone());
            tokio::spawn(async move {
                let called = async {
                    crash_point::pass("gateway.before_call");
                    let replies = store.call_together(&calls).await;
                    crash_point::pass("gateway.after_reply");
                    replies
                };
                let replies = watched::caught("a call to the store", called).await;
                let replies = replies.unwrap_or_else(|panicked| {
                    let error = StoreError::from(panicked);
                    calls.iter().map(|_| Err(error.clone())).collect()
                });
                for (call, reply) in calls.into_iter().zip(replies) {
                    let _ = arrivals.send(Arrival::Answered { call, reply }).await;
                }
            });
        }
    }

    /// Not while the store owes too many answers to earlier copies: the engine asks again.
    fn may_send(&mut self, call: &Call) -> bool {
        let copies = &mut self.copies_out[call.shard];
        if *copies > 0 {
            self.sheet.event(Event::CallRepeated, 1);
            self.call_trouble.happened(&Unanswered { call, why: &"no reply within stock.call_timeout" });
        }
        if *copies >= COPIES_MAX {
            return false;
        }
        *copies = copies.saturating_add(1);
        true
    }

    fn deliver(&mut self) {
        let outcomes = self.stock.take_outcomes();
        self.delivery.deliver(outcomes, self.stock.take_news());
        self.sheet.event(Event::OfferedAgain, self.stock.take_offered());
        for shard in ShardId::all() {
            self.desk.door.set_behind(shard, self.stock.waiting(shard));
        }
        let state = StockState {
            is_known: self.has_read_feeds && self.stock.snapshots_wanted().next().is_none(),
            unfinished: self.stock.unfinished().saturating_add(self.recoveries.unfinished()),
            oldest_call_ms: self.stock.oldest_call_ms(),
            is_fenced: self.stock.is_fenced(),
        };
        self.state.send_if_modified(|known| std::mem::replace(known, state) != state);
        if self.desk.door.told() {
            // For those who wait until nothing is unfinished.
            self.state.send_modify(|_| {});
        }
    }
}
