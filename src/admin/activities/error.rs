//! Why an operator's operation was not done.

use std::fmt;

use crate::store::StoreError;
use crate::store::sql::mysql::{MySqlOpenError, MySqlRefused};
use crate::store::sql::{OpenError, Refused};

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum ActivityError {
    /// What the operator gave is wrong; nothing was changed.
    #[error("{0}")]
    Invalid(Problems),
    /// The data folder cannot be opened.
    #[error(transparent)]
    Open(OpenError),
    /// The production store's database cannot be used.
    #[error(transparent)]
    OpenServer(MySqlOpenError),
    /// The database failed. Nothing was changed, unless the message of a later `show` says otherwise.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Everything that is wrong with a request, one sentence each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => f.write_str(only),
            problems => {
                write!(f, "{} problems:", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n- {problem}"))
            }
        }
    }
}

/// One thing is wrong.
pub(super) fn invalid(problem: String) -> ActivityError {
    ActivityError::Invalid(Problems(vec![problem]))
}

impl From<Refused> for ActivityError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Open(error) => Self::Open(error),
            Refused::Store(error) => Self::Store(error),
            other => invalid(other.to_string()),
        }
    }
}

impl From<MySqlRefused> for ActivityError {
    fn from(refused: MySqlRefused) -> Self {
        match refused {
            MySqlRefused::Store(error) => Self::Store(error),
            other => invalid(other.to_string()),
        }
    }
}

impl From<OpenError> for ActivityError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<MySqlOpenError> for ActivityError {
    fn from(error: MySqlOpenError) -> Self {
        Self::OpenServer(error)
    }
}
