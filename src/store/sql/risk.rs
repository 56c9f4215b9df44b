//! The rows of the risk lists in the embedded store: what is listed, and what was changed.
//!
//! Statements on a connection that the caller has; see `risk_stores` for who that is. Time is an argument.

use std::collections::HashMap;

use sqlx::{Connection, FromRow, SqliteConnection, SqliteExecutor};

use super::error::Failure;
use super::rows;
use crate::store::risk::{Change, Entry, Followed, NewEntry, NewFlag, Page, Removed};

/// Changed entries that are remembered, about.
const CHANGES_KEPT: i64 = 50_000;
/// Changed entries told at a time, and one step more.
const CHANGES_MAX: i64 = 20_000;
/// Entries of a page.
const PAGE_ENTRIES: i64 = 1000;

/// What is changed in one transaction.
#[derive(Debug)]
pub(super) enum Step {
    Add(Vec<NewEntry>),
    Flag(Vec<NewFlag>),
    Remove(Vec<String>),
}

/// What came of a step.
#[derive(Debug)]
pub(super) struct Done {
    /// Of the last change.
    pub(super) version: u64,
    /// Changed by this step.
    pub(super) entries: u64,
    /// Of flags: which of them are listed then.
    pub(super) stand: Vec<bool>,
}

impl From<Done> for Removed {
    fn from(Done { version, entries, .. }: Done) -> Self {
        Self { version, entries }
    }
}

/// A step that is being made.
struct Making<'c> {
    connection: &'c mut SqliteConnection,
    before: u64,
    /// The version that it gets.
    number: i64,
    at_ms: i64,
    changed: i64,
}

impl Making<'_> {
    async fn list(&mut self, entries: &[&NewEntry]) -> Result<(), Failure> {
        forget_passed(self.connection, self.at_ms, entries.len()).await?;
        for entry in entries {
            add(self.connection, entry, self.at_ms).await?;
            self.remember(&entry.subject, &entry.effect, rows::signed(entry.until_ms)).await?;
        }
        Ok(())
    }

    /// Whoever has looked before it, an operator was perhaps faster. Nobody else writes during this transaction.
    async fn flag(&mut self, flags: &[NewFlag]) -> Result<Vec<bool>, Failure> {
        let subjects: Vec<String> = flags.iter().map(|flag| flag.entry.subject.clone()).collect();
        let here: HashMap<String, Entry> = find(self.connection, &subjects)
            .await?
            .into_iter()
            .map(|entry| (entry.subject.clone(), entry))
            .collect();
        let now_ms = rows::unsigned(self.at_ms)?;
        let (mut stand, mut due) = (Vec::with_capacity(flags.len()), Vec::new());
        for NewFlag { entry, seen } in flags {
            let here = here.get(&entry.subject);
            let is_as_seen = match (here, seen) {
                (None, Some(seen)) => (1..=now_ms).contains(&seen.until_ms),
                (here, seen) => here == seen.as_ref(),
            };
            if is_as_seen {
                due.push(entry);
            }
            stand.push(is_as_seen || here.is_some_and(|here| is_same(here, entry)));
        }
        if !due.is_empty() {
            self.list(&due).await?;
        }
        Ok(stand)
    }

    async fn remove(&mut self, subjects: &[String]) -> Result<(), Failure> {
        for subject in subjects {
            let removed = sqlx::query("DELETE FROM risk_entries WHERE subject = ?")
                .bind(subject.as_str())
                .execute(&mut *self.connection)
                .await?;
            if removed.rows_affected() > 0 {
                self.remember(subject, "", 0).await?;
            }
        }
        Ok(())
    }

    async fn remember(&mut self, subject: &str, effect: &str, until_ms: i64) -> Result<(), Failure> {
        let place = (self.number, self.changed);
        remember(self.connection, place, self.before, (subject, effect, until_ms)).await?;
        self.changed = self.changed.saturating_add(1);
        Ok(())
    }
}

/// A copy of the step has come before.
fn is_same(here: &Entry, new: &NewEntry) -> bool {
    let NewEntry { subject, effect, until_ms, who, why } = new;
    (&here.subject, &here.effect, &here.until_ms, &here.who, &here.why)
        == (subject, effect, until_ms, who, why)
}

/// One transaction: what is listed, and that it was changed.
pub(super) async fn change(
    connection: &mut SqliteConnection,
    step: &Step,
    now_ms: u64,
) -> Result<Done, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let before = version(&mut *transaction).await?;
    let at_ms = rows::signed(now_ms);
    let number = at_ms.max(rows::signed(before.saturating_add(1)));
    let mut making = Making { connection: &mut transaction, before, number, at_ms, changed: 0 };
    let mut stand = Vec::new();
    match step {
        Step::Add(entries) => making.list(&entries.iter().collect::<Vec<_>>()).await?,
        Step::Flag(flags) => stand = making.flag(flags).await?,
        Step::Remove(subjects) => making.remove(subjects).await?,
    }
    let changed = making.changed;
    if changed == 0 {
        return Ok(Done { version: before, entries: 0, stand });
    }
    sqlx::query(
        "DELETE FROM risk_changes WHERE version < \
         (SELECT version FROM risk_changes ORDER BY version DESC, nth DESC LIMIT 1 OFFSET ?)",
    )
    .bind(CHANGES_KEPT)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(Done { version: rows::unsigned(number)?, entries: rows::unsigned(changed)?, stand })
}

