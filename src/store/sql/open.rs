//! Opening a data folder: the folder, its lock, the connections, the schema and its version.
//!
//! Run once at the start of a serving process or of an operator's command. Changes nothing when it fails, but
//! for a folder or an empty database that it may have created.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::error::{Failure, OpenError};
use super::lock::{FolderLock, Role};

/// The schema; a change of it is a new file, never an edit.
static MIGRATOR: Migrator = sqlx::migrate!("./migrations/sqlite");

const FILE_NAME: &str = "rushgate.db";

/// How long an operator's command waits for the serving process's transactions.
const OPERATOR_BUSY: Duration = Duration::from_secs(30);

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Every commit is on the disk before it is answered: a power cut loses no acknowledged order.
    #[default]
    Full,
    /// A power cut may lose the last acknowledged orders; a killed process loses nothing.
    Normal,
    /// A power cut may damage the database. For rehearsals only.
    Off,
}

impl Synchronous {
    const fn sqlite(self) -> SqliteSynchronous {
        match self {
            Self::Full => SqliteSynchronous::Full,
            Self::Normal => SqliteSynchronous::Normal,
            Self::Off => SqliteSynchronous::Off,
        }
    }
}

/// How a serving process opens its store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The folder; created when missing.
    pub data_dir: PathBuf,
    /// When a commit counts as done.
    pub synchronous: Synchronous,
    /// Events kept per shard for readers that lag; one that lags further takes a snapshot.
    pub feed_events_max: usize,
    /// Connections for snapshots and the catalogue.
    pub read_connections: u32,
    /// How long a transaction waits for another process's.
    pub busy_timeout: Duration,
}

impl OpenOptions {
    /// The defaults, for one folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            synchronous: Synchronous::Full,
            feed_events_max: 4096,
            read_connections: 4,
            busy_timeout: Duration::from_secs(5),
        }
    }
}

/// What opening an absent database does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// Creates the folder and the database.
    Create,
    /// Fails with [`OpenError::Missing`].
    Refuse,
}

pub(super) fn writing(options: &OpenOptions) -> SqliteConnectOptions {
    connect_options(&options.data_dir, options.busy_timeout)
        .synchronous(options.synchronous.sqlite())
        // Fewer, larger checkpoints: a hot page is then copied into the database once for many commits.
        .pragma("wal_autocheckpoint", "8000")
        .pragma("cache_size", "-65536")
}

pub(super) fn reading(options: &OpenOptions) -> SqliteConnectOptions {
    connect_options(&options.data_dir, options.busy_timeout)
        .pragma("query_only", "ON")
        // Snapshots are long; rows travel from the connection's thread in larger portions.
        .row_buffer_size(1024)
}

fn connect_options(folder: &Path, busy_timeout: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(folder.join(FILE_NAME))
        .busy_timeout(busy_timeout)
        .foreign_keys(true)
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
}

/// Creates the folder, locks it, brings the database up to date.
pub(super) async fn open_to_serve(
    options: &OpenOptions,
) -> Result<(FolderLock, SqliteConnection), OpenError> {
    create_folder(&options.data_dir)?;
    let lock = FolderLock::acquire_to_serve(&options.data_dir).await?;
    let connection = connect_and_migrate(&options.data_dir, writing(options)).await?;
    Ok((lock, connection))
}

/// A connection for an operator's command. Where nobody serves the folder, the database is brought up to date;
/// else its version has to be this program's.
pub(super) async fn open_to_operate(
    folder: &Path,
    if_missing: IfMissing,
) -> Result<SqliteConnection, OpenError> {
    match if_missing {
        IfMissing::Create => create_folder(folder)?,
        IfMissing::Refuse if !folder.join(FILE_NAME).exists() => {
            return Err(OpenError::Missing { path: folder.into() });
        }
        IfMissing::Refuse => {}
    }
    let connecting = connect_options(folder, OPERATOR_BUSY).synchronous(SqliteSynchronous::Full);
    // A server that is creating the database, or a neighbouring command, needs a moment.
    let mut last = Ok(());
    for _ in 0..150 {
        if let Some(_lock) = FolderLock::try_acquire(folder, Role::Operator)? {
            return connect_and_migrate(folder, connecting).await;
        }
        match connect_checked(folder, &connecting).await {
            Ok(connection) => return Ok(connection),
            Err(error @ OpenError::Newer { .. }) => return Err(error),
            Err(error) => last = Err(error),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    last?;
    Err(OpenError::Older { path: folder.into() })
}

fn create_folder(folder: &Path) -> Result<(), OpenError> {
    std::fs::create_dir_all(folder).map_err(|error| OpenError::folder(folder, &error))
}

async fn connect_and_migrate(
    folder: &Path,
    options: SqliteConnectOptions,
) -> Result<SqliteConnection, OpenError> {
    let failed = |error: sqlx::Error| OpenError::from_failure(folder, Failure::Sql(error));
    // The journal mode stays with the file; only the holder of the lock changes it.
    let options = options.create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    // A pool of one, because the migrator's future is `Send` for a pool only.
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.map_err(failed)?;
    if let Err(error) = MIGRATOR.run(&pool).await {
        return Err(match error {
            MigrateError::VersionMissing(version) => newer(folder, version),
            MigrateError::VersionMismatch(version) => OpenError::Newer {
                path: folder.into(),
                reason: format!("its schema change {version} is not the one this version knows"),
            },
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => failed(error),
            other => OpenError::Corrupt { path: folder.into(), reason: other.to_string() },
        });
    }
    Ok(pool.acquire().await.map_err(failed)?.detach())
}

/// Connects to a database that somebody else serves; its schema has to be exactly ours.
async fn connect_checked(
    folder: &Path,
    options: &SqliteConnectOptions,
) -> Result<SqliteConnection, OpenError> {
    let failed = |error: sqlx::Error| OpenError::from_failure(folder, Failure::Sql(error));
    let mut connection = SqliteConnection::connect_with(options).await.map_err(failed)?;
    let applied: Vec<i64> = sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
        .fetch_all(&mut connection)
        .await
        .map_err(failed)?;
    if let Some(unknown) = applied.iter().find(|version| !MIGRATOR.version_exists(**version)) {
        return Err(newer(folder, *unknown));
    }
    if MIGRATOR.iter().any(|migration| !applied.contains(&migration.version)) {
        return Err(OpenError::Older { path: folder.into() });
    }
    Ok(connection)
}

fn newer(folder: &Path, version: i64) -> OpenError {
    OpenError::Newer { path: folder.into(), reason: format!("schema change {version} is unknown here") }
}

/// Opens the next generation: its number is raised, its feeds start empty.
pub(super) async fn raise_generation(connection: &mut SqliteConnection, now_ms: u64) -> Result<u64, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let generation: i64 = sqlx::query_scalar("UPDATE installation SET gen = gen + 1 RETURNING gen")
        .fetch_one(&mut *transaction)
        .await?;
    sqlx::query("UPDATE shards SET seq = 0").execute(&mut *transaction).await?;
    // Late copies of an ended process's calls carry its generation, which refuses them for ever; an hour is
    // kept all the same, so that a reply can be looked up after a crash.
    let forget_before = super::rows::signed(now_ms.saturating_sub(3_600_000));
    sqlx::query("DELETE FROM calls WHERE at_ms < ?").bind(forget_before).execute(&mut *transaction).await?;
    transaction.commit().await?;
    super::rows::unsigned(generation)
}
