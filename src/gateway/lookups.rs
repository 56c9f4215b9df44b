//! Lookups: RESULT for activities that are archived, whose orders are in the database alone.
//!
//! Connections hand a lookup over without waiting; one task on the caller's runtime asks the database and leaves the
//! reply with the connection. Off the way of everything that is sold: at most so many at a time and a second, over all
//! connections, so that a crowd that looks at old orders takes neither the database nor its connections from those
//! who sell; more are BUSY. A database that does not answer in time is UNCONFIRMED: there may be an order; so is a lookup
//! that breaks off, whatever ends it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::clock::Now;
use super::counters::Event;
use super::peer::Peer;
use super::post::Round;
use super::reply_parts::{busy_hint_ms, order_of, with_jitter};
use super::trouble::Trouble;
use super::{Core, Settings};
use crate::admission::limits::SharedRate;
use crate::protocol::{ActivityId, Opcode, OrderNumber, Reply, Status, UserId};
use crate::stock::calls::Mark;
use crate::store::StoreError;
use crate::store::catalog::Catalogue;
use crate::store::watched;

/// The task, for people.
const WHAT: &str = "looking up orders of archived activities";
/// A RESULT that waits for the database. However it ends, it is answered.
#[derive(Debug)]
struct Lookup {
    is_answered: bool,
    peer: Arc<Peer>,
    request_id: u32,
    user: UserId,
    activity: ActivityId,
    /// Its place among those in flight.
    _place: OwnedSemaphorePermit,
}

impl Lookup {
    fn answer(mut self, status: Status, hint_ms: u32, reply: &Reply) {
        self.is_answered = true;
        let mut round = Round::default();
        self.peer.answer(Opcode::Result, self.request_id, status, hint_ms, reply, &mut round);
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        if !self.is_answered {
            let (status, hint_ms, reply) = unknown();
            let mut round = Round::default();
            self.peer.answer(Opcode::Result, self.request_id, status, hint_ms, &reply, &mut round);
        }
    }
}

/// What connections see of it.
#[derive(Debug)]
pub(super) struct Lookups {
    keep_ms: u64,
    rate: SharedRate,
    places: Arc<Semaphore>,
    /// Bounded by the places.
    asked: mpsc::UnboundedSender<Lookup>,
}

/// The task's side.
#[derive(Debug)]
pub(super) struct LookupTask {
    asked: mpsc::UnboundedReceiver<Lookup>,
    patience: Duration,
}

/// Both sides.
pub(super) fn new(settings: &Settings) -> (Lookups, LookupTask) {
    let (to_task, asked) = mpsc::unbounded_channel();
    let lookups = Lookups {
        keep_ms: u64::try_from(settings.lookups.keep.as_millis()).unwrap_or(u64::MAX),
        rate: SharedRate::new(settings.lookups.rate),
        places: Arc::new(Semaphore::new(settings.lookups.in_flight_max.max(1))),
        asked: to_task,
    };
    (lookups, LookupTask { asked, patience: Duration::from_millis(settings.stock.unconfirmed_after_ms) })
}

impl Lookups {
    /// Whether orders of an activity that was archived then are still told.
    pub(super) const fn is_kept(&self, now: Now, archived_at_ms: u64) -> bool {
        now.sale_ms < archived_at_ms.saturating_add(self.keep_ms)
    }

    /// Has it looked up and answered. `Err`: too much is asked already; when to come again.
    pub(super) fn ask(
        &self,
        now: Now,
        peer: &Arc<Peer>,
        request_id: u32,
        user: UserId,
        activity: ActivityId,
    ) -> Result<(), u32> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| busy_hint_ms())?;
        self.rate.check(now.mono_ns).map_err(with_jitter)?;
        peer.begin();
        let peer = Arc::clone(peer);
        let lookup = Lookup { is_answered: false, peer, request_id, user, activity, _place: place };
        // One that comes too late, when the gateway ends, is answered by being dropped.
        drop(self.asked.send(lookup));
        Ok(())
    }
}

impl LookupTask {
    /// Runs until the gateway stops it.
    pub(super) async fn run<S: Catalogue>(mut self, core: Arc<Core>, store: Arc<S>) {
        let mut back_off = watched::BackOff::default();
        while watched::caught(WHAT, self.serve(&core, &store)).await.is_err() {
            back_off.wait(WHAT).await;
        }
    }

    async fn serve<S: Catalogue>(&mut self, core: &Core, store: &Arc<S>) {
        let sheet = core.counters.sheet();
        let mut trouble = Trouble::new("the database does not tell orders of archived activities");
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                Some(lookup) = self.asked.recv() => {
                    let (store, patience) = (Arc::clone(store), self.patience);
                    running.spawn(async move {
                        let found = store.order_of(lookup.user, lookup.activity);
                        let found = tokio::time::timeout(patience, found).await;
                        (lookup, found.unwrap_or_else(|_| Err(late(patience))))
                    });
                }
                Some(ended) = running.join_next(), if !running.is_empty() => {
                    sheet.event(Event::LookedUp, 1);
                    match ended {
                        Ok((lookup, found)) => {
                            let (status, hint_ms, reply) = told(&lookup, found, &mut trouble);
                            sheet.status(status);
                            lookup.answer(status, hint_ms, &reply);
                        }
                        // It was answered when it broke off.
                        Err(error) => {
                            sheet.status(Status::Unconfirmed);
                            trouble.happened(&error);
                        }
                    }
                }
                else => return,
            }
        }
    }
}

/// What is told where nobody knows.
fn unknown() -> (Status, u32, Reply) {
    (Status::Unconfirmed, busy_hint_ms(), Reply::Pending { order_number: OrderNumber(0) })
}

fn late(patience: Duration) -> StoreError {
    StoreError::Unavailable(format!("no answer within {} ms", patience.as_millis()))
}

fn told(
    lookup: &Lookup,
    found: Result<Option<Mark>, StoreError>,
    trouble: &mut Trouble,
) -> (Status, u32, Reply) {
    match found {
        Ok(found) => {
            trouble.over();
            match found {
                Some(mark) => (Status::Ok, 0, Reply::Order(order_of(mark))),
                None => (Status::NoOrder, 0, Reply::Empty),
            }
        }
        Err(error) => {
            tracing::debug!(
                user = lookup.user.0,
                activity = %lookup.activity,
                request = lookup.request_id,
                connection = lookup.peer.id,
                %error,
                "an order of an archived activity could not be looked up"
            );
            trouble.happened(&error);
            unknown()
        }
    }
}
