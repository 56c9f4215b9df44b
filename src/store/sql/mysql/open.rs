//! Opening an installation: the connections, the server's version, the schema.
//!
//! Run once at the start of a process or of an operator's command. Several may start at once: the schema is brought
//! up to date under a lock of the server. Changes nothing else.

use std::fmt;
use std::io;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode};
use sqlx::{ConnectOptions, Connection, Executor, MySqlConnection, MySqlPool};

use super::MySqlInstallation;
use super::failure;

/// The schema; a change of it is a new file, never an edit.
static MIGRATOR: Migrator = sqlx::migrate!("./migrations/mysql");

/// How long a starting process waits for another one that changes the schema.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(60);
/// How long a connection that is given back may take to answer.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a statement waits for another transaction's lock before its own is run again.
const LOCK_WAIT_SECONDS: u32 = 5;
/// A connection that nobody used for this part of what the server allows is closed by the pool itself, which looks
/// that often: the server never has to.
const IDLE_PARTS: u32 = 3;

/// Where the database is and how it is used.
#[derive(Clone)]
pub struct MySqlOptions {
    /// Name or address of the server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who logs in.
    pub user: String,
    /// With which password, if any.
    pub password: Option<String>,
    /// The installation's database; it has to be there.
    pub database: String,
    /// Connections in the pool at most.
    pub connections_max: u32,
    /// How long a new connection, or one from the pool, may take.
    pub connect_timeout: Duration,
    /// How long a transaction may go unanswered before its connection counts as lost.
    pub call_timeout: Duration,
    /// How long the server keeps a session that says nothing, within a transaction or not: when a host vanishes
    /// without closing its connections, its locks are free after that. Whole seconds, at least one.
    pub session_idle_max: Duration,
    /// Events per shard that the SQL reservation store keeps for readers that lag.
    pub feed_events_max: u32,
}

/// Without the password.
impl fmt::Debug for MySqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address();
        f.debug_struct("MySqlOptions")
            .field("address", &address)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl MySqlOptions {
    /// The defaults, for one database.
    pub fn new(
        host: impl Into<String>,
        port: u16,
        user: impl Into<String>,
        database: impl Into<String>,
    ) -> Self {
        Self {
            host: host.into(),
            port,
            user: user.into(),
            password: None,
            database: database.into(),
            connections_max: 8,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            session_idle_max: Duration::from_secs(15),
            feed_events_max: 4096,
        }
    }

    fn address(&self) -> String {
        format!("{}:{}/{}", self.host, self.port, self.database)
    }

    fn connecting(&self) -> MySqlConnectOptions {
        let options = MySqlConnectOptions::new()
            .host(&self.host)
            .port(self.port)
            .username(&self.user)
            .database(&self.database)
            // This build carries no TLS; a connection that asks for it in vain costs a round trip.
            .ssl_mode(MySqlSslMode::Disabled)
            .statement_cache_capacity(512)
            .disable_statement_logging();
        match &self.password {
            Some(password) => options.password(password),
            None => options,
        }
    }
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum MySqlOpenError {
    /// Nobody answers there, or not in time.
    #[error("the database {address} does not answer: {reason}; it is tried again")]
    Unreachable {
        /// Host, port and database.
        address: String,
        /// What was met.
        reason: String,
    },
    /// The server refuses the user.
    #[error("the database {address} refuses the user {user}: {reason}; check user, password and grants")]
    AccessDenied {
        /// Host, port and database.
        address: String,
        /// Who logged in.
        user: String,
        /// What the server said.
        reason: String,
    },
    /// The server has no such database.
    #[error("there is no database {address}: {reason}; create it first (CREATE DATABASE)")]
    NoDatabase {
        /// Host, port and database.
        address: String,
        /// What the server said.
        reason: String,
    },
    /// The server is read-only and its schema is not up to date.
    #[error("the database {address} is read-only: {reason}; it is tried again")]
    ReadOnly {
        /// Host, port and database.
        address: String,
        /// What the server said.
        reason: String,
    },
    /// The server is too old.
    #[error("the database {address} is {version}; MariaDB 10.6 or MySQL 8.0 is the oldest that serves")]
    TooOld {
        /// Host, port and database.
        address: String,
        /// What the server says it is.
        version: String,
    },
    /// The schema was written by a newer version.
    #[error("the schema of {address} is from a newer rushgate ({reason}); run that version or a newer one")]
    Newer {
        /// Host, port and database.
        address: String,
        /// Which change this version does not know.
        reason: String,
    },
    /// The schema could not be brought up to date.
    #[error(
        "the schema of {address} cannot be brought up to date: {reason}; mend the cause, or restore a backup"
    )]
    Schema {
        /// Host, port and database.
        address: String,
        /// What the server said.
        reason: String,
    },
}

