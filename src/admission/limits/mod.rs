//! Rate limits: global, per IP, per user, and one of its own for RESULT queries. GCRA with a burst, by governor.
//!
//! Runs on the gateway's worker threads, on the way of every BUY: synchronous, no clock, no allocation for a key
//! that is known, no lock across two checks. A timer task calls [`Limits::retain`] to forget keys at rest.
//! Nothing here fails: a key for which there is no memory is limited together with others like it (see `table`).
//!
//! A connection whose user and address never change keeps a [`Held`]: after its first check it touches nothing but
//! the states themselves. One that speaks for another user each time asks by the key. Both share all states.

mod clock;
mod per_ip;
mod per_user;
mod rung;
mod settings;
mod slots;
mod table;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use self::per_ip::{IpCell, PerIp};
use self::per_user::{PerUser, UserCell};
use self::rung::Rung;
pub use self::settings::{IpOverride, LimitsSettings, Rate};
use crate::protocol::UserId;

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

/// What one connection holds of the limits: the states of its address and of its user, each from the first check
/// that asked for it. Three words while nothing was asked; a state that is held takes some 100 bytes.
///
/// It belongs to one address and one user: with any others it would go on to count for the first ones.
#[derive(Debug, Default)]
pub struct Held {
    ip: OnceCell<Arc<IpCell>>,
    user: OnceCell<Arc<UserCell>>,
    result_user: OnceCell<Arc<UserCell>>,
}

impl Held {
    /// Holds nothing yet.
    pub const fn new() -> Self {
        Self { ip: OnceCell::new(), user: OnceCell::new(), result_user: OnceCell::new() }
    }
}

/// One rate that everybody shares.
pub struct SharedRate(Option<(Rung, AtomicU64)>);

impl SharedRate {
    /// With its full burst.
    pub fn new(rate: Rate) -> Self {
        Self(Rung::new(rate).map(|rung| (rung, AtomicU64::new(0))))
    }

    /// May one more pass at this time? Otherwise: in how many milliseconds it would, if nobody else came.
    #[inline]
    pub fn check(&self, now_ns: u64) -> Result<(), u32> {
        let Some((rung, state)) = &self.0 else { return Ok(()) };
        rung.check(now_ns, state)
    }
}

impl fmt::Debug for SharedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRate").field("is_on", &self.0.is_some()).finish()
    }
}

/// The limits of one gateway.
pub struct Limits {
    global: SharedRate,
    ips: PerIp,
    users: PerUser,
    result_users: PerUser,
}

impl Limits {
    /// Fresh limits: every key has its full burst.
    pub fn new(settings: &LimitsSettings) -> Self {
        Self {
            global: SharedRate::new(settings.global),
            ips: PerIp::new(settings),
            users: PerUser::new(settings.per_user, settings.keys_max),
            result_users: PerUser::new(settings.result_per_user, settings.keys_max),
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
        self.check_global(now_ns)?;
        if let Some(ip) = ip.into() {
            self.ips.check(now_ns, ip).map_err(Limited::by(LimitedBy::Ip))?;
        }
        self.users.check(now_ns, user).map_err(Limited::by(LimitedBy::User))
    }

    /// [`check`](Self::check) for a connection that is one user at one address: no lookup, no lock and no
    /// allocation after its first. Should the first find no room for a key, that one is looked up until it does.
    pub fn check_held(
        &self,
        now_ns: u64,
        held: &Held,
        ip: impl Into<Option<IpAddr>>,
        user: UserId,
    ) -> Result<(), Limited> {
        self.check_global(now_ns)?;
        if let Some(ip) = ip.into() {
            self.ips.check_held(now_ns, &held.ip, ip).map_err(Limited::by(LimitedBy::Ip))?;
        }
        self.users.check_held(now_ns, &held.user, user).map_err(Limited::by(LimitedBy::User))
    }

    /// May this RESULT query pass? It has a limit of its own and counts towards no other.
    pub fn check_result(&self, now_ns: u64, user: UserId) -> Result<(), Limited> {
        self.result_users.check(now_ns, user).map_err(Limited::by(LimitedBy::User))
    }

    /// [`check_result`](Self::check_result) for a connection that is one user.
    pub fn check_result_held(&self, now_ns: u64, held: &Held, user: UserId) -> Result<(), Limited> {
        self.result_users.check_held(now_ns, &held.result_user, user).map_err(Limited::by(LimitedBy::User))
    }

    /// Says that [`check`](Self::check) will be asked of this user soon. Changes no outcome: said of many users in a
    /// row, it makes their checks cheaper.
    pub fn warm(&self, user: UserId) {
        self.users.table.warm(user);
    }

    /// The same for [`check_result`](Self::check_result).
    pub fn warm_result(&self, user: UserId) {
        self.result_users.table.warm(user);
    }

    /// Forgets the keys whose burst is full again and that no connection holds. For a timer task; each lock shard
    /// is held while it is scanned.
    pub fn retain(&self, now_ns: u64) {
        self.ips.table.retain(now_ns);
        self.users.table.retain(now_ns);
        self.result_users.table.retain(now_ns);
    }

    /// How full the memory is.
    pub fn key_counts(&self) -> KeyCounts {
        let (ips, users, result_users) = (&self.ips.table, &self.users.table, &self.result_users.table);
        KeyCounts {
            ips: ips.len(),
            users: users.len(),
            result_users: result_users.len(),
            overflowed: ips
                .overflowed()
                .saturating_add(users.overflowed())
                .saturating_add(result_users.overflowed()),
        }
    }

    #[inline]
    fn check_global(&self, now_ns: u64) -> Result<(), Limited> {
        self.global.check(now_ns).map_err(Limited::by(LimitedBy::Global))
    }
}

impl Limited {
    const fn by(by: LimitedBy) -> impl Fn(u32) -> Self {
        move |retry_after_ms| Self { by, retry_after_ms }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("keys", &self.key_counts()).finish_non_exhaustive()
    }
}
