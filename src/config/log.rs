//! The section of the log, with its defaults. What a value may be is in `schema`; what each key is for, at length, in
//! rushgate.example.toml.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text;

/// `[log]`: where gateways and writers log, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The file; none = standard error.
    #[serde(with = "text::empty_is_none")]
    pub file: Option<PathBuf>,
    /// A longer one is put away and begun anew.
    #[serde(with = "text::bytes")]
    pub file_bytes_max: usize,
    /// So is an older one.
    #[serde(with = "text::duration")]
    pub rotate_after: Duration,
    /// All of them together; the oldest are deleted.
    #[serde(with = "text::bytes")]
    pub total_bytes_max: usize,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            file: None,
            file_bytes_max: 64 << 20,
            rotate_after: Duration::from_secs(24 * 3600),
            total_bytes_max: 1 << 30,
        }
    }
}
