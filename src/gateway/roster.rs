//! The roster: a worker's connections, and when each has to be looked at for what is overdue.
//!
//! Written by the connections of one worker when a deadline comes nearer, read by its sweep, which wakes those that
//! are due; each then judges for itself and enters its next deadline. So a connection needs no timer of its own, and
//! one that speaks in time writes nothing here. Deadlines are met to within one sweep. The lock is held for one
//! entry, or for one walk over them; nobody is woken under it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;

use super::peer::Peer;

/// How often a worker looks for what is due.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_millis(25);

/// Nothing is due.
pub(super) const NEVER_MS: u64 = u64::MAX;

#[derive(Debug)]
struct Entry {
    peer: Arc<Peer>,
    /// Monotonic milliseconds.
    due_ms: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Roster {
    entries: Mutex<Slab<Entry>>,
}

impl Roster {
    /// A new connection; the place that it has until it leaves.
    pub(super) fn enter(&self, peer: Arc<Peer>, due_ms: u64) -> usize {
        self.entries().insert(Entry { peer, due_ms })
    }

    /// The connection ends.
    pub(super) fn leave(&self, place: usize) {
        self.entries().try_remove(place);
    }

    /// Looks at the connection at this time.
    pub(super) fn set_due(&self, place: usize, due_ms: u64) {
        if let Some(entry) = self.entries().get_mut(place) {
            entry.due_ms = due_ms;
        }
    }

    /// Wakes the connections that are due, once each.
    pub(super) fn wake_due(&self, now_ms: u64) {
        let mut due = Vec::new();
        for (_, entry) in self.entries().iter_mut() {
            if entry.due_ms <= now_ms {
                entry.due_ms = NEVER_MS;
                due.push(Arc::clone(&entry.peer));
            }
        }
        for peer in &due {
            peer.ring();
        }
    }

    /// Whether nobody is here.
    pub(super) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Wakes everybody.
    pub(super) fn wake_all(&self) {
        let all: Vec<Arc<Peer>> = self.entries().iter().map(|(_, entry)| Arc::clone(&entry.peer)).collect();
        for peer in &all {
            peer.ring();
        }
    }

    fn entries(&self) -> MutexGuard<'_, Slab<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
