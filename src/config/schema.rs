//! Every key and what it may be. The one list behind the checks, the messages, the names of environment variables
//! and the conversion of text from environment and flags. A test holds it against the structs.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Value;

use super::problem::nearest;
use super::text::{format_bytes, format_duration, parse_bytes, parse_duration};
use crate::admission::Cidr;

/// A key and what its value may be.
pub(super) struct Key {
    pub(super) path: &'static str,
    pub(super) rule: Rule,
}

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

const fn key(path: &'static str, rule: Rule) -> Key {
    Key { path, rule }
}

const fn ms(from: u64, to: u64) -> Rule {
    Rule::Time(Duration::from_millis(from), Duration::from_millis(to))
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// Above these a limit limits nothing, and the time between two requests loses precision.
const RATE_PER_S: Rule = Rule::Whole(0, 10_000_000);
const BURST: Rule = Rule::Whole(0, 100_000_000);

/// Each request of an address without a remembered rule looks at all of them.
const OVERRIDES_MAX: usize = 256;
const OVERRIDE_KEYS: [(&str, Rule); 3] =
    [("cidr", Rule::Block), ("rate_per_s", RATE_PER_S), ("burst", BURST)];

const SECTIONS: [&str; 6] = ["gateway", "admin", "store", "stock", "limits", "auth"];

pub(super) const KEYS: &[Key] = &[
    key("gateway.listen", Rule::Address),
    key("gateway.connections_max", Rule::AutoOrWhole(1, 10_000_000)),
    // The wire has 16 bits for these two.
    key("gateway.in_flight_max", Rule::Whole(1, 65_535)),
    key("gateway.service_in_flight_max", Rule::Whole(1, 65_535)),
    // From what is accepted before AUTH to what a reply may be.
    key("gateway.frame_bytes_max", Rule::Size(1 << 10, 64 << 10)),
    // At least one whole reply.
    key("gateway.outbound_bytes_max", Rule::Size(64 << 10, 64 << 20)),
    key("gateway.handshake_timeout", ms(100, 5 * MINUTE_MS)),
    key("gateway.frame_timeout", ms(100, 5 * MINUTE_MS)),
    key("gateway.write_timeout", ms(100, 5 * MINUTE_MS)),
    key("gateway.keepalive", ms(1_000, HOUR_MS)),
    key("gateway.drain_timeout", ms(100, 10 * MINUTE_MS)),
    key("gateway.worker_threads", Rule::Whole(0, 1_024)),
    key("admin.listen", Rule::AddressOrOff),
    key("store.kind", Rule::OneOf(&["sqlite"])),
    key("store.data_dir", Rule::Text(1, 4_096)),
    key("store.synchronous", Rule::OneOf(&["full", "normal"])),
    key("stock.queue_items_max", Rule::Whole(1, 1_000_000)),
    key("stock.batch_items_max", Rule::Whole(1, 4_096)),
    // Clients wait for an answer for their patience and 10 s more; `cross` compares these two with others.
    key("stock.patience", ms(1, 10_000)),
    key("stock.unconfirmed_after", ms(10, 10_000)),
    key("stock.call_timeout", ms(10, MINUTE_MS)),
    // The feeds are read every 100 ms though nothing comes in; a view is that old without anything being wrong.
    key("stock.view_lag_max", ms(200, MINUTE_MS)),
    key("limits.keys_max", Rule::Whole(1, 100_000_000)),
    key("limits.global.rate_per_s", RATE_PER_S),
    key("limits.global.burst", BURST),
    key("limits.per_ip.rate_per_s", RATE_PER_S),
    key("limits.per_ip.burst", BURST),
    key("limits.per_user.rate_per_s", RATE_PER_S),
    key("limits.per_user.burst", BURST),
    key("limits.result_per_user.rate_per_s", RATE_PER_S),
    key("limits.result_per_user.burst", BURST),
    key("limits.per_ip_overrides", Rule::Overrides),
    key("auth.algorithm", Rule::OneOf(&["HS256", "EdDSA"])),
    key("auth.audience", Rule::Text(1, 256)),
    key("auth.issuer", Rule::Text(0, 256)),
    key("auth.secret_file", Rule::Text(0, 4_096)),
    key("auth.public_key_file", Rule::Text(0, 4_096)),
    // More would keep tokens alive long after their makers think them dead.
    key("auth.leeway", ms(0, 5 * MINUTE_MS)),
];

pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The keys of a section; empty if there is no such section.
pub(super) fn keys_below(section: &str) -> impl Iterator<Item = &'static str> {
    KEYS.iter()
        .map(|key| key.path)
        .filter(move |path| path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')))
}

/// A sentence about a name that is no key.
pub(super) fn unknown(path: &str) -> String {
    if keys_below(path).next().is_some() {
        return format!("{path} is a section; its keys: {}", list(keys_below(path)));
    }
    let advice = match nearest(path, KEYS.iter().map(|key| key.path).chain(SECTIONS)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => match path.rsplit_once('.').filter(|(section, _)| keys_below(section).next().is_some()) {
            Some((section, _)) => format!("the keys of {section}: {}", list(keys_below(section))),
            None => format!("the sections: {}", list(SECTIONS.into_iter())),
        },
    };
    format!("{path} is not a key; {advice}")
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

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
            Self::Overrides => text.parse().unwrap_or_else(|_| as_text()),
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
            _ => Some(String::new()),
        };
        let Some(detail) = detail else { return Vec::new() };
        let separator = if detail.is_empty() { "" } else { "; " };
        let why = format!("{detail}{separator}allowed: {}", self.allowed());
        vec![Fault { key: key.to_owned(), value: Some(value.clone()), why }]
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Config;

    fn walk(prefix: &str, value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Table(table) => {
                for (name, inner) in table {
                    walk(&format!("{prefix}.{name}"), inner, into);
                }
            }
            _ => assert!(into.insert(prefix.trim_start_matches('.').to_owned())),
        }
    }

    #[test]
    fn the_keys_are_those_of_the_structs() {
        let mut fields = BTreeSet::new();
        walk("", &Value::try_from(Config::default()).unwrap(), &mut fields);
        let keys: BTreeSet<_> = KEYS.iter().map(|key| key.path.to_owned()).collect();
        assert_eq!(keys, fields);
        assert_eq!(keys.len(), KEYS.len(), "no key twice");
        let first = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
        let sections: BTreeSet<_> = KEYS.iter().map(|key| first(key.path)).collect();
        assert_eq!(sections, SECTIONS.map(str::to_owned).into());
    }

    #[test]
    fn a_rule_lets_its_own_bounds_pass_and_serde_takes_them() {
        for Key { path, rule } in KEYS {
            let bounds = match *rule {
                Rule::Whole(min, max) | Rule::AutoOrWhole(min, max) => {
                    vec![Value::Integer(min), Value::Integer(max)]
                }
                Rule::Time(min, max) => [min, max].map(|at| format_duration(at).into()).to_vec(),
                Rule::Size(min, max) => [min, max].map(|at| format_bytes(at).into()).to_vec(),
                Rule::Text(min, max) => [min, max].map(|at| "x".repeat(at).into()).to_vec(),
                Rule::OneOf(names) => names.iter().map(|name| Value::from(*name)).collect(),
                Rule::Address | Rule::AddressOrOff | Rule::Block | Rule::Overrides => Vec::new(),
            };
            for value in bounds {
                assert!(rule.faults(path, &value).is_empty(), "{path} = {value}");
                // As load does it, without the checks of keys among each other.
                let tree = path.rsplit('.').fold(value, |inner, name| {
                    Value::Table(std::iter::once((name.to_owned(), inner)).collect())
                });
                let whole = !matches!(path.rsplit_once('.'), Some((_, "rate_per_s" | "burst")));
                assert!(!whole || tree.try_into::<Config>().is_ok(), "{path}");
            }
        }
    }
}
