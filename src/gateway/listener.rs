//! The listeners: accept connections and start a task for each.
//!
//! One task a worker and port, each with a socket of its own on the shared port (`SO_REUSEPORT`): the kernel spreads
//! new connections over them. There is the clients' port, and one for balancers where that is configured (`proxy`). It
//! parses nothing and waits for nobody's bytes. At the connection cap it says so and
//! closes; when accepting fails (descriptors used up) it backs off, counts, and goes on.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::counters::{Ending, Event};
use super::life::{Life, Seat};
use super::peer::Peer;
use super::proxy;
use super::tls;
use super::worker::Worker;
use crate::protocol::{Head, Opcode, Reply, Status, encode};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
const BACK_OFF_MIN: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// Who connects to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    /// Clients. A PROXY header is a bad frame there: nobody can claim another's address.
    Clients,
    /// Balancers, which say whom they connect.
    Balancers,
    /// Clients that speak TLS.
    TlsClients,
    /// Balancers that pass TLS on.
    TlsBalancers,
}

impl Port {
    const fn is_for_balancers(self) -> bool {
        matches!(self, Self::Balancers | Self::TlsBalancers)
    }

    const fn speaks_tls(self) -> bool {
        matches!(self, Self::TlsClients | Self::TlsBalancers)
    }
}

/// Binds a port once for each worker.
///
/// Sockets that share a port would also share it with another gateway's, unnoticed. So the first is bound by itself,
/// which fails where anybody listens, and shares the port only from then on; it never lets go of it.
pub(super) fn bind(listen: SocketAddr, workers: usize) -> io::Result<Vec<StdListener>> {
    let first = bind_one(listen, false)?;
    let listen = first.local_addr()?.as_socket().unwrap_or(listen);
    let mut listeners = vec![first];
    if workers > 1 {
        for first in &listeners {
            first.set_reuse_port(true)?;
        }
        for _ in 1..workers {
            listeners.push(bind_one(listen, true)?);
        }
    }
    Ok(listeners.into_iter().map(StdListener::from).collect())
}

fn bind_one(listen: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    socket.bind(&listen.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Accepts until the gateway drains; dropping the listener then refuses what comes later.
pub(super) async fn run(worker: &Arc<Worker>, listener: TcpListener, port: Port) {
    let mut draining = worker.core.draining.subscribe();
    let mut back_off = BACK_OFF_MIN;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = draining.wait_for(|draining| *draining) => return,
        };
        match accepted {
            Ok((stream, from)) => {
                back_off = BACK_OFF_MIN;
                start(worker, stream, from, port);
            }
            Err(error) => {
                worker.sheet.ending(Ending::AcceptFailed);
                tracing::warn!(%error, wait = ?back_off, "cannot accept a connection; trying again");
                tokio::time::sleep(back_off).await;
                back_off = back_off.saturating_mul(2).min(BACK_OFF_MAX);
            }
        }
    }
}

fn start(worker: &Arc<Worker>, stream: TcpStream, from: SocketAddr, port: Port) {
    worker.sheet.event(Event::Accepted, 1);
    if port.is_for_balancers() && !proxy::is_trusted(worker, from.ip()) {
        let why = "not in gateway.proxy_from";
        worker.proxy_trouble.tell(worker.core.clock.now().mono_ms(), from.ip(), &why);
        worker.sheet.ending(Ending::UntrustedProxy);
        return;
    }
    let Some(seat) = Seat::take(worker) else {
        worker.sheet.ending(Ending::Refused);
        worker.sheet.status(Status::TooManyConnections);
        if !port.speaks_tls() {
            refuse(&stream);
        }
        return;
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, %from, "TCP_NODELAY not set");
    }
    let addr = from.ip().to_canonical();
    let core = &worker.core;
    match port {
        Port::Clients => {
            let id = core.next_connection_id();
            let peer = Peer::new(id, addr, core.settings.outbound_bytes_max, Arc::clone(&worker.post));
            tokio::spawn(Life::new(seat, stream, Arc::new(peer)));
        }
        Port::Balancers => drop(tokio::spawn(proxy::receive(seat, stream, addr, false))),
        Port::TlsBalancers => drop(tokio::spawn(proxy::receive(seat, stream, addr, true))),
        Port::TlsClients => {
            let accepted_ms = core.clock.now().mono_ms();
            tokio::spawn(tls::receive(seat, stream, addr, accepted_ms, BytesMut::new()));
        }
    }
}

/// Says why, as far as the socket takes it at once, and closes.
fn refuse(stream: &TcpStream) {
    let mut out = BytesMut::new();
    let hint_ms = fastrand::u32(500..=1500);
    let head = Head::reply(Opcode::Error, 0, Status::TooManyConnections, hint_ms);
    let reply = Reply::Error { message: "the gateway holds as many connections as it may".to_owned() };
    encode(&mut out, head, |_| {}, |body| reply.write(body));
    // Whoever cannot be told is closed all the same.
    let _ = stream.try_write(&out);
}
