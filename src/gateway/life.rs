//! The life of a connection: from its seat among the open ones, through serving, to the end of its last replies.
//!
//! The future that a connection's task runs. Dropping it, however that comes, closes the connection and frees its seat.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

use super::connection::Connection;
use super::counters::Ending;
use super::linger::linger;
use super::peer::Peer;
use super::tls::Wire;
use super::worker::Worker;

/// A place among the open connections: counted, and rung by the roster, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    worker: Arc<Worker>,
    place: Option<usize>,
}

impl Seat {
    /// `None` when the gateway holds as many connections as it may.
    pub(super) fn take(worker: &Arc<Worker>) -> Option<Self> {
        let open = worker.core.connections.fetch_add(1, Ordering::AcqRel);
        let seat = Self { worker: Arc::clone(worker), place: None };
        (open < worker.core.settings.connections_max).then_some(seat)
    }

    pub(super) fn worker(&self) -> Arc<Worker> {
        Arc::clone(&self.worker)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.worker.roster.leave(place);
        }
        self.worker.core.connections.fetch_sub(1, Ordering::AcqRel);
        self.worker.core.connection_closed.notify_waiters();
    }
}

/// A connection's task: it serves, then lets the last replies get through to a client that may still hear.
pub(super) struct Life {
    seat: Seat,
    stage: Stage,
}

#[allow(clippy::large_enum_variant, reason = "nearly all are serving; a box would only add to them")]
enum Stage {
    Serving(Connection),
    /// In a box, so that an idle connection has no room for its end.
    Lingering(Pin<Box<dyn Future<Output = ()> + Send>>),
    Over,
}

impl Life {
    pub(super) fn new(seat: Seat, stream: TcpStream, peer: Arc<Peer>) -> Self {
        let now_ms = seat.worker.core.clock.now().mono_ms();
        Self::continued(seat, Wire::Left(stream), peer, now_ms, &[])
    }

    /// For a connection that was accepted before now and of which bytes have been read already.
    pub(super) fn continued(
        mut seat: Seat,
        wire: Wire,
        peer: Arc<Peer>,
        accepted_ms: u64,
        read: &[u8],
    ) -> Self {
        let mut connection = Connection::new(Arc::clone(&seat.worker), wire, peer, accepted_ms);
        connection.continue_from(read);
        seat.place = Some(connection.place);
        Self { seat, stage: Stage::Serving(connection) }
    }
}

impl Future for Life {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Over => return Poll::Ready(()),
                Stage::Lingering(rest) => {
                    ready!(rest.as_mut().poll(cx));
                    self.stage = Stage::Over;
                }
                Stage::Serving(connection) => {
                    let ending = ready!(connection.serve(cx));
                    self.seat.worker.sheet.ending(ending);
                    let is_heard = !matches!(ending, Ending::Broken | Ending::SlowReader)
                        && !self.seat.worker.core.is_stopped();
                    if let Stage::Serving(connection) = std::mem::replace(&mut self.stage, Stage::Over)
                        && is_heard
                    {
                        let (wire, pending) = connection.into_rest();
                        self.stage = Stage::Lingering(Box::pin(linger(wire, pending)));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        let bytes = size_of::<Life>();
        assert!(bytes <= 256, "the task of one connection takes {bytes} bytes");
    }
}
