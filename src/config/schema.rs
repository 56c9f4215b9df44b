//! Every key and what it may be. The one list behind the checks, the messages, the names of environment variables
//! and the conversion of text from environment and flags. A test holds it against the structs.

use std::time::Duration;

use super::problem::nearest;
use super::rules::{BURST, RATE_PER_S, Rule};
use crate::admission::clients::Platform;
use crate::admission::identity::{CLAIMS_MAX, KID_BYTES_MAX};

/// A key and what its value may be.
pub(super) struct Key {
    pub(super) path: &'static str,
    pub(super) rule: Rule,
}

const fn key(path: &'static str, rule: Rule) -> Key {
    Key { path, rule }
}

const fn ms(from: u64, to: u64) -> Rule {
    Rule::Time(Duration::from_millis(from), Duration::from_millis(to))
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

const SECTIONS: [&str; 17] = [
    "gateway",
    "tls",
    "admin",
    "log",
    "store",
    "redis",
    "mysql",
    "writer",
    "payment",
    "stock",
    "breaker",
    "limits",
    "auth",
    "risk",
    "clients",
    "devices",
    "behaviour",
];

pub(super) const KEYS: &[Key] = &[
    key("gateway.listen", Rule::Address),
    key("gateway.proxy_listen", Rule::AddressOrOff),
    key("gateway.proxy_from", Rule::Many(&Rule::Block, 0, 256)),
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
    key("gateway.result_keep", ms(0, 10 * 365 * 24 * HOUR_MS)),
    key("gateway.archive_lookups_per_s", Rule::Whole(1, 100_000)),
    key("gateway.worker_threads", Rule::Whole(0, 1_024)),
    key("tls.listen", Rule::AddressOrOff),
    key("tls.proxy_listen", Rule::AddressOrOff),
    key("tls.certificate_file", Rule::Text(0, 4_096)),
    key("tls.private_key_file", Rule::Text(0, 4_096)),
    key("tls.ticket_keys_file", Rule::Text(0, 4_096)),
    key("tls.handshakes_max", Rule::Whole(1, 1_000_000)),
    key("admin.listen", Rule::AddressOrOff),
    key("log.file", Rule::Text(0, 4_096)),
    key("log.file_bytes_max", Rule::Size(64 << 10, 1 << 30)),
    key("log.rotate_after", ms(MINUTE_MS, 365 * 24 * HOUR_MS)),
    // At least what is written and one before it.
    key("log.total_bytes_max", Rule::Size(128 << 10, 1 << 40)),
    key("store.kind", Rule::OneOf(&["sqlite", "redis"])),
    key("store.data_dir", Rule::Text(1, 4_096)),
    key("store.synchronous", Rule::OneOf(&["full", "normal"])),
    key("redis.nodes", Rule::Many(&Rule::HostPort, 1, 64)),
    key("redis.cluster", Rule::Flag),
    key("redis.username", Rule::Text(0, 256)),
    key("redis.password_file", Rule::Text(0, 4_096)),
    key("redis.prefix", Rule::Prefix),
    key("redis.connect_timeout", ms(10, MINUTE_MS)),
    key("redis.call_timeout", ms(10, MINUTE_MS)),
    key("redis.wait_replicas", Rule::AutoOrWhole(0, 5)),
    key("redis.wait_timeout", ms(1, MINUTE_MS)),
    key("redis.clock_node", Rule::HostPortOrNone),
    key("mysql.host", Rule::Text(1, 253)),
    key("mysql.port", Rule::Whole(1, 65_535)),
    key("mysql.user", Rule::Text(1, 80)),
    key("mysql.password_file", Rule::Text(0, 4_096)),
    key("mysql.database", Rule::Text(1, 64)),
    // One is the leader's own while it recovers, others are for whoever works meanwhile.
    key("mysql.connections_max", Rule::Whole(4, 1_000)),
    key("mysql.connect_timeout", ms(100, MINUTE_MS)),
    key("writer.admin_listen", Rule::AddressOrOff),
    // A statement has at most 65,535 values.
    key("writer.batch_rows_max", Rule::Whole(1, 5_000)),
    key("writer.linger", ms(0, 10_000)),
    key("writer.rows_per_s", RATE_PER_S),
    // Less would take batches from writers that are only waiting for the database.
    key("writer.claim_idle", ms(1_000, HOUR_MS)),
    key("writer.preheat_ahead", ms(1_000, 24 * HOUR_MS)),
    key("writer.trim_keep", ms(MINUTE_MS, 24 * HOUR_MS)),
    key("payment.key_file", Rule::Text(0, 4_096)),
    key("payment.other_key_file", Rule::Text(0, 4_096)),
    key("payment.replay_window", ms(1_000, HOUR_MS)),
    key("payment.park_for", ms(MINUTE_MS, 30 * 24 * HOUR_MS)),
    key("payment.centre_url", Rule::Text(0, 1_024)),
    key("payment.ask_timeout", ms(100, MINUTE_MS)),
    key("payment.ask_orders_max", Rule::Whole(1, 1_000)),
    key("payment.asks_in_flight", Rule::Whole(1, 64)),
    // The gauge of what is unknown remembers ten minutes.
    key("payment.retry_max", ms(1_000, 10 * MINUTE_MS)),
    key("payment.alarm_after", ms(1_000, 24 * HOUR_MS)),
    key("stock.queue_items_max", Rule::Whole(1, 1_000_000)),
    key("stock.batch_items_max", Rule::Whole(1, 4_096)),
    // Clients wait for an answer for their patience and 10 s more; `cross` compares these two with others.
    key("stock.patience", ms(1, 10_000)),
    key("stock.unconfirmed_after", ms(10, 10_000)),
    key("stock.call_timeout", ms(10, MINUTE_MS)),
    // The feeds are read every 100 ms though nothing comes in; a view is that old without anything being wrong.
    key("stock.view_lag_max", ms(200, MINUTE_MS)),
    key("breaker.failures", Rule::Whole(1, 1_000_000)),
    key("breaker.pause_max", ms(100, HOUR_MS)),
    key("breaker.probes", Rule::Whole(1, 1_000)),
    key("breaker.database_after", ms(0, 24 * HOUR_MS)),
    key("limits.keys_max", Rule::Whole(1, 100_000_000)),
    key("limits.global.rate_per_s", RATE_PER_S),
    key("limits.global.burst", BURST),
    key("limits.per_ip.rate_per_s", RATE_PER_S),
    key("limits.per_ip.burst", BURST),
    key("limits.per_user.rate_per_s", RATE_PER_S),
    key("limits.per_user.burst", BURST),
    key("limits.result_per_user.rate_per_s", RATE_PER_S),
    key("limits.result_per_user.burst", BURST),
    key("limits.per_connection.rate_per_s", RATE_PER_S),
    key("limits.per_connection.burst", BURST),
    key("limits.per_activity.rate_per_s", RATE_PER_S),
    key("limits.per_activity.burst", BURST),
    key("limits.auth_per_ip.rate_per_s", RATE_PER_S),
    key("limits.auth_per_ip.burst", BURST),
    // The constants of `OpenUnpaidMax`.
    key("limits.open_unpaid_per_user_max", Rule::Whole(0, 100)),
    key("limits.open_unpaid_per_device_max", Rule::Whole(0, 8)),
    // The store keeps the order number of each.
    key("limits.store_attempts_max", Rule::Whole(0, 100)),
    key("limits.store_attempts_window", ms(100, HOUR_MS)),
    key("limits.per_ip_overrides", Rule::Overrides),
    key("auth.algorithm", Rule::OneOf(&["HS256", "EdDSA", "ES256"])),
    key("auth.kid", Rule::Text(0, KID_BYTES_MAX)),
    key("auth.secret_file", Rule::Text(0, 4_096)),
    key("auth.public_key_file", Rule::Text(0, 4_096)),
    key("auth.jwks_file", Rule::Text(0, 4_096)),
    key("auth.audience", Rule::Text(1, 256)),
    key("auth.issuer", Rule::Text(0, 256)),
    key("auth.service_from", Rule::Many(&Rule::Block, 0, 256)),
    // More would keep tokens alive long after their makers think them dead.
    key("auth.leeway", ms(0, 5 * MINUTE_MS)),
    key("auth.sessions", Rule::Flag),
    key("auth.claims", Rule::Many(&Rule::ClaimName, 0, CLAIMS_MAX)),
    key("risk.slow_interval", ms(100, HOUR_MS)),
    key("risk.explain_slots", Rule::Whole(0, 16_777_216)),
    key("clients.platforms", Rule::Many(&Rule::OneOf(&Platform::NAMES), 0, 6)),
    key("clients.min_version.other", Rule::VersionOrNone),
    key("clients.min_version.ios", Rule::VersionOrNone),
    key("clients.min_version.android", Rule::VersionOrNone),
    key("clients.min_version.web", Rule::VersionOrNone),
    key("clients.min_version.mini_program", Rule::VersionOrNone),
    key("clients.min_version.back_end", Rule::VersionOrNone),
    // A device's name has at most 64.
    key("clients.device_bytes_min", Rule::Whole(0, 64)),
    key("clients.device_charset", Rule::OneOf(&["any", "plain"])),
    // One set of so many for each device, or user.
    key("devices.users_max", Rule::Whole(0, 10_000)),
    key("devices.per_user_max", Rule::Whole(0, 10_000)),
    key("devices.window", ms(1_000, 30 * 24 * HOUR_MS)),
    key("devices.effect", Rule::OneOf(&["slow", "block"])),
    key("devices.flag_for", ms(1_000, 365 * 24 * HOUR_MS)),
    key("behaviour.per_minute", Rule::Whole(0, 60_000)),
    key("behaviour.burst", Rule::Whole(1, 1_000_000_000)),
    key("behaviour.slow_for", ms(1_000, 365 * 24 * HOUR_MS)),
    key("behaviour.block_after", Rule::Whole(1, 1_000_000_000)),
    key("behaviour.block_for", ms(1_000, 365 * 24 * HOUR_MS)),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use toml::Value;

    use super::*;
    use crate::config::Config;
    use crate::config::text::{format_bytes, format_duration};

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
                Rule::Flag => [true, false].map(Value::Boolean).to_vec(),
                Rule::Address
                | Rule::AddressOrOff
                | Rule::Block
                | Rule::HostPort
                | Rule::HostPortOrNone
                | Rule::Prefix
                | Rule::VersionOrNone
                | Rule::ClaimName
                | Rule::Many(..)
                | Rule::Overrides => Vec::new(),
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
