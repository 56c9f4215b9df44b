//! A batch that is to be settled, and what its reservations become. Pure.

use std::collections::HashMap;

use super::payments::Unparked;
use super::reservations::{Reservation, Settlement};
use crate::payment::PaymentState;
use crate::protocol::{ActivityId, OrderState};
use crate::stock::calls::{Gen, Mark};
use crate::store::orders_modes::OrdersModes;

/// What is to be settled.
pub(super) struct Batch<'a> {
    pub(super) generation: Gen,
    pub(super) reservations: &'a [Reservation],
    pub(super) pay_within_ms: HashMap<ActivityId, u64>,
    pub(super) modes: &'a OrdersModes,
}

impl Batch<'_> {
    /// Whether no reservation is wrong in itself.
    pub(super) fn looks_good(&self) -> bool {
        self.reservations
            .iter()
            .all(|one| one.fault().is_none() && self.pay_within_ms.contains_key(&one.mark.sku.activity))
    }

    /// Whether some reservation was read from an entry of an older generation than this one.
    pub(super) fn is_older_than(&self, taken: Gen) -> bool {
        self.reservations.iter().any(|one| one.entry.0 < taken)
    }

    /// The mark of a reservation that is settled at `now_ms`, or recorded.
    pub(super) fn settled(&self, one: &Reservation, now_ms: u64) -> Mark {
        if self.modes.records(one.mark.sku.activity) {
            return Mark { state: OrderState::Recorded, pay_by_ms: 0, ..one.mark };
        }
        let pay_within_ms = self.pay_within_ms.get(&one.mark.sku.activity).copied().unwrap_or_default();
        let pay_by_ms = now_ms.saturating_add(pay_within_ms);
        Mark { state: OrderState::PendingPayment, pay_by_ms, ..one.mark }
    }
}

/// Takes over that payments have paid the orders.
pub(super) fn learn(settlements: &mut [Settlement], unparked: &[Unparked]) {
    let paid =
        |order| unparked.iter().any(|one| one.payment.order == order && one.state == PaymentState::Applied);
    for settlement in settlements {
        if let Settlement::Settled(mark) | Settlement::WasSettled(mark) = settlement
            && paid(mark.order)
        {
            mark.state = OrderState::Paid;
        }
    }
}
