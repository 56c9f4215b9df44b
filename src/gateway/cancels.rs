//! CANCEL at the store: connections hand a cancel over without waiting, one task on the caller's runtime asks the store
//! and leaves the reply with the connection.
//!
//! Only who holds an unpaid order gets so far, so there are few of them; at most so many at a time all the same, more
//! are BUSY. A store that does not answer in time is UNCONFIRMED: the cancel may be kept, and may be repeated.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::counters::Sheet;
use super::peer::Peer;
use super::post::Round;
use super::reply_parts::{busy_hint_ms, order_of};
use super::trouble::Trouble;
use crate::protocol::{Opcode, OrderState, Reply, Status, UserId};
use crate::stock::Settings;
use crate::stock::calls::Mark;
use crate::store::StoreError;
use crate::store::cancels::{CancelStore, Cancelled};
use crate::store::watched;

/// The task, for people.
const WHAT: &str = "having orders cancelled";
/// Cancels at the store at a time.
const IN_FLIGHT_MAX: usize = 16;

/// One that waits for the store.
#[derive(Debug)]
struct Cancel {
    peer: Arc<Peer>,
    request_id: u32,
    user: UserId,
    mark: Mark,
    /// Its place among those in flight.
    _place: OwnedSemaphorePermit,
}

/// What connections see of it.
#[derive(Debug)]
pub(super) struct Cancels {
    places: Arc<Semaphore>,
    /// Bounded by the places.
    asked: mpsc::UnboundedSender<Cancel>,
}

/// The task's side.
#[derive(Debug)]
pub(super) struct CancelTask {
    asked: mpsc::UnboundedReceiver<Cancel>,
    patience: Duration,
}

/// Both sides.
pub(super) fn new(settings: &Settings) -> (Cancels, CancelTask) {
    let patience = Duration::from_millis(settings.unconfirmed_after_ms);
    let (to_task, asked) = mpsc::unbounded_channel();
    let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    (Cancels { places, asked: to_task }, CancelTask { asked, patience })
}

/// What is said of an order that is not to be cancelled any more.
pub(super) fn told_of(mark: Mark) -> (Status, u32, Reply) {
    let is_over = matches!(mark.state, OrderState::Closed | OrderState::Failed);
    let status = if is_over { Status::Ok } else { Status::NotCancellable };
    (status, 0, Reply::Order(order_of(mark)))
}

impl Cancels {
    /// Has the order cancelled, and answered. `Err`: too many are asked already; when to come again.
    pub(super) fn ask(&self, peer: &Arc<Peer>, request_id: u32, user: UserId, mark: Mark) -> Result<(), u32> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| busy_hint_ms())?;
        peer.begin();
        let cancel = Cancel { peer: Arc::clone(peer), request_id, user, mark, _place: place };
        self.asked.send(cancel).map_err(|_| {
            peer.abandon();
            busy_hint_ms()
        })
    }
}

impl CancelTask {
    /// Runs until the gateway stops it.
    pub(super) async fn run<S>(mut self, sheet: Arc<Sheet>, store: Arc<S>)
    where
        S: CancelStore + Send + Sync + 'static,
    {
        let mut back_off = watched::BackOff::default();
        while watched::caught(WHAT, self.serve(&sheet, &store)).await.is_err() {
            back_off.wait(WHAT).await;
        }
    }

    async fn serve<S>(&mut self, sheet: &Sheet, store: &Arc<S>)
    where
        S: CancelStore + Send + Sync + 'static,
    {
        let mut trouble = Trouble::new("cancels cannot be kept");
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                Some(cancel) = self.asked.recv() => {
                    let (store, patience) = (Arc::clone(store), self.patience);
                    running.spawn(async move {
                        let came_of_it = watched::answered("a cancel", store.cancel(cancel.user, &cancel.mark));
                        let came_of_it = tokio::time::timeout(patience, came_of_it).await;
                        (cancel, came_of_it.unwrap_or_else(|_| Err(late(patience))))
                    });
                }
                Some(Ok((cancel, came_of_it))) = running.join_next(), if !running.is_empty() => {
                    let (status, hint_ms, reply) = told(&cancel, came_of_it, &mut trouble);
                    sheet.status(status);
                    let mut round = Round::default();
                    cancel.peer.answer(Opcode::Cancel, cancel.request_id, status, hint_ms, &reply, &mut round);
                }
                else => return,
            }
        }
    }
}

fn late(patience: Duration) -> StoreError {
    StoreError::Unavailable(format!("no answer within {} ms", patience.as_millis()))
}

fn told(
    cancel: &Cancel,
    came_of_it: Result<Cancelled, StoreError>,
    trouble: &mut Trouble,
) -> (Status, u32, Reply) {
    match came_of_it {
        Ok(cancelled) => {
            trouble.over();
            match cancelled {
                Cancelled::Kept => (Status::Cancelling, 0, Reply::Order(order_of(cancel.mark))),
                Cancelled::Stands(mark) => told_of(mark),
                Cancelled::NoOrder => (Status::NoOrder, 0, Reply::Empty),
            }
        }
        Err(error) => {
            tracing::debug!(
                user = cancel.user.0,
                order = %cancel.mark.order,
                request = cancel.request_id,
                connection = cancel.peer.id,
                %error,
                "a cancel is not known to be kept"
            );
            trouble.happened(&error);
            (Status::Unconfirmed, busy_hint_ms(), Reply::Pending { order_number: cancel.mark.order })
        }
    }
}
