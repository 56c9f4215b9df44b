//! Risk lists in Redis: one hash for what is listed, one stream for those who follow, changed together by functions.
//!
//! Both lie in the slot of shard 0 beside the switches, and belong to no shard: recoveries do not touch them. Waiting for a
//! change blocks a connection that nothing else uses. A step whose answer is lost is sent again: it may stand twice in
//! the stream, with the same outcome. Whoever follows compares: every step names the version before it, so that one that
//! is missing shows, and so does a Redis that came back with less than it had.

use std::time::Duration;

use redis::Value;
use serde::{Deserialize, Serialize};

use super::answers::{list, malformed, number, text};
use super::library;
use super::nodes::Use;
use super::shards::{RedisShards, Work};
use super::streams::{BLOCK_MAX, put_block};
use crate::stock::calls::ShardId;
use crate::store::StoreError;
use crate::store::risk::{
    Change, Entry, FLAGGED_BY, Followed, NewEntry, NewFlag, Page, Removed, RiskStore, STEP_ENTRIES,
};

/// Whose slot they lie in.
const SHARD: ShardId = ShardId::ALL[0];
/// Steps that are remembered.
const STEPS_KEPT: usize = 1000;
/// Steps told at a time.
const STEPS_MAX: usize = 100;
/// Entries that a page has, about: it is made in one go, and everybody else waits meanwhile.
const PAGE_ENTRIES: usize = 1000;

/// Who and why.
#[derive(Serialize, Deserialize)]
struct Record {
    who: String,
    why: String,
}

impl RiskStore for RedisShards {
    async fn risk_add(&self, entries: &[NewEntry]) -> Result<u64, StoreError> {
        let mut version = if entries.is_empty() { self.risk_version().await? } else { 0 };
        for step in entries.chunks(STEP_ENTRIES) {
            version = self.put_risk(library::RISK_ADD, "listing", step).await?.0;
        }
        Ok(version)
    }

    async fn risk_restore(&self, lost: &[NewEntry]) -> Result<u64, StoreError> {
        let mut restored = 0_u64;
        for step in lost.chunks(STEP_ENTRIES) {
            let (_, some) =
                self.put_risk(library::RISK_RESTORE, "putting back what was listed", step).await?;
            restored = restored.saturating_add(some);
        }
        Ok(restored)
    }

    async fn risk_flag(&self, flags: &[NewFlag]) -> Result<Vec<bool>, StoreError> {
        let what = "flagging";
        let mut stand = Vec::with_capacity(flags.len());
        for step in flags.chunks(STEP_ENTRIES) {
            let records = step.iter().map(|flag| record(&flag.entry)).collect::<Result<Vec<_>, _>>()?;
            let answer = self.function(SHARD, what, library::RISK_FLAG, self.risk_keys(), |command| {
                command.arg(STEPS_KEPT);
                for (NewFlag { entry, seen }, record) in step.iter().zip(records) {
                    command.arg(&entry.subject).arg(entry.until_ms).arg(&entry.effect).arg(record);
                    command.arg(seen.as_ref().map_or_else(String::new, beginning));
                }
            });
            let answer = text(answer.await?).filter(|told| told.len() == step.len());
            let answer = answer.ok_or_else(|| malformed(what, SHARD, "other than a digit for each"))?;
            stand.extend(answer.bytes().map(|digit| digit == b'1'));
        }
        Ok(stand)
    }

    async fn risk_remove(&self, subjects: &[String]) -> Result<Removed, StoreError> {
        let what = "taking off a list";
        let mut removed = Removed { version: self.risk_version().await?, entries: 0 };
        for step in subjects.chunks(STEP_ENTRIES) {
            let answer = self.function(SHARD, what, library::RISK_REMOVE, self.risk_keys(), |command| {
                command.arg(STEPS_KEPT).arg(step);
            });
            let (version, entries) = version_and_count(what, answer.await?)?;
            removed = Removed { version, entries: removed.entries.saturating_add(entries) };
        }
        Ok(removed)
    }

    async fn risk_find(&self, subjects: &[String]) -> Result<Vec<Entry>, StoreError> {
        let mut found = Vec::new();
        for some in subjects.chunks(STEP_ENTRIES) {
            let mut command = redis::cmd("HMGET");
            command.arg(self.inner.keys.risk()).arg(some);
            let kept = list(self.ask_risk("looking up", command).await?).unwrap_or_default();
            let pairs = some.iter().zip(kept.into_iter().map(text));
            found.extend(pairs.filter_map(|(subject, kept)| Some(entry(subject.clone(), &kept?))));
        }
        Ok(found)
    }

