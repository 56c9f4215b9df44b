//! The sections of the production store, with their defaults: Redis, MySQL or MariaDB, the sidecar writer. With
//! `store.kind = "sqlite"` nobody reads them. What a value may be is in `schema`; what each key is for, at length, in
//! rushgate.example.toml.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text;

/// `[redis]`: stock, buyers and events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redis {
    /// `host:port` of the one server, or of some nodes of the cluster.
    pub nodes: Vec<String>,
    /// Whether the nodes are a Redis Cluster.
    pub cluster: bool,
    /// Of an ACL; none = the default user.
    #[serde(with = "text::empty_is_none")]
    pub username: Option<String>,
    /// Holds the password; none = none is asked for.
    #[serde(with = "text::empty_is_none")]
    pub password_file: Option<PathBuf>,
    /// Every key begins so; installations that share a Redis differ in it.
    pub prefix: String,
    /// For a connection to stand.
    #[serde(with = "text::duration")]
    pub connect_timeout: Duration,
    /// For the answer to one call.
    #[serde(with = "text::duration")]
    pub call_timeout: Duration,
    /// Replicas that have to hold a purchase before it is QUEUED; none = `"auto"`, see [`Redis::replicas_waited_for`].
    #[serde(with = "text::auto_is_none")]
    pub wait_replicas: Option<u32>,
    /// For the replicas to say so.
    #[serde(with = "text::duration")]
    pub wait_timeout: Duration,
    /// Whose time opens and closes sales; none = the first of `nodes`.
    #[serde(with = "text::empty_is_none")]
    pub clock_node: Option<String>,
}

impl Redis {
    /// What `wait_replicas` comes to: by itself one on a cluster, where a master that dies is replaced by a replica.
    pub fn replicas_waited_for(&self) -> u32 {
        self.wait_replicas.unwrap_or_else(|| u32::from(self.cluster))
    }

    /// The nodes, first the one whose time counts.
    pub fn nodes_clock_first(&self) -> Vec<String> {
        let mut nodes = self.nodes.clone();
        nodes.sort_by_key(|node| self.clock_node.as_ref() != Some(node));
        nodes
    }
}

impl Default for Redis {
    fn default() -> Self {
        Self {
            nodes: vec!["127.0.0.1:6379".to_owned()],
            cluster: false,
            username: None,
            password_file: None,
            prefix: "seckill".to_owned(),
            connect_timeout: Duration::from_secs(1),
            call_timeout: Duration::from_secs(1),
            wait_replicas: None,
            wait_timeout: Duration::from_millis(500),
            clock_node: None,
        }
    }
}

/// `[mysql]`: activities, orders, the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MySql {
    /// Name or address of the server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who connects.
    pub user: String,
    /// Holds the password; none = none is asked for.
    #[serde(with = "text::empty_is_none")]
    pub password_file: Option<PathBuf>,
    /// The database, which exists; its tables are made and kept up to date at start.
    pub database: String,
    /// Connections of one process.
    pub connections_max: u32,
    /// For a connection to stand, or one of the pool to be free.
    #[serde(with = "text::duration")]
    pub connect_timeout: Duration,
}

impl Default for MySql {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 3306,
            user: "rushgate".to_owned(),
            password_file: None,
            database: "rushgate".to_owned(),
            connections_max: 16,
            connect_timeout: Duration::from_secs(3),
        }
    }
}

/// `[writer]`: the sidecar writer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Writer {
    /// Its HTTP port for operators; none = off.
    #[serde(with = "text::empty_is_none")]
    pub admin_listen: Option<SocketAddr>,
    /// Orders in one transaction.
    pub batch_rows_max: usize,
    /// How long a batch that is not full waits for more.
    #[serde(with = "text::duration")]
    pub linger: Duration,
    /// Orders per second at most, whatever the backlog; 0 = no limit.
    pub rows_per_s: u32,
    /// Entries that a writer took and did not acknowledge for this long go to another.
    #[serde(with = "text::duration")]
    pub claim_idle: Duration,
    /// How long before an activity opens its stock is loaded into Redis.
    #[serde(with = "text::duration")]
    pub preheat_ahead: Duration,
    /// Events younger than this stay in the feeds, for gateways that are behind.
    #[serde(with = "text::duration")]
    pub trim_keep: Duration,
}

impl Default for Writer {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        Self {
            admin_listen: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7702)),
            batch_rows_max: 1_000,
            linger: Duration::from_millis(20),
            rows_per_s: 0,
            claim_idle: Duration::from_secs(30),
            preheat_ahead: Duration::from_secs(10 * MINUTE),
            trim_keep: Duration::from_secs(10 * MINUTE),
        }
    }
}

/// `[payment]`: what is said between a writer and the payment centre.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Payment {
    /// Holds the key that both sides sign with; none = no payment notices are taken.
    #[serde(with = "text::empty_is_none")]
    pub key_file: Option<PathBuf>,
    /// Holds one more key that is accepted, while keys are replaced.
    #[serde(with = "text::empty_is_none")]
    pub other_key_file: Option<PathBuf>,
    /// How far from the database's time a notice may have been signed.
    #[serde(with = "text::duration")]
    pub replay_window: Duration,
    /// How long a payment waits for its order to be settled.
    #[serde(with = "text::duration")]
    pub park_for: Duration,
    /// Who is asked to close orders that were not paid in time; none = they stay open.
    #[serde(with = "text::empty_is_none")]
    pub centre_url: Option<String>,
    /// For one answer.
    #[serde(with = "text::duration")]
    pub ask_timeout: Duration,
    /// Orders in one question.
    pub ask_orders_max: u32,
    /// Questions of one writer at once.
    pub asks_in_flight: usize,
    /// The longest time between two questions about one order.
    #[serde(with = "text::duration")]
    pub retry_max: Duration,
    /// How long an order may be overdue and unknown to the payment centre before the log calls for somebody.
    #[serde(with = "text::duration")]
    pub alarm_after: Duration,
}

impl Default for Payment {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        Self {
            key_file: None,
            other_key_file: None,
            replay_window: Duration::from_secs(5 * MINUTE),
            park_for: Duration::from_secs(60 * MINUTE),
            centre_url: None,
            ask_timeout: Duration::from_secs(5),
            ask_orders_max: 500,
            asks_in_flight: 4,
            retry_max: Duration::from_secs(MINUTE),
            alarm_after: Duration::from_secs(5 * MINUTE),
        }
    }
}
