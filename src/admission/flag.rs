//! A flag: an entry that the gateway itself puts into the risk lists, for a time, and when it does.

use std::fmt;
use std::time::Duration;

use super::risk::{Effect, Subject};

/// Whom to list, with what, for how long and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Whom.
    pub subject: Subject,
    /// What becomes of him.
    pub effect: Effect,
    /// For how long from now on.
    pub lasts: Duration,
    /// Why, as the entry says it.
    pub why: Why,
}

/// Why somebody is flagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Too many users on the device.
    UsersOfDevice {
        /// As many may be.
        max: u32,
        /// Within this.
        window: Duration,
    },
    /// Too many devices of the user.
    DevicesOfUser {
        /// As many may be.
        max: u32,
        /// Within this.
        window: Duration,
    },
    /// Too many requests.
    Requests {
        /// As many a minute may be.
        per_minute: u32,
    },
    /// Too many requests, and on and on.
    RequestsGoOn {
        /// As many a minute may be.
        per_minute: u32,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UsersOfDevice { max, window } => {
                write!(f, "more than {max} users on this device within {} s", window.as_secs())
            }
            Self::DevicesOfUser { max, window } => {
                write!(f, "more than {max} devices of this user within {} s", window.as_secs())
            }
            Self::Requests { per_minute } => write!(f, "more than {per_minute} requests a minute"),
            Self::RequestsGoOn { per_minute } => {
                write!(f, "more than {per_minute} requests a minute, and going on")
            }
        }
    }
}

/// What stands in the list already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What becomes of the subject; `None`: what stands there cannot be read.
    pub effect: Option<Effect>,
    /// Until when, in Unix milliseconds of the sale clock; 0 = for good.
    pub until_ms: u64,
    /// By a gateway, as a flag.
    pub is_flag: bool,
}

impl Flag {
    /// The last instant, in Unix milliseconds of the sale clock.
    pub fn until_ms(&self, now_ms: u64) -> u64 {
        // Never 0, which is for good.
        now_ms.saturating_add(u64::try_from(self.lasts.as_millis()).unwrap_or(u64::MAX)).max(1)
    }

    /// Whether it is to be listed, where that stands. What an operator has listed stays as it is, and what is worse
    /// than the flag; the same again is listed once half of its time has passed.
    pub fn replaces(&self, now_ms: u64, listed: Option<Listed>) -> bool {
        let Some(Listed { effect, until_ms, is_flag }) = listed else { return true };
        if until_ms != 0 && until_ms <= now_ms {
            return true;
        }
        if !is_flag {
            return false;
        }
        let left_ms = until_ms.saturating_sub(now_ms);
        let half_ms = u64::try_from(self.lasts.as_millis() / 2).unwrap_or(u64::MAX);
        match effect {
            Some(effect) if effect > self.effect => false,
            Some(effect) if effect == self.effect => until_ms != 0 && left_ms < half_ms,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::protocol::UserId;

    const NOW_MS: u64 = 1_000_000;

    fn flag(effect: Effect) -> Flag {
        Flag {
            subject: Subject::User(UserId::new(42).unwrap()),
            effect,
            lasts: Duration::from_secs(60),
            why: Why::Requests { per_minute: 20 },
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "as it is asked")]
    fn listed(effect: Effect, until_ms: u64, is_flag: bool) -> Option<Listed> {
        Some(Listed { effect: Some(effect), until_ms, is_flag })
    }

    #[test]
    fn what_an_operator_has_listed_stays() {
        for (effect, until_ms) in [(Effect::Block, 0), (Effect::Slow, 0), (Effect::Slow, NOW_MS + 1)] {
            assert!(!flag(Effect::Slow).replaces(NOW_MS, listed(effect, until_ms, false)));
            assert!(!flag(Effect::Block).replaces(NOW_MS, listed(effect, until_ms, false)));
        }
        let unreadable = Listed { effect: None, until_ms: 0, is_flag: false };
        assert!(!flag(Effect::Block).replaces(NOW_MS, Some(unreadable)));
        assert!(flag(Effect::Slow).replaces(NOW_MS, None));
        assert!(
            flag(Effect::Slow).replaces(NOW_MS, listed(Effect::Block, NOW_MS, false)),
            "its time has passed"
        );
    }

    #[test]
    fn of_two_flags_the_worse_stays_and_the_same_is_renewed_at_half_time() {
        let slow = flag(Effect::Slow);
        assert!(!slow.replaces(NOW_MS, listed(Effect::Block, NOW_MS + 1, true)));
        assert!(flag(Effect::Block).replaces(NOW_MS, listed(Effect::Slow, NOW_MS + 600_000, true)));
        assert!(!slow.replaces(NOW_MS, listed(Effect::Slow, NOW_MS + 30_000, true)));
        assert!(slow.replaces(NOW_MS, listed(Effect::Slow, NOW_MS + 29_999, true)));
        assert_eq!(slow.until_ms(NOW_MS), NOW_MS + 60_000);
        assert_eq!(slow.why.to_string(), "more than 20 requests a minute");
    }
}
