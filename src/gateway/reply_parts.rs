//! Parts of replies that several rungs and tasks send: an order, and when to come again. Pure, but for the jitter.

use crate::protocol::Order;
use crate::stock::calls::Mark;

/// What a client is told of a mark.
pub(super) const fn order_of(mark: Mark) -> Order {
    Order {
        number: mark.order,
        sku: mark.sku,
        quantity: mark.quantity,
        state: mark.state,
        attempt: mark.attempt,
        pay_by_ms: mark.pay_by_ms,
    }
}

/// When to come again after BUSY and its like: 100 to 200 ms.
pub(super) fn busy_hint_ms() -> u32 {
    with_jitter(100)
}

/// Up to as much again, so that those refused together do not come back together.
pub(super) fn with_jitter(retry_after_ms: u32) -> u32 {
    retry_after_ms.saturating_add(fastrand::u32(0..=retry_after_ms.min(1000)))
}
