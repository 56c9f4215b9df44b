//! The configuration as a whole: sources over each other, and everything that is wrong told at once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use rushgate::admission::Cidr;
use rushgate::admission::clients::{AppVersion, ClientRules, Platform};
use rushgate::admission::identity::{MintKey, TokenAlgorithm, VerifyKey};
use rushgate::admission::limits;
use rushgate::config::{
    Config, ConfigErrors, ConfigFile, ConnectionsMax, KeyFiles, MintSettingsError, Origin, Rate, Sources,
    StoreKind, Synchronous,
};
use tempfile::TempDir;
use toml::{Table, Value};

const EXAMPLE: &str = include_str!("../rushgate.example.toml");

/// A file, variables and flags, of which any may be empty.
struct Case {
    dir: TempDir,
    sources: Sources,
}

impl Case {
    fn new(file: &str, env: &[(&str, &str)], set: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("rushgate.toml");
        fs::write(&path, file).unwrap();
        let sources = Sources {
            file: ConfigFile::Required(path),
            env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            set: set.iter().map(|&flag| flag.to_owned()).collect(),
            key_files: KeyFiles::Unopened,
        };
        Self { dir, sources }
    }

    fn load(&self) -> Result<Config, ConfigErrors> {
        Config::load(&self.sources)
    }

    /// The messages, with the folder's name taken out.
    fn messages(&self) -> Vec<String> {
        let folder = format!("{}/", self.dir.path().display());
        self.load().unwrap_err().to_string().replace(&folder, "").lines().map(str::to_owned).collect()
    }
}

fn load(file: &str, env: &[(&str, &str)], set: &[&str]) -> Config {
    Case::new(file, env, set).load().unwrap()
}

/// The one message about a file.
fn message(file: &str) -> String {
    let messages = Case::new(file, &[], &[]).messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.into_iter().next().unwrap()
}

/// Every key of a tree, lists being values.
fn paths(table: &Table) -> BTreeSet<String> {
    fn walk(prefix: &str, table: &Table, into: &mut BTreeSet<String>) {
        for (name, value) in table {
            let path = format!("{prefix}{name}");
            match value {
                Value::Table(inner) => walk(&format!("{path}."), inner, into),
                _ => assert!(into.insert(path)),
            }
        }
    }
    let mut all = BTreeSet::new();
    walk("", table, &mut all);
    all
}

fn default_paths() -> BTreeSet<String> {
    paths(&Table::try_from(Config::default()).unwrap())
}

/// A default as text, as one would give it in a variable or flag.
fn default_text(path: &str) -> String {
    let mut value = Value::try_from(Config::default()).unwrap();
    for name in path.split('.') {
        value = value[name].clone();
    }
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn without_any_source_it_is_the_default() {
    assert_eq!(Config::load(&Sources::default()).unwrap(), Config::default());
    let missing =
        Sources { file: ConfigFile::IfPresent("/nowhere/rushgate.toml".into()), ..Sources::default() };
    assert_eq!(Config::load(&missing).unwrap(), Config::default());
    assert_eq!(
        load("", &[("HOME", "/"), ("RUSHGATEX", "1"), ("OTHER_RUSHGATE_A", "2")], &[]),
        Config::default()
    );
}

#[test]
fn the_defaults_are_allowed_by_every_source() {
    let printed = Config::default().print();
    assert_eq!(load(&printed, &[], &[]), Config::default());
    let env: Vec<_> = default_paths()
        .iter()
        .map(|path| (format!("RUSHGATE_{}", path.replace('.', "_").to_uppercase()), default_text(path)))
        .collect();
    let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let names: BTreeSet<_> = env.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), env.len(), "no variable means two keys");
    assert_eq!(load("", &env, &[]), Config::default());
    let flags: Vec<_> = default_paths().iter().map(|path| format!("{path}={}", default_text(path))).collect();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    assert_eq!(load("", &[], &flags), Config::default());
}

#[test]
fn the_example_is_the_defaults_and_has_every_key() {
    // As it stands it changes nothing.
    assert_eq!(load(EXAMPLE, &[], &[]), Config::default());
    // "#key = value" is a setting, "# text" is not.
    let uncommented: String = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(load(&uncommented, &[], &[]), Config::default());
    let table: Table = uncommented.parse().unwrap();
    assert_eq!(toml::from_str::<Config>(&uncommented).unwrap(), Config::default());
    assert_eq!(paths(&table), default_paths());
    // The overrides it shows are allowed.
    let shown: String = EXAMPLE
        .lines()
        .skip_while(|line| *line != "# per_ip_overrides = [")
        .take_while(|line| *line != "#per_ip_overrides = []")
        .flat_map(|line| [line.strip_prefix("# ").unwrap(), "\n"])
        .collect();
    assert_eq!(load(&format!("[limits]\n{shown}"), &[], &[]).limits.per_ip_overrides.len(), 2);
}

