//! The handshake of one connection.
//!
//! Runs on a task of the connection's own, on its worker's thread, after the PROXY header where there is one, within what is
//! left of the handshake's time. A handshake that fails is counted and closed; the client has been sent the alert that says
//! why. While as many are under way as there may be, who comes is closed at once: those who never finish theirs must not
//! take the thread from those who did.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustls::HandshakeKind;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::acceptor::Acceptor;
use super::wire::{Rewound, Wire};
use crate::gateway::counters::{Ending, Event};
use crate::gateway::life::{Life, Seat};
use crate::gateway::peer::Peer;
use crate::gateway::worker::Worker;

/// What is encrypted and not taken by the socket, at most: then the reader is slow.
const ENCRYPTED_BYTES_MAX: usize = 64 << 10;

/// The task of a connection until TLS is spoken on it. `read` was read from it before.
pub(in crate::gateway) async fn receive(
    seat: Seat,
    stream: TcpStream,
    client: IpAddr,
    accepted_ms: u64,
    read: BytesMut,
) {
    let worker = seat.worker();
    match begin(&worker, Rewound::new(read, stream), accepted_ms).await {
        Ok(stream) => {
            let core = &worker.core;
            let id = core.next_connection_id();
            let peer = Peer::new(id, client, core.settings.outbound_bytes_max, Arc::clone(&worker.post));
            let wire = Wire::Right(Box::new(stream));
            tokio::spawn(Life::continued(seat, wire, Arc::new(peer), accepted_ms, &[]));
        }
        Err(ending) => worker.sheet.ending(ending),
    }
}

async fn begin(worker: &Worker, stream: Rewound, accepted_ms: u64) -> Result<TlsStream<Rewound>, Ending> {
    let core = &worker.core;
    // There is no such port without an acceptor.
    let acceptor = core.tls.as_ref().ok_or(Ending::TlsRefused)?;
    let _turn = acceptor.turn().ok_or(Ending::TlsRefused)?;
    let waited = Duration::from_millis(core.clock.now().mono_ms().saturating_sub(accepted_ms));
    let left = core.settings.handshake_timeout.saturating_sub(waited);
    let (mut draining, mut stopped) = (core.draining.subscribe(), core.stopped.subscribe());
    tokio::select! {
        // Nothing was said to this client yet: it finds another gateway.
        _ = draining.wait_for(|draining| *draining) => Err(Ending::Drained),
        _ = stopped.wait_for(|stopped| *stopped) => Err(Ending::Drained),
        shaken = tokio::time::timeout(left, shake(worker, acceptor, stream)) => {
            shaken.unwrap_or(Err(Ending::HandshakeTimeout))
        }
    }
}

async fn shake(worker: &Worker, acceptor: &Acceptor, stream: Rewound) -> Result<TlsStream<Rewound>, Ending> {
    let config = acceptor.config();
    let shaken = TlsAcceptor::from(config).accept_with(stream, |session| {
        session.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
    });
    let stream = shaken.await.map_err(|error| {
        tracing::debug!(%error, "a TLS handshake failed");
        Ending::TlsFailed
    })?;
    let is_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
    worker.sheet.event(if is_resumed { Event::TlsResumed } else { Event::TlsFull }, 1);
    Ok(stream)
}
