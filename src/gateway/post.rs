//! The post of a worker: the tasks of its connections for which other threads have left something.
//!
//! Other threads put wakers in; a task of the worker takes all of them out and wakes on its own thread. So a batch of
//! outcomes wakes a sleeping worker once, not once per outcome, and when the batch is told: woken by the first, it would
//! write one answer to each of a few connections and sleep again. Nothing is lost: a connection's waker is put in after
//! its outbox was filled, it looks into its outbox whenever it is woken, and [`Round`] ends when it is dropped.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Post {
    waiting: Mutex<Vec<Waker>>,
    arrived: Notify,
}

impl Post {
    /// Something was left for this task. Its worker hears of it when the round ends.
    pub(super) fn put(self: &Arc<Self>, waker: Waker, round: &mut Round) {
        let was_empty = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(waker);
            waiting.len() == 1
        };
        // The others are taken out together with the first, whose round wakes the worker.
        if was_empty && !round.0.iter().any(|post| Arc::ptr_eq(post, self)) {
            round.0.push(Arc::clone(self));
        }
    }

    /// Wakes tasks for ever; a task of the worker itself.
    pub(super) async fn deliver(&self) {
        let mut taken = Vec::new();
        loop {
            self.arrived.notified().await;
            std::mem::swap(&mut taken, &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            taken.drain(..).for_each(Waker::wake);
        }
    }
}

/// One round of leaving things: the posts whose workers are to be woken at its end.
#[derive(Debug, Default)]
pub(super) struct Round(Vec<Arc<Post>>);

impl Round {
    /// Wakes the workers; what is left from now on is another round's.
    pub(super) fn end(&mut self) {
        for post in self.0.drain(..) {
            post.arrived.notify_one();
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.end();
    }
}
