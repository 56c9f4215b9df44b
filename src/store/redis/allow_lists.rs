//! Allow-lists in Redis: a set for each activity, so that whoever runs the shop can look at one, or fill it, with Redis's
//! own commands; how each stands in one hash, and the last changes in one stream.
//!
//! All lie in the slot of shard 0, as switches do, and belong to no shard. Nothing waits for a change: whoever follows them
//! asks how they stand. What stands in a set and is no user id is left there, counts as a member, and lets nobody in.
//! A whole list is staged beside the set in pieces, and one function puts it in its place; what was staged for nothing
//! expires by itself.

use std::collections::HashSet;

use redis::{Cmd, Value};

use super::answers::{list, malformed, number, text};
use super::library;
use super::shards::RedisShards;
use crate::protocol::{ActivityId, UserId};
use crate::stock::calls::ShardId;
use crate::store::StoreError;
use crate::store::allow_lists::{
    AllowListEditor, AllowListStore, Changed, ListChange, ListState, Listed, USERS_PER_CHANGE_MAX, WholeList,
};

/// Whose slot they lie in.
const SHARD: ShardId = ShardId::ALL[0];
/// Changes that are remembered.
const CHANGES_KEPT: usize = 1000;
/// Changes read at a time.
const CHANGES_READ: usize = 100;
/// Members that one step of a scan looks at.
const SCAN_COUNT: usize = 2000;
/// What is staged and never put in place goes so long after its last piece.
const STAGED_SECONDS: u32 = 60;
/// How the log says under which version a list was known that was put back.
const FROM: &str = "from ";

impl AllowListStore for RedisShards {
    async fn list_states(
        &self,
        activities: &[ActivityId],
    ) -> Result<Vec<Result<ListState, StoreError>>, StoreError> {
        let what = "asking how allow-lists stand";
        let mut keys = vec![self.inner.keys.allow_lists()];
        keys.extend(activities.iter().map(|activity| self.inner.keys.allowed(*activity)));
        let answer = self.function(SHARD, what, library::ALLOW_STATES, keys, |command| {
            for activity in activities {
                command.arg(activity.0);
            }
        });
        let told: Option<Vec<String>> =
            list(answer.await?).unwrap_or_default().into_iter().map(text).collect();
        let told = told.filter(|told| told.len() == activities.len().saturating_mul(2));
        let told = told.ok_or_else(|| malformed(what, SHARD, "other than two texts for each"))?;
        let (pairs, _) = told.as_chunks::<2>();
        Ok(activities.iter().zip(pairs).map(|(activity, pair)| self.list_state(*activity, pair)).collect())
    }

    async fn listed(&self, activity: ActivityId) -> Result<Listed, StoreError> {
        let what = "reading an allow-list";
        let malformed = || malformed(what, SHARD, "no cursor with members");
        let key = self.inner.keys.allowed(activity);
        let (mut listed, mut others, mut cursor) = (Listed::default(), HashSet::new(), 0_u64);
        loop {
            let mut command = redis::cmd("SSCAN");
            command.arg(&key).arg(cursor).arg("COUNT").arg(SCAN_COUNT);
            let answer = self.run(&self.work(SHARD, what, vec![command], vec![key.clone()])).await?;
            let answer = answer.into_iter().next().and_then(list).ok_or_else(malformed)?;
            let [next, members] = <[Value; 2]>::try_from(answer).map_err(|_| malformed())?;
            for member in list(members).ok_or_else(malformed)? {
                match user_of(&member) {
                    Some(user) => listed.users.push(user),
                    None => others.extend(super::answers::bytes(member)),
                }
            }
            cursor = number(next).ok_or_else(malformed)?;
            if cursor == 0 {
                break;
            }
        }
        listed.others = u64::try_from(others.len()).unwrap_or(u64::MAX);
        Ok(listed)
    }

    async fn list_changes(&self, after: u64) -> Result<Vec<ListChange>, StoreError> {
        let key = self.inner.keys.allow_log();
        let mut command = redis::cmd("XRANGE");
        command.arg(&key).arg(format!("({after}-0")).arg("+").arg("COUNT").arg(CHANGES_READ);
        let work = self.work(SHARD, "reading changes of allow-lists", vec![command], vec![key]);
        let entries = self.run(&work).await?.into_iter().next().and_then(list).unwrap_or_default();
        Ok(entries.into_iter().filter_map(change_of).collect())
    }

    fn may_lose(&self) -> bool {
        true
    }

