//! An allow-list as it is judged: the users that an activity lets in, as one value that is replaced whole.
//!
//! Made by the task that follows the lists, read by every connection without a lock. A large sorted part that changes
//! share, and a small one with the changes since: one user more in a list of a million copies a few thousand numbers,
//! not the million. A million users take 8 MB.

use std::sync::Arc;

use crate::protocol::UserId;

/// Changes that are kept apart; more are worked into the large part.
const CHANGES_MAX: usize = 4096;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct AllowList {
    /// Ascending.
    users: Arc<[u64]>,
    /// What changed since: who is in it now, who is not. Ascending, each user once.
    changes: Arc<[(u64, bool)]>,
    len: usize,
}

impl AllowList {
    /// Of these users, in any order.
    pub fn of(users: impl IntoIterator<Item = UserId>) -> Self {
        let mut users: Vec<u64> = users.into_iter().map(|user| user.0).collect();
        users.sort_unstable();
        users.dedup();
        Self { len: users.len(), users: users.into(), changes: Arc::default() }
    }

    /// Whether the user is in it.
    pub fn contains(&self, user: UserId) -> bool {
        match self.changes.binary_search_by_key(&user.0, |(changed, _)| *changed) {
            Ok(at) => self.changes.get(at).is_some_and(|(_, is_in)| *is_in),
            Err(_) => self.users.binary_search(&user.0).is_ok(),
        }
    }

    /// How many users are in it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody is in it.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every user in it, ascending.
    pub fn users(&self) -> Vec<UserId> {
        self.merged().into_iter().map(UserId).collect()
    }

    /// The same with these users in it, or without them.
    #[must_use]
    pub fn with(&self, users: &[UserId], is_in: bool) -> Self {
        let mut fresh: Vec<u64> = users.iter().map(|user| user.0).collect();
        fresh.sort_unstable();
        fresh.dedup();
        let differs = |user: &&u64| self.contains(UserId(**user)) != is_in;
        let differing = fresh.iter().filter(differs).count();
        let len = if is_in { self.len.saturating_add(differing) } else { self.len.saturating_sub(differing) };
        let kept = self.changes.iter().filter(|(user, _)| fresh.binary_search(user).is_err()).copied();
        let mut changes: Vec<(u64, bool)> = kept.chain(fresh.iter().map(|user| (*user, is_in))).collect();
        changes.sort_unstable();
        let changed = Self { users: Arc::clone(&self.users), changes: changes.into(), len };
        if changed.changes.len() <= CHANGES_MAX {
            return changed;
        }
        Self { users: changed.merged().into(), changes: Arc::default(), len }
    }

    /// Both parts in one.
    fn merged(&self) -> Vec<u64> {
        let mut merged = Vec::with_capacity(self.len);
        let mut users = self.users.iter().copied().peekable();
        for (changed, is_in) in self.changes.iter().copied() {
            while let Some(user) = users.next_if(|user| *user < changed) {
                merged.push(user);
            }
            let _ = users.next_if_eq(&changed);
            if is_in {
                merged.push(changed);
            }
        }
        merged.extend(users);
        merged
    }
}
