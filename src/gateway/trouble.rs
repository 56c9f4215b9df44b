//! Trouble that is tried again, told to the log without flooding it: see [`Failures`].

use std::fmt::{self, Display};
use std::time::Instant;

use crate::stock::calls::{Call, CallBody};
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

/// A call without an answer, for the log: who waits for it, and what for.
#[derive(Debug)]
pub(super) struct Unanswered<'a, E> {
    pub(super) call: &'a Call,
    pub(super) why: &'a E,
}

impl<E: Display> Display for Unanswered<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { shard, number, body, .. } = self.call;
        write!(f, "{} (call {number} to shard {}", self.why, shard.number())?;
        match body {
            CallBody::Reserve { items, .. } => {
                write!(f, ": {} purchases", items.len())?;
                if let Some(first) = items.first() {
                    let (activity, sku) = (first.sku.activity, first.sku.sku);
                    let (order, user) = (first.order, first.user);
                    write!(f, ", the first of them activity={activity} sku={sku} user={user} order={order}")?;
                }
            }
            CallBody::MoveOut { sku, target, want } => {
                let (activity, sku) = (sku.activity, sku.sku);
                write!(f, ": {want} units of activity={activity} sku={sku} for shard {}", target.number())?;
            }
        }
        write!(f, ")")
    }
}
