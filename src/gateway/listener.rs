//! The listener: accepts connections and starts a task for each.
//!
//! One task. It parses nothing and waits for nobody's bytes. At the connection cap it says so and closes; when
//! accepting fails (descriptors used up) it backs off, counts, and goes on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::Core;
use super::counters::Ending;
use super::peer::Peer;
use crate::protocol::{Head, Opcode, Reply, Status, encode};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
const BACK_OFF_MIN: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// Binds the client port.
pub(super) fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

/// Accepts until the gateway drains; dropping the listener then refuses what comes later.
pub(super) async fn run(core: Arc<Core>, listener: TcpListener) {
    let mut draining = core.draining.subscribe();
    let mut back_off = BACK_OFF_MIN;
    let mut next_id: u64 = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = draining.wait_for(|draining| *draining) => return,
        };
        match accepted {
            Ok((stream, from)) => {
                back_off = BACK_OFF_MIN;
                next_id = next_id.wrapping_add(1);
                start(&core, stream, from, next_id);
            }
            Err(error) => {
                core.counters.ending(Ending::AcceptFailed);
                tracing::warn!(%error, wait = ?back_off, "cannot accept a connection; trying again");
                tokio::time::sleep(back_off).await;
                back_off = back_off.saturating_mul(2).min(BACK_OFF_MAX);
            }
        }
    }
}

fn start(core: &Arc<Core>, stream: TcpStream, from: SocketAddr, id: u64) {
    core.counters.accepted.fetch_add(1, Ordering::Relaxed);
    let open = core.connections.fetch_add(1, Ordering::AcqRel);
    let slot = Slot(Arc::clone(core));
    if open >= core.settings.connections_max {
        core.counters.ending(Ending::Refused);
        core.counters.status(Status::TooManyConnections);
        refuse(&stream);
        return;
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, connection = id, "TCP_NODELAY not set");
    }
    let peer = Arc::new(Peer::new(id, from.ip().to_canonical(), core.settings.outbound_bytes_max));
    tokio::spawn(async move {
        super::connection::run(Arc::clone(&slot.0), stream, peer).await;
    });
}

/// Counts a connection as open until it is dropped, however its task ends.
struct Slot(Arc<Core>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
        self.0.connection_closed.notify_waiters();
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
