//! Why a drill could not be carried out. What it found is not here: that is a finding of the audit.

use std::io;
use std::time::Duration;

use rushgate_servers::ServerError;

/// A drill that has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrillError {
    /// A real server did not do as told.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The database refused a query of the audit.
    #[error("the audit cannot read the database: {0}")]
    Sql(#[from] sqlx::Error),
    /// A file or process of the drill.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// What happened.
        error: io::Error,
    },
    /// A process of the shop did not do as told.
    #[error("{name} {what}; its log ends:\n{log_tail}")]
    Process {
        /// Which.
        name: String,
        /// What it did or did not do.
        what: String,
        /// The end of its log.
        log_tail: String,
    },
    /// Something did not come true in time.
    #[error("{what} within {waited:?}")]
    Late {
        /// What did not.
        what: String,
        /// How long that was waited for.
        waited: Duration,
    },
    /// The fault came too late or too early to hurt anybody, which is chance: the sale was over, say.
    #[error("Redis lost nothing that was acknowledged: the drill showed nothing")]
    NothingLost,
    /// What Redis or a process holds is not what the drill can read.
    #[error("{0}")]
    Malformed(String),
}

impl DrillError {
    /// For `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }
}

pub(crate) type Result<T, E = DrillError> = std::result::Result<T, E>;
