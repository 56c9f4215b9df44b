//! One switch: its name, whom it is for, what it may be set to.
//!
//! Written as two texts. The name is `entry`, or `entry/7` for one activity; the value is a word. One spelling each, so
//! that a name is a key: `entry/07` is no other way to say `entry/7`.

use std::fmt;

use super::open_unpaid::{UnpaidCap, UnpaidOf};
use super::orders_mode::OrdersMode;
use super::rate::{Limit, RATE_VALUES, RateSetting, plain_number};
use super::stock_mode::StockMode;
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
    /// See [`Switch::StockMode`].
    StockMode,
    /// See [`Switch::OrdersMode`].
    OrdersMode,
    /// See [`Limit::Global`].
    LimitGlobal,
    /// See [`Limit::PerIp`].
    LimitPerIp,
    /// See [`Limit::PerUser`].
    LimitPerUser,
    /// See [`Limit::PerConnection`].
    LimitPerConnection,
    /// See [`Limit::ResultPerUser`].
    LimitResultPerUser,
    /// See [`Limit::Activity`].
    LimitActivity,
    /// See [`UnpaidOf::User`].
    OpenUnpaidPerUser,
    /// See [`UnpaidOf::Device`].
    OpenUnpaidPerDevice,
}

impl SwitchKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Entry,
        Self::LogLevel,
        Self::Drain,
        Self::StockMode,
        Self::OrdersMode,
        Self::LimitGlobal,
        Self::LimitPerIp,
        Self::LimitPerUser,
        Self::LimitPerConnection,
        Self::LimitResultPerUser,
        Self::LimitActivity,
        Self::OpenUnpaidPerUser,
        Self::OpenUnpaidPerDevice,
    ];

    const fn of_unpaid(of: UnpaidOf) -> Self {
        match of {
            UnpaidOf::User => Self::OpenUnpaidPerUser,
            UnpaidOf::Device => Self::OpenUnpaidPerDevice,
        }
    }

    const fn of_limit(limit: Limit) -> Self {
        match limit {
            Limit::Global => Self::LimitGlobal,
            Limit::PerIp => Self::LimitPerIp,
            Limit::PerUser => Self::LimitPerUser,
            Limit::PerConnection => Self::LimitPerConnection,
            Limit::ResultPerUser => Self::LimitResultPerUser,
            Limit::Activity(_) => Self::LimitActivity,
        }
    }

    /// The first part of the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::LogLevel => "log_level",
            Self::Drain => "drain",
            Self::StockMode => "stock.mode",
            Self::OrdersMode => "orders.mode",
            Self::LimitGlobal => "limits.global",
            Self::LimitPerIp => "limits.per_ip",
            Self::LimitPerUser => "limits.per_user",
            Self::LimitPerConnection => "limits.per_connection",
            Self::LimitResultPerUser => "limits.result_per_user",
            Self::LimitActivity => "limits.activity",
            Self::OpenUnpaidPerUser => "limits.open_unpaid_per_user_max",
            Self::OpenUnpaidPerDevice => "limits.open_unpaid_per_device_max",
        }
    }

    /// How its names are written.
    pub const fn spelling(self) -> &'static str {
        match self {
            Self::Entry => "entry or entry/ACTIVITY",
            Self::Drain => "drain/GATEWAY",
            Self::OrdersMode => "orders.mode or orders.mode/ACTIVITY",
            Self::LimitActivity => "limits.activity/ACTIVITY",
            _ => self.name(),
        }
    }

    /// What it may be set to, for people.
    pub const fn values(self) -> &'static str {
        match self {
            Self::Entry => "open or closed",
            Self::LogLevel => "default, error, warn, info, debug or trace",
            Self::Drain => "on or off",
            Self::StockMode => "default, redis or database",
            Self::OpenUnpaidPerUser => UnpaidOf::User.values(),
            Self::OpenUnpaidPerDevice => UnpaidOf::Device.values(),
            Self::OrdersMode => "settle or record; of one activity also default, as for all",
            _ => RATE_VALUES,
        }
    }

    /// What it is as long as nobody has set it.
    pub const fn default_value(self) -> &'static str {
        match self {
            Self::Entry => "open",
            Self::Drain => "off",
            Self::OrdersMode => "settle",
            _ => "default",
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
    /// What gateways of the production form sell from.
    StockMode(StockMode),
    /// What writers of the production form make of reservations, of one activity or of all that have no mode of their own.
    OrdersMode(Option<ActivityId>, OrdersMode),
    /// A rate limit of every gateway.
    Limit(Limit, RateSetting),
    /// A cap of every gateway on open unpaid reservations.
    OpenUnpaid(UnpaidOf, UnpaidCap),
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
    /// It looks like a rate, but is none.
    #[error("{name} cannot be set to {value:?}: {why}")]
    WrongRate {
        /// The switch.
        name: String,
        /// What was written.
        value: String,
        /// What is wrong.
        why: String,
    },
}

