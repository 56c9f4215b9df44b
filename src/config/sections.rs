//! The sections of the configuration, with their defaults. What a value may be is in `schema`; what each key is
//! for, at length, in rushgate.example.toml.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text;
use crate::admission::Cidr;
use crate::admission::identity::TokenAlgorithm;

/// `[gateway]`: the TCP listener and its connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// Where apps and back ends connect.
    pub listen: SocketAddr,
    /// Where balancers connect that begin each connection with a PROXY protocol header; none = nowhere.
    #[serde(with = "text::empty_is_none")]
    pub proxy_listen: Option<SocketAddr>,
    /// Whose headers are believed there; others are closed.
    pub proxy_from: Vec<Cidr>,
    /// Connections held at once; more are refused.
    pub connections_max: ConnectionsMax,
    /// BUYs in flight on an app connection.
    pub in_flight_max: usize,
    /// BUYs in flight on a service connection.
    pub service_in_flight_max: usize,
    /// Longest frame accepted from a client after AUTH, header included.
    #[serde(with = "text::bytes")]
    pub frame_bytes_max: usize,
    /// Bytes waiting to be sent to one connection; a reader slower than that is closed.
    #[serde(with = "text::bytes")]
    pub outbound_bytes_max: usize,
    /// From accept until HELLO and AUTH are done.
    #[serde(with = "text::duration")]
    pub handshake_timeout: Duration,
    /// From the first byte of a frame to its last.
    #[serde(with = "text::duration")]
    pub frame_timeout: Duration,
    /// For a write to make progress.
    #[serde(with = "text::duration")]
    pub write_timeout: Duration,
    /// A client sends something at least this often; after one and a half times it the connection closes.
    #[serde(with = "text::duration")]
    pub keepalive: Duration,
    /// From GOAWAY until what is left is closed.
    #[serde(with = "text::duration")]
    pub drain_timeout: Duration,
    /// How long RESULT is answered after an activity was archived.
    #[serde(with = "text::duration")]
    pub result_keep: Duration,
    /// RESULTs about archived activities, a second, over all connections.
    pub archive_lookups_per_s: u32,
    /// Threads that serve connections; 0 = one per core.
    pub worker_threads: usize,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 7700),
            proxy_listen: None,
            proxy_from: loopback(),
            connections_max: ConnectionsMax::Auto,
            in_flight_max: 64,
            service_in_flight_max: 1024,
            frame_bytes_max: 4 << 10,
            outbound_bytes_max: 256 << 10,
            handshake_timeout: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            keepalive: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(5),
            result_keep: Duration::from_secs(30 * 24 * 3600),
            archive_lookups_per_s: 200,
            worker_threads: 0,
        }
    }
}

fn loopback() -> Vec<Cidr> {
    let v4 = Cidr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);
    let v6 = Cidr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128);
    v4.into_iter().chain(v6).collect()
}

/// How many connections are held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionsMax {
    /// As many as the descriptor limit leaves room for: `"auto"`.
    Auto,
    /// That many.
    Count(usize),
}

impl Serialize for ConnectionsMax {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => count.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ConnectionsMax {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AutoOrCount;
        impl Visitor<'_> for AutoOrCount {
            type Value = ConnectionsMax;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\" or a whole number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ConnectionsMax, E> {
                if text == "auto" {
                    Ok(ConnectionsMax::Auto)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<ConnectionsMax, E> {
                usize::try_from(count)
                    .map(ConnectionsMax::Count)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(count), &self))
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<ConnectionsMax, E> {
                usize::try_from(count)
                    .map(ConnectionsMax::Count)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(count), &self))
            }
        }
        deserializer.deserialize_any(AutoOrCount)
    }
}

/// `[admin]`: the operators' HTTP listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Where it listens; none = off.
    #[serde(with = "text::empty_is_none")]
    pub listen: Option<SocketAddr>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7701)) }
    }
}

/// `[store]`: where stock, orders and activities are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// What keeps them.
    pub kind: StoreKind,
    /// The data folder, created if missing; relative to the working directory.
    pub data_dir: PathBuf,
    /// When a commit counts as durable.
    pub synchronous: Synchronous,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            kind: StoreKind::Sqlite,
            data_dir: PathBuf::from("./rushgate-data"),
            synchronous: Synchronous::Full,
        }
    }
}

/// What keeps stock, orders and activities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// A SQLite database in the data folder.
    Sqlite,
    /// Redis, whose orders a writer settles in MySQL or MariaDB.
    Redis,
}

impl StoreKind {
    /// As the configuration has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
        }
    }
}

/// SQLite's `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// A commit has reached the disk before anybody is told QUEUED.
    Full,
    /// Survives a killed process; a power cut may take back the last commits, QUEUED ones among them.
    Normal,
}

