//! Trouble that is tried again, told to the log without flooding it: see [`Failures`].

use std::fmt::Display;
use std::time::Instant;

use crate::store::failures::{Failures, Say};

/// One kind of trouble of one task.
#[derive(Debug)]
pub(super) struct Trouble {
    what: &'static str,
    failures: Failures,
}

impl Trouble {
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, failures: Failures::default() }
    }

    /// It happened (again).
    pub(super) fn happened(&mut self, error: &impl Display) {
        match self.failures.failed(Instant::now()) {
            Say::Nothing => {}
            Say::First => tracing::warn!(%error, "{}; it is tried again", self.what),
            Say::Summary(times) => tracing::warn!(%error, times, "{}; it is tried again", self.what),
        }
    }

    /// It went well.
    pub(super) fn over(&mut self) {
        if let Some(failures) = self.failures.succeeded() {
            tracing::info!(failures, "over: {}", self.what);
        }
    }
}
