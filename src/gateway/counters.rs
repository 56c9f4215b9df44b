//! What happened, counted: every reply by status, every rung of the funnel, every end of a connection.
//!
//! Written from any thread with relaxed additions, read by metrics. Counting never fails and never waits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Status;

macro_rules! counted {
    ($(#[doc = $title:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)+ }) => {
        $(#[doc = $title])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The label in metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

counted! {
    /// The rungs of the funnel, cheapest first; each counts the BUYs it turned away.
    Rung {
        /// The frame, its handshake state or its body.
        Frame = "frame",
        /// In-flight cap, expired token, drain.
        Connection = "connection",
        /// The gateway's rate.
        RateGlobal = "rate_global",
        /// The address's rate.
        RateIp = "rate_ip",
        /// The user's rate.
        RateUser = "rate_user",
        /// The user holds an order, or may hold one.
        Duplicate = "duplicate",
        /// The entry is closed.
        Switches = "switches",
        /// No such activity or SKU, over its limit, outside its window.
        Activity = "activity",
        /// Nothing left, by the board.
        Stock = "stock",
        /// The shard's queue is full.
        Queue = "queue",
        /// Not turned away: went to the stock task.
        Passed = "passed",
    }
}

counted! {
    /// Why connections ended, and what befell them.
    Ending {
        /// The client closed, or said GOAWAY.
        Client = "client",
        /// The stream could not be read on (length, version, CRC, TLVs).
        BadFrame = "bad_frame",
        /// The token was refused.
        BadToken = "bad_token",
        /// HELLO and AUTH did not come in time.
        HandshakeTimeout = "handshake_timeout",
        /// A frame did not become complete in time.
        FrameTimeout = "frame_timeout",
        /// Nothing came for too long.
        Idle = "idle",
        /// The reader took no byte for too long, or too many replies waited for it.
        SlowReader = "slow_reader",
        /// The gateway drained.
        Drained = "drained",
        /// The network said so.
        Broken = "broken",
        /// Turned away at accept: too many connections.
        Refused = "refused",
        /// Accepting failed (descriptors used up); tried again.
        AcceptFailed = "accept_failed",
    }
}

/// The counters of one gateway.
#[derive(Debug)]
pub struct Counters {
    rungs: Vec<AtomicU64>,
    endings: Vec<AtomicU64>,
    statuses: Vec<AtomicU64>,
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// `RESULT_PUSH` frames handed to a connection.
    pub pushes: AtomicU64,
    /// Calls to the store that got no reply in time and were repeated.
    pub calls_repeated: AtomicU64,
    /// Calls to the store answered.
    pub calls_answered: AtomicU64,
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    std::iter::repeat_with(AtomicU64::default).take(count).collect()
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            rungs: zeros(Rung::ALL.len()),
            endings: zeros(Ending::ALL.len()),
            statuses: zeros(PLACES),
            accepted: AtomicU64::new(0),
            pushes: AtomicU64::new(0),
            calls_repeated: AtomicU64::new(0),
            calls_answered: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// A BUY ended at this rung.
    pub fn rung(&self, rung: Rung) {
        add(self.rungs.get(rung as usize));
    }

    /// A connection ended so.
    pub fn ending(&self, ending: Ending) {
        add(self.endings.get(ending as usize));
    }

    /// A reply with this status was given.
    pub fn status(&self, status: Status) {
        add(self.statuses.get(place(status)));
    }

    /// How many BUYs ended at this rung.
    pub fn rung_count(&self, rung: Rung) -> u64 {
        read(self.rungs.get(rung as usize))
    }

    /// How many connections ended so.
    pub fn ending_count(&self, ending: Ending) -> u64 {
        read(self.endings.get(ending as usize))
    }

    /// Replies by status, those that occurred.
    pub fn status_counts(&self) -> impl Iterator<Item = (Status, u64)> {
        let counted = |status: &Status| (*status, read(self.statuses.get(place(*status))));
        Status::ALL.iter().map(counted).filter(|(_, count)| *count > 0)
    }
}

/// Room for six classes of sixteen statuses.
const PLACES: usize = 96;

/// Where a status is counted: its class and its number in the class, no search on the way of every reply.
const fn place(status: Status) -> usize {
    let code = status.code() as usize;
    (code >> 12 << 4) | (code & 0xF)
}

fn add(counter: Option<&AtomicU64>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn read(counter: Option<&AtomicU64>) -> u64 {
    counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_status_has_a_place_of_its_own() {
        let places: BTreeSet<usize> = Status::ALL.iter().map(|status| place(*status)).collect();
        assert_eq!(places.len(), Status::ALL.len());
        assert!(places.iter().all(|place| *place < PLACES));
        let counters = Counters::default();
        counters.status(Status::Unconfirmed);
        assert_eq!(counters.status_counts().collect::<Vec<_>>(), [(Status::Unconfirmed, 1)]);
    }
}
