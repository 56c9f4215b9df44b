//! What [`Limits`](super::Limits) is made from.

use super::super::Cidr;
use super::open_unpaid::OpenUnpaidMax;

/// How often something may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Sustained, per second; 0 = no limit. More than [`Rate::PER_S_MAX`] is taken as that.
    pub rate_per_s: u32,
    /// At once, after a rest; 0 is taken as 1, more than [`Rate::BURST_MAX`] as that.
    pub burst: u32,
}

impl Rate {
    /// No limit.
    pub const OFF: Self = Self { rate_per_s: 0, burst: 0 };

    /// Above this a limit limits nothing.
    pub const PER_S_MAX: u32 = 10_000_000;

    /// Above this a limit limits nothing.
    pub const BURST_MAX: u32 = 100_000_000;

    pub(super) fn bounded(self) -> Self {
        Self { rate_per_s: self.rate_per_s.min(Self::PER_S_MAX), burst: self.burst.min(Self::BURST_MAX) }
    }
}

/// Addresses with a per-IP rate of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOverride {
    /// Which addresses. Where blocks overlap the longest prefix counts; of two equal ones the first.
    pub cidr: Cidr,
    /// Their rate, per address as usual; [`Rate::OFF`] exempts them.
    pub rate: Rate,
}

/// What [`Limits`](super::Limits) and [`Rates`](super::Rates) are made from. By default everything is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsSettings {
    /// All BUYs together.
    pub global: Rate,
    /// Per client address: an IPv4 address, an IPv6 /64.
    pub per_ip: Rate,
    /// Per user.
    pub per_user: Rate,
    /// Per user, RESULT queries.
    pub result_per_user: Rate,
    /// Per connection of an app; a service connection speaks for many.
    pub per_connection: Rate,
    /// Per activity, those BUYs that come within its window.
    pub per_activity: Rate,
    /// Per client address, AUTH.
    pub auth_per_ip: Rate,
    /// Reservations that may be open and unpaid at a time.
    pub open_unpaid: OpenUnpaidMax,
    /// Exceptions from `per_ip`; those without a limit have none for AUTH either.
    pub per_ip_overrides: Vec<IpOverride>,
    /// Greatest number of addresses, of users and of querying users remembered, each. A remembered user takes up
    /// to 30 bytes, an address up to 38; while a connection holds it, up to 71 and 105 more.
    pub keys_max: usize,
}

impl Default for LimitsSettings {
    fn default() -> Self {
        Self {
            global: Rate::OFF,
            per_ip: Rate::OFF,
            per_user: Rate::OFF,
            result_per_user: Rate::OFF,
            per_connection: Rate::OFF,
            per_activity: Rate::OFF,
            auth_per_ip: Rate::OFF,
            open_unpaid: OpenUnpaidMax::default(),
            per_ip_overrides: Vec::new(),
            keys_max: 2_000_000,
        }
    }
}
