//! Claims: what a token says of its user besides who he is, as far as the configuration names it.
//!
//! Read once, when a token is accepted, and kept with the connection: a few words each, in the order of the configured
//! names, so that a rule finds one by its place. A back end asserts those of the user that it names in a text, which
//! is looked at where a rule needs it, without allocating. Nothing here fails: what has no possible form (a list, an
//! object, a text too long) is as if it were not there.

use std::sync::Arc;

use serde_json::{Map, Value};

/// Claims that may be configured, and names that one rule may use.
pub const CLAIMS_MAX: usize = 16;
/// The longest name of a claim.
pub const CLAIM_NAME_BYTES_MAX: usize = 32;
/// The longest text that a claim may be.
pub const CLAIM_TEXT_BYTES_MAX: usize = 64;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim<'a> {
    /// A number, with or without a fraction.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// A short text.
    Text(&'a str),
}

#[derive(Clone, Debug, PartialEq)]
enum Kept {
    Number(f64),
    Flag(bool),
    Text(Box<str>),
}

/// Why something is not the name of a claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimNameError {
    /// It could not be written in a rule.
    #[error(
        "{0:?} is not a claim's name: a letter, then letters, digits and _, at most {CLAIM_NAME_BYTES_MAX} in all, and \
         none of and, or, not, true, false"
    )]
    NotAName(String),
    /// More than a connection keeps.
    #[error("{0} claims; at most {CLAIMS_MAX} are kept")]
    TooMany(usize),
}

/// Whether a rule can call a claim so.
pub fn is_claim_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.len() <= CLAIM_NAME_BYTES_MAX
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && name.bytes().all(is_word)
        && !matches!(name, "and" | "or" | "not" | "true" | "false")
}

/// The claims that are kept of tokens, by name. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimNames(Arc<[String]>);

impl ClaimNames {
    /// In this order.
    pub fn new(names: &[String]) -> Result<Self, ClaimNameError> {
        if names.len() > CLAIMS_MAX {
            return Err(ClaimNameError::TooMany(names.len()));
        }
        match names.iter().find(|name| !is_claim_name(name)) {
            Some(other) => Err(ClaimNameError::NotAName(other.clone())),
            None => Ok(Self(names.into())),
        }
    }

    /// Where a claim of this name is kept.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }

    /// Whether any are kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What one token says, in the places of the configured names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims(Box<[Option<Kept>]>);

impl Claims {
    /// Those of a JSON object that have a name here.
    pub(super) fn of_json(names: &ClaimNames, object: &Map<String, Value>) -> Self {
        if !names.0.iter().any(|name| object.contains_key(name)) {
            return Self::default();
        }
        Self(names.0.iter().map(|name| object.get(name).and_then(kept)).collect())
    }

    /// The one in this place, if the token has it.
    pub fn at(&self, place: usize) -> Option<Claim<'_>> {
        self.0.get(place)?.as_ref().map(|kept| match kept {
            Kept::Number(number) => Claim::Number(*number),
            Kept::Flag(flag) => Claim::Flag(*flag),
            Kept::Text(text) => Claim::Text(text),
        })
    }
}

fn kept(value: &Value) -> Option<Kept> {
    match value {
        Value::Number(number) => number.as_f64().map(Kept::Number),
        Value::Bool(flag) => Some(Kept::Flag(*flag)),
        Value::String(text) if text.len() <= CLAIM_TEXT_BYTES_MAX => Some(Kept::Text(text.as_str().into())),
        _ => None,
    }
}

/// The claims that a back end asserts: `level=3;vip=true;city="07"`. Each with its name; parts that are none are passed
/// over.
pub fn asserted(text: &str) -> impl Iterator<Item = (&str, Claim<'_>)> {
    text.split(';').filter_map(|part| {
        let (name, value) = part.split_once('=')?;
        let name = name.trim();
        if !is_claim_name(name) {
            return None;
        }
        Some((name, asserted_value(value.trim())?))
    })
}

/// Like a literal of a rule; what is neither a number nor a flag is a text, also without quotes.
fn asserted_value(value: &str) -> Option<Claim<'_>> {
    match value {
        "" => return None,
        "true" => return Some(Claim::Flag(true)),
        "false" => return Some(Claim::Flag(false)),
        _ => {}
    }
    if let Some(number) = number(value) {
        return Some(Claim::Number(number));
    }
    let text = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    (text.len() <= CLAIM_TEXT_BYTES_MAX).then_some(Claim::Text(text))
}

/// Digits, perhaps a sign before and a fraction behind: what rules, tokens and assertions have in common.
pub(in crate::admission) fn number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (plain(whole) && plain(fraction)).then(|| text.parse().ok()).flatten()
}