#[test]
fn later_sources_win_key_by_key() {
    let file = r#"
        [gateway]
        in_flight_max = 1
        keepalive = "1s"
        worker_threads = 1
        listen = "[::1]:1"
        [limits]
        per_user = { rate_per_s = 5 }
        [limits.per_ip]
        burst = 7
    "#;
    let env = [("RUSHGATE_GATEWAY_IN_FLIGHT_MAX", "2"), ("RUSHGATE_GATEWAY_KEEPALIVE", "2s")];
    let config = load(file, &env, &["gateway.in_flight_max=3", "gateway.in_flight_max=4"]);
    assert_eq!(config.gateway.in_flight_max, 4);
    assert_eq!(config.gateway.keepalive, Duration::from_secs(2));
    assert_eq!(config.gateway.worker_threads, 1);
    assert_eq!(config.gateway.listen, "[::1]:1".parse().unwrap());
    assert_eq!(config.limits.per_user, Rate { rate_per_s: 5, burst: 40 });
    assert_eq!(config.limits.per_ip, Rate { rate_per_s: 2_000, burst: 7 });
    assert_eq!(config.stock, Config::default().stock);
}

#[test]
fn every_kind_of_value_arrives() {
    let config = load(
        r#"
        [gateway]
        connections_max = 1000
        frame_bytes_max = "64KiB"
        [store]
        synchronous = "normal"
        [stock]
        patience = "200ms"
        [[limits.per_ip_overrides]]
        cidr = "127.0.0.0/8"
        rate_per_s = 0
        burst = 0
        "#,
        &[("RUSHGATE_ADMIN_LISTEN", ""), ("RUSHGATE_GATEWAY_CONNECTIONS_MAX", "auto")],
        &["auth.issuer=a=b c", "store.data_dir=/tmp/x y"],
    );
    assert_eq!(config.gateway.connections_max, ConnectionsMax::Auto);
    assert_eq!(config.gateway.frame_bytes_max, 65_536);
    assert_eq!(config.store.synchronous, Synchronous::Normal);
    assert_eq!(config.stock.patience, Duration::from_millis(200));
    assert_eq!(config.admin.listen, None);
    assert_eq!(config.auth.issuer.as_deref(), Some("a=b c"));
    assert_eq!(config.store.data_dir, PathBuf::from("/tmp/x y"));
    assert_eq!(config.limits.per_ip_overrides[0].cidr, "127.0.0.0/8".parse().unwrap());
    let flag = r#"limits.per_ip_overrides=[{cidr="::1",rate_per_s=3,burst=4}]"#;
    assert_eq!(load("", &[], &[flag]).limits.per_ip_overrides[0].burst, 4);
    assert_eq!(
        load("", &[], &["gateway.connections_max=7"]).gateway.connections_max,
        ConnectionsMax::Count(7)
    );
}

#[test]
fn all_that_is_wrong_is_told_at_once_and_where() {
    let file = r#"[gateway]
listen = "localhost"
in_flight_max = 0
keep_alive = "10s"
keepalive = "200ms"
drain_timeout = 5
handshake_timeout = "10"
frame_bytes_max = "4KB"

[limits]
per_user = { rate_per_s = -1, burst = "many" }

[[limits.per_ip_overrides]]
cidr = "10.0.0.1/8"
rate = 5
burst = 1

[sotck]
patience = "1s"
"#;
    let case = Case::new(
        file,
        &[
            ("RUSHGATE_GATEWAY_IN_FLIGHT", "5"),
            ("RUSHGATE_STORE_KIND", "oracle"),
            ("RUSHGATE_AUTH_ALGORITHM", "EdDSA"),
        ],
        &["stock.queue_items_max=lots", "patience=1s", "nonsense", "limits.per_user=5"],
    );
    let address = "an IP address and port in quotes, such as \"0.0.0.0:7700\"";
    assert_eq!(
        case.messages(),
        [
            &format!("rushgate.toml line 2: gateway.listen = \"localhost\": allowed: {address}"),
            "rushgate.toml line 3: gateway.in_flight_max = 0: allowed: a whole number from 1 to 65535",
            "rushgate.toml line 4: gateway.keep_alive is not a key; did you mean gateway.keepalive?",
            "rushgate.toml line 5: gateway.keepalive = \"200ms\": allowed: a duration in quotes from \"1s\" to \"1h\"",
            "rushgate.toml line 6: gateway.drain_timeout = 5: allowed: a duration in quotes from \"100ms\" to \"10m\"",
            "rushgate.toml line 7: gateway.handshake_timeout = \"10\": it has no unit (ns, us, ms, s, m, h); \
             allowed: a duration in quotes from \"100ms\" to \"5m\"",
            "rushgate.toml line 8: gateway.frame_bytes_max = \"4KB\": \"KB\" is not a unit (B, KiB, MiB, GiB); \
             allowed: a size in quotes from \"1KiB\" to \"64KiB\"",
            "rushgate.toml line 11: limits.per_user.burst = \"many\": allowed: a whole number from 0 to 100000000",
            "rushgate.toml line 11: limits.per_user.rate_per_s = -1: allowed: a whole number from 0 to 10000000",
            "rushgate.toml line 13: limits.per_ip_overrides[0].cidr = \"10.0.0.1/8\": 10.0.0.1/8 has address bits \
             after its prefix; write 10.0.0.0/8, or another prefix length; allowed: addresses in quotes, such as \
             \"10.0.0.0/8\" or \"2001:db8::/32\"",
            "rushgate.toml line 13: limits.per_ip_overrides[0].rate: not a key; did you mean rate_per_s?",
            "rushgate.toml line 13: limits.per_ip_overrides[0].rate_per_s: missing",
            "rushgate.toml line 18: sotck is not a key; did you mean stock?",
            "environment RUSHGATE_GATEWAY_IN_FLIGHT: sets no key; did you mean RUSHGATE_GATEWAY_IN_FLIGHT_MAX?",
            "environment RUSHGATE_STORE_KIND: store.kind = \"oracle\": allowed: \"sqlite\" or \"redis\"",
            "environment RUSHGATE_AUTH_ALGORITHM: auth.public_key_file = \"\": allowed: the path of a public key \
             (PEM) with auth.algorithm = \"EdDSA\"",
            "--set patience: patience is not a key; did you mean stock.patience?",
            "--set nonsense: a flag has the form --set section.key=value",
            "--set limits.per_user: limits.per_user is a section; its keys: limits.per_user.rate_per_s, \
             limits.per_user.burst",
            "--set stock.queue_items_max: stock.queue_items_max = \"lots\": allowed: a whole number from 1 to 1000000",
        ]
    );
}

