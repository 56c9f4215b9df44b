//! The section of the circuit breakers, with its defaults. What a value may be is in `schema`; what each key is for, at
//! length, in rushgate.example.toml.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text;

/// `[breaker]`: when Redis and the database count as away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Breaker {
    /// Failures in a row that open one.
    pub failures: u32,
    /// The longest pause between two probes.
    #[serde(with = "text::duration")]
    pub pause_max: Duration,
    /// Probes in a row that close it.
    pub probes: u32,
    /// For how long Redis has to be away before the reserve is sold by itself; 0 = never.
    #[serde(with = "text::duration")]
    pub database_after: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures: 5, pause_max: Duration::from_secs(30), probes: 3, database_after: Duration::ZERO }
    }
}
