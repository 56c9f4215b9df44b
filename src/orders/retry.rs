//! Trying again: more and more slowly, and with a log that stays readable.

use std::time::{Duration, Instant};

use crate::store::StoreError;
use crate::store::failures::{Failures, Say};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One thing that is tried until it goes well.
#[derive(Debug)]
pub(super) struct Retry {
    what: &'static str,
    failures: Failures,
    pause: Duration,
}

impl Retry {
    pub(super) fn of(what: &'static str) -> Self {
        Self { what, failures: Failures::default(), pause: FIRST_PAUSE }
    }

    /// It failed; how long to wait before the next try. Not the same for everybody, so that writers that met the same
    /// failure do not come back together.
    pub(super) fn failed(&mut self, error: &StoreError) -> Duration {
        match self.failures.failed(Instant::now()) {
            Say::Nothing => {}
            Say::First => tracing::warn!(what = self.what, %error, "does not go well; it is tried again"),
            Say::Summary(count) => {
                tracing::warn!(what = self.what, %error, count, "still does not go well; it is tried again");
            }
        }
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// It went well.
    pub(super) fn succeeded(&mut self) {
        self.pause = FIRST_PAUSE;
        if let Some(failures) = self.failures.succeeded() {
            tracing::info!(what = self.what, failures, "goes well again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_begin_anew() {
        let mut retry = Retry::of("a test");
        let error = StoreError::Unavailable("no".to_owned());
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            last = retry.failed(&error);
            assert!((FIRST_PAUSE / 2..=LONGEST_PAUSE).contains(&last), "{last:?}");
        }
        assert!(last >= LONGEST_PAUSE / 2);
        retry.succeeded();
        assert!(retry.failed(&error) <= FIRST_PAUSE);
    }
}
