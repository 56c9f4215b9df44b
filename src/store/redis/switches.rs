//! Switches in Redis: one hash for what holds, one stream for those who follow, changed together by one function.
//!
//! Both lie in the slot of shard 0, for want of one of their own, and belong to no shard: recoveries do not touch them,
//! and they can be set while shards are closed. Waiting for a change blocks a connection that nothing else uses. A
//! `set` whose answer is lost is sent again, and a copy of it may arrive late: it names the version that it replaces, and
//! itself, so that it is done once, and never over what somebody else has set since.

use std::time::Duration;

use redis::Value;
use serde::{Deserialize, Serialize};

use super::answers::{bytes, list, malformed, number, text};
use super::library;
use super::nodes::Use;
use super::shards::{RedisShards, Work};
use super::streams::{BLOCK_MAX, put_block};
use crate::stock::calls::ShardId;
use crate::store::StoreError;
use crate::store::switches::{CHANGES_KEPT, NewSwitch, SetSwitch, SwitchStore, Switches, VERSION_MAX};

/// Whose slot they lie in.
const SHARD: ShardId = ShardId::ALL[0];
/// The hash's field for the last version given; no switch is called so.
const VERSION_FIELD: &str = "version";
/// Changes told at a time.
const CHANGES_MAX: usize = 100;
/// The answer to a `set` in whose way another has come.
const CHANGED: &str = "CHANGED";
/// How often one may.
const TRIES_MAX: usize = 10;

/// What is kept besides version and time.
#[derive(Serialize, Deserialize)]
struct Record {
    value: String,
    who: String,
    why: String,
}

impl SwitchStore for RedisShards {
    async fn switches(&self) -> Result<Switches, StoreError> {
        let what = "reading switches";
        let mut command = redis::cmd("HGETALL");
        command.arg(self.inner.keys.switches());
        let answers = self.run(&self.work(SHARD, what, vec![command], self.switch_keys())).await?;
        let fields = answers.into_iter().next().and_then(list).unwrap_or_default();
        let mut switches = Switches::default();
        let mut fields = fields.into_iter();
        while let (Some(name), Some(kept)) = (fields.next(), fields.next()) {
            // A name that is no text is none of ours; it is told of as well as it goes.
            let name = String::from_utf8_lossy(&bytes(name).unwrap_or_default()).into_owned();
            if name == VERSION_FIELD {
                continue;
            }
            match text(kept).and_then(|kept| decode(&name, &kept)) {
                Some(switch) => switches.set.push(switch),
                None => switches.unreadable.push(name),
            }
        }
        switches.set.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        switches.unreadable.sort_unstable();
        Ok(switches)
    }

    async fn set_switch(&self, new: &NewSwitch) -> Result<u64, StoreError> {
        let what = "setting a switch";
        let NewSwitch { name, value, who, why } = new.clone();
        let record = encode(&Record { value, who, why })?;
        for _ in 0..TRIES_MAX {
            let seen = self.version_here(&name).await?;
            let id = format!("{:032x}", fastrand::u128(..));
            let answer = self.function(SHARD, what, library::SWITCH_SET, self.switch_keys(), |command| {
                command.arg(CHANGES_KEPT).arg(&name).arg(&record).arg(seen).arg(id);
            });
            let answer = text(answer.await?).unwrap_or_default();
            if answer != CHANGED {
                return answer.parse().map_err(|_| malformed(what, SHARD, "no version"));
            }
        }
        Err(StoreError::Unavailable(format!("{name} was set by others {TRIES_MAX} times in the meantime")))
    }

    async fn switch_changes(&self, after: u64, wait: Duration) -> Result<Vec<SetSwitch>, StoreError> {
        let block = wait.min(BLOCK_MAX);
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(CHANGES_MAX);
        put_block(&mut command, Some(block));
        command.arg("STREAMS").arg(self.inner.keys.switch_log()).arg(format!("{after}-0"));
        let work = Work {
            purpose: Use::Switches,
            within: self.inner.options.call_timeout.saturating_add(block),
            ..self.work(SHARD, "following switches", vec![command], self.switch_keys())
        };
        let answer = self.run(&work).await?.into_iter().next().unwrap_or_default();
        Ok(changes(answer).unwrap_or_default())
    }

    async fn restore_switches(&self, lost: &[SetSwitch]) -> Result<u64, StoreError> {
        let what = "putting switches back";
        let mut oldest_first: Vec<&SetSwitch> = lost.iter().collect();
        oldest_first.sort_unstable_by_key(|switch| switch.version);
        let mut arguments = Vec::with_capacity(lost.len());
        for SetSwitch { name, value, version, at_ms, who, why } in oldest_first.into_iter().cloned() {
            let record = encode(&Record { value, who, why })?;
            arguments.push((name, version, format!("{version} {at_ms} {record}")));
        }
        let answer = self.function(SHARD, what, library::SWITCH_RESTORE, self.switch_keys(), |command| {
            command.arg(CHANGES_KEPT);
            for (name, version, kept) in arguments {
                command.arg(name).arg(version).arg(kept);
            }
        });
        number(answer.await?).ok_or_else(|| malformed(what, SHARD, "no number"))
    }
}

impl RedisShards {
    /// The version of a switch as it stands, for the function to compare: digits, 0 where there is none.
    async fn version_here(&self, name: &str) -> Result<String, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(self.inner.keys.switches()).arg(name);
        let work = self.work(SHARD, "reading a switch", vec![command], self.switch_keys());
        let kept = self.run(&work).await?.into_iter().next().and_then(bytes).unwrap_or_default();
        let digits: Vec<u8> = kept.iter().copied().take_while(u8::is_ascii_digit).collect();
        let is_version = !digits.is_empty() && kept.get(digits.len()) == Some(&b' ');
        Ok(if is_version { String::from_utf8(digits).unwrap_or_default() } else { "0".to_owned() })
    }

    fn switch_keys(&self) -> Vec<String> {
        vec![self.inner.keys.switches(), self.inner.keys.switch_log()]
    }
}

fn encode(record: &Record) -> Result<String, StoreError> {
    let unwritable = |error| StoreError::Corrupt(format!("a switch cannot be written as JSON: {error}"));
    serde_json::to_string(record).map_err(unwritable)
}

/// `VERSION AT RECORD`.
fn decode(name: &str, kept: &str) -> Option<SetSwitch> {
    let mut parts = kept.splitn(3, ' ');
    let (version, at_ms) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    if version >= VERSION_MAX {
        return None;
    }
    let Record { value, who, why } = serde_json::from_str(parts.next()?).ok()?;
    Some(SetSwitch { name: name.to_owned(), value, version, at_ms, who, why })
}

/// The answer of `XREAD`; an entry that somebody else wrote is passed over. `None`: nothing came.
fn changes(answer: Value) -> Option<Vec<SetSwitch>> {
    let stream = list(answer)?.into_iter().next()?;
    let entries = list(list(stream)?.into_iter().nth(1)?)?;
    Some(entries.into_iter().filter_map(change).collect())
}

fn change(entry: Value) -> Option<SetSwitch> {
    let fields = list(list(entry)?.into_iter().nth(1)?)?;
    let mut values = fields.into_iter().skip(1).step_by(2).map(text);
    let (name, kept) = (values.next()??, values.next()??);
    decode(&name, &kept)
}
