//! The sale clock of gateways that share a store: the store's time, not this machine's.
//!
//! One task per gateway. Five times a second it asks the store for the time and compares it with the monotonic clock
//! half-way between question and answer; of the last answers the quickest counts, since half of its round trip is the
//! most it can be wrong by. Between answers, and while the store is away, the sale clock runs on by the monotonic
//! clock. It never moves back (see `clock`), and a gateway does not open before the first answers are there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::Core;
use super::trouble::Trouble;
use crate::store::{ReservationStore, StoreError, watched};

const INTERVAL: Duration = Duration::from_millis(200);
/// Answers before the gateway opens.
const FIRST_ANSWERS: usize = 4;
/// Answers remembered: those of the last two seconds, in which two clocks part by less than a millisecond.
const ANSWERS_MAX: usize = 10;

/// One answer: what the store's clock said at the gateway's start, and how long asking took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    base_ns: u64,
    round_trip_ns: u64,
}

/// The last answers.
#[derive(Debug, Default)]
pub(super) struct SaleClock {
    answers: VecDeque<Answer>,
}

impl SaleClock {
    /// Asks for the first answers and then goes on in a task; `None` where the wall clock is the sale clock.
    pub(super) async fn start<S: ReservationStore>(
        mut self,
        core: Arc<Core>,
        store: Arc<S>,
    ) -> Result<Option<AbortHandle>, StoreError> {
        for _ in 0..FIRST_ANSWERS {
            if !self.ask(&core, store.as_ref()).await? {
                return Ok(None);
            }
        }
        Ok(Some(tokio::spawn(async move { self.follow(&core, store.as_ref()).await }).abort_handle()))
    }

    async fn follow<S: ReservationStore>(mut self, core: &Core, store: &S) {
        let mut trouble = Trouble::new("the store does not tell the time; the sale clock runs on by itself");
        loop {
            tokio::time::sleep(INTERVAL).await;
            match watched::answered("the sale clock", self.ask(core, store)).await {
                Ok(_) => trouble.over(),
                Err(error) => trouble.happened(&error),
            }
        }
    }

    /// False where the store has no time of its own.
    async fn ask<S: ReservationStore>(&mut self, core: &Core, store: &S) -> Result<bool, StoreError> {
        let asked_ns = core.clock.mono_ns();
        let Some(time) = store.sale_time().await? else { return Ok(false) };
        let answered_ns = core.clock.mono_ns();
        let unix_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        core.clock.follow_store(self.learn(asked_ns, answered_ns, unix_ns));
        Ok(true)
    }

    /// The store's time at the gateway's start, by the quickest of the last answers.
    fn learn(&mut self, asked_ns: u64, answered_ns: u64, unix_ns: u64) -> u64 {
        let round_trip_ns = answered_ns.saturating_sub(asked_ns);
        let half_way_ns = asked_ns.saturating_add(round_trip_ns / 2);
        let answer = Answer { base_ns: unix_ns.saturating_sub(half_way_ns), round_trip_ns };
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.pop_front();
        }
        self.answers.push_back(answer);
        let quickest = self.answers.iter().min_by_key(|answer| answer.round_trip_ns);
        quickest.map_or(answer.base_ns, |answer| answer.base_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const BASE_NS: u64 = 1_800_000_000_000 * MS;

    #[test]
    fn a_slow_answer_moves_the_clock_by_nothing_while_a_quick_one_is_remembered() {
        let mut clock = SaleClock::default();
        // 2 ms to ask, half of it on the way there.
        assert_eq!(clock.learn(10 * MS, 12 * MS, BASE_NS + 11 * MS), BASE_NS);
        // 400 ms, all of it on the way there: taken for itself it would be 200 ms off.
        assert_eq!(clock.learn(100 * MS, 500 * MS, BASE_NS + 500 * MS), BASE_NS);
        // A quicker one is believed at once.
        assert_eq!(clock.learn(600 * MS, 601 * MS, BASE_NS + 601 * MS), BASE_NS + MS / 2);
        for nth in 0..ANSWERS_MAX as u64 {
            let at = (700 + 200 * nth) * MS;
            clock.learn(at, at + 4 * MS, BASE_NS + at + 2 * MS);
        }
        let later = 4_000 * MS;
        assert_eq!(
            clock.learn(later, later + 4 * MS, BASE_NS + later + 2 * MS),
            BASE_NS,
            "and forgotten in time"
        );
    }
}