    async fn risk_page(&self, cursor: Option<&str>) -> Result<Page<Entry>, StoreError> {
        self.scan_risk(cursor, |subject, kept| entry(subject, &kept)).await
    }

    async fn risk_scan(&self, cursor: Option<&str>) -> Result<Page<Change>, StoreError> {
        let change = |subject, kept: String| {
            // What cannot be read has no effect that anybody knows.
            let (listed, _, record) = standing(&kept).unwrap_or_default();
            Change { subject, listed: Some(listed), is_flag: is_flag(record) }
        };
        self.scan_risk(cursor, change).await
    }

    async fn risk_version(&self) -> Result<u64, StoreError> {
        Ok(self.risk_field("version").await?.unwrap_or_default())
    }

    async fn risk_changes(&self, after: u64, wait: Duration) -> Result<Followed, StoreError> {
        let block = wait.min(BLOCK_MAX);
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(STEPS_MAX);
        put_block(&mut command, Some(block));
        command.arg("STREAMS").arg(self.inner.keys.risk_log()).arg(format!("{after}-0"));
        let work = Work {
            purpose: Use::Risk,
            within: self.inner.options.call_timeout.saturating_add(block),
            ..self.work(SHARD, "following the risk lists", vec![command], self.risk_keys())
        };
        let answer = self.run(&work).await?.into_iter().next().unwrap_or_default();
        let Some(steps) = steps(answer) else { return self.nothing_came(after).await };
        let mut version = after;
        let mut changes = Vec::new();
        for step in steps {
            let Some(step) = step.filter(|step| step.before == version) else {
                return self.what_is_missing(after).await;
            };
            version = step.version;
            changes.extend(step.changes);
        }
        Ok(Followed::Changes { version, changes })
    }
}

impl RedisShards {
    fn risk_keys(&self) -> Vec<String> {
        let keys = &self.inner.keys;
        vec![keys.risk(), keys.risk_log(), keys.risk_until()]
    }

    async fn put_risk(
        &self,
        function: &str,
        what: &'static str,
        step: &[NewEntry],
    ) -> Result<(u64, u64), StoreError> {
        let records = step.iter().map(record).collect::<Result<Vec<_>, _>>()?;
        let answer = self.function(SHARD, what, function, self.risk_keys(), |command| {
            command.arg(STEPS_KEPT);
            for (entry, record) in step.iter().zip(records) {
                command.arg(&entry.subject).arg(entry.until_ms).arg(&entry.effect).arg(record);
            }
        });
        version_and_count(what, answer.await?)
    }

