//! How Redis is reached, and why it could not be.

use std::time::Duration;

/// How many purchases of one user may ask the shards for units, in all activities and through all gateways together.
/// One that is found to hold an order asks for nothing; one that asks again (its reply was lost, its shard had run dry)
/// asks once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptLimit {
    /// So many in a window.
    pub count_max: u32,
    /// Windows of this length lie end to end by Redis's clock; whole milliseconds.
    pub window: Duration,
}

/// How the Redis of an installation is reached.
#[derive(Clone)]
pub struct RedisOptions {
    /// `host:port` of the server, or of some nodes of the cluster (the first one that answers tells the rest).
    pub nodes: Vec<String>,
    /// Whether it is a Redis Cluster.
    pub cluster: bool,
    /// User of an access control list; `None` is Redis's default user.
    pub username: Option<String>,
    /// `None` where Redis asks for none.
    pub password: Option<String>,
    /// What every key begins with.
    pub prefix: String,
    /// For one connection to be made.
    pub connect_timeout: Duration,
    /// For one command to be answered.
    pub call_timeout: Duration,
    /// Replicas that must have a call's writes before it counts; 0 waits for none.
    pub wait_replicas: u32,
    /// For those replicas.
    pub wait_timeout: Duration,
    /// Of gateways: how often a user may ask for units; `None` = as often as he comes.
    pub attempts: Option<AttemptLimit>,
}

impl RedisOptions {
    /// One server with the defaults: prefix `seckill`, no replicas waited for.
    pub fn single(node: impl Into<String>) -> Self {
        Self {
            nodes: vec![node.into()],
            cluster: false,
            username: None,
            password: None,
            prefix: "seckill".to_owned(),
            connect_timeout: Duration::from_secs(1),
            call_timeout: Duration::from_millis(500),
            wait_replicas: 0,
            wait_timeout: Duration::from_millis(200),
            attempts: None,
        }
    }

    /// A cluster with the defaults: one replica is waited for.
    pub fn cluster(nodes: Vec<String>) -> Self {
        Self { nodes, cluster: true, wait_replicas: 1, ..Self::single("") }
    }
}

impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisOptions")
            .field("nodes", &self.nodes)
            .field("cluster", &self.cluster)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("wait_replicas", &self.wait_replicas)
            .field("wait_timeout", &self.wait_timeout)
            .field("attempts", &self.attempts)
            .finish()
    }
}

/// Why Redis could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum RedisOpenError {
    /// The options contradict themselves or the server.
    #[error("the settings of Redis are wrong: {0}")]
    Settings(String),
    /// Name or password were refused, or a command is not allowed to this user.
    #[error("Redis at {node} refuses this user: {reason}; mend the name, the password or the user's rights")]
    Refused {
        /// Which server.
        node: String,
        /// What it said.
        reason: String,
    },
    /// The server is of the wrong kind: too old, a replica, or one that evicts keys.
    #[error("Redis at {node} cannot hold the stock: {reason}")]
    Unfit {
        /// Which server.
        node: String,
        /// Why, and what to do.
        reason: String,
    },
    /// It is down, loading or cannot be reached now.
    #[error("Redis at {node} does not answer: {reason}; it is tried again")]
    Unavailable {
        /// Which server.
        node: String,
        /// What happened.
        reason: String,
    },
}

impl RedisOpenError {
    /// Whether trying again later may do; otherwise somebody has to change something first.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
