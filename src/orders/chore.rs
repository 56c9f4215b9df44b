//! What a writer does beside settling: chores, one task each, that look for what is due and drive it until it is done.
//!
//! A chore remembers nothing that matters: what is due is in SQL or Redis, and any writer may do it, also twice. It
//! ends between two steps when a stop is asked for.

use std::future::Future;
use std::time::Duration;

use super::context::{Context, Stopping};
use super::retry::Retry;
use crate::store::StoreError;
use crate::store::watched;

/// Whether to look again at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is more to do.
    AtOnce,
    /// Nothing more, or nothing that can be done now.
    Later,
}

/// `C` is what its tasks have.
pub(super) trait Chore<C = Context>: Send + 'static {
    /// For the log: "… does not go well".
    const WHAT: &'static str;
    /// Between two looks while nothing is due.
    const INTERVAL: Duration;

    /// Does what is due, some of it at least. Whatever it left undone comes again.
    fn step(&mut self, context: &C) -> impl Future<Output = Result<Next, StoreError>> + Send;
}

/// Runs a chore until a stop is asked for. A step that panics is a step that failed: what it left undone is still due.
pub(super) async fn run<C: Stopping, K: Chore<C>>(mut chore: K, context: C) {
    let mut retry = Retry::of(K::WHAT);
    while !context.stop().is_asked() {
        let pause = match watched::answered(K::WHAT, chore.step(&context)).await {
            Ok(next) => {
                retry.succeeded();
                if next == Next::AtOnce {
                    continue;
                }
                K::INTERVAL
            }
            Err(error) => retry.failed(&error).max(K::INTERVAL),
        };
        context.stop().pause(pause).await;
    }
}
