//! What [`Limits`](super::Limits) is made from.

use super::super::Cidr;

/// How often something may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Sustained, per second; 0 = no limit. Times between two are whole nanoseconds, rounded up.
    pub rate_per_s: u32,
    /// At once, after a rest; 0 is taken as 1.
    pub burst: u32,
}

impl Rate {
    /// No limit.
    pub const OFF: Self = Self { rate_per_s: 0, burst: 0 };
}

/// Addresses with a per-IP rate of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOverride {
    /// Which addresses. Where blocks overlap the longest prefix counts; of two equal ones the first.
    pub cidr: Cidr,
    /// Their rate, per address as usual; [`Rate::OFF`] exempts them.
    pub rate: Rate,
}

/// What [`Limits`](super::Limits) is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsSettings {
    /// All requests of this gateway together.
    pub global: Rate,
    /// Per client address: an IPv4 address, an IPv6 /64.
    pub per_ip: Rate,
    /// Per user.
    pub per_user: Rate,
    /// Per user, RESULT queries.
    pub result_per_user: Rate,
    /// Exceptions from `per_ip`.
    pub per_ip_overrides: Vec<IpOverride>,
    /// Greatest number of addresses, of users and of querying users remembered, each. A remembered user takes up
    /// to 30 bytes, an address up to 38; while a connection holds it, up to 71 and 105 more.
    pub keys_max: usize,
}
