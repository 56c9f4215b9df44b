//! What buyers do after they have won: they pay at the payment centre, which tells the shop, or they do not; and how
//! orders ended, in figures.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::sleep;

use super::pay_centre::PayCentre;
use crate::protocol::OrderNumber;

/// What buyers do after they have won.
#[derive(Clone, Debug)]
pub struct Life {
    /// Share of winners (0 to 1) who pay.
    pub pay_rate: f64,
    /// How long they have; they pay within half of it.
    pub pay_by: Duration,
    /// What a unit costs.
    pub price_minor: u64,
    /// Where they pay.
    pub centre: Arc<PayCentre>,
    /// How long all of it may take.
    pub patience: Duration,
}

impl Life {
    /// The winner of an order pays, or does not; which of them is decided by seed and order number.
    pub(super) fn won(&self, seed: u64, order: OrderNumber, quantity: u16) {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ order.0);
        // Neighbouring seeds start alike; the first draw is thrown away.
        random.u64(..);
        if random.f64() >= self.pay_rate {
            return;
        }
        let pause = self.pay_by.mul_f64(random.f64() / 2.0);
        let (centre, amount_minor) =
            (Arc::clone(&self.centre), self.price_minor.saturating_mul(quantity.into()));
        tokio::spawn(async move {
            sleep(pause).await;
            // Who is too late keeps his money.
            centre.pay(order, amount_minor);
        });
    }
}

/// How an SKU's orders ended: from the database alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LifeReport {
    /// Orders that are paid.
    pub paid: u64,
    /// Orders that still wait for their payment.
    pub pending: u64,
    /// Orders that were closed, paid too late or not at all.
    pub closed: u64,
    /// Units that went back for sale, by the ledger.
    pub restocked: u64,
    /// Orders won by users who had gone away empty-handed before.
    pub resold: u64,
    /// Payments that are to be given back.
    pub refund_due: u64,
    /// Whether all of it adds up: units loaded are those left, paid and pending; each closed order gave its units back
    /// once; each paid order has its one payment.
    pub conserved: bool,
}
