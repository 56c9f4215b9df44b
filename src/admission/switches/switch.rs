//! One switch: its name, whom it is for, what it may be set to.
//!
//! Written as two texts. The name is `entry`, or `entry/7` for one activity; the value is a word. One spelling each, so
//! that a name is a key: `entry/07` is no other way to say `entry/7`.

use std::fmt;

use crate::protocol::ActivityId;

/// Whether BUYs come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// As the window and the activity say.
    Open,
    /// Everybody without an order is told ENDED, from memory.
    Closed,
}

/// What a gateway writes to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// What it was started with.
    Default,
    /// Errors alone.
    Error,
    /// And warnings.
    Warn,
    /// And what happens to the gateway.
    Info,
    /// And what happens to single requests that go wrong.
    Debug,
    /// And everything else.
    Trace,
}

impl LogLevel {
    const ALL: [Self; 6] = [Self::Default, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// What can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// See [`Switch::Entry`].
    Entry,
    /// See [`Switch::LogLevel`].
    LogLevel,
    /// See [`Switch::Drain`].
    Drain,
}

impl SwitchKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Entry, Self::LogLevel, Self::Drain];

    /// The first part of the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::LogLevel => "log_level",
            Self::Drain => "drain",
        }
    }

    /// How its names are written.
    pub const fn spelling(self) -> &'static str {
        match self {
            Self::Entry => "entry or entry/ACTIVITY",
            Self::LogLevel => "log_level",
            Self::Drain => "drain/GATEWAY",
        }
    }

    /// What it may be set to, for people.
    pub const fn values(self) -> &'static str {
        match self {
            Self::Entry => "open or closed",
            Self::LogLevel => "default, error, warn, info, debug or trace",
            Self::Drain => "on or off",
        }
    }

    /// What it is as long as nobody has set it.
    pub const fn default_value(self) -> &'static str {
        match self {
            Self::Entry => "open",
            Self::LogLevel => "default",
            Self::Drain => "off",
        }
    }
}

/// A switch and what it is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The entry, of one activity or of all. An activity sells while both are open, and its own entry in the catalogue.
    Entry(Option<ActivityId>, Entry),
    /// The log of every gateway.
    LogLevel(LogLevel),
    /// One gateway, by its process number, which no other will ever have: `on` ends it as SIGTERM does. What has begun
    /// to drain does not turn back.
    Drain(u32, bool),
}

/// Why a name and a value are no switch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// Nothing is called so.
    #[error("there is no switch {0:?}; there are {spellings}", spellings = spellings())]
    UnknownName(String),
    /// What stands behind the slash does not fit.
    #[error("{name:?} is no switch: {why}; write {spelling}", spelling = kind.spelling())]
    WrongScope {
        /// What was written.
        name: String,
        /// What it begins with.
        kind: SwitchKind,
        /// What is wrong.
        why: &'static str,
    },
    /// It cannot be set to that.
    #[error("{name} cannot be set to {value:?}; it is {values}", values = kind.values())]
    WrongValue {
        /// The switch.
        name: String,
        /// What it is.
        kind: SwitchKind,
        /// What was written.
        value: String,
    },
}

fn spellings() -> String {
    SwitchKind::ALL.map(SwitchKind::spelling).join(", ")
}

impl Switch {
    /// Reads a name and a value.
    pub fn parse(name: &str, value: &str) -> Result<Self, SwitchError> {
        let (first, scope) = name.split_once('/').map_or((name, None), |(first, scope)| (first, Some(scope)));
        let kind = SwitchKind::ALL.into_iter().find(|kind| kind.name() == first);
        let kind = kind.ok_or_else(|| SwitchError::UnknownName(name.to_owned()))?;
        let wrong_scope = |why| SwitchError::WrongScope { name: name.to_owned(), kind, why };
        let wrong_value = || SwitchError::WrongValue { name: name.to_owned(), kind, value: value.to_owned() };
        let number = |scope: &str| {
            plain_number(scope).ok_or_else(|| wrong_scope("the number is a whole one from 1 to 4294967295"))
        };
        match kind {
            SwitchKind::Entry => {
                let activity = scope.map(number).transpose()?.map(ActivityId);
                let entry = match value {
                    "open" => Entry::Open,
                    "closed" => Entry::Closed,
                    _ => return Err(wrong_value()),
                };
                Ok(Self::Entry(activity, entry))
            }
            SwitchKind::LogLevel => {
                if scope.is_some() {
                    return Err(wrong_scope("it is one for all gateways"));
                }
                let level = LogLevel::ALL.into_iter().find(|level| level.name() == value);
                level.map(Self::LogLevel).ok_or_else(wrong_value)
            }
            SwitchKind::Drain => {
                let scope = scope
                    .ok_or_else(|| wrong_scope("it is of one gateway (rushgate_process in its metrics)"))?;
                let gateway = number(scope)?;
                match value {
                    "on" => Ok(Self::Drain(gateway, true)),
                    "off" => Ok(Self::Drain(gateway, false)),
                    _ => Err(wrong_value()),
                }
            }
        }
    }

    /// What it is.
    pub const fn kind(&self) -> SwitchKind {
        match self {
            Self::Entry(..) => SwitchKind::Entry,
            Self::LogLevel(_) => SwitchKind::LogLevel,
            Self::Drain(..) => SwitchKind::Drain,
        }
    }

    /// What it is set to, as it is written.
    pub fn value(&self) -> String {
        let word = match self {
            Self::Entry(_, Entry::Open) => "open",
            Self::Entry(_, Entry::Closed) => "closed",
            Self::LogLevel(level) => level.name(),
            Self::Drain(_, true) => "on",
            Self::Drain(_, false) => "off",
        };
        word.to_owned()
    }
}

/// Its name.
impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        match self {
            Self::Entry(Some(activity), _) => write!(f, "/{activity}"),
            Self::Drain(gateway, _) => write!(f, "/{gateway}"),
            Self::Entry(None, _) | Self::LogLevel(_) => Ok(()),
        }
    }
}

/// Digits alone, without a leading zero.
fn plain_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| *number != 0 && number.to_string() == text)
}
