//! All switches as they stand: a snapshot that is replaced whole.

use std::collections::BTreeMap;
use std::fmt;

use super::super::limits::RateSwitches;
use super::open_unpaid::UnpaidOf;
use super::rate::Limit;
use super::switch::{Entry, LogLevel, Switch, SwitchError};
use crate::protocol::ActivityId;

/// What a store holds that is no switch here: a newer version wrote it, or somebody's hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its name, as it stands there.
    pub name: String,
    /// Why it is none; `None` where not even a value can be made out.
    pub why: Option<SwitchError>,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Some(why) => why.fmt(f),
            None => write!(f, "what is kept of {:?} cannot be read", self.name),
        }
    }
}

/// Every switch that was ever set; whatever was not is at its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchBoard {
    by_name: BTreeMap<String, Switch>,
}

/// What an entry is of which nobody can tell.
fn shut(name: &str) -> Option<Switch> {
    Switch::parse(name, "closed").ok().filter(|switch| matches!(switch, Switch::Entry(..)))
}

impl SwitchBoard {
    /// Reads names and values; `None` is a value that the store could not make out. One that cannot be read changes
    /// nothing: what this board's predecessor had under that name stays in force, so that a slip of the pen does not
    /// open what was closed. Where there was none an entry counts as closed: a gateway that has just started does not
    /// open what those that live keep closed.
    pub fn read<'a>(
        set: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
        before: &Self,
    ) -> (Self, Vec<Ignored>) {
        let (mut by_name, mut ignored) = (BTreeMap::new(), Vec::new());
        for (name, value) in set {
            let read = value.ok_or(None).and_then(|value| Switch::parse(name, value).map_err(Some));
            let switch = match read {
                Ok(switch) => Some(switch),
                Err(why) => {
                    ignored.push(Ignored { name: name.to_owned(), why });
                    before.by_name.get(name).copied().or_else(|| shut(name))
                }
            };
            by_name.extend(switch.map(|switch| (name.to_owned(), switch)));
        }
        (Self { by_name }, ignored)
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = Switch> + '_ {
        self.by_name.values().copied()
    }

    /// The entry of all activities.
    pub fn entry(&self) -> Entry {
        match self.by_name.get("entry") {
            Some(Switch::Entry(None, entry)) => *entry,
            _ => Entry::Open,
        }
    }

    /// Activities whose own entry is closed, by ascending number.
    pub fn closed_activities(&self) -> Vec<ActivityId> {
        let closed = |switch| match switch {
            Switch::Entry(Some(activity), Entry::Closed) => Some(activity),
            _ => None,
        };
        let mut activities: Vec<ActivityId> = self.iter().filter_map(closed).collect();
        activities.sort_unstable();
        activities
    }

    /// The rates that are set instead of the configured ones.
    pub fn rates(&self) -> RateSwitches {
        let mut rates = RateSwitches::default();
        for switch in self.iter() {
            if let Switch::OpenUnpaid(of, cap) = switch {
                match of {
                    UnpaidOf::User => rates.open_unpaid_per_user = cap.set(),
                    UnpaidOf::Device => rates.open_unpaid_per_device = cap.set(),
                }
            }
            let Switch::Limit(limit, setting) = switch else { continue };
            let place = match limit {
                Limit::Global => &mut rates.global,
                Limit::PerIp => &mut rates.per_ip,
                Limit::PerUser => &mut rates.per_user,
                Limit::PerConnection => &mut rates.per_connection,
                Limit::ResultPerUser => &mut rates.result_per_user,
                Limit::Activity(activity) => {
                    rates.activities.extend(setting.rate().map(|rate| (activity, rate)));
                    continue;
                }
            };
            *place = setting.rate();
        }
        rates.activities.sort_unstable_by_key(|(activity, _)| *activity);
        rates
    }

    /// What gateways log.
    pub fn log_level(&self) -> LogLevel {
        let level = |switch| match switch {
            Switch::LogLevel(level) => Some(level),
            _ => None,
        };
        self.iter().find_map(level).unwrap_or(LogLevel::Default)
    }

    /// Whether this gateway is asked to drain.
    pub fn drains(&self, gateway: u32) -> bool {
        self.iter().any(|switch| switch == Switch::Drain(gateway, true))
    }
}