#[test]
fn a_value_outside_its_bounds_is_refused_and_the_bounds_are_not() {
    assert_bounds(&[
        ("gateway.connections_max", &["auto", "1", "10000000"][..], &["0", "10000001", "Auto", "-1", ""][..]),
        (
            "gateway.in_flight_max",
            &["1", "65535"],
            &["0", "65536", "1.5", "0x10", " 1", "99999999999999999999"],
        ),
        ("gateway.frame_bytes_max", &["1KiB", "64KiB"], &["1023B", "65537B", "4096"]),
        ("gateway.outbound_bytes_max", &["64KiB", "64MiB"], &["65535B", "65MiB"]),
        ("gateway.keepalive", &["1s", "1h"], &["999ms", "3601s", "0s"]),
        (
            "gateway.listen",
            &["[::]:0", "1.2.3.4:65535"],
            &["", ":7700", "1.2.3.4", "1.2.3.4:65536", "host:1"],
        ),
        ("gateway.worker_threads", &["0", "1024"], &["-1", "1025"]),
        ("admin.listen", &["", "127.0.0.1:0"], &["off", "7701"]),
        ("store.kind", &["sqlite", "redis"], &["", "SQLite", "mysql"]),
        ("store.data_dir", &["x"], &["", "a\0b"]),
        ("store.synchronous", &["full", "normal"], &["off", "FULL"]),
        ("gateway.drain_timeout", &["3s", "10m"], &["2999ms", "601s"]),
        ("stock.patience", &["1ms", "3s"], &["0s", "3001ms", "11s", "1us"]),
        ("stock.unconfirmed_after", &["2s", "5s"], &["1999ms", "5001ms", "11s"]),
        ("stock.view_lag_max", &["200ms", "60s"], &["199ms", "61s"]),
        ("limits.keys_max", &["1", "100000000"], &["0"]),
        ("limits.store_attempts_window", &["100ms", "1h"], &["99ms", "3601s", "0s"]),
        ("limits.per_ip.rate_per_s", &["0", "10000000"], &["10000001", "-1"]),
        ("limits.per_ip_overrides", &["[]"], &["{}", "[1]", "[{}]", "x", "[{cidr=\"::1\",rate_per_s=1}]"]),
        ("auth.audience", &["a"], &[""]),
        ("auth.leeway", &["0s", "5m"], &["301s"]),
        ("clients.platforms", &["", "[]", "ios", "ios,back_end"], &["iOS", "ios,ios", "1", "[\"symbian\"]"]),
        (
            "clients.min_version.ios",
            &["", "3", "3.2", "65535.0.0"],
            &["v3", "3.2.0.1", "65536", "3.2.0-beta", "-1"],
        ),
        ("devices.users_max", &["0", "10000"], &["10001", "-1"]),
        ("devices.window", &["1s", "720h"], &["999ms", "721h"]),
        ("devices.effect", &["slow", "block"], &["", "none"]),
        ("devices.flag_for", &["1s"], &["0s"]),
        ("behaviour.per_minute", &["0", "1", "60000"], &["60001", "-1"]),
        ("behaviour.burst", &["1", "1000000000"], &["0", "1000000001"]),
        ("behaviour.block_after", &["1", "1000000000"], &["0", "1000000001"]),
        ("behaviour.block_for", &["1s"], &["999ms"]),
        ("clients.device_bytes_min", &["0", "64"], &["65", "-1"]),
        ("clients.device_charset", &["any", "plain"], &["", "ascii"]),
    ]);
}

