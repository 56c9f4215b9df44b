//! Rate limits: per connection, global, per IP, per user, per activity, and one of its own for RESULT queries. GCRA with
//! a burst.
//!
//! States are here, or with what they are of (a connection's in its [`Held`], an activity's in its [`ActivityLimit`]).
//! The rates in force are not: they are an argument ([`Rates`]), so that they may change while a sale runs, and `pace`
//! says how no state minds.
//!
//! Runs on the gateway's worker threads, on the way of every BUY: synchronous, no clock, no allocation for a key
//! that is known, no lock across two checks. A timer task calls [`Limits::retain`] to forget keys at rest.
//! Nothing here fails: a key for which there is no memory is limited together with others like it (see `table`).
//!
//! A connection whose user and address never change keeps a [`Held`]: after its first check it touches nothing but
//! the states themselves. One that speaks for another user each time asks by the key. Both share all states.

mod activity;
mod auth;
mod ip_key;
mod open_unpaid;
mod overflow;
mod pace;
mod per_ip;
mod per_user;
mod rates;
mod settings;
mod share;
mod slices;
mod slots;
mod table;
#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use self::activity::ActivityLimit;
use self::auth::AuthLimit;
pub use self::ip_key::IpKey;
pub use self::open_unpaid::OpenUnpaidMax;
use self::pace::{Pace, update};
use self::per_ip::{IpCell, PerIp};
use self::per_user::{PerUser, UserCell};
pub use self::rates::{RateSwitches, Rates};
pub use self::settings::{IpOverride, LimitsSettings, Rate};
pub use self::share::Share;
pub use self::slices::{Exchange, ExchangeReply, Offer, Offers, RateKey, SharedRates, Slice, Slices, Traded};
use crate::protocol::UserId;

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// The connection's.
    Connection,
    /// Everybody's.
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

/// What one connection of an app holds of the limits: its own state, and those of its address and of its user, each
/// from the first check that asked for it. Four words while nothing was asked; a state that is held takes some 100
/// bytes.
///
/// It belongs to one address and one user: with any others it would go on to count for the first ones.
#[derive(Debug, Default)]
pub struct Held {
    own: Cell<u64>,
    ip: OnceCell<Arc<IpCell>>,
    user: OnceCell<Arc<UserCell>>,
    result_user: OnceCell<Arc<UserCell>>,
}

impl Held {
    /// Holds nothing yet.
    pub const fn new() -> Self {
        Self { own: Cell::new(0), ip: OnceCell::new(), user: OnceCell::new(), result_user: OnceCell::new() }
    }
}

/// One rate that everybody shares and nobody changes.
#[derive(Debug)]
pub struct SharedRate {
    pace: Pace,
    state: AtomicU64,
}

impl SharedRate {
    /// With its full burst.
    pub fn new(rate: Rate) -> Self {
        Self { pace: Pace::new(rate, Share::WHOLE), state: AtomicU64::new(0) }
    }

    /// May one more pass at this time? Otherwise: in how many milliseconds it would, if nobody else came.
    #[inline]
    pub fn check(&self, now_ns: u64) -> Result<(), u32> {
        self.pace.check(now_ns, &self.state)
    }
}

/// Where the limits of one gateway stand.
pub struct Limits {
    configured: LimitsSettings,
    global: AtomicU64,
    ips: PerIp,
    users: PerUser,
    result_users: PerUser,
    auths: AuthLimit,
    slices: Slices,
}

impl Limits {
    /// Fresh limits: every key has its full burst.
    pub fn new(settings: &LimitsSettings) -> Self {
        Self {
            configured: settings.clone(),
            global: AtomicU64::new(0),
            ips: PerIp::new(settings),
            users: PerUser::new(settings.keys_max),
            result_users: PerUser::new(settings.keys_max),
            auths: AuthLimit::new(settings),
            slices: Slices::new(),
        }
    }

    /// The rates as they are configured, to begin with.
    pub fn rates(&self) -> Rates {
        Rates::new(&self.configured)
    }

