//! The ports of a gateway: clients' and balancers', plain and TLS, each bound once for every worker.
//!
//! Runs at the start, before anything else has begun: a port that cannot be had leaves nothing behind.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};

use super::listener::{self, Port};
use super::{Settings, worker_thread};

/// A port is in use, or not ours to bind.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {listen}: {source}; stop what uses it, or set {key}")]
pub struct ListenError {
    /// The key that says where.
    key: &'static str,
    /// The address.
    listen: SocketAddr,
    /// What the system said.
    source: io::Error,
}

/// The listeners of a worker.
pub(super) type Listeners = Vec<(Port, StdListener)>;

/// Where everybody connects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addrs {
    pub(super) clients: SocketAddr,
    pub(super) balancers: Option<SocketAddr>,
    pub(super) tls_clients: Option<SocketAddr>,
    pub(super) tls_balancers: Option<SocketAddr>,
}

/// Binds the ports; where they are, and what each worker listens on.
pub(super) fn bind(settings: &Settings) -> Result<(Addrs, Vec<Listeners>), ListenError> {
    let workers = worker_thread::count(settings);
    let mut listeners: Vec<Listeners> = (0..workers.max(1)).map(|_| Vec::new()).collect();
    let mut bind = |listen: SocketAddr, key, port| {
        let failed = |source| ListenError { key, listen, source };
        let bound = listener::bind(listen, workers).map_err(failed)?;
        let addr = bound.first().map_or(Ok(listen), StdListener::local_addr).map_err(failed)?;
        for (of_worker, listener) in listeners.iter_mut().zip(bound) {
            of_worker.push((port, listener));
        }
        Ok::<_, ListenError>(addr)
    };
    let mut bind_if =
        |listen: Option<SocketAddr>, key, port| listen.map(|listen| bind(listen, key, port)).transpose();
    let tls = settings.tls.as_ref();
    let addrs = Addrs {
        clients: bind_if(Some(settings.listen), "gateway.listen", Port::Clients)?.unwrap_or(settings.listen),
        balancers: bind_if(settings.proxy_listen, "gateway.proxy_listen", Port::Balancers)?,
        tls_clients: bind_if(tls.and_then(|tls| tls.listen), "tls.listen", Port::TlsClients)?,
        tls_balancers: bind_if(tls.and_then(|tls| tls.proxy_listen), "tls.proxy_listen", Port::TlsBalancers)?,
    };
    Ok((addrs, listeners))
}
