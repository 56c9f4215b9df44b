//! The rows of switches in the embedded store: what holds, and what was changed.
//!
//! Statements on a connection that the caller has; see `switch_stores` for who that is. Time is an argument.

use sqlx::{Connection, FromRow, SqliteConnection, SqliteExecutor};

use super::error::Failure;
use super::rows;
use crate::store::switches::{CHANGES_KEPT, NewSwitch, SetSwitch, Switches};

/// Changes told at a time.
const CHANGES_MAX: i64 = 100;

/// One transaction: what holds, and that it was changed.
pub(super) async fn set(
    connection: &mut SqliteConnection,
    new: &NewSwitch,
    now_ms: u64,
) -> Result<u64, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let last: Option<i64> =
        sqlx::query_scalar("SELECT MAX(version) FROM switch_changes").fetch_one(&mut *transaction).await?;
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
    let found: Vec<Columns> =
        sqlx::query_as("SELECT name, value, version, at_ms, who, why FROM switches ORDER BY name")
            .fetch_all(connection)
            .await?;
    let set = found.into_iter().map(Columns::switch).collect::<Result<_, _>>()?;
    Ok(Switches { set, unreadable: Vec::new() })
}

pub(super) async fn changes<'c>(
    connection: impl SqliteExecutor<'c>,
    after: u64,
) -> Result<Vec<SetSwitch>, Failure> {
    let found: Vec<Columns> = sqlx::query_as(
        "SELECT name, value, version, at_ms, who, why FROM switch_changes WHERE version > ? \
         ORDER BY version LIMIT ?",
    )
    .bind(rows::signed(after))
    .bind(CHANGES_MAX)
    .fetch_all(connection)
    .await?;
    found.into_iter().map(Columns::switch).collect()
}

#[derive(FromRow)]
struct Columns {
    name: String,
    value: String,
    version: i64,
    at_ms: i64,
    who: String,
    why: String,
}

impl Columns {
    fn switch(self) -> Result<SetSwitch, Failure> {
        let Self { name, value, version, at_ms, who, why } = self;
        let (version, at_ms) = (rows::unsigned(version)?, rows::unsigned(at_ms)?);
        Ok(SetSwitch { name, value, version, at_ms, who, why })
    }
}
