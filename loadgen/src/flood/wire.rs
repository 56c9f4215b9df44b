//! What is spoken: how the connections of a flood are opened on each wire.
//!
//! Runs on one tokio thread before anything is measured. A connection that cannot be opened ends the command: a flood
//! over fewer connections than asked for would be another measurement.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use clap::ValueEnum;
use tokio::time::{Duration, timeout};

use super::FloodArgs;
use crate::opening::{OPEN_TIMEOUT, OpenError, Opened, connect, open_all, runtime};
use crate::output::Failure;
use crate::sources::Sources;
use crate::target::{Door, Target};
use crate::work::opening;

/// Wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Wire {
    /// A Rushgate gateway
    Rushgate,
    /// A bare echo server, which returns every frame as it came (no handshake, no tokens): what machine and generator can do
    Echo,
}

impl Wire {
    /// The name on the command line and in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rushgate => "rushgate",
            Self::Echo => "echo",
        }
    }

    /// What is at the other end.
    pub(super) const fn server(self) -> &'static str {
        match self {
            Self::Rushgate => "gateway",
            Self::Echo => "echo server",
        }
    }
}

/// Opens and authenticates every connection.
pub(super) fn open_rushgate(
    target: &Target,
    args: &FloodArgs,
    sources: Sources,
) -> Result<Vec<Opened>, Failure> {
    let service = args.service.then(|| target.service_token()).transpose()?;
    let mut openings = Vec::new();
    for number in 0..u64::from(args.connections) {
        let bytes = match &service {
            Some(token) => opening(token, None),
            None => opening(&target.app_token(number)?, None),
        };
        openings.push(bytes.freeze());
    }
    runtime()?.block_on(open_each(&target.door, sources, openings))
}

async fn open_each(door: &Door, sources: Sources, openings: Vec<Bytes>) -> Result<Vec<Opened>, Failure> {
    let mut opened = Vec::with_capacity(openings.len());
    for (_, result) in open_all(door, sources, openings).await {
        opened.push(result.map_err(|error| error.cannot_start(door.addr))?);
    }
    Ok(opened)
}

/// Opens every connection; there is nothing to say on them before the first request.
pub(super) fn open_echo(
    addr: SocketAddr,
    connections: usize,
    sources: Sources,
) -> Result<Vec<Opened>, Failure> {
    runtime()?.block_on(async {
        let mut opened = Vec::with_capacity(connections);
        for number in 0..connections {
            let connected = timeout(OPEN_TIMEOUT, connect(addr, sources.of(number))).await;
            let stream = connected.unwrap_or(Err(OpenError::TimedOut)).map_err(|error| {
                Failure::cannot_start(format!(
                    "no echo server answers at {addr}: {error}; start one, or leave out --wire echo to ask a gateway"
                ))
            })?;
            opened.push(Opened {
                wire: rushgate::client::Wire::Left(stream),
                inbox: BytesMut::new(),
                in_flight_max: u16::MAX,
                keepalive: Duration::MAX,
                first_status: None,
            });
        }
        Ok(opened)
    })
}
