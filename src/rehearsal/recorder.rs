//! Counting what is answered, on many tasks at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::history::{Asked, Buys, Event, Got, SeenOrder, Tally};
use crate::client::{Answer, ClientError, Exchange};
use crate::protocol::{Opcode, Order, Reply, Status, StatusClass};

/// Recorders are picked by task number, so that tasks seldom meet at one.
const SHARES: usize = 16;
/// Ten minutes; what takes longer counts as that.
const LATENCY_MAX_US: u64 = 600_000_000;

#[derive(Debug)]
struct Share {
    tally: Tally,
    /// Answers to BUY by status.
    by_status: BTreeMap<u16, u64>,
    latency_us: Histogram<u64>,
}

/// Tallies and latencies of all tasks, and the clock that events are told by.
#[derive(Debug)]
pub(super) struct Recorder {
    shares: Vec<Mutex<Share>>,
    started_at: Instant,
    last_done_ns: AtomicU64,
    /// BUYs that the clients sent.
    buys_sent: Arc<AtomicU64>,
}

impl Recorder {
    pub(super) fn start() -> Result<Self, hdrhistogram::CreationError> {
        let share = || {
            let latency_us = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3)?;
            Ok(Mutex::new(Share { tally: Tally::default(), by_status: BTreeMap::new(), latency_us }))
        };
        let shares = (0..SHARES).map(|_| share()).collect::<Result<_, _>>()?;
        let (last_done_ns, buys_sent) = (AtomicU64::new(0), Arc::default());
        Ok(Self { shares, started_at: Instant::now(), last_done_ns, buys_sent })
    }

    /// Where clients count the BUYs that they send.
    pub(super) fn buys_sent(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.buys_sent)
    }

    /// A user has his answer.
    pub(super) fn user_done(&self) {
        self.last_done_ns.fetch_max(self.ns(Instant::now()), Ordering::Relaxed);
    }

    /// From the start to the last user's answer.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_nanos(self.last_done_ns.load(Ordering::Relaxed))
    }

    /// Counts an exchange; the event it makes.
    pub(super) fn record(&self, task: usize, exchange: &Exchange<'_>, asked: Asked) -> Event {
        let is_buy = exchange.asked == Opcode::Buy;
        self.count(task, |share| match exchange.result {
            Ok(answer) => share.count_answer(answer, is_buy),
            Err(error) if error.is_outcome_unknown() => add(&mut share.tally.lost, 1),
            Err(_) => add(&mut share.tally.errors, 1),
        });
        match exchange.result {
            Ok(answer) => Event {
                asked,
                sent_ns: self.ns(answer.sent_at),
                received_ns: self.ns(answer.received_at),
                got: got_of(answer),
            },
            Err(error) => Event {
                asked,
                sent_ns: self.ns(exchange.begun_at),
                received_ns: self.ns(Instant::now()),
                got: got_of_error(error),
            },
        }
    }

    /// Counts a `RESULT_PUSH`; the event it makes.
    pub(super) fn record_push(&self, task: usize, status: u16, order: &Order, received_at: Instant) -> Event {
        self.count(task, |share| add(&mut share.tally.pushes, 1));
        let received_ns = self.ns(received_at);
        Event {
            asked: Asked::Push,
            sent_ns: received_ns,
            received_ns,
            got: Got::Order(status, seen_order(order)),
        }
    }

    /// Counts BUYs beyond a user's first.
    pub(super) fn record_retries(&self, task: usize, retries: u64) {
        if retries > 0 {
            self.count(task, |share| add(&mut share.tally.retries, retries));
        }
    }

    /// Everything added up.
    pub(super) fn sum(&self) -> Result<(Tally, Histogram<u64>), hdrhistogram::CreationError> {
        let mut tally = Tally::default();
        let mut latency_us = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3)?;
        for share in &self.shares {
            let share = share.lock().unwrap_or_else(PoisonError::into_inner);
            tally.merge(&share.tally);
            // Same bounds on both sides: adding cannot fail.
            let _ = latency_us.add(&share.latency_us);
        }
        Ok((tally, latency_us))
    }

    /// All BUYs, whoever sent them.
    pub(super) fn buys(&self) -> Buys {
        let mut buys = Buys { sent: self.buys_sent.load(Ordering::Relaxed), ..Buys::default() };
        for share in &self.shares {
            let share = share.lock().unwrap_or_else(PoisonError::into_inner);
            for (status, count) in &share.by_status {
                add(buys.by_status.entry(*status).or_default(), *count);
            }
        }
        buys
    }

    fn count(&self, task: usize, act: impl FnOnce(&mut Share)) {
        if let Some(share) = self.shares.get(task % SHARES) {
            act(&mut share.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started_at).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Share {
    fn count_answer(&mut self, answer: &Answer, is_buy: bool) {
        let tally = &mut self.tally;
        if is_buy {
            add(&mut tally.answered, 1);
            add(self.by_status.entry(answer.status).or_default(), 1);
            let micros = answer.received_at.saturating_duration_since(answer.sent_at).as_micros();
            self.latency_us.saturating_record(u64::try_from(micros).unwrap_or(u64::MAX).max(1));
        }
        let counter = match answer.known_status() {
            Some(Status::Already) => &mut tally.already,
            Some(Status::Busy) => &mut tally.busy,
            Some(Status::RateLimited) => &mut tally.rate_limited,
            Some(Status::Insufficient) => &mut tally.insufficient,
            Some(Status::Unconfirmed) if is_buy => &mut tally.unconfirmed,
            _ if answer.class() == StatusClass::ClientFault => &mut tally.errors,
            _ => return,
        };
        add(counter, 1);
    }
}

const fn add(counter: &mut u64, more: u64) {
    *counter = counter.saturating_add(more);
}

fn got_of(answer: &Answer) -> Got {
    match &answer.reply {
        Reply::Order(order) => Got::Order(answer.status, seen_order(order)),
        _ => Got::Status(answer.status),
    }
}

const fn got_of_error(error: &ClientError) -> Got {
    if error.is_outcome_unknown() { Got::Unknown } else { Got::NotSent }
}

const fn seen_order(order: &Order) -> SeenOrder {
    SeenOrder {
        number: order.number,
        activity: order.sku.activity,
        sku: order.sku.sku,
        quantity: order.quantity,
    }
}