impl MySqlOpenError {
    /// Whether it may go well later without anybody's doing: try again after a pause.
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::ReadOnly { .. })
    }

    fn of(options: &MySqlOptions, error: &sqlx::Error) -> Self {
        let (address, reason) = (options.address(), error.to_string());
        match failure::number(error) {
            Some(1044 | 1045 | 1142 | 1227 | 1698) => {
                Self::AccessDenied { address, user: options.user.clone(), reason }
            }
            Some(1049) => Self::NoDatabase { address, reason },
            // Too many connections, shutting down, aborting.
            Some(1040 | 1053 | 1203) | None => Self::Unreachable { address, reason },
            Some(_) if failure::is_read_only(error) => Self::ReadOnly { address, reason },
            Some(_) => Self::Schema { address, reason },
        }
    }

    fn of_schema(options: &MySqlOptions, error: &MigrateError) -> Self {
        let address = options.address();
        match error {
            MigrateError::VersionMissing(version) => {
                Self::Newer { address, reason: format!("schema change {version} is unknown here") }
            }
            MigrateError::VersionMismatch(version) => Self::Newer {
                address,
                reason: format!("its schema change {version} is not the one this version knows"),
            },
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                Self::of(options, error)
            }
            other => Self::Schema { address, reason: other.to_string() },
        }
    }
}

/// What every connection is told before it is used.
async fn prepare(connection: &mut MySqlConnection, idle_max: Duration) -> Result<(), sqlx::Error> {
    // Strict: a value that does not fit is an error, never another value. Read committed: a unique key's refusal
    // is followed by a look at the row that is in the way, which a snapshot would hide. And the end of a session
    // whose other end has vanished, between two statements or in the middle of one; by itself a server waits for
    // hours, and TCP keeps nobody's locks free.
    let idle_max_s = idle_max.as_secs().max(1);
    let settings = format!(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', \
         SESSION innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}, SESSION wait_timeout = {idle_max_s}, \
         SESSION net_read_timeout = {idle_max_s}"
    );
    connection.execute(sqlx::AssertSqlSafe(settings)).await?;
    connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
    Ok(())
}

/// Asked before a connection goes back to the pool. The pool asks by itself, but without a limit of time: a few
/// connections whose other end has vanished would be all that it may have. And whoever was dropped while his BEGIN was
/// under way has left a transaction open that nobody counts: what the next one writes would not be committed.
async fn still_answers(connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let rolled_back = sqlx::raw_sql("ROLLBACK").execute(connection);
    within(RELEASE_PATIENCE, rolled_back).await.map(|_| true)
}

/// A connection beside the pool, for what ends with it.
pub(super) async fn connect(
    options: &MySqlOptions,
    idle_max: Duration,
) -> Result<MySqlConnection, sqlx::Error> {
    let connecting = async {
        let mut connection = options.connecting().connect().await?;
        prepare(&mut connection, idle_max).await?;
        Ok(connection)
    };
    within(options.connect_timeout, connecting).await
}

/// A half-open link would otherwise be waited for for ever.
async fn within<T>(
    patience: Duration,
    asking: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let answer = tokio::time::timeout(patience, asking).await;
    answer.unwrap_or_else(|_| {
        let silent = format!("no answer within {patience:?}");
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, silent)))
    })
}

pub(super) async fn open(options: MySqlOptions) -> Result<MySqlInstallation, MySqlOpenError> {
    let failed = |error: sqlx::Error| MySqlOpenError::of(&options, &error);
    let mut first = connect(&options, options.session_idle_max).await.map_err(failed)?;
    check_server(&options, &mut first).await?;
    let migrated = migrate(&options, &mut first).await;
    let _ = within(RELEASE_PATIENCE, first.close()).await;
    migrated?;
    let pool = pool(&options, options.connections_max);
    Ok(MySqlInstallation::new(options, pool))
}

