//! Configuration: one plain struct, filled from defaults, a TOML file, the environment and flags; later wins.
//!
//! Read once, at start, before any thread runs; nothing is re-read later. [`Config::load`] never stops at the
//! first mistake: all of them are told at once, each with where it stands, its value and what is allowed, so that
//! a configuration is mended in one go. No secret is a value of the configuration: it names the files that hold
//! them. Whether these can be read is tried here, what they hold is used elsewhere.
//!
//! Plain data for everybody above; of the rest only the settings types of `admission` are known here. The way of
//! a value: `sources` finds it, `schema` with `rules` says whether it is allowed, `load` puts it into the tree that serde turns
//! into the structs of `sections`, `cross` looks at keys that depend on each other.

mod breaker;
mod clients;
mod cross;
mod flagging;
mod load;
mod log;
mod password;
mod problem;
mod production;
mod risk;
mod rules;
mod schema;
mod sections;
mod settings;
mod sources;
mod text;
mod tls;

use serde::{Deserialize, Serialize};

pub use self::breaker::Breaker;
pub use self::clients::{Clients, MinVersion};
pub use self::flagging::{Behaviour, Devices, Effect};
pub use self::log::Log;
pub use self::password::PasswordError;
pub use self::problem::{ConfigErrors, Origin, Problem};
pub use self::production::{MySql, Payment, Redis, Writer};
pub use self::risk::Risk;
pub use self::sections::{
    Admin, Auth, ConnectionsMax, Gateway, IpOverride, Limits, Rate, Stock, Store, StoreKind, Synchronous,
};
pub use self::settings::MintSettingsError;
pub use self::sources::{ConfigFile, DEFAULT_FILE, ENV_PREFIX, KeyFiles, Sources};
pub use self::text::{TextError, format_bytes, format_duration, parse_bytes, parse_duration};
pub use self::tls::Tls;

/// Everything that can be configured. rushgate.example.toml explains each key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The TCP listener and its connections.
    pub gateway: Gateway,
    /// TLS on ports of its own.
    pub tls: Tls,
    /// The operators' HTTP listener.
    pub admin: Admin,
    /// Where processes log.
    pub log: Log,
    /// Where stock, orders and activities are kept.
    pub store: Store,
    /// The production store's Redis.
    pub redis: Redis,
    /// The production store's MySQL or MariaDB.
    pub mysql: MySql,
    /// The sidecar writer.
    pub writer: Writer,
    /// The payment centre.
    pub payment: Payment,
    /// Queues in front of the store.
    pub stock: Stock,
    /// When Redis and the database count as away.
    pub breaker: Breaker,
    /// Rate limits.
    pub limits: Limits,
    /// Tokens.
    pub auth: Auth,
    /// Risk lists.
    pub risk: Risk,
    /// What software is served.
    pub clients: Clients,
    /// How many users a device may have, and devices a user.
    pub devices: Devices,
    /// How many requests a user may make.
    pub behaviour: Behaviour,
}

impl Config {
    /// The configuration that the sources make together, or everything that is wrong with them.
    pub fn load(sources: &Sources) -> Result<Self, ConfigErrors> {
        load::load(sources)
    }

    /// The effective configuration as TOML, every key written out. It can be given back as a file.
    pub fn print(&self) -> String {
        // Only a path that is not UTF-8 cannot be written, and no source above can give one.
        toml::to_string(self).unwrap_or_else(|error| format!("# cannot be written as TOML: {error}\n"))
    }
}