#[test]
fn the_production_stores_values_have_bounds_too() {
    assert_bounds(&[
        (
            "redis.nodes",
            &["h:1", "[\"h:1\"]", "a-b.c_d:65535", "[::1]:6379"],
            &[
                "",
                "[]",
                "h",
                "h:",
                "h:0",
                "h:+1",
                "h:65536",
                ":1",
                "::1:6379",
                "[::g]:1",
                "h x:1",
                "redis://h:1",
                "[1]",
                "h:1,",
                "[\"h:1\"",
                "h:1,h:1",
            ],
        ),
        ("redis.cluster", &["true", "false"], &["", "yes", "1"]),
        ("redis.prefix", &["a", "shop-1.eu:sale_2"], &["", "a{b}", "a b", "a*", "é"]),
        ("redis.wait_replicas", &["auto", "0", "5"], &["6", "-1", "", "Auto"]),
        ("redis.clock_node", &["", "127.0.0.1:6379"], &["h", "127.0.0.1:6379,h:1"]),
        ("mysql.port", &["1", "65535"], &["0", "65536"]),
        ("mysql.connections_max", &["4", "1000"], &["3", "1001"]),
        ("mysql.database", &["x"], &[""]),
        ("writer.batch_rows_max", &["1", "5000"], &["0", "5001"]),
        ("writer.claim_idle", &["1s", "1h"], &["999ms"]),
        ("writer.trim_keep", &["1m"], &["59s"]),
        ("writer.admin_listen", &["", "127.0.0.1:0"], &["off"]),
        ("gateway.proxy_listen", &["", "127.0.0.1:7703"], &["off", "7703"]),
        ("tls.listen", &[""], &["off", "7743"]),
        ("tls.handshakes_max", &["1", "1000000"], &["0"]),
        ("gateway.proxy_from", &["[]", "10.0.0.0/8,::1", "10.1.2.3"], &["10.0.0.1/8", "x", "[1]", "::1,::1"]),
    ]);
}

/// A key with values that are allowed, and some that are refused with its name.
type Bounds<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

