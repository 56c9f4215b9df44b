//! What can go wrong when the embedded store is opened or used.

use std::io;
use std::path::PathBuf;

use crate::store::StoreError;

/// Why a data folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder, or a file in it, cannot be created, read or written.
    #[error("cannot use the data folder {path}: {reason}; choose another one or mend its permissions")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// There is no database in the folder.
    #[error(
        "the data folder {path} holds no database; create an activity first, or name the folder that serves"
    )]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// Another process serves the folder.
    #[error(
        "the data folder {path} is in use by another rushgate ({holder}); stop that one or choose another folder"
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// What the other process wrote into the lock file.
        holder: String,
    },
    /// The database was written by a newer version.
    #[error("the database in {path} is from a newer rushgate ({reason}); run that version or a newer one")]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Which migration this version does not know.
        reason: String,
    },
    /// The database is older than this version while another process serves it.
    #[error(
        "the database in {path} is served by an older rushgate; use its version, or stop it so that this one can bring the database up to date"
    )]
    Older {
        /// The folder.
        path: PathBuf,
    },
    /// The file is not a database, or damaged.
    #[error("the database in {path} cannot be read: {reason}; restore the folder from a backup")]
    Corrupt {
        /// The folder.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// The database did not answer (disk full, locked for too long).
    #[error("the database in {path} does not answer: {reason}; try again when the cause is gone")]
    Unavailable {
        /// The folder.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
}

impl OpenError {
    pub(super) fn folder(path: impl Into<PathBuf>, error: &io::Error) -> Self {
        Self::Folder { path: path.into(), reason: error.to_string() }
    }

    pub(super) fn from_failure(path: impl Into<PathBuf>, failure: Failure) -> Self {
        let path = path.into();
        let error = match failure {
            Failure::Corrupt(reason) => return Self::Corrupt { path, reason },
            Failure::Sql(error) => error,
        };
        let reason = error.to_string();
        match primary_code(&error) {
            Some(READONLY | CANTOPEN | PERM) => Self::Folder { path, reason },
            Some(CORRUPT | NOTADB) => Self::Corrupt { path, reason },
            _ => Self::Unavailable { path, reason },
        }
    }
}

/// What ended a transaction.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("{0}")]
    Corrupt(String),
}

const PERM: i64 = 3;
const READONLY: i64 = 8;
const CORRUPT: i64 = 11;
const CANTOPEN: i64 = 14;
const NOTADB: i64 = 26;

/// SQLite's result code without its extension.
fn primary_code(error: &sqlx::Error) -> Option<i64> {
    let code: i64 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xFF)
}

impl Failure {
    /// Whether a unique key refused a row.
    pub(super) fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Sql(error) if error
            .as_database_error()
            .is_some_and(sqlx::error::DatabaseError::is_unique_violation))
    }

    pub(super) fn to_store_error(&self) -> StoreError {
        match self {
            Self::Corrupt(reason) => StoreError::Corrupt(reason.clone()),
            Self::Sql(error) if matches!(primary_code(error), Some(CORRUPT | NOTADB)) => {
                StoreError::Corrupt(error.to_string())
            }
            Self::Sql(error @ (sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))) => {
                StoreError::Corrupt(error.to_string())
            }
            Self::Sql(error) => StoreError::Unavailable(error.to_string()),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.to_store_error()
    }
}
