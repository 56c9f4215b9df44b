//! A payment centre for drills and rehearsals: takes money for orders, tells writers, closes what they ask to close, and
//! does all of it as badly as it is told to.
//!
//! Its tasks run in the caller's runtime until the [`PayCentre`] is dropped. Buyers pay by `POST /pay` with
//! `{"order":"…","amount_minor":…}`; writers ask by `POST /close`; `GET /stats` says what has happened. One lock decides
//! whether an order was paid or closed first, as a real one has to. Notices are repeated, signed anew, until a writer
//! answers them. Nothing is kept when it ends.

mod deliver;
mod faults;
mod server;
mod till;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use faults::PayFaults;

use self::till::{Pay, Till};
use crate::payment::http::Target;
use crate::payment::{Keys, Payment};
use crate::protocol::OrderNumber;

/// A running payment centre.
#[derive(Debug)]
pub struct PayCentre {
    address: SocketAddr,
    inner: Arc<Inner>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Inner {
    keys: Keys,
    faults: PayFaults,
    till: Mutex<Till>,
    notices: mpsc::UnboundedSender<Payment>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    questions: AtomicU64,
    /// Questions that were answered with an error.
    errors: AtomicU64,
    /// Questions that were not signed well.
    refused: AtomicU64,
    told: AtomicU64,
    told_again: AtomicU64,
    /// Notices that a writer answered as final, by what it answered.
    paid: AtomicU64,
    parked: AtomicU64,
    refund_due: AtomicU64,
    forged_refused: AtomicU64,
    /// Answers that nobody should get.
    unexpected: AtomicU64,
}

impl PayCentre {
    /// Starts one on a listener, which tells the writers at these places.
    pub fn start(
        listener: TcpListener,
        keys: Keys,
        writers: Vec<Target>,
        faults: PayFaults,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let (notices, to_tell) = mpsc::unbounded_channel();
        let till = Mutex::new(Till::new(faults.seed));
        let inner = Arc::new(Inner { keys, faults, till, notices, counts: Counts::default() });
        let mut tasks = JoinSet::new();
        tasks.spawn(deliver::run(Arc::downgrade(&inner), to_tell, writers));
        tasks.spawn(server::run(listener, Arc::clone(&inner)));
        Ok(Self { address, inner, _tasks: tasks })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A buyer pays; `false`: the order is closed, and no money is taken.
    pub fn pay(&self, order: OrderNumber, amount_minor: u64) -> bool {
        self.inner.pay(order, amount_minor)
    }

    /// What has happened so far.
    pub fn stats(&self) -> serde_json::Value {
        self.inner.stats()
    }
}

impl Inner {
    fn with_till<T>(&self, act: impl FnOnce(&mut Till) -> T) -> T {
        act(&mut self.till.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn pay(&self, order: OrderNumber, amount_minor: u64) -> bool {
        match self.with_till(|till| till.pay(order, amount_minor, &self.faults, now_ms())) {
            Pay::Taken(payment) => {
                // Nobody listens only while everything ends.
                let _ = self.notices.send(payment);
                true
            }
            Pay::WasPaid => true,
            Pay::Closed => false,
        }
    }

    fn stats(&self) -> serde_json::Value {
        let (orders_paid, orders_closed, paid_late) = self.with_till(|till| till.sums());
        let Counts {
            questions,
            errors,
            refused,
            told,
            told_again,
            paid,
            parked,
            refund_due,
            forged_refused,
            unexpected,
        } = &self.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        serde_json::json!({
            "orders_paid": orders_paid, "orders_closed": orders_closed, "paid_late": paid_late,
            "questions": read(questions), "errors": read(errors), "refused": read(refused),
            "told": read(told), "told_again": read(told_again), "paid": read(paid), "parked": read(parked),
            "refund_due": read(refund_due), "forged_refused": read(forged_refused), "unexpected": read(unexpected),
        })
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Unix milliseconds by this machine's clock.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