fn assert_bounds(all: &[Bounds<'_>]) {
    for (path, allowed, refused) in all {
        for text in *allowed {
            let outcome = Case::new("", &[], &[&format!("{path}={text}")]).load();
            assert!(outcome.is_ok(), "{path} = {text}: {outcome:?}");
        }
        for text in *refused {
            let messages = Case::new("", &[], &[&format!("{path}={text}")]).messages();
            assert!(messages.iter().all(|line| line.contains(path)), "{path} = {text}: {messages:?}");
        }
    }
}

#[test]
fn types_are_not_guessed_in_a_file() {
    for (line, says) in [
        ("gateway = 5", "gateway is a section; its keys: gateway.listen"),
        ("gateway.in_flight_max = \"64\"", "= \"64\": allowed: a whole number"),
        ("gateway.in_flight_max = 64.0", "= 64.0: allowed: a whole number"),
        ("gateway.in_flight_max = true", "= true: allowed: a whole number"),
        ("gateway.keepalive = [\"60s\"]", "allowed: a duration"),
        ("gateway.listen.port = 1", "gateway.listen = { port = 1 }: allowed: an IP address"),
        ("gateway.in_flight_max = 99999999999999999999", "allowed: a whole number from 1 to 65535"),
        ("limits.per_user = 7", "limits.per_user is a section"),
        ("limits.per_user.brust = 7", "did you mean limits.per_user.burst?"),
        ("stock.colour = 1", "the keys of stock: stock.queue_items_max"),
        ("\"a.b\".c = 1", "a.b is not a key; the sections: gateway,"),
        ("limits.per_ip_overrides = {}", "a list of at most 256"),
    ] {
        let message = message(line);
        assert!(message.contains(says), "{line}: {message}");
    }
}

#[test]
fn what_hangs_together_is_checked_and_the_culprit_is_named() {
    for (flags, says) in [
        (
            &["limits.global.rate_per_s=5"][..],
            "--set limits.global.rate_per_s: limits.global.burst = 0: allowed: at least 1",
        ),
        (
            &["stock.patience=3500ms"],
            "--set stock.patience: stock.patience = \"3500ms\": allowed: at most stock.unconfirmed_after, \"3s\"",
        ),
        (
            &["gateway.drain_timeout=1s"],
            "--set gateway.drain_timeout: stock.unconfirmed_after = \"3s\": allowed: at most \
             gateway.drain_timeout, \"1s\"",
        ),
        (
            &["gateway.drain_timeout=10s", "stock.unconfirmed_after=10s", "stock.patience=10s"],
            "stock.unconfirmed_after = \"10s\": allowed: less than \"20s\" together with stock.patience, \"10s\"",
        ),
        // What takes its place was written by nobody, so it is not compared.
        (&["gateway.drain_timeout=9", "stock.unconfirmed_after=8s"], "gateway.drain_timeout = \"9\""),
        (&["limits.per_user.burst=0"], "--set limits.per_user.burst: limits.per_user.burst = 0"),
        (
            &["limits.per_ip_overrides=[{cidr='::1',rate_per_s=1,burst=0}]"],
            "limits.per_ip_overrides[0].burst = 0: allowed: at least 1",
        ),
        (
            &[
                "limits.per_ip_overrides=[{cidr='::1',rate_per_s=0,burst=0},{cidr='::1/128',rate_per_s=0,burst=0}]",
            ],
            "limits.per_ip_overrides[1].cidr = \"::1/128\": already given by limits.per_ip_overrides[0]",
        ),
        (
            &["gateway.proxy_listen=0.0.0.0:7700"],
            "--set gateway.proxy_listen: gateway.proxy_listen = \"0.0.0.0:7700\": allowed: another address or port",
        ),
        (
            &["gateway.proxy_listen=127.0.0.1:1", "gateway.proxy_from=[]"],
            "--set gateway.proxy_from: gateway.proxy_from = []: allowed: at least one block",
        ),
        (
            &["behaviour.per_minute=1", "behaviour.burst=43000"],
            "--set behaviour.per_minute: behaviour.block_after = 240: allowed: at most 43200 together with \
             behaviour.burst, 43000",
        ),
        (
            &["store.kind=redis", "redis.nodes=a:1,b:1"],
            "--set redis.nodes: redis.nodes = [\"a:1\", \"b:1\"]: allowed: only one with redis.cluster = false",
        ),
        (
            &["store.kind=redis", "redis.clock_node=b:1"],
            "--set redis.clock_node: redis.clock_node = \"b:1\": allowed: one of redis.nodes, [\"127.0.0.1:6379\"]",
        ),
        (
            &["store.kind=redis", "redis.cluster=true", "redis.call_timeout=500ms"],
            "--set redis.call_timeout: redis.wait_timeout = \"500ms\": allowed: less than redis.call_timeout, \"500ms\"",
        ),
        (
            &["store.kind=redis", "stock.call_timeout=999ms"],
            "--set stock.call_timeout: redis.call_timeout = \"1s\": allowed: at most stock.call_timeout, \"999ms\"",
        ),
    ] {
        let messages = Case::new("", &[], flags).messages();
        assert!(messages.len() == 1 && messages[0].contains(says), "{flags:?}: {messages:?}");
    }
    let longest = ["gateway.drain_timeout=10s", "stock.unconfirmed_after=10s", "stock.patience=9999ms"];
    assert_eq!(load("", &[], &longest).stock.unconfirmed_after, Duration::from_secs(10));
    let off = load("", &[], &["limits.per_user.rate_per_s=0", "limits.per_user.burst=0"]);
    assert_eq!(off.limits.per_user, Rate { rate_per_s: 0, burst: 0 });
}

#[test]
fn tls_has_ports_of_its_own_and_all_its_files() {
    for (flags, says) in [
        (
            &["tls.listen=0.0.0.0:7700", "tls.certificate_file=c", "tls.private_key_file=k"][..],
            "--set tls.listen: tls.listen = \"0.0.0.0:7700\": allowed: another address or port than gateway.listen",
        ),
        (
            &["tls.listen=127.0.0.1:1", "tls.private_key_file=k"],
            "tls.certificate_file = \"\": allowed: a PEM file where tls.listen is not \"\"",
        ),
        (
            &["tls.proxy_listen=127.0.0.1:1", "tls.certificate_file=c"],
            "tls.private_key_file = \"\": allowed: a PEM file where tls.proxy_listen is not \"\"",
        ),
    ] {
        let messages = Case::new("", &[], flags).messages();
        assert!(messages.len() == 1 && messages[0].contains(says), "{flags:?}: {messages:?}");
    }
}

#[test]
fn attempts_at_the_store_are_limited_only_where_several_gateways_make_them() {
    let messages = Case::new("", &[], &["limits.store_attempts_max=3"]).messages();
    let says = "--set limits.store_attempts_max: limits.store_attempts_max = 3: allowed: only 0 with store.kind = \"sqlite\"";
    assert!(messages.len() == 1 && messages[0].contains(says), "{messages:?}");
    assert!(messages[0].contains("limits.per_user is his rate"), "{messages:?}");
    let limits = load("", &[], &["store.kind=redis", "limits.store_attempts_max=3"]).limits;
    assert_eq!((limits.store_attempts_max, limits.store_attempts_window), (3, Duration::from_secs(10)));
}

#[test]
fn keys_for_tokens_fit_their_algorithm() {
    for (flags, says) in [
        (
            &["auth.public_key_file=k"][..],
            "--set auth.public_key_file: auth.public_key_file = \"k\": allowed: only \"\"",
        ),
        (&["auth.algorithm=EdDSA", "auth.public_key_file=k", "auth.secret_file=s"], "--set auth.secret_file"),
        (&["auth.algorithm=ES256", "auth.public_key_file=k", "auth.secret_file=s"], "--set auth.secret_file"),
        (&["auth.algorithm=ES256"], "--set auth.algorithm: auth.public_key_file = \"\": allowed: the path"),
        (
            &["auth.jwks_file=j", "auth.kid=1"],
            "--set auth.kid: auth.kid = \"1\": allowed: only \"\" where all",
        ),
        (&["auth.service_from=10.0.0.1/8"], "--set auth.service_from: auth.service_from[0]"),
    ] {
        let messages = Case::new("", &[], flags).messages();
        assert!(messages.len() == 1 && messages[0].contains(says), "{flags:?}: {messages:?}");
    }
}

#[test]
fn what_only_the_production_store_needs_does_not_bind_the_embedded_one() {
    let flags =
        ["redis.nodes=a:1,b:1", "redis.clock_node=c:1", "redis.wait_replicas=1", "redis.wait_timeout=9s"];
    assert_eq!(load("", &[], &flags).store.kind, StoreKind::Sqlite);
    let set = vec!["redis.password_file=/nowhere/p".to_owned(), "mysql.password_file=/nowhere/q".to_owned()];
    let mut sources = Sources { set, key_files: KeyFiles::Tried, ..Sources::default() };
    assert!(Config::load(&sources).is_ok());
    sources.set.push("store.kind=redis".to_owned());
    let told = Config::load(&sources).unwrap_err().to_string();
    for (key, path) in [("redis.password_file", "/nowhere/p"), ("mysql.password_file", "/nowhere/q")] {
        let said = format!("--set {key}: {key} = \"{path}\": cannot be read: No such file");
        assert!(told.contains(&said), "{told}");
    }
}

#[test]
fn as_many_replicas_are_waited_for_as_the_promise_needs() {
    for (flags, expected) in [
        (&["store.kind=redis"][..], 0),
        (&["redis.cluster=true"], 1),
        (&["redis.cluster=true", "redis.wait_replicas=0"], 0),
        (&["redis.wait_replicas=2"], 2),
    ] {
        assert_eq!(load("", &[], flags).redis.replicas_waited_for(), expected, "{flags:?}");
    }
}

#[test]
fn the_node_whose_time_counts_comes_first() {
    let flags = ["redis.cluster=true", "redis.nodes=a:1,b:1,c:1", "redis.clock_node=b:1"];
    assert_eq!(load("", &[], &flags).redis.nodes_clock_first(), ["b:1", "a:1", "c:1"]);
    assert_eq!(load("", &[], &flags[..2]).redis.nodes_clock_first(), ["a:1", "b:1", "c:1"]);
}

#[test]
fn a_password_is_the_one_line_of_its_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("password");
    let config = load("", &[], &[&format!("redis.password_file={}", path.display())]);
    assert_eq!(load("", &[], &[]).redis_password().unwrap(), None);
    for (content, password) in [("a b ü", "a b ü"), ("x\n", "x"), ("x\r\n", "x"), (" x ", " x ")] {
        fs::write(&path, content).unwrap();
        assert_eq!(config.redis_password().unwrap().as_deref(), Some(password));
    }
    let too_long = vec![b'x'; 4_097];
    for (content, says) in [
        (&b""[..], "is empty"),
        (b"\n", "is empty"),
        (b"x\ny\n", "more than one line"),
        (b"x\0", "more than one line"),
        (b"\xFF", "not UTF-8"),
        (&too_long, "longer than 4096 bytes"),
    ] {
        fs::write(&path, content).unwrap();
        let error = config.redis_password().unwrap_err().to_string();
        assert!(error.starts_with("redis.password_file = ") && error.contains(says), "{error}");
    }
    let missing =
        load("", &[], &["mysql.password_file=/nowhere/p"]).mysql_password().unwrap_err().to_string();
    assert!(missing.starts_with("mysql.password_file = \"/nowhere/p\": cannot be read: "), "{missing}");
}

