//! The task of one connection: reads and writes its socket, hands replies to their waiters, keeps it alive.
//!
//! Runs as one tokio task per [`Session`](super::Session) until the socket ends; it never waits for a waiter or for
//! whoever takes pushes (a full push channel loses the push: RESULT is the truth). On failure every outstanding
//! request ends as lost.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::shared::{Inner, Shared, Told};
use super::slots::{Open, Waiter};
use super::tls::Wire;
use super::{Answer, ClientError, EndReason, Push};
use crate::protocol::frame::REPLY_BYTES_MAX;
use crate::protocol::{Frame, Opcode, Reply, Request, UserId, decode, tlv};

const READ_BYTES_MIN: usize = 1024;
const READ_BYTES_MAX: usize = 64 * 1024;
/// Reads of one wake before writing again.
const READS_PER_WAKE: usize = 16;
/// Assumed until HELLO's reply says otherwise.
const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Connection {
    wire: Wire,
    shared: Arc<Shared>,
    pushes: mpsc::Sender<Push>,
    inbox: BytesMut,
    outgoing: BytesMut,
    read_bytes: usize,
    last_written: Instant,
    /// Share of the keepalive after which a heartbeat is due; differs between connections, so that they do not beat together.
    heartbeat_percent: u32,
    /// Set once this side has sent its last frame.
    close_by: Option<Instant>,
    answered: Vec<(Waiter, Result<Answer, ClientError>)>,
}

/// Serves a connected socket until it ends.
pub(super) async fn run(wire: Wire, shared: Arc<Shared>, pushes: mpsc::Sender<Push>) {
    let mut connection = Connection {
        wire,
        shared,
        pushes,
        inbox: BytesMut::new(),
        outgoing: BytesMut::new(),
        read_bytes: READ_BYTES_MIN,
        last_written: Instant::now(),
        heartbeat_percent: fastrand::u32(50..=75),
        close_by: None,
        answered: Vec::new(),
    };
    let Err(reason) = connection.drive().await;
    connection.shared.end(reason);
}

/// Only the end of the connection ends [`Connection::drive`].
enum Never {}

impl Connection {
    async fn drive(&mut self) -> Result<Never, EndReason> {
        let shared = Arc::clone(&self.shared);
        let timer = sleep_until(Instant::now());
        tokio::pin!(timer);
        loop {
            let wake_at = self.prepare()?;
            // As much as goes at once; the rest when the gateway takes it.
            poll_fn(|cx| Poll::Ready(self.poll_write(cx))).await?;
            // Firing early is harmless and cheaper than moving the timer with every write.
            if wake_at < timer.deadline() || timer.is_elapsed() {
                timer.as_mut().reset(wake_at);
            }
            let is_written = self.outgoing.is_empty();
            tokio::select! {
                biased;
                moved = poll_fn(|cx| self.poll_move(cx)) => moved?,
                () = shared.wake.notified(), if is_written => {}
                () = &mut timer => self.on_timer()?,
            }
        }
    }

    /// Takes what handles have queued; says when to wake at the latest.
    fn prepare(&mut self) -> Result<Instant, EndReason> {
        let mut inner = self.shared.lock();
        if inner.closing && self.close_by.is_none() && !inner.slots.has_waiters() {
            if inner.reconnect_at.is_some() {
                return Err(EndReason::ClosedHere);
            }
            inner.push_goaway();
            self.close_by = Instant::now().checked_add(self.shared.settings.close_timeout);
        }
        if self.outgoing.is_empty() && !inner.out.is_empty() {
            std::mem::swap(&mut self.outgoing, &mut inner.out);
            self.last_written = Instant::now();
        }
        let heartbeat_at = self.heartbeat_at(&inner);
        let wake_at = inner.sweep_at.map_or(heartbeat_at, |at| at.min(heartbeat_at));
        Ok(self.close_by.map_or(wake_at, |at| at.min(wake_at)))
    }

    fn heartbeat_at(&self, inner: &Inner) -> Instant {
        let keepalive = inner.keepalive.unwrap_or(KEEPALIVE_DEFAULT);
        let after = keepalive.saturating_mul(self.heartbeat_percent).checked_div(100).unwrap_or(keepalive);
        self.last_written.checked_add(after).unwrap_or(self.last_written)
    }

    fn on_timer(&mut self) -> Result<(), EndReason> {
        let now = Instant::now();
        if self.close_by.is_some_and(|at| at <= now) {
            return Err(EndReason::ClosedHere);
        }
        let mut inner = self.shared.lock();
        let mut late = Vec::new();
        if inner.sweep_at.is_some_and(|at| at <= now) {
            let expired = inner.slots.expire(now);
            inner.sweep_at = expired.next;
            if expired.heartbeat_missed {
                return Err(EndReason::HeartbeatMissed);
            }
            late = expired.waiters;
        }
        if self.heartbeat_at(&inner) <= now && inner.check_open().is_ok() {
            let deadline = now.checked_add(self.shared.settings.request_timeout).unwrap_or(now);
            let open =
                Open { opcode: Opcode::Ping, sent_at: now, deadline, waiter: None, is_heartbeat: true };
            // With every request id taken, the requests in flight keep the connection alive.
            drop(inner.push(open, &Request::Ping { client_time: 0 }, None, 0));
            self.last_written = now;
        } else if self.heartbeat_at(&inner) <= now {
            self.last_written = now;
        }
        drop(inner);
        for waiter in late {
            drop(waiter.send(Err(ClientError::Deadline)));
        }
        Ok(())
    }

