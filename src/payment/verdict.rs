//! Payments of orders: what a payment notice does to an order, and why an order's state changes. Pure.
//!
//! A notice that was signed is never dropped: it pays its order, waits for its order, or is money that is to be given
//! back, and in each case it has a row. What is decided here is written by `sql::mysql`, in one transaction with the
//! order that it was decided on.

use crate::protocol::{OrderNumber, OrderState};

/// Longest id of a payment.
pub const PAYMENT_ID_BYTES_MAX: usize = 64;

/// The payment centre's name of a payment: letters, digits and any of `-_.:`, at most [`PAYMENT_ID_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PaymentId(String);

impl PaymentId {
    /// `None`: it is not one.
    pub fn new(text: &str) -> Option<Self> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
        let is_one = (1..=PAYMENT_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter);
        is_one.then(|| Self(text.to_owned()))
    }

    /// As the payment centre wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Money that came in for an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Whoever sends the same id again means the same payment.
    pub id: PaymentId,
    /// What was paid for.
    pub order: OrderNumber,
    /// How much, in minor units of the shop's currency.
    pub amount_minor: u64,
    /// When, by the payment centre's clock, in Unix milliseconds. Kept, and nothing decided by it.
    pub paid_at_ms: u64,
}

/// Why money is to be given back. The numbers are SQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefundCause {
    /// The order was closed before the payment came.
    OrderClosed = 1,
    /// The order has failed.
    OrderFailed = 2,
    /// It is not what the order costs; the order still waits for its payment.
    WrongAmount = 3,
    /// Another payment has paid the order.
    PaidTwice = 4,
    /// No process can have given this order number.
    NoSuchOrder = 5,
    /// The order did not come in the time that payments wait for theirs.
    NeverSettled = 6,
}

impl RefundCause {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::OrderClosed,
        Self::OrderFailed,
        Self::WrongAmount,
        Self::PaidTwice,
        Self::NoSuchOrder,
        Self::NeverSettled,
    ];

    /// As in SQL.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| *cause as u8 == number)
    }

    /// As the payment centre is told.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OrderClosed => "order_closed",
            Self::OrderFailed => "order_failed",
            Self::WrongAmount => "wrong_amount",
            Self::PaidTwice => "paid_twice",
            Self::NoSuchOrder => "no_such_order",
            Self::NeverSettled => "never_settled",
        }
    }
}

/// What has become of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentState {
    /// It waits for its order, which is not settled yet.
    Parked,
    /// It has paid its order.
    Applied,
    /// The money is to be given back.
    RefundDue(RefundCause),
}

/// What came of a payment notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It is kept.
    Kept {
        /// What has become of it.
        state: PaymentState,
        /// Whether it was there before; nothing changed then.
        repeated: bool,
    },
    /// The id is that of another payment: of another order, or another amount. Nothing changed.
    Conflict,
    /// It was signed too long before or after this, by the database's clock, in Unix milliseconds. Nothing changed.
    Stale {
        /// The database's time.
        now_ms: u64,
    },
}

/// Why an order's state changed. The numbers are SQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// It could not be settled, or was given up in a recovery.
    NotSettled = 1,
    /// It was not paid in time, and the payment centre has closed it.
    TimedOut = 2,
    /// An operator's close, or a user's cancel.
    Asked = 3,
    /// It was paid.
    Paid = 4,
    /// It was paid after it had been closed.
    PaidLate = 5,
    /// It was recorded before, and is settled now.
    SettledLater = 6,
}

/// An order as a payment finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// Where it stands.
    pub state: OrderState,
    /// What it costs, if it waits for its payment; read of no other.
    pub amount_minor: u64,
}

/// What a payment does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// To the payment.
    pub payment: PaymentState,
    /// To the order, if anything.
    pub order: Option<(OrderState, Cause)>,
}

/// What a payment of so much does to its order; `None`: there is none yet.
pub fn judge(order: Option<Owed>, amount_minor: u64) -> Verdict {
    let refund = |cause| Verdict { payment: PaymentState::RefundDue(cause), order: None };
    let Some(order) = order else { return Verdict { payment: PaymentState::Parked, order: None } };
    match order.state {
        OrderState::Reserved | OrderState::Recorded => Verdict { payment: PaymentState::Parked, order: None },
        OrderState::PendingPayment if order.amount_minor != amount_minor => refund(RefundCause::WrongAmount),
        OrderState::PendingPayment => {
            Verdict { payment: PaymentState::Applied, order: Some((OrderState::Paid, Cause::Paid)) }
        }
        OrderState::Paid => refund(RefundCause::PaidTwice),
        OrderState::Closed => {
            let order = Some((OrderState::RefundDue, Cause::PaidLate));
            Verdict { order, ..refund(RefundCause::OrderClosed) }
        }
        OrderState::RefundDue => refund(RefundCause::OrderClosed),
        OrderState::Failed => refund(RefundCause::OrderFailed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [OrderState; 7] = [
        OrderState::Reserved,
        OrderState::PendingPayment,
        OrderState::Paid,
        OrderState::Closed,
        OrderState::Failed,
        OrderState::RefundDue,
        OrderState::Recorded,
    ];

    #[test]
    fn an_id_is_one_short_word() {
        for good in ["1", "pay_2026-11:30.7", &"x".repeat(64)] {
            assert_eq!(PaymentId::new(good).map(|id| id.as_str().to_owned()), Some(good.to_owned()));
        }
        for bad in ["", " ", "a b", "é", "a\n", "a'", &"x".repeat(65)] {
            assert_eq!(PaymentId::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_payment_moves_its_order_forward_or_not_at_all() {
        for state in STATES {
            for paid in [0, 99, 100, 101, u64::MAX] {
                let verdict = judge(Some(Owed { state, amount_minor: 100 }), paid);
                if let Some((next, _)) = verdict.order {
                    assert!(state.may_become(next), "{state:?} to {next:?}");
                }
                let is_paid = verdict.payment == PaymentState::Applied;
                assert_eq!(is_paid, state == OrderState::PendingPayment && paid == 100, "{state:?} {paid}");
                assert_eq!(is_paid, verdict.order.is_some_and(|(next, _)| next == OrderState::Paid));
            }
        }
    }

    #[test]
    fn a_payment_waits_for_its_order_and_is_given_back_after_its_close() {
        assert_eq!(judge(None, 1), Verdict { payment: PaymentState::Parked, order: None });
        let closed = judge(Some(Owed { state: OrderState::Closed, amount_minor: 100 }), 100);
        assert_eq!(closed.payment, PaymentState::RefundDue(RefundCause::OrderClosed));
        assert_eq!(closed.order, Some((OrderState::RefundDue, Cause::PaidLate)));
        // Whatever it says it paid: the order stays closed, the money goes back.
        assert_eq!(closed, judge(Some(Owed { state: OrderState::Closed, amount_minor: 100 }), 7));
    }

    #[test]
    fn states_only_move_forward() {
        for from in STATES {
            assert!(!from.may_become(from), "{from:?}");
            for to in STATES {
                assert!(!(from.may_become(to) && to.may_become(from)), "{from:?} and {to:?}");
                // Units that were given back are never the order's again.
                assert!(!(from.may_become(to) && !from.is_live() && to.is_live()), "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn causes_are_read_back_as_they_were_written() {
        for cause in RefundCause::ALL {
            assert_eq!(RefundCause::from_number(cause as u8), Some(cause));
        }
        assert_eq!((RefundCause::from_number(0), RefundCause::from_number(7)), (None, None));
    }
}
