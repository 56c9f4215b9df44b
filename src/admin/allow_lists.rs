//! The operator's operations on allow-lists: whom activities let in, one user or a file of them at a time.
//!
//! Run by a short command in its own process. A file is read and checked as a whole before anything is changed; it is
//! then written in groups, so that a million users hold up nobody who sells, and a command that is killed in between is
//! run again. A list of which there is nothing yet comes at once: see [`import`].

use std::collections::BTreeSet;

use serde::Serialize;

use crate::protocol::{ActivityId, UserId};
use crate::store::StoreError;
use crate::store::allow_lists::{
    AllowListEditor, AllowListStore, ListChange, ListState, Listed, USERS_PER_CHANGE_MAX, WholeList,
};
use crate::store::redis::RedisShards;
use crate::store::sql::AllowListFolder;

/// Bad lines of a file that are told; of more, how many there are.
const BAD_LINES_TOLD: usize = 5;

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListChanged {
    /// The activity.
    pub id: u32,
    /// Users that were named.
    pub named: u64,
    /// Those for whom it was a change.
    pub changed: u64,
    /// Users on the list then.
    pub users: u64,
}

/// Lets users in or takes them out.
pub async fn change<S: AllowListEditor>(
    store: &S,
    activity: ActivityId,
    users: &[UserId],
    is_in: bool,
) -> Result<ListChanged, StoreError> {
    let mut changed: u64 = 0;
    for some in users.chunks(USERS_PER_CHANGE_MAX) {
        changed = changed.saturating_add(store.change_list(activity, some, is_in).await?);
    }
    let state = state(store, activity).await?;
    Ok(ListChanged { id: activity.0, named: count(users), changed, users: state.users })
}

/// Lets in the users of a file, each named once. A list that there is not yet comes all at once where the store can do that:
/// what is there of it would be taken for the whole while the rest is on its way, and after a command that was killed.
pub async fn import<S: AllowListEditor>(
    store: &S,
    activity: ActivityId,
    users: &[UserId],
) -> Result<ListChanged, StoreError> {
    let seen = state(store, activity).await?;
    if seen == ListState::default() && !users.is_empty() {
        let put = store.put_list(activity, seen, WholeList { users, known: None }).await?;
        if let Some(ListState { users: changed, .. }) = put {
            return Ok(ListChanged { id: activity.0, named: count(users), changed, users: changed });
        }
    }
    change(store, activity, users, true).await
}

async fn state<S: AllowListStore>(store: &S, activity: ActivityId) -> Result<ListState, StoreError> {
    store.list_states(&[activity]).await?.into_iter().next().unwrap_or(Ok(ListState::default()))
}

fn count(users: &[UserId]) -> u64 {
    u64::try_from(users.len()).unwrap_or(u64::MAX)
}

/// Takes out everybody.
pub async fn clear<S: AllowListEditor>(store: &S, activity: ActivityId) -> Result<ListChanged, StoreError> {
    let listed = store.listed(activity).await?;
    change(store, activity, &listed.users, false).await
}

/// The users of a file: one id a line; empty lines and those that begin with `#` are passed over. `Err`: what is wrong,
/// by line.
pub fn users_of(text: &str) -> Result<Vec<UserId>, String> {
    let (mut users, mut bad) = (BTreeSet::new(), Vec::new());
    for (number, line) in (1_usize..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.parse().ok().and_then(UserId::new) {
            Some(user) => {
                users.insert(user);
            }
            None => bad.push(format!("line {number}: {line:.40?} is not a user id, 1 to {}", UserId::MAX)),
        }
    }
    if bad.is_empty() {
        return Ok(users.into_iter().collect());
    }
    let more = bad.len().saturating_sub(BAD_LINES_TOLD);
    bad.truncate(BAD_LINES_TOLD);
    if more > 0 {
        bad.push(format!("and {more} more"));
    }
    Err(format!("nothing was changed; one user id a line is read:\n{}", bad.join("\n")))
}

/// Where the allow-lists of an installation are, for those who do not serve from it.
#[derive(Debug)]
pub enum AllowListPlace {
    /// A data folder, whoever serves from it.
    Folder(AllowListFolder),
    /// The production store's Redis.
    Redis(RedisShards),
}

impl AllowListStore for AllowListPlace {
    async fn list_states(
        &self,
        activities: &[ActivityId],
    ) -> Result<Vec<Result<ListState, StoreError>>, StoreError> {
        match self {
            Self::Folder(folder) => folder.list_states(activities).await,
            Self::Redis(redis) => redis.list_states(activities).await,
        }
    }

    async fn listed(&self, activity: ActivityId) -> Result<Listed, StoreError> {
        match self {
            Self::Folder(folder) => folder.listed(activity).await,
            Self::Redis(redis) => redis.listed(activity).await,
        }
    }

    async fn list_changes(&self, after: u64) -> Result<Vec<ListChange>, StoreError> {
        match self {
            Self::Folder(folder) => folder.list_changes(after).await,
            Self::Redis(redis) => redis.list_changes(after).await,
        }
    }

    fn may_lose(&self) -> bool {
        match self {
            Self::Folder(folder) => folder.may_lose(),
            Self::Redis(redis) => redis.may_lose(),
        }
    }

    async fn put_list(
        &self,
        activity: ActivityId,
        seen: ListState,
        whole: WholeList<'_>,
    ) -> Result<Option<ListState>, StoreError> {
        match self {
            Self::Folder(folder) => folder.put_list(activity, seen, whole).await,
            Self::Redis(redis) => redis.put_list(activity, seen, whole).await,
        }
    }
}

impl AllowListEditor for AllowListPlace {
    async fn change_list(
        &self,
        activity: ActivityId,
        users: &[UserId],
        is_in: bool,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Folder(folder) => folder.change_list(activity, users, is_in).await,
            Self::Redis(redis) => redis.change_list(activity, users, is_in).await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_is_one_user_a_line_and_every_bad_line_is_told_before_anything_is_changed() {
        let users = users_of("# friends\n 7 \r\n\n42\n7\n9223372036854775807\n").unwrap();
        assert_eq!(users, [7, 42, UserId::MAX].map(UserId));
        assert_eq!(users_of("").unwrap(), []);
        let told = users_of("7\n0\nbob\n-1\n1,2\n9223372036854775808\n 1 2\nx\n").unwrap_err();
        for part in
            ["line 2: \"0\" is not", "line 3: \"bob\"", "line 6: \"9223372036854775808\"", "and 2 more"]
        {
            assert!(told.contains(part), "{told}");
        }
    }
}
