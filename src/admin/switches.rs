//! The operator's operations on switches.
//!
//! Used by the commands, and by the admin port of a serving gateway. A name or a value that does not parse is refused
//! here, with the reason, before anything is written; whoever obeys looks at it again.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::switches::{Switch, SwitchBoard, SwitchError};
use crate::store::StoreError;
use crate::store::modes::is_kept_in_sql;
use crate::store::shared::InstallationSwitches;
use crate::store::sql::mysql::MySqlInstallation;
use crate::store::sql::{SqliteStore, SwitchFolder};
use crate::store::switches::{NewSwitch, SetSwitch, SwitchStore, Switches};

/// Longest name of whoever sets a switch.
pub const WHO_CHARS_MAX: usize = 64;
/// Longest reason.
pub const WHY_CHARS_MAX: usize = 400;

/// Why a switch was not set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The name or the value.
    #[error("{0}; nothing was changed")]
    Switch(#[from] SwitchError),
    /// Who, or why.
    #[error("{what} {problem}; nothing was changed")]
    Text {
        /// Which.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is nobody to obey it.
    #[error(
        "{0} is for the production store (store.kind = \"redis\"), which has a choice; nothing was changed"
    )]
    NotHere(String),
    /// The store did not answer; the switch may be set all the same.
    #[error("the switch may or may not be set: {0}")]
    Store(#[from] StoreError),
}

/// A switch to be set, as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// `entry/7`.
    pub name: String,
    /// `closed`.
    pub value: String,
    /// Who sets it.
    pub who: String,
    /// Why.
    pub why: String,
}

/// A switch as operators are shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchView {
    /// Its name.
    pub name: String,
    /// What it is set to.
    pub value: String,
    /// Rises with every change of any switch.
    pub version: u64,
    /// Unix milliseconds.
    pub at_ms: u64,
    /// Who set it.
    pub who: String,
    /// Why.
    pub why: String,
    /// Why gateways of this version do not obey it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
}

/// What is set, and how far it was confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetDone {
    /// The switch.
    pub name: String,
    /// What it is set to.
    pub value: String,
    /// Gateways whose `rushgate_switches_version` is this or greater obey it.
    pub version: u64,
}

impl From<SetSwitch> for SwitchView {
    fn from(switch: SetSwitch) -> Self {
        let ignored = Switch::parse(&switch.name, &switch.value).err().map(|why| why.to_string());
        let SetSwitch { name, value, version, at_ms, who, why } = switch;
        Self { name, value, version, at_ms, who, why, ignored }
    }
}

/// Every switch that was ever set, by name.
pub fn views(switches: Switches) -> Vec<SwitchView> {
    let unreadable = SwitchBoard::read(
        switches.unreadable.iter().map(|name| (name.as_str(), None)),
        &SwitchBoard::default(),
    );
    let unreadable = unreadable.1.into_iter().map(|one| SwitchView {
        ignored: Some(one.to_string()),
        name: one.name,
        value: String::new(),
        version: 0,
        at_ms: 0,
        who: String::new(),
        why: String::new(),
    });
    let mut views: Vec<SwitchView> =
        switches.set.into_iter().map(SwitchView::from).chain(unreadable).collect();
    views.sort_by(|one, other| one.name.cmp(&other.name));
    views
}

/// Sets one, if it is one.
pub async fn set<S: SwitchStore>(store: &S, request: SetRequest) -> Result<SetDone, SetError> {
    let SetRequest { name, value, who, why } = request;
    Switch::parse(&name, &value)?;
    if !store.keeps(&name) {
        return Err(SetError::NotHere(name));
    }
    for (what, text, chars_max) in [("who", &who, WHO_CHARS_MAX), ("why", &why, WHY_CHARS_MAX)] {
        check_text(text, chars_max).map_err(|problem| SetError::Text { what, problem })?;
    }
    let new = NewSwitch { name, value, who, why };
    let version = store.set_switch(&new).await?;
    Ok(SetDone { name: new.name, value: new.value, version })
}

