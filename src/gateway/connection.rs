//! One connection: reading, deadlines, writing.
//!
//! One task each. Every wake reads once into a buffer shared by the thread, handles all complete frames of it,
//! and writes once; only an incomplete frame is kept between wakes. While replies wait for a slow reader nothing
//! is read from it. A connection that ends takes nothing with it: what it has in the queue runs to its end.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::Core;
use super::clock::Now;
use super::counters::Ending;
use super::linger::linger;
use super::peer::Peer;
use super::session::{Flow, Session};
use crate::protocol::frame::{HEADER_BYTES, REPLY_BYTES_MAX};
use crate::protocol::{Status, decode};

/// Read at once at most; more waits for the next wake, so that no connection starves the others of its thread.
const READ_BYTES: usize = 64 * 1024;
/// A BUY's reply with its ORDER body.
const BUY_REPLY_BYTES_MAX: usize = HEADER_BYTES + 32;
/// After GOAWAY a connection on which all is answered closes when nothing came for so long: what the client sent
/// before it heard GOAWAY still gets its `GOING_AWAY`.
const LAST_WORDS: Duration = Duration::from_millis(500);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Times in monotonic milliseconds; `None` while they do not run.
#[derive(Debug)]
struct Deadlines {
    handshake: u64,
    /// The last complete frame.
    heard: u64,
    /// The first byte of the incomplete frame.
    frame_since: Option<u64>,
    /// Since when the reader has taken nothing of what waits for it.
    blocked_since: Option<u64>,
    /// GOAWAY was sent, or the client's last frame was read.
    close: Option<u64>,
    /// When GOAWAY was sent.
    went_away: Option<u64>,
}

#[derive(Debug)]
struct Connection {
    core: Arc<Core>,
    session: Session,
    stream: TcpStream,
    /// The incomplete frame, or frames held back while replies wait.
    unread: BytesMut,
    /// Replies that the reader has not taken yet.
    pending: BytesMut,
    deadlines: Deadlines,
    /// The reader is slow, and nothing is read from it: what it sends meanwhile is not late.
    is_stalled: bool,
    /// When bytes were last read.
    read_ms: u64,
    /// When the timer rings.
    armed_ms: u64,
    /// The client sends nothing new: close when all is answered.
    finishing: Option<Ending>,
}

/// Runs a connection to its end.
pub(super) async fn run(core: Arc<Core>, stream: TcpStream, peer: Arc<Peer>) {
    let now_ms = core.clock.now().mono_ms();
    let deadlines = Deadlines {
        handshake: now_ms.saturating_add(millis(core.settings.handshake_timeout)),
        heard: now_ms,
        frame_since: None,
        blocked_since: None,
        close: None,
        went_away: None,
    };
    let session = Session::new(Arc::clone(&core), peer);
    let mut connection = Connection {
        core,
        session,
        stream,
        unread: BytesMut::new(),
        pending: BytesMut::new(),
        deadlines,
        is_stalled: false,
        read_ms: now_ms,
        armed_ms: 0,
        finishing: None,
    };
    let ending = connection.serve().await;
    connection.session.end();
    connection.core.counters.ending(ending);
    if !matches!(ending, Ending::Broken | Ending::SlowReader) {
        // In a box, so that an idle connection's task has no room for its end.
        Box::pin(linger(connection.stream, connection.pending)).await;
    }
}

impl Connection {
    async fn serve(&mut self) -> Ending {
        let peer = Arc::clone(&self.session.peer);
        let mut draining = self.core.draining.subscribe();
        let mut is_draining = *draining.borrow_and_update();
        self.armed_ms = self.next_deadline_ms();
        let mut timer = Box::pin(tokio::time::sleep_until(self.instant_of(self.armed_ms)));
        loop {
            // Looked at here too, as is the time below: a socket that always has something to read keeps the
            // select from ever coming to its later branches.
            is_draining |= draining.has_changed().unwrap_or(false);
            if is_draining && !self.session.going_away {
                self.go_away();
            }
            if let Some(ending) = self.flush() {
                return ending;
            }
            if self.pending.is_empty()
                && let Some(ending) = self.finishing
                && peer.in_flight() == 0
            {
                // A reply may have been left between the flush and the look.
                peer.take_outbox(&mut self.pending);
                if self.pending.is_empty() {
                    return ending;
                }
                continue;
            }
            let may_read = self.pending.is_empty() && self.finishing.is_none();
            if may_read && self.has_held_back() {
                if let Some(ending) = self.read_and_answer(false) {
                    return ending;
                }
                continue;
            }
            self.arm(timer.as_mut());
            tokio::select! {
                biased;
                () = peer.wake.notified() => {}
                readable = self.stream.readable(), if may_read => {
                    if readable.is_err() {
                        return Ending::Broken;
                    }
                    if let Some(ending) = self.read_and_answer(true).or_else(|| self.outrun()) {
                        return ending;
                    }
                }
                writable = self.stream.writable(), if !self.pending.is_empty() => {
                    if writable.is_err() {
                        return Ending::Broken;
                    }
                }
                () = timer.as_mut() => {
                    if let Some(ending) = self.overdue() {
                        return ending;
                    }
                }
                _ = draining.wait_for(|draining| *draining), if !is_draining => is_draining = true,
            }
            peer.take_outbox(&mut self.pending);
        }
    }