#[test]
fn a_key_file_that_cannot_be_read_is_told_beside_the_rest() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("there"), "any content").unwrap();
    let tried = |flags: &[&str]| {
        let set = flags.iter().map(|&flag| flag.to_owned()).collect();
        Config::load(&Sources { set, key_files: KeyFiles::Tried, ..Sources::default() })
    };
    let secret = |name| format!("auth.secret_file={}", path(name));
    let public = |name| format!("auth.public_key_file={}", path(name));
    let jwks = |name| format!("auth.jwks_file={}", path(name));
    assert!(tried(&[]).is_ok());
    assert!(tried(&[&secret("there")]).is_ok());
    assert!(tried(&["auth.algorithm=EdDSA", &public("there")]).is_ok());
    for (flags, key, name, says) in [
        (
            &[secret("missing").as_str(), "stock.patience=1"][..],
            "auth.secret_file",
            "missing",
            "No such file",
        ),
        (
            &[&public("missing"), "auth.algorithm=EdDSA", "x=1"],
            "auth.public_key_file",
            "missing",
            "No such file",
        ),
        (&[&secret(""), "x=1"], "auth.secret_file", "", "directory"),
        (&[&jwks("missing"), "x=1"], "auth.jwks_file", "missing", "No such file"),
    ] {
        let error = tried(flags).unwrap_err();
        let said = format!("--set {key}: {key} = \"{}\": cannot be read: ", path(name));
        let told = error.to_string();
        assert_eq!(error.problems().len(), 2, "{told}");
        assert!(told.lines().any(|line| line.starts_with(&said) && line.contains(says)), "{told}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_one_clear_message() {
    let missing =
        Sources { file: ConfigFile::Required("/nowhere/rushgate.toml".into()), ..Sources::default() };
    let error = Config::load(&missing).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nowhere/rushgate.toml: cannot be read: No such file or directory (os error 2)"
    );
    let message = message("[gateway]\n\nin_flight_max = = 5\n");
    assert!(message.starts_with("rushgate.toml line 3: not TOML: "), "{message}");
    let case = Case::new("[gateway]\nworker_threads = 1\nworker_threads = 1\n", &[], &[]);
    assert!(case.messages()[0].starts_with("rushgate.toml line 3: not TOML: "), "{:?}", case.messages());
    fs::write(case.dir.path().join("rushgate.toml"), [0xFF, 0xFE]).unwrap();
    assert!(case.messages()[0].contains("cannot be read"), "{:?}", case.messages());
}

