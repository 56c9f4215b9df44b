//! `[tls]`: TLS on ports of its own. What a value may be is in `schema`; what each key is for, at length, in
//! rushgate.example.toml.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::text;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Where clients connect; none = nowhere.
    #[serde(with = "text::empty_is_none")]
    pub listen: Option<SocketAddr>,
    /// Where balancers connect that pass TLS on behind a PROXY protocol header; none = nowhere.
    #[serde(with = "text::empty_is_none")]
    pub proxy_listen: Option<SocketAddr>,
    /// The chain in PEM, the server's own certificate first.
    #[serde(with = "text::empty_is_none")]
    pub certificate_file: Option<PathBuf>,
    /// Its private key in PEM.
    #[serde(with = "text::empty_is_none")]
    pub private_key_file: Option<PathBuf>,
    /// Keys of session tickets; none = each gateway has one of its own.
    #[serde(with = "text::empty_is_none")]
    pub ticket_keys_file: Option<PathBuf>,
    /// Handshakes under way at once; more are closed.
    pub handshakes_max: usize,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            listen: None,
            proxy_listen: None,
            certificate_file: None,
            private_key_file: None,
            ticket_keys_file: None,
            handshakes_max: 4_096,
        }
    }
}

impl Tls {
    /// Whether it is spoken anywhere.
    pub const fn is_on(&self) -> bool {
        self.listen.is_some() || self.proxy_listen.is_some()
    }
}
