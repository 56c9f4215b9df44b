//! A batch that is to be settled, and what its reservations become. Pure.

use std::collections::HashMap;

use super::reservations::Reservation;
use crate::protocol::{ActivityId, OrderState};
use crate::stock::calls::{Gen, Mark};

/// What is to be settled.
pub(super) struct Batch<'a> {
    pub(super) generation: Gen,
    pub(super) reservations: &'a [Reservation],
    pub(super) pay_within_ms: HashMap<ActivityId, u64>,
}

impl Batch<'_> {
    /// Whether no reservation is wrong in itself.
    pub(super) fn looks_good(&self) -> bool {
        self.reservations
            .iter()
            .all(|one| one.fault().is_none() && self.pay_within_ms.contains_key(&one.mark.sku.activity))
    }

    /// The mark of a reservation that is settled at `now_ms`.
    pub(super) fn settled(&self, one: &Reservation, now_ms: u64) -> Mark {
        let pay_within_ms = self.pay_within_ms.get(&one.mark.sku.activity).copied().unwrap_or_default();
        let pay_by_ms = now_ms.saturating_add(pay_within_ms);
        Mark { state: OrderState::PendingPayment, pay_by_ms, ..one.mark }
    }
}
