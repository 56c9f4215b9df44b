//! What a value may be, whichever key it is for: the checks, the words for what is allowed, and how text from
//! environment and flags becomes a value. Without I/O.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use toml::Value;

use super::problem::nearest;
use super::text::{format_bytes, format_duration, parse_bytes, parse_duration};
use crate::admission::Cidr;
use crate::admission::clients::AppVersion;
use crate::admission::identity::{CLAIM_NAME_BYTES_MAX, is_claim_name};

/// What a value may be.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    Whole(i64, i64),
    AutoOrWhole(i64, i64),
    Time(Duration, Duration),
    Size(usize, usize),
    Address,
    AddressOrOff,
    OneOf(&'static [&'static str]),
    /// At least and at most so many bytes.
    Text(usize, usize),
    /// CIDR.
    Block,
    /// A name or address, and a port.
    HostPort,
    HostPortOrNone,
    /// The beginning of every key in Redis.
    Prefix,
    /// Of an app.
    VersionOrNone,
    /// Of a token's claim, as rules write it.
    ClaimName,
    Flag,
    /// A list: what each is, at least and at most so many, none twice.
    Many(&'static Rule, usize, usize),
    Overrides,
}

/// A value that is not allowed.
pub(super) struct Fault {
    /// The key, with the position in a list.
    pub(super) key: String,
    /// As TOML; none if the fault is that there is none.
    pub(super) value: Option<Value>,
    pub(super) why: String,
}

/// Above these a limit limits nothing, and the time between two requests loses precision.
pub(super) const RATE_PER_S: Rule = Rule::Whole(0, 10_000_000);
pub(super) const BURST: Rule = Rule::Whole(0, 100_000_000);

const PREFIX_BYTES_MAX: usize = 64;

/// Each request of an address without a remembered rule looks at all of them.
const OVERRIDES_MAX: usize = 256;
const OVERRIDE_KEYS: [(&str, Rule); 3] =
    [("cidr", Rule::Block), ("rate_per_s", RATE_PER_S), ("burst", BURST)];

impl Rule {
    /// For messages.
    pub(super) fn allowed(self) -> String {
        match self {
            Self::Whole(min, max) => format!("a whole number from {min} to {max}"),
            Self::AutoOrWhole(min, max) => format!("\"auto\" or a whole number from {min} to {max}"),
            Self::Time(min, max) => format!(
                "a duration in quotes from \"{}\" to \"{}\"",
                format_duration(min),
                format_duration(max)
            ),
            Self::Size(min, max) => {
                format!("a size in quotes from \"{}\" to \"{}\"", format_bytes(min), format_bytes(max))
            }
            Self::Address => "an IP address and port in quotes, such as \"0.0.0.0:7700\"".to_owned(),
            Self::AddressOrOff => {
                "an IP address and port in quotes, such as \"127.0.0.1:7701\", or \"\" for off".to_owned()
            }
            Self::OneOf(names) => {
                names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ")
            }
            Self::Text(0, max) => format!("text of at most {max} bytes"),
            Self::Text(min, max) => format!("text of {min} to {max} bytes"),
            Self::Block => "addresses in quotes, such as \"10.0.0.0/8\" or \"2001:db8::/32\"".to_owned(),
            Self::HostPort => "a host and port, such as \"127.0.0.1:6379\"".to_owned(),
            Self::HostPortOrNone => "a host and port, such as \"127.0.0.1:6379\", or \"\"".to_owned(),
            Self::Prefix => {
                format!("1 to {PREFIX_BYTES_MAX} letters, digits and any of \"-_.:\"")
            }
            Self::VersionOrNone => "a version in quotes, such as \"3.2.0\", or \"\"".to_owned(),
            Self::ClaimName => format!(
                "a claim's name, such as \"level\": a letter, then at most {} letters, digits and _",
                CLAIM_NAME_BYTES_MAX.saturating_sub(1)
            ),
            Self::Flag => "true or false".to_owned(),
            Self::Many(each, min, max) => format!("a list of {min} to {max}, each {}", each.allowed()),
            Self::Overrides => format!(
                "a list of at most {OVERRIDES_MAX}, such as [{{ cidr = \"10.0.0.0/8\", rate_per_s = 100, burst = 200 }}]"
            ),
        }
    }

    /// A value from environment or flag, where everything is text.
    pub(super) fn value_of_text(self, text: &str) -> Value {
        let as_text = || Value::String(text.to_owned());
        match self {
            Self::Whole(..) | Self::AutoOrWhole(..) => {
                text.parse().map_or_else(|_| as_text(), Value::Integer)
            }
            Self::Flag => text.parse().map_or_else(|_| as_text(), Value::Boolean),
            Self::Overrides => text.parse().unwrap_or_else(|_| as_text()),
            Self::Many(each, ..) => match text.parse() {
                Ok(list @ Value::Array(_)) => list,
                // One may be given as it is, more with commas between.
                _ if text.is_empty() => Value::Array(Vec::new()),
                _ => Value::Array(text.split(',').map(|part| each.value_of_text(part.trim())).collect()),
            },
            _ => as_text(),
        }
    }

