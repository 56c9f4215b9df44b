//! The post of a worker: the tasks of its connections for which other threads have left something.
//!
//! Other threads put wakers in; a task of the worker takes all of them out and wakes on its own thread. So a batch of
//! outcomes wakes a sleeping worker once, not once per outcome. Nothing is lost: a connection's waker is put in after
//! its outbox was filled, and it looks into its outbox whenever it is woken.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Post {
    waiting: Mutex<Vec<Waker>>,
    arrived: Notify,
}

impl Post {
    /// Something was left for this task.
    pub(super) fn put(&self, waker: Waker) {
        let was_empty = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(waker);
            waiting.len() == 1
        };
        // The others of the batch are taken out together with the first.
        if was_empty {
            self.arrived.notify_one();
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
