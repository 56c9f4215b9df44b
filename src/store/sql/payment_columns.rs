//! Payments as columns, the same in both databases. Pure. `Err` says what the columns hold that cannot be.

use crate::payment::{Payment, PaymentId, PaymentState, RefundCause};
use crate::protocol::OrderNumber;

/// Numbers below are the sequence within a process (rule 17).
const SEQUENCE_BITS: u32 = 36;

/// State and cause of refund.
pub(super) const fn of_state(state: PaymentState) -> (u8, u8) {
    match state {
        PaymentState::Parked => (1, 0),
        PaymentState::Applied => (2, 0),
        PaymentState::RefundDue(cause) => (3, cause as u8),
    }
}

/// The state of these columns.
pub(super) fn state(id: &PaymentId, state: u8, cause: u8) -> Result<PaymentState, String> {
    Ok(match state {
        1 => PaymentState::Parked,
        2 => PaymentState::Applied,
        _ => PaymentState::RefundDue(refund_cause(id, cause)?),
    })
}

pub(super) fn refund_cause(id: &PaymentId, number: u8) -> Result<RefundCause, String> {
    let unknown = || format!("payment {} has the unknown cause {number}", id.as_str());
    RefundCause::from_number(number).ok_or_else(unknown)
}

/// Id, order, amount, and when it was paid.
pub(super) fn payment(
    (id, number, amount_minor, paid_at_ms): (String, u64, u64, u64),
) -> Result<Payment, String> {
    let parsed = PaymentId::new(&id);
    let id = parsed.ok_or_else(|| format!("{id:?} is the id of a payment"))?;
    Ok(Payment { id, order: OrderNumber(number), amount_minor, paid_at_ms })
}

/// Whether some process can have given this number, the newest having that one: one that was registered (rule 17).
pub(super) fn may_exist(order: OrderNumber, newest_process: u32) -> bool {
    let process = order.0.checked_shr(SEQUENCE_BITS).unwrap_or_default();
    process > 0 && process <= newest_process.into()
}
