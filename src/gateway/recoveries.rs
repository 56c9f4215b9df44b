//! What recoveries want written: the marks handed in, and the end of broken promises.
//!
//! Driven by the stock task, each write in a task of its own that tries again until the store has answered or the
//! stock task is gone. Nothing is decided here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::arrival::{Arrival, Told};
use super::trouble::Trouble;
use crate::protocol::UserId;
use crate::stock::calls::{Gen, Mark};
use crate::store::{ReservationStore, StoreError, crash_point, watched};

/// After a write that failed. A recovery does not wait long for those who are silent.
const BACK_OFF: Duration = Duration::from_millis(50);
/// Promises whose end is being written at a time.
const FAILS_MAX: usize = 8;

/// See the module.
pub(super) struct Recoveries<S> {
    store: Arc<S>,
    handing_in: bool,
    /// Broken, and their end is not being written yet.
    broken: VecDeque<(UserId, Mark)>,
    failing: usize,
    trouble: Trouble,
}

impl<S: ReservationStore> Recoveries<S> {
    pub(super) fn new(store: Arc<S>) -> Self {
        Self {
            store,
            handing_in: false,
            broken: VecDeque::new(),
            failing: 0,
            trouble: Trouble::new("the store does not take what a recovery wants written"),
        }
    }

    /// Broken promises whose end is not written yet.
    pub(super) fn unfinished(&self) -> usize {
        self.broken.len().saturating_add(self.failing)
    }

    /// Whether a hand-in has no answer yet. The next recovery waits for it: whether this process took part in the last
    /// one decides what it may hand in.
    pub(super) const fn is_handing_in(&self) -> bool {
        self.handing_in
    }

    /// Hands in.
    pub(super) fn hand_in(
        &mut self,
        generation: Gen,
        marks: Vec<(UserId, Mark)>,
        arrivals: &mpsc::Sender<Arrival>,
    ) {
        let (store, arrivals) = (Arc::clone(&self.store), arrivals.clone());
        self.handing_in = true;
        tokio::spawn(async move {
            crash_point::pass("gateway.before_hand_in");
            let told = loop {
                match watched::answered("handing in", store.hand_in(generation, &marks)).await {
                    Ok(answer) => {
                        crash_point::pass("gateway.after_hand_in");
                        break Told::HandedIn { generation, answer };
                    }
                    Err(error) => {
                        if !is_told(&arrivals, error).await {
                            return;
                        }
                    }
                }
            };
            let _ = arrivals.send(Arrival::Recovery(told)).await;
        });
    }

    /// Writes the end of these promises, too.
    pub(super) fn fail(&mut self, broken: Vec<(UserId, Mark)>, arrivals: &mpsc::Sender<Arrival>) {
        self.broken.extend(broken);
        while self.failing < FAILS_MAX {
            let Some((user, mark)) = self.broken.pop_front() else { break };
            self.failing = self.failing.saturating_add(1);
            let (store, arrivals) = (Arc::clone(&self.store), arrivals.clone());
            tokio::spawn(async move {
                let told = loop {
                    match watched::answered("failing an order", store.fail(user, &mark)).await {
                        Ok(mark) => break Told::Failed { user, mark },
                        Err(error) => {
                            if !is_told(&arrivals, error).await {
                                return;
                            }
                        }
                    }
                };
                let _ = arrivals.send(Arrival::Recovery(told)).await;
            });
        }
    }

    /// Takes note of what became of a write.
    pub(super) fn take_in(&mut self, told: &Told) {
        match told {
            Told::NotYet(error) => self.trouble.happened(error),
            Told::HandedIn { .. } => {
                self.handing_in = false;
                self.trouble.over();
            }
            Told::Failed { .. } => {
                self.failing = self.failing.saturating_sub(1);
                self.trouble.over();
            }
        }
    }
}

/// Tells the stock task that a write failed, and waits a little; false when it is gone.
async fn is_told(arrivals: &mpsc::Sender<Arrival>, error: StoreError) -> bool {
    let is_there = arrivals.send(Arrival::Recovery(Told::NotYet(error))).await.is_ok();
    if is_there {
        tokio::time::sleep(BACK_OFF).await;
    }
    is_there
}
