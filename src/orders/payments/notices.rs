//! Payment notices as they come in over HTTP: signature first, then the body, then one transaction.
//!
//! Run by the tasks of the admin port, several at once; more than a few wait for nobody and are told to come again, so
//! that a flood of them does not take the connections that settlements need. What was answered with a status below 500
//! is final.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::orders::counters::{Count, Counters};
use crate::payment::{Answer, Keys, Payment, PaymentState, RefundCause, read_notice};
use crate::store::crash_point;
use crate::store::failures::{Failures, Say};
use crate::store::sql::mysql::MySqlInstallation;

/// Notices under way at once.
const IN_FLIGHT_MAX: usize = 64;

/// Takes notices. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notices {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sql: MySqlInstallation,
    counters: Arc<Counters>,
    keys: Keys,
    window: Duration,
    in_flight: Semaphore,
    /// Forged ones are told now and then: anybody can send them.
    forged: Mutex<Failures>,
}

impl Notices {
    pub(in crate::orders) fn new(
        sql: MySqlInstallation,
        counters: Arc<Counters>,
        keys: Keys,
        window: Duration,
    ) -> Self {
        let in_flight = Semaphore::new(IN_FLIGHT_MAX);
        let forged = Mutex::default();
        Self { inner: Arc::new(Inner { sql, counters, keys, window, in_flight, forged }) }
    }

    /// Takes one, with its headers as they came.
    pub async fn take(&self, timestamp: Option<&str>, signature: Option<&str>, body: &[u8]) -> Answer {
        let Inner { counters, keys, .. } = &*self.inner;
        let Some(signed_at_ms) = keys.verify(timestamp, signature, body) else {
            counters.add(Count::NoticesForged, 1);
            self.tell_forged();
            return Answer::Forged;
        };
        let payment = match read_notice(body) {
            Ok(payment) => payment,
            Err(why) => {
                counters.add(Count::NoticesMalformed, 1);
                tracing::error!(why, "a signed payment notice is not understood; it is answered 400");
                return Answer::Malformed(why);
            }
        };
        let answer = self.keep(&payment, signed_at_ms).await;
        counters.add(count(&answer), 1);
        match answer.new_refund() {
            Some(RefundCause::WrongAmount) => counters.add(Count::NoticesWrongAmount, 1),
            Some(RefundCause::NoSuchOrder) => counters.add(Count::NoticesUnknownOrder, 1),
            _ => {}
        }
        tell(&payment, &answer);
        answer
    }

    async fn keep(&self, payment: &Payment, signed_at_ms: u64) -> Answer {
        let Ok(_permit) = self.inner.in_flight.try_acquire() else { return Answer::Unanswered };
        crash_point::pass("writer.before_payment");
        let taken = self.inner.sql.take_payment(payment, signed_at_ms, self.inner.window).await;
        crash_point::pass("writer.after_payment");
        match taken {
            Ok(notice) => notice.into(),
            Err(error) => {
                tracing::warn!(payment = payment.id.as_str(), order = %payment.order, %error, "a payment is not kept yet");
                Answer::Unanswered
            }
        }
    }

    fn tell_forged(&self) {
        let say = self.inner.forged.lock().unwrap_or_else(PoisonError::into_inner).failed(Instant::now());
        match say {
            Say::Nothing => {}
            Say::First => tracing::warn!("a payment notice is not signed with a key that is in force"),
            Say::Summary(count) => {
                tracing::warn!(count, "payment notices are not signed with a key that is in force");
            }
        }
    }
}

const fn count(answer: &Answer) -> Count {
    match answer {
        Answer::Kept { repeated: true, .. } => Count::NoticesRepeated,
        Answer::Kept { state: PaymentState::Applied, .. } => Count::NoticesPaid,
        Answer::Kept { state: PaymentState::Parked, .. } => Count::NoticesParked,
        Answer::Kept { state: PaymentState::RefundDue(_), .. } => Count::NoticesRefundDue,
        Answer::Conflict => Count::NoticesConflicting,
        Answer::Stale { .. } => Count::NoticesStale,
        Answer::Forged => Count::NoticesForged,
        Answer::Malformed(_) => Count::NoticesMalformed,
        Answer::Unanswered => Count::NoticesUnanswered,
    }
}

fn tell(payment: &Payment, answer: &Answer) {
    let (id, order, amount_minor) = (payment.id.as_str(), payment.order, payment.amount_minor);
    if let Some(cause) = answer.new_refund() {
        tell_refund(payment, cause);
        return;
    }
    match answer {
        Answer::Conflict => tracing::error!(
            payment = id, %order, amount_minor,
            "a payment id comes with another order or amount than before; it is answered 409 and changes nothing"
        ),
        Answer::Stale { now_ms } => tracing::warn!(
            payment = id, %order, now_ms, "a payment notice was signed too long ago, or in the future"
        ),
        _ => tracing::debug!(payment = id, %order, amount_minor, ?answer, "a payment notice"),
    }
}

pub(super) fn tell_refund(payment: &Payment, cause: RefundCause) {
    tracing::error!(
        payment = payment.id.as_str(), order = %payment.order, amount_minor = payment.amount_minor,
        cause = cause.name(), "money is to be given back"
    );
}