    async fn ask_risk(&self, what: &'static str, command: redis::Cmd) -> Result<Value, StoreError> {
        let answers = self.run(&self.work(SHARD, what, vec![command], self.risk_keys())).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    async fn risk_field(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(self.inner.keys.risk()).arg(name);
        Ok(number(self.ask_risk("reading the version of the risk lists", command).await?))
    }

    async fn scan_risk<T>(
        &self,
        cursor: Option<&str>,
        made: impl Fn(String, String) -> T,
    ) -> Result<Page<T>, StoreError> {
        let what = "reading the risk lists";
        let mut command = redis::cmd("HSCAN");
        command.arg(self.inner.keys.risk()).arg(cursor.unwrap_or("0")).arg("COUNT").arg(PAGE_ENTRIES);
        let mut parts = list(self.ask_risk(what, command).await?).unwrap_or_default().into_iter();
        let next = parts.next().and_then(text).ok_or_else(|| malformed(what, SHARD, "no cursor"))?;
        let mut fields = parts.next().and_then(list).unwrap_or_default().into_iter().map(text);
        let mut found = Vec::new();
        while let (Some(subject), Some(kept)) = (fields.next(), fields.next()) {
            // Subjects hold a colon; what is no text is nobody's subject.
            if let Some(subject) = subject.filter(|subject| subject.contains(':')) {
                found.push(made(subject, kept.unwrap_or_default()));
            }
        }
        Ok(Page { found, next: Some(next).filter(|next| next != "0") })
    }

    /// Nothing came. That is so as well where the lists were lost, or the stream.
    async fn nothing_came(&self, after: u64) -> Result<Followed, StoreError> {
        let version = self.risk_version().await?;
        if version < after {
            return Ok(Followed::Lost);
        }
        let unchanged = Followed::Changes { version: after, changes: Vec::new() };
        if version == after {
            return Ok(unchanged);
        }
        // It was changed since then, or it is no use to wait for a step that is gone.
        let mut command = redis::cmd("XREVRANGE");
        command.arg(self.inner.keys.risk_log()).arg("+").arg(format!("({after}-0")).arg("COUNT").arg(1);
        let newer = list(self.ask_risk("following the risk lists", command).await?).unwrap_or_default();
        Ok(if newer.is_empty() { Followed::Overrun } else { unchanged })
    }

    /// Why the step after this version is not there: it was forgotten, or the version itself never was here.
    async fn what_is_missing(&self, after: u64) -> Result<Followed, StoreError> {
        if self.risk_field("born").await?.is_none_or(|born| after > 0 && born > after) {
            return Ok(Followed::Lost);
        }
        let mut command = redis::cmd("XREVRANGE");
        command.arg(self.inner.keys.risk_log()).arg(format!("{after}-0")).arg("-").arg("COUNT").arg(1);
        let newest = list(self.ask_risk("following the risk lists", command).await?).unwrap_or_default();
        let newest = newest.into_iter().next().and_then(step).map(|step| step.version);
        Ok(if newest.is_some_and(|newest| newest < after) { Followed::Lost } else { Followed::Overrun })
    }
}

/// `VERSION COUNT`.
fn version_and_count(what: &str, answer: Value) -> Result<(u64, u64), StoreError> {
    let answer = text(answer).unwrap_or_default();
    let numbers = answer
        .split_once(' ')
        .and_then(|(version, count)| Some((version.parse().ok()?, count.parse().ok()?)));
    numbers.ok_or_else(|| malformed(what, SHARD, "no version"))
}

fn record(NewEntry { who, why, .. }: &NewEntry) -> Result<String, StoreError> {
    let record = serde_json::to_string(&Record { who: who.clone(), why: why.clone() });
    record.map_err(|error| StoreError::Corrupt(format!("an entry cannot be written as JSON: {error}")))
}

/// As records are written above; the functions look at no more of one, either.
fn is_flag(record: &str) -> bool {
    record.strip_prefix("{\"who\":\"").is_some_and(|who| who.starts_with(FLAGGED_BY))
}

/// How what is kept of an entry begins.
fn beginning(Entry { at_ms, until_ms, effect, .. }: &Entry) -> String {
    format!("{at_ms} {until_ms} {effect} ")
}

/// `AT UNTIL EFFECT RECORD`: effect and until, at, record.
fn standing(kept: &str) -> Option<((String, u64), u64, &str)> {
    let mut parts = kept.splitn(4, ' ');
    let (at_ms, until_ms) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(((parts.next()?.to_owned(), until_ms), at_ms, parts.next()?))
}

fn entry(subject: String, kept: &str) -> Entry {
    let read = standing(kept).and_then(|(listed, at_ms, record)| {
        let Record { who, why } = serde_json::from_str(record).ok()?;
        Some((listed, at_ms, who, why))
    });
    let ((effect, until_ms), at_ms, who, why) = read.unwrap_or_default();
    Entry { subject, effect, until_ms, at_ms, who, why }
}

struct Step {
    before: u64,
    version: u64,
    changes: Vec<Change>,
}

/// The answer of `XREAD`; `None`: nothing came. A step that cannot be read is as good as missing.
fn steps(answer: Value) -> Option<Vec<Option<Step>>> {
    let stream = list(answer)?.into_iter().next()?;
    let entries = list(list(stream)?.into_iter().nth(1)?)?;
    Some(entries.into_iter().map(step).collect())
}

fn step(entry: Value) -> Option<Step> {
    let mut parts = list(entry)?.into_iter();
    let id = parts.next().and_then(text)?;
    let version = id.strip_suffix("-0")?.parse().ok()?;
    let mut values = list(parts.next()?)?.into_iter().skip(1).step_by(2).map(text);
    let (before, lines) = (values.next()??.parse().ok()?, values.next()??);
    let flags = values.next().flatten().unwrap_or_default();
    let flags = flags.bytes().map(|digit| digit == b'1').chain(std::iter::repeat(false));
    let changes =
        lines.lines().zip(flags).map(|(line, is_flag)| change(line, is_flag)).collect::<Option<_>>()?;
    Some(Step { before, version, changes })
}

/// `EFFECT UNTIL SUBJECT`.
fn change(line: &str, is_flag: bool) -> Option<Change> {
    let mut parts = line.splitn(3, ' ');
    let (effect, until_ms) = (parts.next()?, parts.next()?.parse().ok()?);
    let subject = parts.next()?.to_owned();
    Some(Change { subject, listed: (effect != "-").then(|| (effect.to_owned(), until_ms)), is_flag })
}
