//! Whom an entry is about and what becomes of it, as texts and as values.
//!
//! One spelling each, so that the text of a subject is its key in a store: `user:42`, `ip:10.0.0.0/8`,
//! `device:ios-7f3a`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::admission::Cidr;
use crate::protocol::{DEVICE_BYTES_MAX, UserId};

/// Whom an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A user.
    User(UserId),
    /// Addresses; IPv4 in IPv6 form counts as IPv4.
    Ip(Cidr),
    /// A device, by the name that HELLO or a TLV gives it.
    Device(Arc<str>),
}

/// What kind of subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubjectKind {
    /// See [`Subject::User`].
    User,
    /// See [`Subject::Ip`].
    Ip,
    /// See [`Subject::Device`].
    Device,
}

impl SubjectKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::User, Self::Ip, Self::Device];

    /// The first part of a subject's text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Ip => "ip",
            Self::Device => "device",
        }
    }
}

/// What becomes of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// One request every so often goes on; others are told `RATE_LIMITED`.
    Slow,
    /// Told BLOCKED.
    Block,
}

impl Effect {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Block => "block",
        }
    }
}

/// How a subject is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// What becomes of it.
    pub effect: Effect,
    /// Until when, in Unix milliseconds of the sale clock; 0 = for good.
    pub until_ms: u64,
    /// By a gateway, as a flag.
    pub is_flag: bool,
}

/// By an operator.
impl From<(Effect, u64)> for Listing {
    fn from((effect, until_ms): (Effect, u64)) -> Self {
        Self { effect, until_ms, is_flag: false }
    }
}

/// Why a text is no subject or no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// It does not begin like one.
    #[error("{0:?} is no subject; write user:42, ip:10.0.0.0/8 or device:NAME")]
    Unknown(String),
    /// The number of a user.
    #[error(
        "{0:?} is no user; write user: and a whole number from 1 to 9223372036854775807, without leading zeros"
    )]
    User(String),
    /// The addresses.
    #[error("ip:{0}")]
    Ip(#[from] crate::admission::CidrError),
    /// The name of a device.
    #[error(
        "{0:?} is no device; write device: and its name: 1 to {DEVICE_BYTES_MAX} bytes without control characters"
    )]
    Device(String),
    /// An effect.
    #[error("{0:?} is no effect; it is block or slow")]
    Effect(String),
}

impl Subject {
    /// A device; `None` for a name that cannot be listed. A store keeps lines of text, so none with control characters.
    pub fn device(name: &str) -> Option<Self> {
        let fits = (1..=DEVICE_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
        fits.then(|| Self::Device(name.into()))
    }

    /// What kind it is.
    pub const fn kind(&self) -> SubjectKind {
        match self {
            Self::User(_) => SubjectKind::User,
            Self::Ip(_) => SubjectKind::Ip,
            Self::Device(_) => SubjectKind::Device,
        }
    }
}

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        match text.split_once(':') {
            Some(("user", digits)) => {
                let is_plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
                let id = digits.parse().ok().filter(|_| is_plain);
                id.and_then(UserId::new).map(Self::User).ok_or_else(|| SubjectError::User(text.to_owned()))
            }
            Some(("ip", block)) => Ok(Self::Ip(block.parse()?)),
            Some(("device", name)) => Self::device(name).ok_or_else(|| SubjectError::Device(text.to_owned())),
            _ => Err(SubjectError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "user:{user}"),
            Self::Ip(block) => write!(f, "ip:{block}"),
            Self::Device(name) => write!(f, "device:{name}"),
        }
    }
}

impl FromStr for Effect {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        match text {
            "block" => Ok(Self::Block),
            "slow" => Ok(Self::Slow),
            _ => Err(SubjectError::Effect(text.to_owned())),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
