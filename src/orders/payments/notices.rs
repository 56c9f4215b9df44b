//! Payment notices as they come in over HTTP: signature first, then the body, then one transaction.
//!
//! Run by the tasks of the admin port, several at once; more than a few wait for nobody and are told to come again, so
//! that a flood of them does not take the connections that settlements need. What was answered with a status below 500
//! is final. What everybody can send, or what is repeated until it goes well, is told now and then, not each time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::orders::counters::{Count, Counters};
use crate::payment::{Answer, Keys, Payment, PaymentState, RefundCause, read_notice};
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::failures::{Failures, Say};
use crate::store::payments::PaymentStore;

/// Notices under way at once.
const IN_FLIGHT_MAX: usize = 64;

/// Takes notices. Cheap to clone.
#[derive(Debug)]
pub struct Notices<S> {
    inner: Arc<Inner<S>>,
}

impl<S> Clone for Notices<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<S> {
    store: Arc<S>,
    counters: Arc<Counters>,
    keys: Keys,
    window: Duration,
    in_flight: Semaphore,
    troubles: Mutex<Troubles>,
}

/// What is told now and then.
#[derive(Debug, Default)]
struct Troubles {
    /// Anybody can send them.
    forged: Failures,
    /// While a clock is wrong, all of them, and each is repeated.
    stale: Failures,
    /// While the database is away, all of them, and each is repeated.
    unkept: Failures,
}

impl<S: PaymentStore> Notices<S> {
    pub(in crate::orders) fn new(
        store: Arc<S>,
        counters: Arc<Counters>,
        keys: Keys,
        window: Duration,
    ) -> Self {
        let in_flight = Semaphore::new(IN_FLIGHT_MAX);
        let troubles = Mutex::default();
        Self { inner: Arc::new(Inner { store, counters, keys, window, in_flight, troubles }) }
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
        if let Answer::Stale { now_ms } = answer {
            self.tell_stale(&payment, now_ms);
        } else {
            tell(&payment, &answer);
        }
        answer
    }

    async fn keep(&self, payment: &Payment, signed_at_ms: u64) -> Answer {
        let Ok(_permit) = self.inner.in_flight.try_acquire() else { return Answer::Unanswered };
        crash_point::pass("writer.before_payment");
        let taken = self.inner.store.take_payment(payment, signed_at_ms, self.inner.window).await;
        crash_point::pass("writer.after_payment");
        match taken {
            Ok(notice) => {
                let ended = self.troubles().unkept.succeeded();
                if let Some(failures) = ended {
                    tracing::info!(failures, "payments are kept again");
                }
                notice.into()
            }
            Err(error) => {
                self.tell_unkept(payment, &error);
                Answer::Unanswered
            }
        }
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.inner.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_unkept(&self, payment: &Payment, error: &StoreError) {
        let (id, order) = (payment.id.as_str(), payment.order);
        let say = self.troubles().unkept.failed(Instant::now());
        match say {
            Say::Nothing => {}
            Say::First => tracing::warn!(payment = id, %order, %error, "a payment is not kept yet"),
            Say::Summary(count) => tracing::warn!(count, %error, "payments are not kept yet"),
        }
    }

    fn tell_stale(&self, payment: &Payment, now_ms: u64) {
        let (id, order) = (payment.id.as_str(), payment.order);
        let say = self.troubles().stale.failed(Instant::now());
        match say {
            Say::Nothing => {}
            Say::First => tracing::warn!(
                payment = id, %order, now_ms, "a payment notice was signed too long ago, or in the future"
            ),
            Say::Summary(count) => tracing::warn!(
                count,
                now_ms,
                "payment notices were signed too long ago, or in the future; is a clock wrong?"
            ),
        }
    }

    fn tell_forged(&self) {
        let say = self.troubles().forged.failed(Instant::now());
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
    if *answer == Answer::Conflict {
        tracing::error!(
            payment = id, %order, amount_minor,
            "a payment id comes with another order or amount than before; it is answered 409 and changes nothing"
        );
    } else {
        tracing::debug!(payment = id, %order, amount_minor, ?answer, "a payment notice");
    }
}

pub(super) fn tell_refund(payment: &Payment, cause: RefundCause) {
    tracing::error!(
        payment = payment.id.as_str(), order = %payment.order, amount_minor = payment.amount_minor,
        cause = cause.name(), "money is to be given back"
    );
}