    /// Writes what is queued and reads what has come; ready when anything has moved.
    fn poll_move(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), EndReason>> {
        let has_written = self.poll_write(cx)?;
        let has_read = self.poll_read(cx)?;
        if has_written || has_read { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// True if something was queued and all of it is written now.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, EndReason> {
        let was_queued = !self.outgoing.is_empty();
        while !self.outgoing.is_empty() {
            match Pin::new(&mut self.wire).poll_write(cx, &self.outgoing) {
                Poll::Ready(Ok(written)) => self.outgoing.advance(written),
                Poll::Ready(Err(error)) => return Err(self.write_failed(cx, error.kind())),
                Poll::Pending => return Ok(false),
            }
        }
        if was_queued {
            self.outgoing.clear();
        }
        // What TLS has encrypted and the socket did not take; a plain socket has nothing to do.
        match Pin::new(&mut self.wire).poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(self.write_failed(cx, error.kind())),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(was_queued),
        }
    }

    /// A gateway that closes says why first; that is still to be read when writing fails.
    fn write_failed(&mut self, cx: &mut Context<'_>, kind: io::ErrorKind) -> EndReason {
        match self.poll_read(cx) {
            Err(EndReason::PeerClosed) | Ok(_) => EndReason::Io(kind),
            Err(reason) => reason,
        }
    }

    /// True if something was read.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, EndReason> {
        let mut has_read = false;
        for _ in 0..READS_PER_WAKE {
            self.inbox.reserve(self.read_bytes);
            let read = pin!(self.wire.read_buf(&mut self.inbox)).poll(cx);
            match read {
                Poll::Ready(Ok(0)) => return Err(EndReason::PeerClosed),
                Poll::Ready(Ok(count)) => {
                    has_read = true;
                    self.receive()?;
                    if count >= self.read_bytes {
                        self.read_bytes = self.read_bytes.saturating_mul(2).min(READ_BYTES_MAX);
                    }
                }
                // TLS that was closed without a word.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(EndReason::PeerClosed);
                }
                Poll::Ready(Err(error)) => return Err(EndReason::Io(error.kind())),
                Poll::Pending => break,
            }
        }
        Ok(has_read)
    }

    /// Handles every complete frame in the inbox under one lock, then wakes the waiters without it.
    fn receive(&mut self) -> Result<(), EndReason> {
        let now = Instant::now();
        let mut taken = 0_usize;
        let mut buys = 0_usize;
        let mut fault = None;
        {
            let mut inner = self.shared.lock();
            loop {
                let rest = self.inbox.get(taken..).unwrap_or_default();
                let (frame, frame_bytes) = match decode(rest, REPLY_BYTES_MAX) {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    Err(error) => {
                        fault = Some(EndReason::Frame(error));
                        break;
                    }
                };
                taken = taken.saturating_add(frame_bytes);
                if frame.request_id == 0 {
                    on_push(&mut inner, &frame, now, &self.pushes);
                } else if let Some(open) = inner.slots.take(frame.request_id) {
                    buys = buys.saturating_add(usize::from(open.opcode == Opcode::Buy));
                    self.answered.extend(on_reply(&mut inner, open, &frame, now));
                }
            }
        }
        self.inbox.advance(taken);
        self.shared.permits.add_permits(buys);
        for (waiter, result) in self.answered.drain(..) {
            // Whoever asked and left does not want the answer any more.
            drop(waiter.send(result));
        }
        fault.map_or(Ok(()), Err)
    }
}

fn on_reply(
    inner: &mut Inner,
    open: Open,
    frame: &Frame<'_>,
    received_at: Instant,
) -> Option<(Waiter, Result<Answer, ClientError>)> {
    let Open { opcode, sent_at, waiter, .. } = open;
    // An unknown opcode is answered with ERROR; anything else carries the request's.
    let opcode = if frame.opcode == Opcode::Error as u8 { Opcode::Error } else { opcode };
    let parsed = Reply::parse(opcode, frame.status, frame.body);
    match parsed {
        Some(Reply::Hello { server_time_ms, keepalive_ms, .. }) => {
            inner.clock.learn(server_time_ms, sent_at, received_at);
            inner.keepalive = Some(Duration::from_millis(u64::from(keepalive_ms.max(1))));
        }
        Some(Reply::Pong { server_time_ms, .. }) => inner.clock.learn(server_time_ms, sent_at, received_at),
        _ => {}
    }
    let waiter = waiter?;
    let result = parsed
        .map(|reply| Answer { status: frame.status, hint_ms: frame.hint_ms, reply, sent_at, received_at })
        .ok_or(ClientError::BadReply { status: frame.status });
    Some((waiter, result))
}

/// Unknown pushes are ignored, as the protocol asks.
fn on_push(inner: &mut Inner, frame: &Frame<'_>, received_at: Instant, pushes: &mpsc::Sender<Push>) {
    let Some(opcode @ (Opcode::Goaway | Opcode::Error | Opcode::ResultPush)) =
        Opcode::from_wire(frame.opcode)
    else {
        return;
    };
    let Some(reply) = Reply::parse(opcode, frame.status, frame.body) else { return };
    match &reply {
        Reply::Goaway { .. } => {
            let wait = Duration::from_millis(u64::from(frame.hint_ms));
            inner.reconnect_at = Some(received_at.checked_add(wait).unwrap_or(received_at));
        }
        Reply::Error { message } => {
            inner.told =
                Some(Told { status: frame.status, hint_ms: frame.hint_ms, message: message.clone() });
        }
        _ => {}
    }
    let user = frame.tlv(tlv::USER).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    let push = Push {
        status: frame.status,
        hint_ms: frame.hint_ms,
        user: user.and_then(UserId::new),
        reply,
        received_at,
    };
    if pushes.try_send(push).is_err() {
        inner.pushes_dropped = inner.pushes_dropped.saturating_add(1);
    }
}