const ONE_FOR_ALL: &str = "it is one for all gateways";

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
        let for_all = || if scope.is_some() { Err(wrong_scope(ONE_FOR_ALL)) } else { Ok(()) };
        let limit = match kind {
            SwitchKind::Entry => {
                let activity = scope.map(number).transpose()?.map(ActivityId);
                let entry = match value {
                    "open" => Entry::Open,
                    "closed" => Entry::Closed,
                    _ => return Err(wrong_value()),
                };
                return Ok(Self::Entry(activity, entry));
            }
            SwitchKind::LogLevel => {
                for_all()?;
                let level = LogLevel::ALL.into_iter().find(|level| level.name() == value);
                return level.map(Self::LogLevel).ok_or_else(wrong_value);
            }
            SwitchKind::StockMode => {
                for_all()?;
                let mode = StockMode::ALL.into_iter().find(|mode| mode.name() == value);
                return mode.map(Self::StockMode).ok_or_else(wrong_value);
            }
            SwitchKind::OrdersMode => {
                let activity = scope.map(number).transpose()?.map(ActivityId);
                let mode = OrdersMode::parse(activity, value).ok_or_else(wrong_value)?;
                return Ok(Self::OrdersMode(activity, mode));
            }
            SwitchKind::Drain => {
                let scope = scope
                    .ok_or_else(|| wrong_scope("it is of one gateway (rushgate_process in its metrics)"))?;
                let gateway = number(scope)?;
                return match value {
                    "on" => Ok(Self::Drain(gateway, true)),
                    "off" => Ok(Self::Drain(gateway, false)),
                    _ => Err(wrong_value()),
                };
            }
            SwitchKind::OpenUnpaidPerUser | SwitchKind::OpenUnpaidPerDevice => {
                for_all()?;
                let is_users = kind == SwitchKind::OpenUnpaidPerUser;
                let of = if is_users { UnpaidOf::User } else { UnpaidOf::Device };
                return of.cap(value).map(|cap| Self::OpenUnpaid(of, cap)).ok_or_else(wrong_value);
            }
            SwitchKind::LimitGlobal => for_all().map(|()| Limit::Global)?,
            SwitchKind::LimitPerIp => for_all().map(|()| Limit::PerIp)?,
            SwitchKind::LimitPerUser => for_all().map(|()| Limit::PerUser)?,
            SwitchKind::LimitPerConnection => for_all().map(|()| Limit::PerConnection)?,
            SwitchKind::LimitResultPerUser => for_all().map(|()| Limit::ResultPerUser)?,
            SwitchKind::LimitActivity => {
                let scope = scope.ok_or_else(|| wrong_scope("it is of one activity"))?;
                Limit::Activity(ActivityId(number(scope)?))
            }
        };
        let setting = RateSetting::parse(value).map_err(|why| match why {
            Some(why) => SwitchError::WrongRate { name: name.to_owned(), value: value.to_owned(), why },
            None => wrong_value(),
        })?;
        Ok(Self::Limit(limit, setting))
    }

    /// What it is.
    pub const fn kind(&self) -> SwitchKind {
        match self {
            Self::Entry(..) => SwitchKind::Entry,
            Self::LogLevel(_) => SwitchKind::LogLevel,
            Self::Drain(..) => SwitchKind::Drain,
            Self::StockMode(_) => SwitchKind::StockMode,
            Self::OrdersMode(..) => SwitchKind::OrdersMode,
            Self::Limit(limit, _) => SwitchKind::of_limit(*limit),
            Self::OpenUnpaid(of, _) => SwitchKind::of_unpaid(*of),
        }
    }

    /// What it is set to, as it is written.
    pub fn value(&self) -> String {
        let word = match self {
            Self::Entry(_, Entry::Open) => "open",
            Self::Entry(_, Entry::Closed) => "closed",
            Self::LogLevel(level) => level.name(),
            Self::StockMode(mode) => mode.name(),
            Self::OrdersMode(_, mode) => mode.name(),
            Self::Drain(_, true) => "on",
            Self::Drain(_, false) => "off",
            Self::Limit(_, setting) => return setting.text(),
            Self::OpenUnpaid(_, cap) => return cap.text(),
        };
        word.to_owned()
    }
}

/// Its name.
impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        match self {
            Self::Entry(Some(activity), _)
            | Self::OrdersMode(Some(activity), _)
            | Self::Limit(Limit::Activity(activity), _) => {
                write!(f, "/{activity}")
            }
            Self::Drain(gateway, _) => write!(f, "/{gateway}"),
            Self::Entry(None, _)
            | Self::OrdersMode(None, _)
            | Self::LogLevel(_)
            | Self::StockMode(_)
            | Self::Limit(..)
            | Self::OpenUnpaid(..) => Ok(()),
        }
    }
}