#[test]
fn a_variable_that_is_not_utf8_is_told() {
    let broken = OsString::from_vec(vec![b'a', 0xFF]);
    let env = vec![
        ("RUSHGATE_STORE_DATA_DIR".into(), broken.clone()),
        (OsString::from_vec(b"RUSHGATE_\xFF".to_vec()), "x".into()),
        (broken.clone(), broken),
    ];
    let error = Config::load(&Sources { env, ..Sources::default() }).unwrap_err();
    assert_eq!(error.problems().len(), 2);
    assert_eq!(error.problems()[0].origin, Origin::Env("RUSHGATE_STORE_DATA_DIR".to_owned()));
    assert!(error.problems()[0].text.contains("not UTF-8"));
    assert!(error.problems()[1].text.contains("sets no key"));
}

#[test]
fn a_long_value_is_cut_in_the_message() {
    let message = message(&format!("gateway.listen = \"{}\"", "é".repeat(10_000)));
    assert!(message.len() < 1_000 && message.contains("…: allowed"), "{message}");
}

#[test]
fn what_is_printed_is_the_same_configuration_again() {
    let config = load(
        "",
        &[],
        &[
            "limits.per_ip_overrides=[{cidr='10.0.0.0/8',rate_per_s=1,burst=2},{cidr='::1',rate_per_s=0,burst=0}]",
            "gateway.connections_max=5",
            "gateway.keepalive=1500ms",
            "admin.listen=",
            "auth.issuer=it's \"quoted\"",
        ],
    );
    let printed = config.print();
    assert_eq!(load(&printed, &[], &[]), config);
    assert!(printed.contains("keepalive = \"1500ms\""), "{printed}");
    assert!(printed.contains("outbound_bytes_max = \"256KiB\""), "{printed}");
}

#[test]
fn no_secret_is_ever_printed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, "correct horse battery staple, twice").unwrap();
    let config = load("", &[], &[&format!("auth.secret_file={}", path.display())]);
    assert!(rushgate::admission::identity::Verifier::new(&config.identity_settings()).is_ok());
    for text in [config.print(), format!("{config:?}"), format!("{:?}", config.identity_settings())] {
        assert!(!text.contains("battery"), "{text}");
    }
}

