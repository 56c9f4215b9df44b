//! Rate limits: global, per IP, per user, and one of its own for RESULT queries. GCRA with a burst, by governor.
//!
//! Runs on the gateway's worker threads, on the way of every BUY: synchronous, no clock, no allocation for a key
//! that is known, no lock across two checks. A timer task calls [`Limits::retain`] to forget keys at rest.
//! Nothing here fails: a key for which there is no memory is limited together with others like it (see `store`).

mod clock;
mod rung;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use self::rung::{Direct, Keyed};
use self::store::KeyTable;
use super::Cidr;
use crate::protocol::UserId;

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

/// What [`Limits`] is made from.
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
    /// Greatest number of addresses, of users and of querying users remembered, each. A remembered key takes
    /// up to 50 bytes.
    pub keys_max: usize,
}

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// The gateway's.
    Global,
    /// The client address's.
    Ip,
    /// The user's.
    User,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Whose limit it was.
    pub by: LimitedBy,
    /// When the same request would pass if nobody else came, rounded up, at least 1. Without jitter: that is the
    /// caller's.
    pub retry_after_ms: u32,
}

/// How full the memory of the limits is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Addresses remembered.
    pub ips: usize,
    /// Users remembered.
    pub users: usize,
    /// Users remembered for RESULT queries.
    pub result_users: usize,
    /// Checks that found no room for their key and used a shared bucket, since the start.
    pub overflowed: u64,
}

/// The limits of one gateway.
pub struct Limits {
    global: Option<Direct>,
    per_ip: Option<Keyed<IpKey>>,
    /// By descending prefix length.
    overrides: Box<[(Cidr, Option<Keyed<IpKey>>)]>,
    per_user: Option<Keyed<UserId>>,
    result_per_user: Option<Keyed<UserId>>,
    ips: Arc<KeyTable<IpKey>>,
    users: Arc<KeyTable<UserId>>,
    result_users: Arc<KeyTable<UserId>>,
}

impl Limits {
    /// Fresh limits: every key has its full burst.
    pub fn new(settings: &LimitsSettings) -> Self {
        let ips = Arc::new(KeyTable::new(settings.keys_max));
        let users = Arc::new(KeyTable::new(settings.keys_max));
        let result_users = Arc::new(KeyTable::new(settings.keys_max));
        let mut overrides: Vec<_> = settings
            .per_ip_overrides
            .iter()
            .map(|exception| (exception.cidr, Keyed::new(exception.rate, &ips)))
            .collect();
        overrides.sort_by_key(|(cidr, _)| std::cmp::Reverse(cidr.prefix_len()));
        Self {
            global: Direct::new(settings.global),
            per_ip: Keyed::new(settings.per_ip, &ips),
            overrides: overrides.into_boxed_slice(),
            per_user: Keyed::new(settings.per_user, &users),
            result_per_user: Keyed::new(settings.result_per_user, &result_users),
            ips,
            users,
            result_users,
        }
    }

    /// May this request of this user pass at this time (nanoseconds of a clock that does not go back)?
    ///
    /// Asked in the order global, IP, user. A refusal by a later one has already been counted by those before
    /// it: a user over the own limit still uses up the address's and the gateway's. That is meant: those two
    /// protect this process, and a refused request costs it work too.
    ///
    /// `ip` is `None` for a service connection's request that names no client address: there is no address to
    /// blame, and the back end's own stands for all its users.
    pub fn check(&self, now_ns: u64, ip: impl Into<Option<IpAddr>>, user: UserId) -> Result<(), Limited> {
        if let Some(limit) = &self.global {
            limit
                .check(now_ns)
                .map_err(|retry_after_ms| Limited { by: LimitedBy::Global, retry_after_ms })?;
        }
        if let Some(ip) = ip.into() {
            self.check_ip(now_ns, ip)
                .map_err(|retry_after_ms| Limited { by: LimitedBy::Ip, retry_after_ms })?;
        }
        check_user(self.per_user.as_ref(), now_ns, user)
    }

    /// May this RESULT query pass? It has a limit of its own and counts towards no other.
    pub fn check_result(&self, now_ns: u64, user: UserId) -> Result<(), Limited> {
        check_user(self.result_per_user.as_ref(), now_ns, user)
    }

    /// Forgets the keys whose burst is full again. For a timer task; each lock shard is held while it is scanned.
    pub fn retain(&self, now_ns: u64) {
        self.ips.retain(now_ns);
        self.users.retain(now_ns);
        self.result_users.retain(now_ns);
    }

    /// How full the memory is.
    pub fn key_counts(&self) -> KeyCounts {
        KeyCounts {
            ips: self.ips.len(),
            users: self.users.len(),
            result_users: self.result_users.len(),
            overflowed: self
                .ips
                .overflowed()
                .saturating_add(self.users.overflowed())
                .saturating_add(self.result_users.overflowed()),
        }
    }

    fn check_ip(&self, now_ns: u64, ip: IpAddr) -> Result<(), u32> {
        let ip = ip.to_canonical();
        let exception = self.overrides.iter().zip(1..).find(|((cidr, _), _)| cidr.contains(ip));
        let (limit, rule) = match exception {
            Some(((_, limit), rule)) => (limit.as_ref(), rule),
            None => (self.per_ip.as_ref(), 0),
        };
        limit.map_or(Ok(()), |limit| limit.check(now_ns, &IpKey::new(rule, ip)))
    }
}

fn check_user(limit: Option<&Keyed<UserId>>, now_ns: u64, user: UserId) -> Result<(), Limited> {
    limit
        .map_or(Ok(()), |limit| limit.check(now_ns, &user))
        .map_err(|retry_after_ms| Limited { by: LimitedBy::User, retry_after_ms })
}

/// What counts as one client address. The rule (0 = `per_ip`, n = the nth override) is part of it, so that all
/// rules share one table though an IPv6 /64 may be cut by an override with a longer prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct IpKey {
    rule: u32,
    address: AddressKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AddressKey {
    V4(u32),
    /// The upper half: a subscriber commonly has a whole /64.
    V6(u64),
}

impl IpKey {
    fn new(rule: u32, ip: IpAddr) -> Self {
        let address = match ip {
            IpAddr::V4(v4) => AddressKey::V4(v4.to_bits()),
            // Never out of range: 64 bits are left.
            IpAddr::V6(v6) => AddressKey::V6(u64::try_from(v6.to_bits() >> 64).unwrap_or(u64::MAX)),
        };
        Self { rule, address }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("keys", &self.key_counts()).finish_non_exhaustive()
    }
}
