//! Connections that come through a balancer: each begins with a PROXY protocol header, and the address in it is the
//! client's wherever an address counts.
//!
//! Runs on a task of the connection's own, on its worker's thread; the listener has looked at nothing but who connects.
//! The header has to come within the time of the handshake. When it does not, or is none, the connection is closed
//! and counted; nothing is answered, because whoever is there does not speak our protocol. With the header, and
//! the TLS handshake where that follows, the task ends: the connection then has the same task, and costs the same, as any other.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::counters::Ending;
use super::life::{Life, Seat};
use super::peer::Peer;
use super::proxy_header::{self, HEADER_BYTES_MAX};
use super::tls;
use super::worker::Worker;

/// Enough for nearly every header and the client's first frame.
const FIRST_READ_BYTES: usize = 512;

/// Whether headers from there are believed.
pub(super) fn is_trusted(worker: &Worker, balancer: IpAddr) -> bool {
    worker.core.settings.proxy_from.iter().any(|block| block.contains(balancer))
}

/// The task of a proxied connection until its header is there.
pub(super) async fn receive(seat: Seat, mut stream: TcpStream, balancer: IpAddr, speaks_tls: bool) {
    let worker = seat.worker();
    let accepted_ms = worker.core.clock.now().mono_ms();
    match begin(&worker, &mut stream, balancer).await {
        Ok((client, read)) if speaks_tls => tls::receive(seat, stream, client, accepted_ms, read).await,
        Ok((client, read)) => {
            let core = &worker.core;
            let id = core.next_connection_id();
            let peer = Peer::new(id, client, core.settings.outbound_bytes_max, Arc::clone(&worker.post));
            tokio::spawn(Life::continued(seat, tls::Wire::Left(stream), Arc::new(peer), accepted_ms, &read));
        }
        Err(ending) => worker.sheet.ending(ending),
    }
}

/// The client's address, and what it sent after the header.
async fn begin(
    worker: &Worker,
    stream: &mut TcpStream,
    balancer: IpAddr,
) -> Result<(IpAddr, BytesMut), Ending> {
    let core = &worker.core;
    let (mut draining, mut stopped) = (core.draining.subscribe(), core.stopped.subscribe());
    tokio::select! {
        // Nothing was said to this client yet: it finds another gateway.
        _ = draining.wait_for(|draining| *draining) => Err(Ending::Drained),
        _ = stopped.wait_for(|stopped| *stopped) => Err(Ending::Drained),
        begun = tokio::time::timeout(core.settings.handshake_timeout, header(worker, stream, balancer)) => {
            begun.unwrap_or(Err(Ending::HandshakeTimeout))
        }
    }
}

async fn header(
    worker: &Worker,
    stream: &mut TcpStream,
    balancer: IpAddr,
) -> Result<(IpAddr, BytesMut), Ending> {
    let mut read = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        let room = HEADER_BYTES_MAX.saturating_sub(read.len());
        match stream.read_buf(&mut (&mut read).limit(room)).await {
            Ok(0) => return Err(Ending::Client),
            Ok(_) => {}
            Err(_) => return Err(Ending::Broken),
        }
        match proxy_header::parse(&read) {
            Ok(Some(header)) => {
                let rest = read.split_off(header.bytes);
                return Ok((header.client.unwrap_or(balancer), rest));
            }
            Ok(None) => {}
            Err(error) => {
                worker.proxy_trouble.tell(worker.core.clock.now().mono_ms(), balancer, &error);
                return Err(Ending::BadProxyHeader);
            }
        }
    }
}
