//! Where gateways of one installation share rates: each lends what it leaves of its share, and takes slices of what others
//! leave of theirs.
//!
//! A store only moves tokens from who gives to who wants: it makes none, so that a reply that is lost, a call that comes
//! late, or a store that lost its data costs tokens and never adds any. Every method may be called from any task; nothing
//! that a client waits for waits for it.

use std::future::{self, Future};
use std::time::Duration;

use super::StoreError;
use crate::stock::calls::ProcessNumber;

/// A gateway that was silent for so long is not counted any more.
pub const SILENT_AFTER: Duration = Duration::from_millis(1_500);

/// A rate that nobody asked for during this time has no pool any more.
pub const UNWANTED_AFTER: Duration = Duration::from_secs(1);

/// What a gateway gives and wants of one rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateExchange {
    /// Which; the same on all gateways.
    pub name: String,
    /// Tokens that it has taken out of its own bucket for others. Dropped if nobody wants any.
    pub give: u32,
    /// Tokens that it wants.
    pub want: u32,
    /// As much may lie in the pool; what is given above it is dropped.
    pub pool_max: u32,
}

/// One call: a heartbeat, and what is exchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceCall {
    /// Who calls.
    pub gateway: ProcessNumber,
    /// Greater than that of every call of this gateway before: a call that was executed, or is overtaken, moves nothing.
    pub number: u64,
    /// Rates, each once.
    pub rates: Vec<RateExchange>,
}

/// What a call came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceReply {
    /// Gateways heard of lately, the caller among them.
    pub gateways: u32,
    /// Tokens granted, in the order of the call's rates; nothing for a call that was executed before.
    pub granted: Vec<u32>,
    /// The rates that some gateway wants, the last asked for first, each with what lies in its pool.
    pub wanted: Vec<(String, u32)>,
}

/// A store that rates are shared through.
pub trait SliceStore: Send + Sync + 'static {
    /// Tells that this gateway lives, gives and takes; in one step. `None`: only one gateway can use this store.
    fn exchange_slices(
        &self,
        call: &SliceCall,
    ) -> impl Future<Output = Result<Option<SliceReply>, StoreError>> + Send {
        let _ = call;
        future::ready(Ok(None))
    }

    /// This gateway takes no requests any more: its share is the others'.
    fn leave_slices(&self, gateway: ProcessNumber) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = gateway;
        future::ready(Ok(()))
    }
}