/// Some of those whose time has passed, more than come in: what is listed for a time does not pile up.
async fn forget_passed(connection: &mut SqliteConnection, now_ms: i64, coming: usize) -> Result<(), Failure> {
    let some = i64::try_from(coming).unwrap_or(i64::MAX).saturating_mul(2).saturating_add(10);
    sqlx::query(
        "DELETE FROM risk_entries WHERE subject IN \
         (SELECT subject FROM risk_entries WHERE until_ms > 0 AND until_ms <= ? LIMIT ?)",
    )
    .bind(now_ms)
    .bind(some)
    .execute(connection)
    .await?;
    Ok(())
}

async fn add(connection: &mut SqliteConnection, entry: &NewEntry, at_ms: i64) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO risk_entries (subject, effect, until_ms, at_ms, who, why) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT (subject) DO UPDATE SET effect = excluded.effect, until_ms = excluded.until_ms, \
         at_ms = excluded.at_ms, who = excluded.who, why = excluded.why",
    )
    .bind(entry.subject.as_str())
    .bind(entry.effect.as_str())
    .bind(rows::signed(entry.until_ms))
    .bind(at_ms)
    .bind(entry.who.as_str())
    .bind(entry.why.as_str())
    .execute(connection)
    .await?;
    Ok(())
}

async fn remember(
    connection: &mut SqliteConnection,
    (version, nth): (i64, i64),
    before: u64,
    (subject, effect, until_ms): (&str, &str, i64),
) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO risk_changes (version, nth, before, subject, effect, until_ms) VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(version)
    .bind(nth)
    .bind(rows::signed(before))
    .bind(subject)
    .bind(effect)
    .bind(until_ms)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn version<'c>(connection: impl SqliteExecutor<'c>) -> Result<u64, Failure> {
    let last: Option<i64> =
        sqlx::query_scalar("SELECT MAX(version) FROM risk_changes").fetch_one(connection).await?;
    rows::unsigned(last.unwrap_or_default())
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    subjects: &[String],
) -> Result<Vec<Entry>, Failure> {
    let mut found = Vec::new();
    for subject in subjects {
        let columns: Option<Columns> = sqlx::query_as(
            "SELECT subject, effect, until_ms, at_ms, who, why FROM risk_entries WHERE subject = ?",
        )
        .bind(subject.as_str())
        .fetch_optional(&mut *connection)
        .await?;
        found.extend(columns.map(Columns::entry).transpose()?);
    }
    Ok(found)
}

/// In the order of their subjects: the cursor is the last one seen.
pub(super) async fn page<'c>(
    connection: impl SqliteExecutor<'c>,
    cursor: Option<&str>,
) -> Result<Page<Entry>, Failure> {
    let columns: Vec<Columns> = sqlx::query_as(
        "SELECT subject, effect, until_ms, at_ms, who, why FROM risk_entries WHERE subject > ? \
         ORDER BY subject LIMIT ?",
    )
    .bind(cursor.unwrap_or_default())
    .bind(PAGE_ENTRIES)
    .fetch_all(connection)
    .await?;
    let is_full = i64::try_from(columns.len()).is_ok_and(|found| found >= PAGE_ENTRIES);
    let found = columns.into_iter().map(Columns::entry).collect::<Result<Vec<_>, _>>()?;
    let next = found.last().filter(|_| is_full).map(|last| last.subject.clone());
    Ok(Page { found, next })
}

/// What changed after a version; whole steps. `None`: nothing.
pub(super) async fn changes<'c>(
    connection: impl SqliteExecutor<'c>,
    after: u64,
) -> Result<Option<Followed>, Failure> {
    // Up to the end of the step in which there are enough of them.
    let found: Vec<(i64, i64, String, String, i64)> = sqlx::query_as(
        "SELECT version, before, subject, effect, until_ms FROM risk_changes WHERE version > ?1 AND version <= \
         COALESCE((SELECT version FROM risk_changes WHERE version > ?1 ORDER BY version, nth LIMIT 1 OFFSET ?2), \
         9223372036854775807) ORDER BY version, nth",
    )
    .bind(rows::signed(after))
    .bind(CHANGES_MAX)
    .fetch_all(connection)
    .await?;
    let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(None) };
    if rows::unsigned(first.1)? != after {
        return Ok(Some(Followed::Overrun));
    }
    let version = rows::unsigned(last.0)?;
    let mut changes = Vec::with_capacity(found.len());
    for (_, _, subject, effect, until_ms) in found {
        let until_ms = rows::unsigned(until_ms)?;
        let listed = (!effect.is_empty()).then_some((effect, until_ms));
        changes.push(Change { subject, listed, is_flag: false });
    }
    Ok(Some(Followed::Changes { version, changes }))
}

#[derive(FromRow)]
struct Columns {
    subject: String,
    effect: String,
    until_ms: i64,
    at_ms: i64,
    who: String,
    why: String,
}

impl Columns {
    fn entry(self) -> Result<Entry, Failure> {
        let Self { subject, effect, until_ms, at_ms, who, why } = self;
        let (until_ms, at_ms) = (rows::unsigned(until_ms)?, rows::unsigned(at_ms)?);
        Ok(Entry { subject, effect, until_ms, at_ms, who, why })
    }
}