#[test]
fn sections_become_the_settings_of_their_modules() {
    let config = load("", &[], &["limits.per_ip_overrides=[{cidr='::1',rate_per_s=3,burst=4}]"]);
    let settings = config.limits_settings();
    assert_eq!(settings.per_user, limits::Rate { rate_per_s: 20, burst: 40 });
    assert_eq!(settings.per_ip_overrides[0].rate, limits::Rate { rate_per_s: 3, burst: 4 });
    assert_eq!(settings.keys_max, 2_000_000);

    let data_dir = PathBuf::from("./rushgate-data");
    let identity = config.identity_settings();
    assert_eq!(identity.key, Some(VerifyKey::DevSecret(data_dir.clone())));
    assert_eq!((identity.audience.as_str(), identity.issuer), ("rushgate", None));
    assert_eq!((identity.kid, identity.jwks_file), (None, None));
    assert_eq!(identity.service_from, Cidr::EVERYWHERE);
    assert_eq!(identity.leeway, Duration::from_secs(5));
    assert_eq!(config.mint_settings(None).unwrap().key, MintKey::DevSecret(data_dir));
    let private = Some(MintKey::PrivateKeyFile("p".into()));
    assert_eq!(config.mint_settings(private.clone()), Err(MintSettingsError::PrivateKeyUnused("p".into())));

    let with_file = load("", &[], &["auth.secret_file=s", "auth.issuer=shop", "auth.kid=1"]);
    let identity = with_file.identity_settings();
    assert_eq!((identity.key, identity.kid.as_deref()), (Some(VerifyKey::SecretFile("s".into())), Some("1")));
    assert_eq!(with_file.mint_settings(None).unwrap().issuer.as_deref(), Some("shop"));

    for (algorithm, key) in [
        (TokenAlgorithm::EdDsa, VerifyKey::Ed25519File("k".into())),
        (TokenAlgorithm::Es256, VerifyKey::P256File("k".into())),
    ] {
        let flag = format!("auth.algorithm={}", algorithm.name());
        let public = load("", &[], &[&flag, "auth.public_key_file=k"]);
        assert_eq!(public.auth.algorithm, algorithm);
        assert_eq!(public.identity_settings().key, Some(key));
        assert_eq!(public.mint_settings(None), Err(MintSettingsError::PrivateKeyNeeded(algorithm)));
        assert_eq!(public.mint_settings(private.clone()).unwrap().key, MintKey::PrivateKeyFile("p".into()));
    }
}

#[test]
fn the_least_versions_become_rules_by_platform() {
    let file =
        "[clients]\nplatforms = [\"ios\", \"mini_program\"]\nmin_version = { ios = \"3.2\", web = \"1\" }\n";
    let rules = load(file, &[("RUSHGATE_CLIENTS_MIN_VERSION_MINI_PROGRAM", "0.9.1")], &[]).client_rules();
    assert_eq!(rules.platforms, [Platform::Ios, Platform::MiniProgram]);
    let least = [
        (Platform::Ios, AppVersion([3, 2, 0])),
        (Platform::Web, AppVersion([1, 0, 0])),
        (Platform::MiniProgram, AppVersion([0, 9, 1])),
    ];
    assert_eq!(rules.min_version, least);
    assert_eq!(load("", &[], &[]).client_rules(), ClientRules::default(), "by default everything passes");
}

#[test]
fn keys_may_all_come_from_a_file() {
    for flags in [&["auth.jwks_file=j"][..], &["auth.jwks_file=j", "auth.algorithm=ES256"]] {
        let config = load("", &[], flags);
        let identity = config.identity_settings();
        assert_eq!((identity.key, identity.jwks_file), (None, Some("j".into())));
        assert_eq!(config.mint_settings(None), Err(MintSettingsError::KeyNeeded));
        for key in [MintKey::PrivateKeyFile("p".into()), MintKey::SecretFile("s".into())] {
            assert_eq!(config.mint_settings(Some(key.clone())).unwrap().key, key);
        }
    }
    let both = load("", &[], &["auth.jwks_file=j", "auth.secret_file=s", "auth.kid=1"]);
    assert_eq!(both.identity_settings().key, Some(VerifyKey::SecretFile("s".into())));
    assert_eq!(both.mint_settings(None).unwrap().key, MintKey::SecretFile("s".into()));

    let narrow = load("", &[], &["auth.service_from=10.0.0.0/8,::1"]);
    let blocks: Vec<Cidr> = vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
    assert_eq!(narrow.identity_settings().service_from, blocks);
    assert_eq!(load("", &[], &["auth.service_from="]).auth.service_from, []);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_never_makes_it_panic(at: prop::sample::Index, junk in "[\\PC\n]{0,3}", cut in 0_usize..30) {
        let file = Config::default().print();
        let from = at.index(file.len());
        let damaged = format!("{}{junk}{}", &file[..from], &file[(from + cut).min(file.len())..]);
        if let Err(errors) = Case::new(&damaged, &[], &[]).load() {
            prop_assert!(!errors.problems().is_empty());
            prop_assert!(!errors.to_string().contains("defect"), "{}", errors);
        }
    }

    #[test]
    fn no_flag_makes_it_panic(flag in "\\PC*", key in prop::sample::select(vec![
        "gateway.connections_max", "gateway.keepalive", "limits.per_ip_overrides", "admin.listen", "store.data_dir",
        "redis.nodes", "redis.cluster", "redis.wait_replicas", "gateway.proxy_from",
    ])) {
        for flag in [flag.clone(), format!("{key}={flag}"), format!("{key}=[{{{flag}}}]")] {
            if let Err(errors) = Case::new("", &[], &[&flag]).load() {
                prop_assert!(!errors.to_string().contains("defect"), "{}", errors);
            }
        }
    }
}