    /// Reads once (if `read`), handles every complete frame, appends the replies to what is to be written.
    fn read_and_answer(&mut self, read: bool) -> Option<Ending> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let kept = self.unread.len();
            if buffer.len() < kept.saturating_add(READ_BYTES / 2) {
                buffer.resize(kept.saturating_add(READ_BYTES), 0);
            }
            let (held, room) = buffer.split_at_mut_checked(kept)?;
            held.copy_from_slice(&self.unread);
            let fresh = match read.then(|| self.stream.try_read(room)) {
                None => 0,
                Some(Ok(0)) => {
                    self.finish(Ending::Client);
                    return None;
                }
                Some(Ok(count)) => count,
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Some(Err(_)) => return Some(Ending::Broken),
            };
            let filled = buffer.get(..kept.saturating_add(fresh))?;
            let now = self.core.clock.now();
            self.read_ms = now.mono_ms();
            let (consumed, ending) = self.answer(now, filled);
            let rest = filled.get(consumed..)?;
            if rest.is_empty() {
                self.unread = BytesMut::new();
                self.deadlines.frame_since = None;
            } else {
                if consumed > 0 || kept == 0 {
                    self.deadlines.frame_since = Some(now.mono_ms());
                }
                self.unread = BytesMut::from(rest);
            }
            ending
        })
    }

    /// Handles the complete frames at the front of `bytes`; how many bytes that were, and whether it is the end.
    fn answer(&mut self, now: Now, bytes: &[u8]) -> (usize, Option<Ending>) {
        let mut consumed: usize = 0;
        while let Some(rest) = bytes.get(consumed..) {
            if self.pending.len() >= self.core.settings.outbound_bytes_max {
                break;
            }
            let (frame, frame_bytes) = match decode(rest, self.session.frame_bytes_max()) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    self.session.error(0, error.status(), &error.to_string(), &mut self.pending);
                    return (consumed, Some(Ending::BadFrame));
                }
            };
            consumed = consumed.saturating_add(frame_bytes);
            self.deadlines.heard = now.mono_ms();
            match self.session.on_frame(now, &frame, &mut self.pending) {
                Flow::Go => {}
                Flow::Close(ending) => return (consumed, Some(ending)),
                Flow::Finish => {
                    self.finish(Ending::Client);
                    break;
                }
            }
        }
        (consumed, None)
    }

    /// Whether complete frames may stand in what was kept: only when replies had to wait.
    fn has_held_back(&self) -> bool {
        !matches!(decode(&self.unread, self.session.frame_bytes_max()), Ok(None))
    }

    /// Nothing more is read; the connection closes when everything is answered, or soon after.
    fn finish(&mut self, ending: Ending) {
        self.finishing = Some(ending);
        let timeout_ms = millis(self.core.settings.drain_timeout);
        let close_ms = self.core.clock.now().mono_ms().saturating_add(timeout_ms);
        self.deadlines.close = Some(self.deadlines.close.map_or(close_ms, |known| known.min(close_ms)));
    }

    fn go_away(&mut self) {
        self.session.go_away(&mut self.pending);
        let now_ms = self.core.clock.now().mono_ms();
        let close_ms = now_ms.saturating_add(millis(self.core.settings.drain_timeout));
        self.deadlines.close = Some(self.deadlines.close.map_or(close_ms, |known| known.min(close_ms)));
        self.deadlines.went_away = Some(now_ms);
    }

    /// When the last words are over: GOAWAY was sent, all is answered and nothing comes any more.
    fn last_words_ms(&self) -> Option<u64> {
        let went_away_ms = self.deadlines.went_away?;
        let is_answered = self.pending.is_empty() && self.session.peer.in_flight() == 0;
        is_answered.then(|| went_away_ms.max(self.deadlines.heard).saturating_add(millis(LAST_WORDS)))
    }

    /// Writes what it can; an ending if the connection is broken, or if too much waits for its reader.
    fn flush(&mut self) -> Option<Ending> {
        while !self.pending.is_empty() {
            match self.stream.try_write(&self.pending) {
                Ok(written) => {
                    self.pending.advance(written);
                    self.deadlines.blocked_since = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now_ms = self.core.clock.now().mono_ms();
                    self.deadlines.blocked_since.get_or_insert(now_ms);
                    self.is_stalled = true;
                    return (self.pending.len() > self.pending_bytes_max()).then_some(Ending::SlowReader);
                }
                Err(_) => return Some(Ending::Broken),
            }
        }
        // An idle connection holds no buffer.
        self.pending = BytesMut::new();
        if std::mem::take(&mut self.is_stalled) {
            let now_ms = self.core.clock.now().mono_ms();
            self.deadlines.heard = now_ms;
            self.deadlines.frame_since = self.deadlines.frame_since.map(|_| now_ms);
        }
        None
    }

    /// Replies stop with the reading: they may be over the bound by the one that reached it, and by those to the
    /// BUYs that were in flight. Only pushes go on.
    fn pending_bytes_max(&self) -> usize {
        let in_flight_bytes = usize::from(self.session.in_flight_max()).saturating_mul(BUY_REPLY_BYTES_MAX);
        self.core.settings.outbound_bytes_max.saturating_add(REPLY_BYTES_MAX).saturating_add(in_flight_bytes)
    }

    /// The earliest moment at which something may be overdue.
    fn next_deadline_ms(&self) -> u64 {
        let settings = &self.core.settings;
        let deadlines = &self.deadlines;
        let after = |since_ms: u64, timeout| since_ms.saturating_add(millis(timeout));
        let handshake = (!self.session.is_authenticated()).then_some(deadlines.handshake);
        let idle = self.idle_since().map(|since_ms| after(since_ms, idle_timeout(settings.keepalive)));
        let frame = self.frame_since().map(|since_ms| after(since_ms, settings.frame_timeout));
        let blocked = deadlines.blocked_since.map(|since_ms| after(since_ms, settings.write_timeout));
        [handshake, idle, frame, blocked, deadlines.close, self.last_words_ms()]
            .into_iter()
            .flatten()
            .fold(u64::MAX, u64::min)
    }

    /// Since when an authenticated client is silent; not while nothing is read from it.
    fn idle_since(&self) -> Option<u64> {
        (self.session.is_authenticated() && !self.is_stalled).then_some(self.deadlines.heard)
    }

    /// Since when a frame is incomplete; not while nothing is read.
    fn frame_since(&self) -> Option<u64> {
        self.deadlines.frame_since.filter(|_| !self.is_stalled)
    }

    /// When a deadline is, for tokio's timer.
    fn instant_of(&self, deadline_ms: u64) -> Instant {
        let in_ms = deadline_ms.saturating_sub(self.core.clock.now().mono_ms());
        let now = Instant::now();
        now.checked_add(Duration::from_millis(in_ms.saturating_add(1))).unwrap_or(now)
    }

    /// Sets the timer only when it would ring too late; when it rings early, `overdue` finds nothing. Mostly there is
    /// nothing to set, and then no clock is read.
    fn arm(&mut self, timer: Pin<&mut Sleep>) {
        let next_ms = self.next_deadline_ms();
        if timer.is_elapsed() || next_ms.saturating_add(2) < self.armed_ms {
            timer.reset(self.instant_of(next_ms));
            self.armed_ms = next_ms;
        }
    }

    /// What became overdue while there was always something to read.
    fn outrun(&mut self) -> Option<Ending> {
        if self.read_ms < self.next_deadline_ms() {
            return None;
        }
        self.overdue()
    }

    /// What is overdue now, told to the client where it may still hear.
    fn overdue(&mut self) -> Option<Ending> {
        let now_ms = self.core.clock.now().mono_ms();
        let settings = &self.core.settings;
        let over = |since_ms: Option<u64>, timeout| {
            since_ms.is_some_and(|since_ms| now_ms >= since_ms.saturating_add(millis(timeout)))
        };
        if over(self.deadlines.blocked_since, settings.write_timeout) {
            return Some(Ending::SlowReader);
        }
        if self.deadlines.close.is_some_and(|close_ms| now_ms >= close_ms) {
            return Some(self.finishing.unwrap_or(Ending::Drained));
        }
        if self.last_words_ms().is_some_and(|over_ms| now_ms >= over_ms) {
            return Some(Ending::Drained);
        }
        let (ending, message) = if !self.session.is_authenticated() && now_ms >= self.deadlines.handshake {
            (Ending::HandshakeTimeout, "HELLO and AUTH did not come in time")
        } else if over(self.frame_since(), settings.frame_timeout) {
            (Ending::FrameTimeout, "the frame did not become complete in time")
        } else if over(self.idle_since(), idle_timeout(settings.keepalive)) {
            (Ending::Idle, "nothing came for 1.5 times the keepalive interval")
        } else {
            return None;
        };
        self.session.error(0, Status::TimedOut, message, &mut self.pending);
        Some(ending)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn idle_timeout(keepalive: Duration) -> Duration {
    keepalive.saturating_mul(3).checked_div(2).unwrap_or(keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_task<F: Future>(_: impl FnOnce(Arc<Core>, TcpStream, Arc<Peer>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let bytes = size_of_task(run);
        assert!(bytes <= 1024, "the task of one connection takes {bytes} bytes");
    }
}
