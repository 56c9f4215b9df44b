//! A limit of users: one rate, one table.
//!
//! Runs on the gateway's worker threads; see [`Limits`](super::Limits).

use std::cell::OnceCell;
use std::sync::Arc;

use super::overflow::Overflow;
use super::pace::Pace;
use super::table::{Cell, KeyTable, Rule};
use crate::protocol::UserId;

/// A user's cell is the bare state.
pub(super) type UserCell = Cell<()>;

/// See the module.
pub(super) struct PerUser {
    overflow: Overflow,
    pub(super) table: KeyTable<UserId, ()>,
}

impl PerUser {
    pub(super) fn new(keys_max: usize) -> Self {
        Self { overflow: Overflow::default(), table: KeyTable::new(keys_max) }
    }

    /// `Err`: milliseconds after which it would pass.
    pub(super) fn check(&self, pace: &Pace, now_ns: u64, user: UserId) -> Result<(), u32> {
        if !pace.is_on() {
            return Ok(());
        }
        self.table.check(Rule { pace, overflow: &self.overflow }, now_ns, user)
    }

    /// The same for a user whose cell is held, or is to be held from now on.
    #[inline]
    pub(super) fn check_held(
        &self,
        pace: &Pace,
        now_ns: u64,
        held: &OnceCell<Arc<UserCell>>,
        user: UserId,
    ) -> Result<(), u32> {
        if !pace.is_on() {
            return Ok(());
        }
        match held.get() {
            Some(cell) => pace.check(now_ns, &cell.state),
            None => self.check_first(pace, now_ns, held, user),
        }
    }

    #[cold]
    fn check_first(
        &self,
        pace: &Pace,
        now_ns: u64,
        held: &OnceCell<Arc<UserCell>>,
        user: UserId,
    ) -> Result<(), u32> {
        match self.table.hold(&self.overflow, user, ()) {
            Some(cell) => pace.check(now_ns, &held.get_or_init(|| cell).state),
            // No room: limited in a shared bucket until there is.
            None => self.check(pace, now_ns, user),
        }
    }

    /// See [`Limits::retain`](super::Limits::retain).
    pub(super) fn retain(&self, pace: &Pace, now_ns: u64) {
        let rest = pace.rest(now_ns);
        self.table.retain(|_, state| state <= rest);
    }
}
