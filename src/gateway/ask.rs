//! A BUY as it comes to the funnel, and what the rung that turns it away answers.
//!
//! Belongs to the connection's task; lives as long as one wake, but for what an app connection keeps.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use super::counters::Rung;
use super::eligibility::Known;
use super::peer::Peer;
use super::reply_parts::with_jitter;
use crate::admission::limits::Held;
use crate::admission::risk::HeldVerdict;
use crate::protocol::{ActivityId, Reply, SkuId, Status, UserId};

/// One BUY.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) peer: &'a Arc<Peer>,
    pub(super) request_id: u32,
    pub(super) user: UserId,
    /// Whom the rate of an address counts for; `None` when a service connection does not say.
    pub(super) ip: Option<IpAddr>,
    /// The limiters of an app connection, whose user and address do not change.
    pub(super) held: Option<&'a Held>,
    /// What the lists said of an app connection's user, address and device.
    pub(super) risk_held: Option<&'a RiskHeld>,
    /// The user's device, if it is named.
    pub(super) device: Option<&'a str>,
    /// What is known of the user's claims.
    pub(super) claims: Known<'a>,
    /// The request came over a service connection.
    pub(super) names_user: bool,
    pub(super) activity: ActivityId,
    pub(super) sku: SkuId,
    pub(super) quantity: u16,
    pub(super) patience_ms: u32,
}

/// A definite answer that a rung gave.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) rung: Rung,
    pub(super) status: Status,
    pub(super) hint_ms: u32,
    pub(super) reply: Reply,
}

impl Refusal {
    pub(super) const fn plain(rung: Rung, status: Status) -> Self {
        Self { rung, status, hint_ms: 0, reply: Reply::Empty }
    }

    /// One that a rate turns away.
    pub(super) fn limited(rung: Rung, retry_after_ms: u32) -> Self {
        Self { hint_ms: with_jitter(retry_after_ms), ..Self::plain(rung, Status::RateLimited) }
    }
}

/// What an app connection keeps for the rung Risk: its user, address and device stay the same.
#[derive(Debug, Default)]
pub(super) struct RiskHeld {
    pub(super) verdict: HeldVerdict,
    /// The rung and the second of what was remembered last.
    pub(super) remembered: Cell<Option<(Rung, u32)>>,
}
