//! What the life of an order after its settlement asks of a database: payments that come in, orders that are overdue.
//!
//! Both databases do the same: each method is one transaction that may be repeated, the database's clock decides what is
//! overdue, and a unit goes back for sale in the transaction that closes its order, or is owed by it.

use std::future::Future;
use std::time::Duration;

use super::StoreError;
use crate::payment::{Notice, Payment, PaymentState, RefundCause};
use crate::protocol::{OrderNumber, SkuKey, UserId};
use crate::stock::calls::Mark;

/// The delay between two askings is not doubled more often than that.
pub(super) const DOUBLINGS_MAX: u32 = 16;

/// How overdue orders are taken.
#[derive(Clone, Copy, Debug)]
pub struct Overdue {
    /// At most so many at once.
    pub limit: u32,
    /// How long the first asking may take; doubled with each.
    pub first_delay: Duration,
    /// The longest time between two askings.
    pub longest_delay: Duration,
}

impl Overdue {
    /// The longest delay and the first one in milliseconds. Not all who were taken together come back together.
    pub(super) fn delays_ms(&self) -> (u64, u64) {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> DOUBLINGS_MAX);
        let first = ms(self.first_delay).max(1);
        let first = first.saturating_add(fastrand::u64(0..=first.checked_div(4).unwrap_or_default()));
        (ms(self.longest_delay), first)
    }
}

/// What was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The database's time, in Unix milliseconds.
    pub now_ms: u64,
    /// The longest due first.
    pub orders: Vec<OverdueOrder>,
}

/// An order to ask the payment centre about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverdueOrder {
    /// Which.
    pub order: OrderNumber,
    /// For how long it has been overdue.
    pub overdue_ms: u64,
    /// How long it waited for its turn.
    pub waited_ms: u64,
}

/// What came of closing orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closings {
    /// How many were closed.
    pub closed: u64,
    /// Those that wait for their payment and could not be closed. They come again.
    pub left_open: Vec<LeftOpen>,
}

/// An order that cannot be closed until somebody mends what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOpen {
    /// Whose.
    pub user: UserId,
    /// Which.
    pub order: OrderNumber,
    /// What it holds units of.
    pub sku: SkuKey,
    /// What is wrong.
    pub reason: String,
}

/// A payment that was parked and is no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unparked {
    /// Which.
    pub payment: Payment,
    /// What has become of it.
    pub state: PaymentState,
}

/// A payment that cannot be judged, and stays parked until somebody mends what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The id of the payment.
    pub payment: String,
    /// What was paid for.
    pub order: OrderNumber,
    /// What is wrong.
    pub reason: String,
}

/// What came of looking at a page of parked payments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Those that are parked no longer.
    pub unparked: Vec<Unparked>,
    /// Those that cannot be judged.
    pub stuck: Vec<Stuck>,
    /// Where to go on; `None`: that was the last page.
    pub next: Option<ParkedPlace>,
}

/// A place among the parked payments: behind this payment of this order. By default before all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkedPlace {
    /// The order.
    pub order: u64,
    /// The payment's id: an order may have many.
    pub payment: String,
}

/// Money that is to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// The payment.
    pub payment: Payment,
    /// Why.
    pub cause: RefundCause,
    /// Since when, in Unix milliseconds.
    pub since_ms: u64,
}

/// See the module.
pub trait PaymentStore: Send + Sync + 'static {
    /// Takes a payment: once, however often it is told. `signed_at_ms` has to be within the window around the
    /// database's time.
    fn take_payment(
        &self,
        payment: &Payment,
        signed_at_ms: u64,
        window: Duration,
    ) -> impl Future<Output = Result<Notice, StoreError>> + Send;

    /// Takes a payment that the payment centre itself answered with: no window.
    fn take_answered_payment(
        &self,
        payment: &Payment,
    ) -> impl Future<Output = Result<Notice, StoreError>> + Send;

    /// Judges payments again that are parked though their order is there, or for longer than this; from a place on.
    fn judge_parked(
        &self,
        park_for: Duration,
        after: &ParkedPlace,
        limit: u32,
    ) -> impl Future<Output = Result<Judged, StoreError>> + Send;

    /// Takes orders whose turn it is, the longest due first; nobody else is given them before the delay is over.
    fn take_overdue(&self, how: Overdue) -> impl Future<Output = Result<Taken, StoreError>> + Send;

    /// Closes those of these orders that still wait for their payment: one transaction for their states, their units
    /// and their ledger rows. And the longest time from a pay-by to when the units were for sale again; `None` where they
    /// are not yet, and whoever gives them back will know.
    fn close_overdue(
        &self,
        orders: &[OrderNumber],
    ) -> impl Future<Output = Result<(Closings, Option<u64>), StoreError>> + Send;

    /// The order, if it waits for its payment.
    fn waiting_for_payment(
        &self,
        order: OrderNumber,
    ) -> impl Future<Output = Result<Option<(UserId, Mark)>, StoreError>> + Send;

    /// How many payments are to be given back.
    fn refunds_due_count(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// For how long the order has been due that has waited longest for its turn; 0: none is due.
    fn overdue_lag_ms(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;
}
