//! A limit of users: one rate, one table.
//!
//! Runs on the gateway's worker threads; see [`Limits`](super::Limits).

use std::cell::OnceCell;
use std::sync::Arc;

use super::Rate;
use super::rung::Rule;
use super::table::{Cell, KeyTable};
use crate::protocol::UserId;

/// A user's cell is the bare state.
pub(super) type UserCell = Cell<()>;

/// See the module.
pub(super) struct PerUser {
    /// `None` = no limit.
    rule: Option<Rule>,
    pub(super) table: KeyTable<UserId, ()>,
}

impl PerUser {
    pub(super) fn new(rate: Rate, keys_max: usize) -> Self {
        Self { rule: Rule::new(rate), table: KeyTable::new(keys_max) }
    }

    /// `Err`: milliseconds after which it would pass.
    pub(super) fn check(&self, now_ns: u64, user: UserId) -> Result<(), u32> {
        self.rule.as_ref().map_or(Ok(()), |rule| self.table.check(rule, now_ns, user))
    }

    /// The same for a user whose cell is held, or is to be held from now on.
    #[inline]
    pub(super) fn check_held(
        &self,
        now_ns: u64,
        held: &OnceCell<Arc<UserCell>>,
        user: UserId,
    ) -> Result<(), u32> {
        let Some(rule) = &self.rule else { return Ok(()) };
        match held.get() {
            Some(cell) => rule.rung.check(now_ns, &cell.state),
            None => self.check_first(rule, now_ns, held, user),
        }
    }

    #[cold]
    fn check_first(
        &self,
        rule: &Rule,
        now_ns: u64,
        held: &OnceCell<Arc<UserCell>>,
        user: UserId,
    ) -> Result<(), u32> {
        match self.table.hold(rule, user, ()) {
            Some(cell) => rule.rung.check(now_ns, &held.get_or_init(|| cell).state),
            // No room: limited in a shared bucket until there is.
            None => self.table.check(rule, now_ns, user),
        }
    }
}