    /// Every fault of this value for that key.
    pub(super) fn faults(self, key: &str, value: &Value) -> Vec<Fault> {
        if let (Self::Overrides, Value::Array(list)) = (self, value)
            && list.len() <= OVERRIDES_MAX
        {
            return list
                .iter()
                .enumerate()
                .flat_map(|(index, item)| override_faults(&format!("{key}[{index}]"), item))
                .collect();
        }
        if let (Self::Many(each, min, max), Value::Array(list)) = (self, value)
            && (min..=max).contains(&list.len())
        {
            return list_faults(*each, key, list);
        }
        let detail = match (self, value) {
            (Self::Whole(min, max) | Self::AutoOrWhole(min, max), Value::Integer(number)) => {
                (*number < min || *number > max).then(String::new)
            }
            (Self::AutoOrWhole(..), Value::String(text)) => (text != "auto").then(String::new),
            (Self::Time(min, max), Value::String(text)) => match parse_duration(text) {
                Ok(duration) => (duration < min || duration > max).then(String::new),
                Err(error) => Some(error.to_string()),
            },
            (Self::Size(min, max), Value::String(text)) => match parse_bytes(text) {
                Ok(bytes) => (bytes < min || bytes > max).then(String::new),
                Err(error) => Some(error.to_string()),
            },
            (Self::AddressOrOff, Value::String(text)) if text.is_empty() => None,
            (Self::Address | Self::AddressOrOff, Value::String(text)) => {
                text.parse::<SocketAddr>().is_err().then(String::new)
            }
            (Self::OneOf(names), Value::String(text)) => (!names.contains(&text.as_str())).then(String::new),
            (Self::Text(min, max), Value::String(text)) => {
                (text.len() < min || text.len() > max || text.contains('\0')).then(String::new)
            }
            (Self::Block, Value::String(text)) => text.parse::<Cidr>().err().map(|error| error.to_string()),
            (Self::HostPortOrNone, Value::String(text)) if text.is_empty() => None,
            (Self::HostPort | Self::HostPortOrNone, Value::String(text)) => {
                (!is_host_port(text)).then(String::new)
            }
            (Self::VersionOrNone, Value::String(text)) if text.is_empty() => None,
            (Self::VersionOrNone, Value::String(text)) => {
                text.parse::<AppVersion>().err().map(|error| error.to_string())
            }
            (Self::Prefix, Value::String(text)) => (!is_prefix(text)).then(String::new),
            (Self::ClaimName, Value::String(text)) => (!is_claim_name(text)).then(String::new),
            (Self::Flag, Value::Boolean(_)) => None,
            _ => Some(String::new()),
        };
        let Some(detail) = detail else { return Vec::new() };
        let separator = if detail.is_empty() { "" } else { "; " };
        let why = format!("{detail}{separator}allowed: {}", self.allowed());
        vec![Fault { key: key.to_owned(), value: Some(value.clone()), why }]
    }
}

/// The faults of a list's entries; one that is there already is a fault too.
fn list_faults(each: Rule, key: &str, list: &[Value]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, item) in list.iter().enumerate() {
        let full_key = format!("{key}[{index}]");
        let first = list.iter().position(|other| other == item).filter(|first| *first != index);
        match first {
            Some(first) => {
                let why = format!("already given by {key}[{first}]");
                faults.push(Fault { key: full_key, value: Some(item.clone()), why });
            }
            None => faults.extend(each.faults(&full_key, item)),
        }
    }
    faults
}

/// `host:port`; an IPv6 address stands in brackets.
fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_port =
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_host = if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        address.parse::<Ipv6Addr>().is_ok()
    } else {
        (1..=253).contains(&host.len()) && host.bytes().all(is_letter)
    };
    is_port && is_host
}

/// Without braces: they would decide on which node of a cluster a key lives.
fn is_prefix(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    (1..=PREFIX_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter)
}

/// The faults of one entry of the override list.
fn override_faults(key: &str, item: &Value) -> Vec<Fault> {
    let names = OVERRIDE_KEYS.map(|(name, _)| name);
    let Some(entry) = item.as_table() else {
        let why = format!("allowed: a table with {}", names.join(", "));
        return vec![Fault { key: key.to_owned(), value: Some(item.clone()), why }];
    };
    let mut faults = Vec::new();
    for (name, value) in entry {
        let full_key = format!("{key}.{name}");
        if let Some((_, rule)) = OVERRIDE_KEYS.iter().find(|(known, _)| known == name) {
            faults.extend(rule.faults(&full_key, value));
        } else {
            let advice = match nearest(name, names) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("its keys: {}", names.join(", ")),
            };
            faults.push(Fault { key: full_key, value: None, why: format!("not a key; {advice}") });
        }
    }
    for missing in names.iter().filter(|name| !entry.contains_key(**name)) {
        faults.push(Fault { key: format!("{key}.{missing}"), value: None, why: "missing".to_owned() });
    }
    faults
}
