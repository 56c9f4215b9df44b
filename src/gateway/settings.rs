//! What a gateway is told before it starts. Plain data; the configuration fills it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::admission::Cidr;
use crate::admission::behaviour::BehaviourRules;
use crate::admission::clients::ClientRules;
use crate::admission::devices::DeviceRules;
use crate::admission::limits::Rate;
use crate::protocol::frame::FRAME_BYTES_MAX_AFTER_AUTH;
use crate::stock;

/// See the fields; defaults are those of the example configuration, but for `connections_max`, which the
/// configuration derives from the descriptor limit.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where balancers connect that name their clients by a PROXY protocol header; `None` = nowhere.
    pub proxy_listen: Option<SocketAddr>,
    /// Balancers whose headers are believed there; others are closed.
    pub proxy_from: Vec<Cidr>,
    /// TLS on ports of its own; `None` = nowhere.
    pub tls: Option<TlsSettings>,
    /// Threads that serve connections; 0 = as many as cores.
    pub worker_threads: usize,
    /// A single worker is served on the runtime that starts the gateway, if that has one thread. For where there is one core
    /// for everything: a thread of its own would only have to be woken, and wake, for every winner.
    pub shares_runtime: bool,
    /// Connections held at a time; more are told `TOO_MANY_CONNECTIONS`.
    pub connections_max: usize,
    /// BUYs unanswered at a time on an app connection.
    pub in_flight_max: u16,
    /// BUYs unanswered at a time on a service connection.
    pub service_in_flight_max: u16,
    /// Cap on a request frame after AUTH.
    pub frame_bytes_max: usize,
    /// Replies that wait for a slow reader, in bytes; above it the connection closes.
    pub outbound_bytes_max: usize,
    /// From accept to the end of AUTH.
    pub handshake_timeout: Duration,
    /// From a frame's first byte to its last.
    pub frame_timeout: Duration,
    /// How long replies may wait for the reader to take a byte.
    pub write_timeout: Duration,
    /// How often a client has to send something; it is closed after 1.5 times that.
    pub keepalive: Duration,
    /// From GOAWAY until what is left is closed.
    pub drain_timeout: Duration,
    /// How the risk lists are gone by.
    pub risk: RiskSettings,
    /// What software is served.
    pub clients: ClientRules,
    /// How many users a device may have, and devices a user.
    pub devices: DeviceRules,
    /// How many requests a user may make.
    pub behaviour: BehaviourRules,
    /// How RESULT is answered for activities that are archived.
    pub lookups: LookupSettings,
    /// Bounds and times of the stock engine.
    pub stock: stock::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 7700)),
            proxy_listen: None,
            proxy_from: Vec::new(),
            tls: None,
            worker_threads: 0,
            shares_runtime: false,
            connections_max: 10_000,
            in_flight_max: 64,
            service_in_flight_max: 1024,
            frame_bytes_max: FRAME_BYTES_MAX_AFTER_AUTH,
            outbound_bytes_max: 256 * 1024,
            handshake_timeout: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            keepalive: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(5),
            risk: RiskSettings::default(),
            clients: ClientRules::default(),
            devices: DeviceRules::default(),
            behaviour: BehaviourRules::default(),
            lookups: LookupSettings::default(),
            stock: stock::Settings::default(),
        }
    }
}

/// TLS: where, with what, how many at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Where clients connect.
    pub listen: Option<SocketAddr>,
    /// Where balancers connect that say by a PROXY protocol header whom, and pass TLS on.
    pub proxy_listen: Option<SocketAddr>,
    /// What it is spoken with.
    pub files: TlsFiles,
    /// Handshakes under way at once; more are closed.
    pub handshakes_max: usize,
}

/// The files of TLS, all PEM but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its private key.
    pub private_key: PathBuf,
    /// Keys of session tickets, one a line, the newest first; `None` = one of the process's own.
    pub ticket_keys: Option<PathBuf>,
}

/// Bounds on what RESULT asks the database, over all connections.
#[derive(Clone, Copy, Debug)]
pub struct LookupSettings {
    /// How long after an activity was archived its orders are told; then there is none any more.
    pub keep: Duration,
    /// So many a second; more are told BUSY.
    pub rate: Rate,
    /// So many at a time; more are told BUSY. Fewer than the database's connections, which others need too.
    pub in_flight_max: usize,
}

impl Default for LookupSettings {
    fn default() -> Self {
        Self {
            keep: Duration::from_secs(30 * 24 * 3600),
            rate: Rate { rate_per_s: 200, burst: 200 },
            in_flight_max: 4,
        }
    }
}

/// How the risk lists are gone by, and what is remembered for whoever asks why.
#[derive(Clone, Copy, Debug)]
pub struct RiskSettings {
    /// Whom a list slows passes once in this time.
    pub slow_interval: Duration,
    /// Users whose last BUY is remembered, about; 0 = none.
    pub explain_slots: usize,
}

impl Default for RiskSettings {
    fn default() -> Self {
        Self { slow_interval: Duration::from_secs(5), explain_slots: 65_536 }
    }
}
