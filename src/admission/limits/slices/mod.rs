//! The second level of the limits that all gateways share: what one leaves of its share, another may use.
//!
//! Every gateway gives out its share of a rate (`rate ÷ gateways`) by itself, always. A request that the share refuses
//! asks its [`Slice`]: tokens that were borrowed ahead of time from what other gateways leave. Their gateways took them
//! out of their own buckets, as requests would have. So tokens are only moved, never made: all gateways together give
//! out no more than the rate, and without the store that moves them each is left with its share. Nothing has to be
//! switched over when it goes, and nothing bursts when it comes back.
//!
//! [`Slice::take`] runs on the gateway's worker threads, for requests that the share has refused: it neither locks nor
//! allocates nor waits. [`Exchange`] decides what is lent and borrowed; one task asks it some times a second. It knows
//! neither a store nor a clock. What fails costs tokens, for tenths of a second.

mod exchange;
mod gateways;
mod hot;
mod rate_key;
mod slice;
#[cfg(test)]
mod tests;

pub use self::exchange::{Exchange, ExchangeReply, Offer, Offers, SharedRates, Traded};
use self::hot::HotAddresses;
pub use self::rate_key::RateKey;
pub use self::slice::Slice;
use super::IpKey;

/// The slices of a gateway's limits; those of activities are with their limits.
#[derive(Debug, Default)]
pub struct Slices {
    /// Of the global rate.
    pub global: Slice,
    addresses: HotAddresses,
}

impl Slices {
    /// Nothing is borrowed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one token of an address; without one, notes that one was wanted, if there is room for one more address.
    pub fn take_ip(&self, now_ns: u64, key: IpKey) -> bool {
        self.addresses.take(now_ns, key)
    }

    /// Those that want tokens or have some; each slice with what it is of.
    pub fn visit(&self, visit: &mut dyn FnMut(RateKey, &Slice)) {
        visit(RateKey::Global, &self.global);
        self.addresses.visit(|key, slice| visit(RateKey::Ip(key), slice));
    }

    /// Nobody wants any of this address any more: its place is another's.
    pub fn release(&self, key: IpKey) {
        self.addresses.release(key);
    }
}
