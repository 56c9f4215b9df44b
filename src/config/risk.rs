//! `[risk]`: how the risk lists are gone by. Who stands on them is not configured: see `rushgate risk`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Risk {
    /// Whom a list slows passes once in this time.
    #[serde(with = "text::duration")]
    pub slow_interval: Duration,
    /// Users whose last BUY is remembered for `rushgate risk explain`, about; 0 = none.
    pub explain_slots: usize,
}

impl Default for Risk {
    fn default() -> Self {
        Self { slow_interval: Duration::from_secs(5), explain_slots: 65_536 }
    }
}
