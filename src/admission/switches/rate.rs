//! Switches of rate limits: which limit, and the rate that is in force instead of the configured one.
//!
//! Written `RATE:BURST`, `off` or `default`; one spelling each, as everywhere among switches.

use super::super::limits::Rate;
use crate::protocol::ActivityId;

/// A limit that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All BUYs together.
    Global,
    /// Per client address, where the configuration names no other rate for it.
    PerIp,
    /// Per user.
    PerUser,
    /// Per connection of an app.
    PerConnection,
    /// Per user, RESULT and ACTIVITY.
    ResultPerUser,
    /// Of one activity.
    Activity(ActivityId),
}

/// What a limit may be set to, for people.
pub(super) const RATE_VALUES: &str = "RATE:BURST (a second, and at once; such as 2000:4000), off or default";

/// What a limit is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateSetting {
    /// As configured.
    Default,
    /// This; [`Rate::OFF`] is no limit.
    Set(Rate),
}

impl RateSetting {
    /// `Err`: why it is none; `None` where there is nothing to say but what it may be.
    pub(super) fn parse(text: &str) -> Result<Self, Option<String>> {
        match text {
            "default" => return Ok(Self::Default),
            "off" => return Ok(Self::Set(Rate::OFF)),
            _ => {}
        }
        let (rate, burst) = text.split_once(':').ok_or(None)?;
        let number = |what: &str, text: &str, max: u32| match plain_number(text) {
            Some(number) if number <= max => Ok(number),
            _ => Err(Some(format!("the {what} is a whole number from 1 to {max}, not {text:?}"))),
        };
        if rate == "0" {
            return Err(Some(
                "a rate of 0 would let nobody pass; close the entry, or write off for no limit".to_owned(),
            ));
        }
        let rate_per_s = number("rate", rate, Rate::PER_S_MAX)?;
        let burst = number("burst", burst, Rate::BURST_MAX)?;
        Ok(Self::Set(Rate { rate_per_s, burst }))
    }

    /// As it is written.
    pub(super) fn text(self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Set(Rate::OFF) => "off".to_owned(),
            Self::Set(Rate { rate_per_s, burst }) => format!("{rate_per_s}:{burst}"),
        }
    }

    /// `None` = as configured.
    pub(super) const fn rate(self) -> Option<Rate> {
        match self {
            Self::Default => None,
            Self::Set(rate) => Some(rate),
        }
    }
}

/// Digits alone, without a leading zero.
pub(super) fn plain_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| *number != 0 && number.to_string() == text)
}
