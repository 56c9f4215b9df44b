//! The rows of the risk lists in the embedded store: what is listed, and what was changed.
//!
//! Statements on a connection that the caller has; see `risk_stores` for who that is. Time is an argument.

use sqlx::{Connection, FromRow, SqliteConnection, SqliteExecutor};

use super::error::Failure;
use super::rows;
use crate::store::risk::{Change, Entry, Followed, NewEntry, Page, Removed};

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
    Remove(Vec<String>),
}

/// One transaction: what is listed, and that it was changed.
pub(super) async fn change(
    connection: &mut SqliteConnection,
    step: &Step,
    now_ms: u64,
) -> Result<Removed, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let before = version(&mut *transaction).await?;
    let at_ms = rows::signed(now_ms);
    let number = at_ms.max(rows::signed(before.saturating_add(1)));
    let mut changed = 0_i64;
    match step {
        Step::Add(entries) => {
            forget_passed(&mut transaction, at_ms, entries.len()).await?;
            for entry in entries {
                add(&mut transaction, entry, at_ms).await?;
                let until_ms = rows::signed(entry.until_ms);
                let change = (entry.subject.as_str(), entry.effect.as_str(), until_ms);
                remember(&mut transaction, (number, changed), before, change).await?;
                changed = changed.saturating_add(1);
            }
        }
        Step::Remove(subjects) => {
            for subject in subjects {
                let removed = sqlx::query("DELETE FROM risk_entries WHERE subject = ?")
                    .bind(subject.as_str())
                    .execute(&mut *transaction)
                    .await?;
                if removed.rows_affected() > 0 {
                    remember(&mut transaction, (number, changed), before, (subject, "", 0)).await?;
                    changed = changed.saturating_add(1);
                }
            }
        }
    }
    if changed == 0 {
        return Ok(Removed { version: before, entries: 0 });
    }
    sqlx::query(
        "DELETE FROM risk_changes WHERE version < \
         (SELECT version FROM risk_changes ORDER BY version DESC, nth DESC LIMIT 1 OFFSET ?)",
    )
    .bind(CHANGES_KEPT)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(Removed { version: rows::unsigned(number)?, entries: rows::unsigned(changed)? })
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
        changes.push(Change { subject, listed });
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
