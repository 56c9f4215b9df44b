//! A desk: what one stock task sells from. Its queues, the board that says what is left, and how often it looks for news.
//!
//! Plain data; owned by its stock task.

use std::sync::Arc;
use std::time::Duration;

use super::door::Door;
use crate::stock::{Board, Outcome};
use crate::store::gate::Gate;

/// How long one read of the feeds waits for news.
const FEED_WAIT: Duration = Duration::from_millis(100);
/// Between two reads while events keep coming: what they tell is of other gateways' buyers and of units that are gone, and
/// a read of many events costs the store little more than a read of one.
const FEED_LINGER: Duration = Duration::from_millis(4);
/// The same of the reserve, where each read is a query of the database that is to sell; whose order stands is decided there.
const RESERVE_LINGER: Duration = Duration::from_millis(50);
/// Between two reads of the reserve's feeds while nobody sells it: payments and time-outs of its orders.
const IDLE_LINGER: Duration = Duration::from_secs(1);

/// What is sold at a desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sells {
    /// The stock.
    Store,
    /// The reserve, beside it: nothing is ever sold out here, for there may be more where Redis is.
    Reserve,
}

#[derive(Debug)]
pub(super) struct Desk {
    pub(super) door: Arc<Door>,
    pub(super) board: Arc<Board>,
    pub(super) gate: Arc<Gate>,
    pub(super) sells: Sells,
}

impl Desk {
    /// How long to wait before the next read of the feeds, and for how long that waits for news. While the view is not
    /// fresh, being told at once that there is no news is news.
    pub(super) fn pace(&self, now_ms: u64, lag_max: Duration, events_came: bool) -> (Duration, Duration) {
        if self.sells == Sells::Reserve && !self.gate.uses_database() {
            return (IDLE_LINGER, Duration::ZERO);
        }
        if !self.board.is_fresh(now_ms) {
            return (Duration::ZERO, Duration::ZERO);
        }
        let linger = match self.sells {
            _ if !events_came => Duration::ZERO,
            Sells::Store => FEED_LINGER,
            Sells::Reserve => RESERVE_LINGER,
        };
        (linger, FEED_WAIT.min(lag_max.checked_div(4).unwrap_or_default()))
    }

    /// For the log, of calls and of feeds.
    pub(super) const fn troubles(&self) -> (&'static str, &'static str) {
        match self.sells {
            Sells::Store => {
                ("the store does not answer calls", "the store's feeds or snapshots cannot be read")
            }
            Sells::Reserve => {
                ("the reserve does not answer calls", "the reserve's feeds or snapshots cannot be read")
            }
        }
    }
}

impl Sells {
    /// What the client is told: an empty reserve is `BUSY`, never `SOLD_OUT`.
    pub(super) const fn told(self, outcome: Outcome) -> Outcome {
        match (self, outcome) {
            (Self::Reserve, Outcome::SoldOut | Outcome::Insufficient(_)) => Outcome::Busy,
            (Self::Store | Self::Reserve, outcome) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk(sells: Sells) -> Desk {
        let door = Arc::new(Door::new(1));
        Desk { door, board: Arc::default(), gate: Arc::default(), sells }
    }

    #[test]
    fn rule_19_an_empty_reserve_is_busy_and_never_sold_out() {
        for outcome in [Outcome::SoldOut, Outcome::Insufficient(3)] {
            assert_eq!(Sells::Reserve.told(outcome), Outcome::Busy);
            assert_eq!(Sells::Store.told(outcome), outcome);
        }
        assert_eq!(Sells::Reserve.told(Outcome::NotAgain), Outcome::NotAgain);
    }

    #[test]
    fn a_reserve_that_nobody_sells_is_looked_at_once_a_second() {
        let lag_max = Duration::from_millis(500);
        let (store, reserve) = (desk(Sells::Store), desk(Sells::Reserve));
        assert_eq!(store.pace(0, lag_max, false), (Duration::ZERO, Duration::ZERO));
        assert_eq!(reserve.pace(0, lag_max, true), (Duration::from_secs(1), Duration::ZERO));
        reserve.gate.set(0, 1);
        assert_eq!(reserve.pace(0, lag_max, true), (Duration::ZERO, Duration::ZERO));
        assert!(RESERVE_LINGER * 20 >= Duration::from_secs(1), "at most 20 queries a second of each gateway");
    }
}
