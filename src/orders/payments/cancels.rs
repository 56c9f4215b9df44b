//! Orders that their users have cancelled: closed once they are settled, unless they were paid first.

use std::time::Duration;

use crate::orders::chore::{Chore, Next};
use crate::orders::context::Context;
use crate::orders::counters::Count;
use crate::protocol::OrderNumber;
use crate::store::StoreError;
use crate::store::crash_point;

/// Cancels in one step.
const PAGE: u32 = 256;

/// Applies them.
#[derive(Debug, Default)]
pub(in crate::orders) struct Cancels {
    /// Those of orders up to this one were looked at in this pass.
    after: Option<OrderNumber>,
}

impl Chore for Cancels {
    const WHAT: &'static str = "closing orders that their users have cancelled";
    const INTERVAL: Duration = Duration::from_millis(250);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let applied = context.sql.apply_cancels(self.after.unwrap_or(OrderNumber(0)), PAGE).await?;
        crash_point::pass("writer.after_cancels");
        context.counters.add(Count::Cancelled, applied.closed);
        self.after = applied.next;
        Ok(if applied.next.is_some() { Next::AtOnce } else { Next::Later })
    }
}
