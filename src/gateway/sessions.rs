//! Lookups of sessions: an AUTH whose token is no JWT waits for what the store keeps of it.
//!
//! Connections hand a lookup over without waiting, one at a time each; one task on the caller's runtime asks the store,
//! a bounded number at once, and leaves what was found where the connection looks when it is woken. Nobody else waits:
//! a store that is away, or slow, or asked too much is BUSY to AUTH alone; so is a lookup that breaks off, whatever ends
//! it. What is found is not remembered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::Core;
use super::counters::Event;
use super::peer::Peer;
use super::post::Round;
use super::trouble::Trouble;
use crate::store::StoreError;
use crate::store::sessions::{SessionKey, SessionStore, StoredSession};
use crate::store::watched;

/// The task, for people.
const WHAT: &str = "looking up sessions";
/// Lookups at once, over all connections.
const IN_FLIGHT_MAX: usize = 1024;
/// For an answer. Far below the deadline of a handshake, so that a client may try again in time.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the store said.
pub(super) type Found = Result<Option<StoredSession>, StoreError>;

/// A lookup. However it ends, its connection is woken, and finds an answer or that there will be none.
#[derive(Debug)]
struct Asked {
    key: SessionKey,
    peer: Arc<Peer>,
    answer: Option<oneshot::Sender<Found>>,
    /// Its place among those in flight.
    _place: OwnedSemaphorePermit,
}

impl Asked {
    fn tell(mut self, found: Found) {
        if let Some(answer) = self.answer.take() {
            // Whose connection has gone does not hear of it.
            let _ = answer.send(found);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        drop(self.answer.take());
        self.peer.wake(&mut Round::default());
    }
}

/// What connections see of it.
#[derive(Debug)]
pub(super) struct Sessions {
    places: Arc<Semaphore>,
    /// Bounded by the places.
    asked: mpsc::UnboundedSender<Asked>,
}

/// The task's side.
#[derive(Debug)]
pub(super) struct SessionTask {
    asked: mpsc::UnboundedReceiver<Asked>,
}

/// Both sides.
pub(super) fn new() -> (Sessions, SessionTask) {
    let (to_task, asked) = mpsc::unbounded_channel();
    (Sessions { places: Arc::new(Semaphore::new(IN_FLIGHT_MAX)), asked: to_task }, SessionTask { asked })
}

impl Sessions {
    /// Has a session looked up; the connection is woken when it was. `None`: too many are.
    pub(super) fn ask(&self, peer: &Arc<Peer>, key: SessionKey) -> Option<oneshot::Receiver<Found>> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let (answer, found) = oneshot::channel();
        let answer = Some(answer);
        self.asked.send(Asked { key, peer: Arc::clone(peer), answer, _place: place }).ok()?;
        Some(found)
    }
}

impl SessionTask {
    /// Has it run until the gateway stops it.
    pub(super) fn start<S: SessionStore>(self, core: &Arc<Core>, store: &Arc<S>) -> AbortHandle {
        tokio::spawn(self.run(Arc::clone(core), Arc::clone(store))).abort_handle()
    }

    async fn run<S: SessionStore>(mut self, core: Arc<Core>, store: Arc<S>) {
        let mut back_off = watched::BackOff::default();
        while watched::caught(WHAT, self.serve(&core, &store)).await.is_err() {
            back_off.wait(WHAT).await;
        }
    }

    async fn serve<S: SessionStore>(&mut self, core: &Core, store: &Arc<S>) {
        let sheet = core.counters.sheet();
        let mut trouble = Trouble::new("sessions cannot be looked up; AUTH with one is told BUSY");
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                Some(asked) = self.asked.recv() => {
                    let store = Arc::clone(store);
                    running.spawn(async move {
                        let found = tokio::time::timeout(PATIENCE, store.session(&asked.key)).await;
                        (asked, found.unwrap_or_else(|_| Err(late())))
                    });
                }
                Some(ended) = running.join_next(), if !running.is_empty() => {
                    sheet.event(Event::SessionLookedUp, 1);
                    let (asked, found) = match ended {
                        Ok(ended) => ended,
                        // Its connection was told when it broke off.
                        Err(error) => {
                            sheet.event(Event::SessionUnanswered, 1);
                            trouble.happened(&error);
                            continue;
                        }
                    };
                    match &found {
                        Ok(_) => trouble.over(),
                        // Of one session alone.
                        Err(StoreError::Corrupt(_)) => {}
                        Err(error) => {
                            sheet.event(Event::SessionUnanswered, 1);
                            trouble.happened(error);
                        }
                    }
                    asked.tell(found);
                }
                else => return,
            }
        }
    }
}

fn late() -> StoreError {
    StoreError::Unavailable(format!("no answer within {} ms", PATIENCE.as_millis()))
}