/// Asks a connection before it hands it out, so that one which the server has closed is nobody's error.
fn pool(options: &MySqlOptions, connections_max: u32) -> MySqlPool {
    let idle_max = options.session_idle_max;
    MySqlPoolOptions::new()
        .max_connections(connections_max.max(2))
        .acquire_timeout(options.connect_timeout)
        .idle_timeout(idle_max.checked_div(IDLE_PARTS))
        .test_before_acquire(true)
        .after_connect(move |connection, _| Box::pin(prepare(connection, idle_max)))
        .after_release(|connection, _| Box::pin(still_answers(connection)))
        .connect_lazy_with(options.connecting())
}

async fn check_server(
    options: &MySqlOptions,
    connection: &mut MySqlConnection,
) -> Result<(), MySqlOpenError> {
    let asking =
        sqlx::query_as("SELECT VERSION(), @@innodb_flush_log_at_trx_commit = 1").fetch_one(connection);
    let (version, durable): (String, bool) =
        within(options.call_timeout, asking).await.map_err(|error| MySqlOpenError::of(options, &error))?;
    if !is_new_enough(&version) {
        return Err(MySqlOpenError::TooOld { address: options.address(), version });
    }
    if !durable {
        tracing::warn!(
            database = options.address(),
            "innodb_flush_log_at_trx_commit is not 1: a power cut may lose settled orders"
        );
    }
    Ok(())
}

/// `10.11.6-MariaDB-…`, behind some proxies `5.5.5-10.11.6-MariaDB`, or `8.0.36`.
fn is_new_enough(version: &str) -> bool {
    let is_mariadb = version.contains("MariaDB");
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut parts = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    found >= if is_mariadb { (10, 6) } else { (8, 0) }
}

/// Brings the schema up to date, one process at a time. The migrator's own lock asks for an endless wait, which
/// MariaDB refuses with a warning and without a lock.
///
/// All on the connection that holds the lock: the server ends a session that says nothing, and the lock with it, and
/// one that works through a long change is not such a session.
async fn migrate(options: &MySqlOptions, first: &mut MySqlConnection) -> Result<(), MySqlOpenError> {
    let failed = |error: sqlx::Error| MySqlOpenError::of(options, &error);
    let locking = sqlx::query_scalar("SELECT GET_LOCK(CONCAT('rg.schema.', SHA1(DATABASE())), ?) = 1")
        .bind(SCHEMA_PATIENCE.as_secs())
        .fetch_one(&mut *first);
    let patience = options.call_timeout.saturating_add(SCHEMA_PATIENCE);
    let locked: Option<bool> = within(patience, locking).await.map_err(failed)?;
    if locked != Some(true) {
        return Err(MySqlOpenError::Unreachable {
            address: options.address(),
            reason: "another process has been changing the schema for a minute".to_owned(),
        });
    }
    if within(options.call_timeout, is_up_to_date(first)).await.map_err(failed)? {
        // Then also a server that is read-only for now can be opened.
        return Ok(());
    }
    // Takes as long as it takes. The lock ends with its connection, which the caller closes.
    let migrated = MIGRATOR.run_direct(None, first, false).await;
    migrated.map_err(|error| MySqlOpenError::of_schema(options, &error))
}

/// Whether the schema is exactly this version's.
async fn is_up_to_date(connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let applied: Result<Vec<(i64, Vec<u8>)>, _> =
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version")
            .fetch_all(connection)
            .await;
    // An error: there is no such table yet.
    Ok(applied
        .is_ok_and(|applied| MIGRATOR.iter().map(|ours| (ours.version, ours.checksum.to_vec())).eq(applied)))
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn servers_that_are_too_old_are_known() {
        for good in [
            "10.6.0-MariaDB",
            "10.11.19-MariaDB-0+deb12u1",
            "5.5.5-11.4.2-MariaDB",
            "8.0.36",
            "8.4.0",
            "9.1.0",
        ] {
            assert!(is_new_enough(good), "{good}");
        }
        for old in ["10.5.25-MariaDB", "5.5.5-10.3.2-MariaDB", "5.7.44-log", "", "nonsense"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }
}
