//! The rows of switches in the embedded store: what holds, and what was changed.
//!
//! Statements on a connection that the caller has; see `switch_stores` for who that is. Time is an argument.

use sqlx::{Connection, FromRow, SqliteConnection, SqliteExecutor};

use super::error::Failure;
use super::rows;
use crate::store::switches::{CHANGES_KEPT, NewSwitch, SetSwitch, Switches, VERSION_MAX};

/// Changes told at a time.
const CHANGES_MAX: i64 = 100;

/// One transaction: what holds, and that it was changed.
pub(super) async fn set(
    connection: &mut SqliteConnection,
    new: &NewSwitch,
    now_ms: u64,
) -> Result<u64, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let last: Option<i64> = sqlx::query_scalar("SELECT MAX(version) FROM switch_changes WHERE version < ?")
        .bind(rows::signed(VERSION_MAX))
        .fetch_one(&mut *transaction)
        .await?;
    let at_ms = rows::signed(now_ms);
    let version = at_ms.max(last.unwrap_or(0).saturating_add(1));
    for statement in [
        "INSERT INTO switches (name, value, version, at_ms, who, why) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value, version = excluded.version, \
         at_ms = excluded.at_ms, who = excluded.who, why = excluded.why",
        "INSERT INTO switch_changes (name, value, version, at_ms, who, why) VALUES (?, ?, ?, ?, ?, ?)",
    ] {
        sqlx::query(statement)
            .bind(new.name.as_str())
            .bind(new.value.as_str())
            .bind(version)
            .bind(at_ms)
            .bind(new.who.as_str())
            .bind(new.why.as_str())
            .execute(&mut *transaction)
            .await?;
    }
    sqlx::query(
        "DELETE FROM switch_changes WHERE version <= \
         (SELECT version FROM switch_changes ORDER BY version DESC LIMIT 1 OFFSET ?)",
    )
    .bind(i64::try_from(CHANGES_KEPT).unwrap_or(i64::MAX))
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    rows::unsigned(version)
}

pub(super) async fn read<'c>(connection: impl SqliteExecutor<'c>) -> Result<Switches, Failure> {
    let found: Vec<Columns> = sqlx::query_as(
        "SELECT CAST(name AS BLOB) AS name, CAST(value AS BLOB) AS value, version, at_ms, \
         CAST(who AS BLOB) AS who, CAST(why AS BLOB) AS why FROM switches ORDER BY name",
    )
    .fetch_all(connection)
    .await?;
    let mut switches = Switches::default();
    for columns in found {
        let name = String::from_utf8_lossy(&columns.name).into_owned();
        match columns.switch() {
            Some(switch) => switches.set.push(switch),
            None => switches.unreadable.push(name),
        }
    }
    Ok(switches)
}

/// What cannot be read is passed over.
pub(super) async fn changes<'c>(
    connection: impl SqliteExecutor<'c>,
    after: u64,
) -> Result<Vec<SetSwitch>, Failure> {
    let found: Vec<Columns> = sqlx::query_as(
        "SELECT CAST(name AS BLOB) AS name, CAST(value AS BLOB) AS value, version, at_ms, \
         CAST(who AS BLOB) AS who, CAST(why AS BLOB) AS why FROM switch_changes \
         WHERE version > ? AND version < ? ORDER BY version LIMIT ?",
    )
    .bind(rows::signed(after))
    .bind(rows::signed(VERSION_MAX))
    .bind(CHANGES_MAX)
    .fetch_all(connection)
    .await?;
    Ok(found.into_iter().filter_map(Columns::switch).collect())
}

/// Texts as the bytes they are: somebody's hand may have put anything there.
#[derive(FromRow)]
struct Columns {
    name: Vec<u8>,
    value: Vec<u8>,
    version: i64,
    at_ms: i64,
    who: Vec<u8>,
    why: Vec<u8>,
}

impl Columns {
    /// `None`: it cannot be read.
    fn switch(self) -> Option<SetSwitch> {
        let text = |bytes| String::from_utf8(bytes).ok();
        let Self { name, value, version, at_ms, who, why } = self;
        let version = u64::try_from(version).ok().filter(|version| *version < VERSION_MAX)?;
        let at_ms = u64::try_from(at_ms).ok()?;
        Some(SetSwitch {
            name: text(name)?,
            value: text(value)?,
            version,
            at_ms,
            who: text(who)?,
            why: text(why)?,
        })
    }
}