/// It goes into logs and tables, on one line.
pub(super) fn check_text(text: &str, chars_max: usize) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("is empty; it is kept with the switch for whoever asks later".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{text:?} holds control characters; write one line of text"));
    }
    match text.chars().count() {
        chars if chars > chars_max => Err(format!("has {chars} characters; at most {chars_max}")),
        _ => Ok(()),
    }
}

/// Where the switches of an installation are, for those who do not serve from it.
#[derive(Debug)]
pub enum SwitchPlace {
    /// The embedded store that this process serves from.
    Served(Arc<SqliteStore>),
    /// A data folder, whoever serves from it.
    Folder(SwitchFolder),
    /// The production store's Redis and database.
    Installation(Box<InstallationSwitches>),
    /// Its database alone, which has those that are set while Redis is away.
    Database(MySqlInstallation),
}

impl SwitchStore for SwitchPlace {
    fn keeps(&self, name: &str) -> bool {
        match self {
            Self::Served(_) | Self::Folder(_) => !is_kept_in_sql(name),
            Self::Installation(_) => true,
            Self::Database(_) => is_kept_in_sql(name),
        }
    }

    async fn switches(&self) -> Result<Switches, StoreError> {
        match self {
            Self::Served(store) => store.switches().await,
            Self::Folder(folder) => folder.switches().await,
            Self::Installation(both) => both.switches().await,
            Self::Database(sql) => sql.switches().await,
        }
    }

    async fn set_switch(&self, new: &NewSwitch) -> Result<u64, StoreError> {
        match self {
            Self::Served(store) => store.set_switch(new).await,
            Self::Folder(folder) => folder.set_switch(new).await,
            Self::Installation(both) => both.set_switch(new).await,
            Self::Database(sql) => sql.set_switch(new).await,
        }
    }

    async fn switch_changes(&self, after: u64, wait: Duration) -> Result<Vec<SetSwitch>, StoreError> {
        match self {
            Self::Served(store) => store.switch_changes(after, wait).await,
            Self::Folder(folder) => folder.switch_changes(after, wait).await,
            Self::Installation(both) => both.switch_changes(after, wait).await,
            Self::Database(sql) => sql.switch_changes(after, wait).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::switches::{OrdersMode, StockMode};
    use crate::protocol::ActivityId;
    use crate::store::modes;
    use crate::store::orders_modes::{ORDERS_MODE, OrdersModes};

    #[test]
    fn what_the_mode_can_be_switched_to_is_what_stores_obey() {
        for mode in StockMode::ALL {
            assert!(modes::StockMode::of(mode.name()).is_some(), "{}", mode.name());
            assert!(Switch::parse(modes::STOCK_MODE, mode.name()).is_ok());
        }
    }

    #[test]
    fn what_orders_can_be_switched_to_is_what_writers_obey() {
        let one = format!("{ORDERS_MODE}/7");
        for mode in OrdersMode::ALL {
            assert!(Switch::parse(&one, mode.name()).is_ok());
            // Another mode than that of all and than the one before, so that a word that nobody knows shows.
            for (all, own_before) in [("record", "settle"), ("settle", "record")] {
                let read =
                    |own| OrdersModes::read([(ORDERS_MODE, all), (&one, own)], &OrdersModes::default());
                let expected = match mode {
                    OrdersMode::Default => all == "record",
                    OrdersMode::Settle => false,
                    OrdersMode::Record => true,
                };
                let modes = OrdersModes::read([(ORDERS_MODE, all), (&one, mode.name())], &read(own_before));
                assert_eq!(modes.records(ActivityId(7)), expected, "{mode:?} where all {all}");
            }
        }
    }

    #[test]
    fn who_and_why_are_one_line_of_text() {
        for (text, says) in [
            ("", "is empty"),
            (" \t", "is empty"),
            ("a\nb", "control characters"),
            ("12345678901", "has 11 characters; at most 10"),
        ] {
            let error = check_text(text, 10).err().unwrap_or_default();
            assert!(error.contains(says), "{text:?}: {error}");
        }
        assert_eq!(check_text("误操作, \"x\"", 10), Ok(()));
    }
}