    /// May this request of this user pass at this time (nanoseconds of a clock that does not go back)?
    ///
    /// Asked in the order global, IP, user. A refusal by a later one has already been counted by those before
    /// it: a user over the own limit still uses up the address's and the gateway's. That is meant: those two
    /// protect this process, and a refused request costs it work too.
    ///
    /// `ip` is `None` for a service connection's request that names no client address: there is no address to
    /// blame, and the back end's own stands for all its users.
    pub fn check(
        &self,
        rates: &Rates,
        now_ns: u64,
        ip: impl Into<Option<IpAddr>>,
        user: UserId,
    ) -> Result<(), Limited> {
        self.check_global(rates, now_ns)?;
        if let Some(ip) = ip.into() {
            let passed = self.ips.check(&rates.ips, &self.slices, now_ns, ip);
            passed.map_err(Limited::by(LimitedBy::Ip))?;
        }
        self.users.check(&rates.per_user, now_ns, user).map_err(Limited::by(LimitedBy::User))
    }

    /// [`check`](Self::check) for a connection that is one user at one address, whose own limit is asked first: no
    /// lookup, no lock and no allocation after its first. Should the first find no room for a key, that one is looked
    /// up until it does.
    pub fn check_held(
        &self,
        rates: &Rates,
        now_ns: u64,
        held: &Held,
        ip: impl Into<Option<IpAddr>>,
        user: UserId,
    ) -> Result<(), Limited> {
        if rates.per_connection.is_on() {
            let passed = rates.per_connection.check_own(now_ns, &held.own);
            passed.map_err(Limited::by(LimitedBy::Connection))?;
        }
        self.check_global(rates, now_ns)?;
        if let Some(ip) = ip.into() {
            let passed = self.ips.check_held(&rates.ips, &self.slices, now_ns, &held.ip, ip);
            passed.map_err(Limited::by(LimitedBy::Ip))?;
        }
        let passed = self.users.check_held(&rates.per_user, now_ns, &held.user, user);
        passed.map_err(Limited::by(LimitedBy::User))
    }

    /// May this RESULT query pass? It has a limit of its own and counts towards no other.
    pub fn check_result(&self, rates: &Rates, now_ns: u64, user: UserId) -> Result<(), Limited> {
        let passed = self.result_users.check(&rates.result_per_user, now_ns, user);
        passed.map_err(Limited::by(LimitedBy::User))
    }

    /// [`check_result`](Self::check_result) for a connection that is one user.
    pub fn check_result_held(
        &self,
        rates: &Rates,
        now_ns: u64,
        held: &Held,
        user: UserId,
    ) -> Result<(), Limited> {
        let passed = self.result_users.check_held(&rates.result_per_user, now_ns, &held.result_user, user);
        passed.map_err(Limited::by(LimitedBy::User))
    }

    /// May a client at this address show a token? `Err`: milliseconds after which it would. Counts towards no other limit,
    /// and is this gateway's alone.
    pub fn check_auth(&self, now_ns: u64, ip: IpAddr) -> Result<(), u32> {
        self.auths.check(now_ns, ip)
    }

    /// Takes up to so many tokens of the global rate at once for other gateways, as long as half of this gateway's burst
    /// stays; how many.
    pub fn lend_global(&self, rates: &Rates, now_ns: u64, most: u32) -> u32 {
        update(&self.global, |state| rates.global.lend(now_ns, state, most))
    }

    /// The same of an address's.
    pub fn lend_ip(&self, rates: &Rates, now_ns: u64, key: IpKey, most: u32) -> u32 {
        self.ips.lend(&rates.ips, now_ns, key, most)
    }

    /// What is borrowed of the limits for all gateways, but for those of activities.
    pub const fn slices(&self) -> &Slices {
        &self.slices
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
    pub fn retain(&self, rates: &Rates, now_ns: u64) {
        self.ips.retain(&rates.ips, now_ns);
        self.users.retain(&rates.per_user, now_ns);
        self.result_users.retain(&rates.result_per_user, now_ns);
        self.auths.retain(now_ns);
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
    fn check_global(&self, rates: &Rates, now_ns: u64) -> Result<(), Limited> {
        if !rates.global.is_on() {
            return Ok(());
        }
        let passed = rates.global.check(now_ns, &self.global);
        let passed =
            passed.or_else(|wait_ms| rates.global.or_borrowed(wait_ms, || self.slices.global.take(now_ns)));
        passed.map_err(Limited::by(LimitedBy::Global))
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
