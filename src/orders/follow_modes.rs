//! The chore that keeps what this writer knows of the switch `orders.mode` up to date; see `modes`.

use std::time::Duration;

use super::chore::{Chore, Next};
use super::context::Context;
use crate::store::StoreError;

/// Follows it.
#[derive(Debug)]
pub(super) struct FollowModes;

impl Chore for FollowModes {
    const WHAT: &'static str = "reading whether orders are settled or recorded";
    const INTERVAL: Duration = Duration::from_millis(200);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        context.modes.read(&context.sql, &context.counters).await?;
        Ok(Next::Later)
    }
}