    async fn put_list(
        &self,
        activity: ActivityId,
        seen: ListState,
        whole: WholeList<'_>,
    ) -> Result<Option<ListState>, StoreError> {
        let (what, keys, users) = ("putting an allow-list in place", &self.inner.keys, whole.users);
        // Two at once must not stage into the same place.
        let staged = keys.staged(SHARD, &format!("{:016x}", fastrand::u64(..)), activity, "allowed");
        for some in users.chunks(USERS_PER_CHANGE_MAX) {
            self.run(&self.work(SHARD, what, stage_commands(&staged, some), vec![staged.clone()])).await?;
        }
        let touched = vec![keys.allow_lists(), keys.allow_log(), keys.allowed(activity), staged.clone()];
        let answer = self.function(SHARD, what, library::ALLOW_PUT, touched, |command| {
            let origin = whole.known.map_or_else(|| "new".to_owned(), |version| format!("{FROM}{version}"));
            command.arg(CHANGES_KEPT).arg(activity.0).arg(seen.version).arg(seen.users);
            command.arg(users.len()).arg(origin);
        });
        let version = answer
            .await
            .and_then(|answer| number(answer).ok_or_else(|| malformed(what, SHARD, "no version")));
        if !matches!(version, Ok(1..)) && !users.is_empty() {
            // Best effort: it expires by itself, too.
            let mut remove = redis::cmd("UNLINK");
            remove.arg(&staged);
            let _ = self.run(&self.work(SHARD, what, vec![remove], vec![staged])).await;
        }
        let users = u64::try_from(users.len()).unwrap_or(u64::MAX);
        Ok(Some(version?).filter(|version| *version > 0).map(|version| ListState { version, users }))
    }
}

impl RedisShards {
    /// One answer to how lists stand: version and size, or what there is instead.
    fn list_state(
        &self,
        activity: ActivityId,
        [version, users]: &[String; 2],
    ) -> Result<ListState, StoreError> {
        let keys = &self.inner.keys;
        let users = users.parse().map_err(|_| {
            let key = keys.allowed(activity);
            StoreError::Corrupt(format!(
                "the allow-list of activity {activity}: the key {key} is a {users}, which rushgate did not make"
            ))
        })?;
        let version = version.parse().map_err(|_| {
            let key = keys.allow_lists();
            StoreError::Corrupt(format!(
                "the allow-list of activity {activity}: its field in the hash {key} holds {version:.40?}, no version"
            ))
        })?;
        Ok(ListState { version, users })
    }
}

impl AllowListEditor for RedisShards {
    async fn change_list(
        &self,
        activity: ActivityId,
        users: &[UserId],
        is_in: bool,
    ) -> Result<u64, StoreError> {
        let what = "changing an allow-list";
        let users: Vec<String> =
            users.iter().take(USERS_PER_CHANGE_MAX).map(|user| user.0.to_string()).collect();
        if users.is_empty() {
            return Ok(0);
        }
        let keys = &self.inner.keys;
        let keys = vec![keys.allow_lists(), keys.allow_log(), keys.allowed(activity)];
        let answer = self.function(SHARD, what, library::ALLOW_CHANGE, keys, |command| {
            let sign = if is_in { "+" } else { "-" };
            command.arg(CHANGES_KEPT).arg(activity.0).arg(sign).arg(users.join(" ")).arg(&users);
        });
        number(answer.await?).ok_or_else(|| malformed(what, SHARD, "no number"))
    }
}

/// One spelling for each: that of the command.
fn user_of(member: &Value) -> Option<UserId> {
    let Value::BulkString(bytes) = member else { return None };
    parse_user(std::str::from_utf8(bytes).ok()?)
}

fn parse_user(text: &str) -> Option<UserId> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    is_plain.then(|| text.parse().ok()).flatten().and_then(UserId::new)
}

fn stage_commands(key: &str, users: &[UserId]) -> Vec<Cmd> {
    let mut add = redis::cmd("SADD");
    add.arg(key);
    for user in users {
        add.arg(user.0);
    }
    let mut expire = redis::cmd("EXPIRE");
    expire.arg(key).arg(STAGED_SECONDS);
    vec![add, expire]
}

/// An entry of the log; one that somebody else wrote is passed over, and missed when versions are compared.
fn change_of(entry: Value) -> Option<ListChange> {
    let [id, fields] = <[Value; 2]>::try_from(list(entry)?).ok()?;
    let version = text(id)?.strip_suffix("-0")?.parse().ok()?;
    let mut values = list(fields)?.into_iter().skip(1).step_by(2).map(text);
    let activity = ActivityId(values.next()??.parse().ok()?);
    let before = values.next()??.parse().ok()?;
    let sign = values.next()??;
    let members = values.next()??.parse().ok()?;
    let rest = values.next()??;
    let what = if sign == "=" {
        let known = rest.strip_prefix(FROM).map(str::parse).transpose().ok()?;
        Changed::Whole { known }
    } else {
        let users = rest.split(' ').map(parse_user).collect::<Option<_>>()?;
        Changed::Users { users, is_in: sign == "+" }
    };
    Some(ListChange { activity, before, after: ListState { version, users: members }, what })
}