/// `[stock]`: queues in front of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stock {
    /// Requests waiting per shard; more are told BUSY.
    pub queue_items_max: usize,
    /// Requests in one call to the store.
    pub batch_items_max: usize,
    /// A request that waited this long and was not sent yet is told BUSY.
    #[serde(with = "text::duration")]
    pub patience: Duration,
    /// A request that was sent and not answered for this long is told UNCONFIRMED.
    #[serde(with = "text::duration")]
    pub unconfirmed_after: Duration,
    /// A call to the store that was not answered for this long is repeated under its number.
    #[serde(with = "text::duration")]
    pub call_timeout: Duration,
    /// How old the view of a shard may be for what is said from it: beyond that neither `SOLD_OUT` nor `NO_ORDER`.
    #[serde(with = "text::duration")]
    pub view_lag_max: Duration,
}

impl Default for Stock {
    fn default() -> Self {
        Self {
            queue_items_max: 4096,
            batch_items_max: 256,
            patience: Duration::from_secs(2),
            unconfirmed_after: Duration::from_secs(3),
            call_timeout: Duration::from_secs(1),
            view_lag_max: Duration::from_millis(500),
        }
    }
}

/// `[limits]`: rate limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Greatest number of addresses, of users and of querying users remembered, each.
    pub keys_max: usize,
    /// All BUYs together.
    pub global: Rate,
    /// Per client address (IPv6: per /64). Loose: a carrier puts thousands of phones behind one address.
    pub per_ip: Rate,
    /// Per user.
    pub per_user: Rate,
    /// Per user, RESULT queries.
    pub result_per_user: Rate,
    /// Per connection of an app.
    pub per_connection: Rate,
    /// Per activity, those BUYs that come within its window.
    pub per_activity: Rate,
    /// Per client address (IPv6: per /64), AUTH: what tokens may cost.
    pub auth_per_ip: Rate,
    /// Reservations of one user that may be open and unpaid at a time, in all activities; 0 = any number.
    pub open_unpaid_per_user_max: u8,
    /// The same of one device, over all its users, on each gateway.
    pub open_unpaid_per_device_max: u8,
    /// BUYs of one user that may ask the store for units in a window, on all gateways together; 0 = no limit.
    pub store_attempts_max: u32,
    /// That window.
    #[serde(with = "text::duration")]
    pub store_attempts_window: Duration,
    /// Addresses with another rate than `per_ip`.
    pub per_ip_overrides: Vec<IpOverride>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keys_max: 2_000_000,
            global: Rate { rate_per_s: 0, burst: 0 },
            per_ip: Rate { rate_per_s: 2_000, burst: 4_000 },
            per_user: Rate { rate_per_s: 20, burst: 40 },
            result_per_user: Rate { rate_per_s: 10, burst: 20 },
            per_connection: Rate { rate_per_s: 0, burst: 0 },
            per_activity: Rate { rate_per_s: 0, burst: 0 },
            auth_per_ip: Rate { rate_per_s: 0, burst: 0 },
            open_unpaid_per_user_max: 0,
            open_unpaid_per_device_max: 0,
            store_attempts_max: 0,
            store_attempts_window: Duration::from_secs(10),
            per_ip_overrides: Vec::new(),
        }
    }
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Sustained; 0 = no limit.
    pub rate_per_s: u32,
    /// At once, after a rest.
    pub burst: u32,
}

/// Addresses with a rate of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpOverride {
    /// Which.
    pub cidr: Cidr,
    /// Sustained, per address; 0 = no limit.
    pub rate_per_s: u32,
    /// At once, after a rest.
    pub burst: u32,
}

/// `[auth]`: tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// Of the key in `secret_file` or `public_key_file`.
    pub algorithm: TokenAlgorithm,
    /// That key's name; none = it is meant by every token whose `kid` names no other.
    #[serde(with = "text::empty_is_none")]
    pub kid: Option<String>,
    /// HS256: the secret. None, and no `jwks_file` = one made for development, in the data folder.
    #[serde(with = "text::empty_is_none")]
    pub secret_file: Option<PathBuf>,
    /// EdDSA, ES256: the public key.
    #[serde(with = "text::empty_is_none")]
    pub public_key_file: Option<PathBuf>,
    /// Further keys, read again when the file changes.
    #[serde(with = "text::empty_is_none")]
    pub jwks_file: Option<PathBuf>,
    /// Has to be in a token's `aud`.
    pub audience: String,
    /// Has to be a token's `iss`; none = not looked at.
    #[serde(with = "text::empty_is_none")]
    pub issuer: Option<String>,
    /// From where service tokens are good.
    pub service_from: Vec<Cidr>,
    /// How far the clock of whoever makes the tokens may differ.
    #[serde(with = "text::duration")]
    pub leeway: Duration,
    /// Further claims of tokens that activities' rules may name.
    pub claims: Vec<String>,
    /// Whether tokens that are no JWTs are looked up as sessions.
    pub sessions: bool,
}

impl Auth {
    /// Whether a key is named beside the JWKS file.
    pub(super) fn names_a_key(&self) -> bool {
        self.secret_file.is_some() || self.public_key_file.is_some()
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            algorithm: TokenAlgorithm::Hs256,
            kid: None,
            secret_file: None,
            public_key_file: None,
            jwks_file: None,
            audience: "rushgate".to_owned(),
            issuer: None,
            service_from: Cidr::EVERYWHERE.to_vec(),
            leeway: Duration::from_secs(5),
            claims: Vec::new(),
            sessions: false,
        }
    }
}
