//! Payment notices: the payment centre's HTTP callback, and what it is answered.
//!
//! `POST /payments` with a body such as
//! `{"payment":"p-1","order":"68719476737","amount_minor":12900,"paid_at_ms":1764470000000}`. Order numbers are text:
//! they exceed what a JSON reader that computes in floating point can hold.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::verdict::{Notice, Payment, PaymentId, PaymentState, RefundCause};
use crate::protocol::OrderNumber;

/// Longest body of a notice.
pub const NOTICE_BYTES_MAX: usize = 4 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaymentBody {
    pub(super) payment: String,
    pub(super) order: String,
    pub(super) amount_minor: u64,
    pub(super) paid_at_ms: u64,
}

impl PaymentBody {
    pub(super) fn of(payment: &Payment) -> Self {
        Self {
            payment: payment.id.as_str().to_owned(),
            order: payment.order.to_string(),
            amount_minor: payment.amount_minor,
            paid_at_ms: payment.paid_at_ms,
        }
    }

    pub(super) fn read(self) -> Result<Payment, String> {
        let id = PaymentId::new(&self.payment);
        let id = id.ok_or_else(|| {
            format!("payment {:?} is not 1 to 64 letters, digits and any of -_.:", self.payment)
        })?;
        Ok(Payment {
            id,
            order: order_number(&self.order)?,
            amount_minor: self.amount_minor,
            paid_at_ms: self.paid_at_ms,
        })
    }
}

/// Decimal digits alone.
pub(super) fn order_number(text: &str) -> Result<OrderNumber, String> {
    let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    number.map(OrderNumber).ok_or_else(|| format!("order {text:?} is not an order number in decimal digits"))
}

/// The body of a notice.
pub fn notice_body(payment: &Payment) -> String {
    serde_json::to_string(&PaymentBody::of(payment)).unwrap_or_default()
}

/// The payment of a notice, or what is wrong with it.
pub fn read_notice(body: &[u8]) -> Result<Payment, String> {
    serde_json::from_slice::<PaymentBody>(body).map_err(|error| error.to_string())?.read()
}

/// What a notice is answered. A payment centre repeats it, signed anew, until the status is below 500.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Kept, for good: what has become of it, and whether it was there before.
    Kept {
        /// What has become of it.
        state: PaymentState,
        /// Whether it was told before.
        repeated: bool,
    },
    /// Its id is another payment's.
    Conflict,
    /// Not signed with a key that is in force.
    Forged,
    /// Signed too long before or after this time, in Unix milliseconds.
    Stale {
        /// The database's time.
        now_ms: u64,
    },
    /// Signed, and not a notice.
    Malformed(String),
    /// Nobody knows whether it is kept: it is to be repeated.
    Unanswered,
}

impl From<Notice> for Answer {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::Kept { state, repeated } => Self::Kept { state, repeated },
            Notice::Conflict => Self::Conflict,
            Notice::Stale { now_ms } => Self::Stale { now_ms },
        }
    }
}

impl Answer {
    /// As HTTP says it.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Kept { state: PaymentState::Parked, .. } => 202,
            Self::Kept { .. } => 200,
            Self::Malformed(_) => 400,
            Self::Forged => 401,
            Self::Conflict => 409,
            // It was held up on its way, or a clock is wrong: signed anew, it may be good.
            Self::Stale { .. } | Self::Unanswered => 503,
        }
    }

    /// As JSON says it.
    pub fn body(&self) -> Value {
        match self {
            Self::Kept { state, repeated } => {
                let (result, cause) = match state {
                    PaymentState::Parked => ("parked", None),
                    PaymentState::Applied => ("paid", None),
                    PaymentState::RefundDue(cause) => ("refund_due", Some(cause)),
                };
                match cause {
                    None => json!({ "result": result, "repeated": repeated }),
                    Some(cause) => json!({ "result": result, "cause": cause.name(), "repeated": repeated }),
                }
            }
            Self::Conflict => json!({ "error": "this payment id was told with another order or amount" }),
            Self::Forged => json!({ "error": "the signature is missing or wrong" }),
            Self::Stale { now_ms } => json!({
                "error": "signed too long ago, or in the future; sign each try anew", "now_ms": now_ms
            }),
            Self::Malformed(why) => json!({ "error": why }),
            Self::Unanswered => json!({ "error": "not kept, or not known to be kept; repeat it" }),
        }
    }

    /// Whether money is to be given back that was not known of before.
    pub const fn new_refund(&self) -> Option<RefundCause> {
        match self {
            Self::Kept { state: PaymentState::RefundDue(cause), repeated: false } => Some(*cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_notice_is_read_as_it_was_written() {
        let payment = Payment {
            id: PaymentId::new("p-1").unwrap(),
            order: OrderNumber(u64::MAX),
            amount_minor: 12_900,
            paid_at_ms: 7,
        };
        let body = notice_body(&payment);
        assert_eq!(
            body,
            r#"{"payment":"p-1","order":"18446744073709551615","amount_minor":12900,"paid_at_ms":7}"#
        );
        assert_eq!(read_notice(body.as_bytes()), Ok(payment));
    }

    #[test]
    fn what_is_no_notice_is_refused_with_the_reason() {
        let with = |payment: &str, order: &str, rest: &str| {
            format!(r#"{{"payment":"{payment}","order":{order},"amount_minor":1,"paid_at_ms":1{rest}}}"#)
        };
        for (body, says) in [
            (String::new(), "EOF"),
            ("[]".to_owned(), "invalid"),
            ("{}".to_owned(), "missing field `payment`"),
            (with("a b", "\"1\"", ""), "payment \"a b\""),
            (with("a", "1", ""), "invalid type"),
            (with("a", "\"+1\"", ""), "order \"+1\""),
            (with("a", "\"\"", ""), "order \"\""),
            (with("a", "\"18446744073709551616\"", ""), "order \"18446744073709551616\""),
            (with("a", "\"1\"", ",\"amount\":1"), "unknown field `amount`"),
            (with("a", "\"1\"", ",\"amount_minor\":1"), "duplicate field"),
            (with("a", "\"1\"", "").replace("_minor\":1", "_minor\":-1"), "invalid value"),
            (with("a", "\"1\"", "").replace("_minor\":1", "_minor\":1.5"), "invalid type"),
        ] {
            let why = read_notice(body.as_bytes()).unwrap_err();
            assert!(why.contains(says), "{body}: {why}");
        }
    }

    #[test]
    fn each_outcome_has_an_answer_of_its_own() {
        let kept = |state| Answer::Kept { state, repeated: false };
        let answers = [
            (kept(PaymentState::Applied), 200, r#"{"repeated":false,"result":"paid"}"#),
            (kept(PaymentState::Parked), 202, r#"{"repeated":false,"result":"parked"}"#),
            (
                kept(PaymentState::RefundDue(RefundCause::WrongAmount)),
                200,
                r#"{"cause":"wrong_amount","repeated":false,"result":"refund_due"}"#,
            ),
        ];
        for (answer, status, body) in answers {
            assert_eq!((answer.status(), answer.body().to_string().as_str()), (status, body));
        }
        for (answer, status) in [
            (Answer::Conflict, 409),
            (Answer::Forged, 401),
            (Answer::Stale { now_ms: 1 }, 503),
            (Answer::Malformed("x".to_owned()), 400),
            (Answer::Unanswered, 503),
        ] {
            assert_eq!(answer.status(), status);
            assert!(answer.body().get("error").is_some());
        }
    }
}
