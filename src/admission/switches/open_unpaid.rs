//! Switches of the caps on open unpaid reservations: whose, and the cap that is in force instead of the configured one.

use super::super::limits::OpenUnpaidMax;
use super::rate::plain_number;

/// Whose reservations are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpaidOf {
    /// A user's.
    User,
    /// A device's.
    Device,
}

impl UnpaidOf {
    const fn greatest(self) -> u8 {
        match self {
            Self::User => OpenUnpaidMax::PER_USER_MAX,
            Self::Device => OpenUnpaidMax::PER_DEVICE_MAX,
        }
    }

    /// What such a cap may be set to, for people.
    pub(super) const fn values(self) -> &'static str {
        match self {
            Self::User => "a whole number from 1 to 100, off or default",
            Self::Device => "a whole number from 1 to 8, off or default",
        }
    }

    /// The cap that is written; `None`: it is none.
    pub(super) fn cap(self, text: &str) -> Option<UnpaidCap> {
        match text {
            "default" => Some(UnpaidCap::Default),
            "off" => Some(UnpaidCap::Set(0)),
            _ => {
                let cap = plain_number(text).and_then(|number| u8::try_from(number).ok());
                cap.filter(|cap| *cap <= self.greatest()).map(UnpaidCap::Set)
            }
        }
    }
}

/// What such a cap is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpaidCap {
    /// As configured.
    Default,
    /// This; 0 is none.
    Set(u8),
}

impl UnpaidCap {
    /// As it is written.
    pub(super) fn text(self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Set(0) => "off".to_owned(),
            Self::Set(cap) => cap.to_string(),
        }
    }

    /// `None` = as configured.
    pub(super) const fn set(self) -> Option<u8> {
        match self {
            Self::Default => None,
            Self::Set(cap) => Some(cap),
        }
    }
}
