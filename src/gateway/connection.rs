//! One connection: reading, writing, and when it is looked at.
//!
//! One task each, which stays on its worker's thread. Every wake reads once into a buffer that the connections of the
//! thread share, handles all complete frames of it, and writes once; only an incomplete frame, or what a slow reader
//! has not taken, is kept between wakes. While replies wait for a slow reader nothing is read from it. A connection
//! that ends takes nothing with it: what it has in the queue runs to its end.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conversation::{Answered, Conversation};
use super::counters::Ending;
use super::deadlines::{Deadlines, Standing};
use super::peer::Peer;
use super::roster::NEVER_MS;
use super::stage::Flow;
use super::tls::Wire;
use super::worker::Worker;
use crate::protocol::Status;
use crate::protocol::frame::{HEADER_BYTES, REPLY_BYTES_MAX};

/// Read at once at most; more waits for the next wake, so that no connection starves the others of its thread.
const READ_BYTES: usize = 64 * 1024;
/// A BUY's reply with its ORDER body.
const BUY_REPLY_BYTES_MAX: usize = HEADER_BYTES + 32;

/// What the connections of a thread share: nobody needs it between two wakes.
#[derive(Debug)]
struct Desk {
    read: Box<[u8]>,
    out: BytesMut,
}

thread_local! {
    static DESK: RefCell<Desk> =
        RefCell::new(Desk { read: vec![0; READ_BYTES].into(), out: BytesMut::with_capacity(READ_BYTES) });
}

/// What is left to do in a wake.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Nothing: the socket or somebody else wakes.
    Wait,
    /// There may be more to do.
    Again,
    End(Ending),
}

#[derive(Debug)]
pub(super) struct Connection {
    conversation: Conversation,
    wire: Wire,
    /// Replies that the reader has not taken yet; empty when they are encrypted already and wait in the wire. In a box: hardly
    /// any connection has them.
    pending: Option<Box<BytesMut>>,
    deadlines: Deadlines,
    /// Its place in the roster, and when the roster rings.
    pub(super) place: usize,
    rings_ms: u64,
    /// The client sends nothing new: close when all is answered.
    finishing: Option<Ending>,
}

impl Connection {
    pub(super) fn new(worker: Arc<Worker>, wire: Wire, peer: Arc<Peer>, accepted_ms: u64) -> Self {
        let settings = &worker.core.settings;
        let deadlines = Deadlines::new(accepted_ms, settings);
        let standing = Standing { is_authenticated: false, is_answered: true };
        let rings_ms = deadlines.next_ms(settings, standing);
        let place = worker.roster.enter(Arc::clone(&peer), rings_ms);
        let conversation = Conversation::new(worker, peer);
        Self { conversation, wire, pending: None, deadlines, place, rings_ms, finishing: None }
    }

    /// What was read from the socket before; complete frames of it are answered at the first wake.
    pub(super) fn continue_from(&mut self, read: &[u8]) {
        if !read.is_empty() {
            self.conversation.keep(read);
        }
    }

    /// What is left when it has ended: the socket, and replies that were not taken.
    pub(super) fn into_rest(self) -> (Wire, BytesMut) {
        (self.wire, self.pending.map(|pending| *pending).unwrap_or_default())
    }

    /// Serves until nothing can be done at the moment, or to the end.
    pub(super) fn serve(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        // Before anything is looked for: what comes later wakes.
        self.peer().register(cx.waker());
        DESK.with_borrow_mut(|desk| {
            loop {
                desk.out.clear();
                match self.step(cx, desk) {
                    Next::Again => {}
                    Next::Wait => return Poll::Pending,
                    Next::End(ending) => {
                        // What was left in this very step is not lost with the connection.
                        self.peer().take_mail(&mut desk.out);
                        self.append_pending(&desk.out);
                        return Poll::Ready(ending);
                    }
                }
            }
        })
    }

    fn step(&mut self, cx: &mut Context<'_>, desk: &mut Desk) -> Next {
        if self.conversation.session.worker.core.is_draining() && !self.conversation.session.going_away {
            self.go_away(&mut desk.out);
        }
        self.peer().take_mail(&mut desk.out);
        if self.peer().take_due()
            && let Some(ending) = self.overdue(&mut desk.out)
        {
            return Next::End(ending);
        }
        if let Some(pending) = &mut self.pending {
            pending.extend_from_slice(&desk.out);
            desk.out.clear();
            return self.write_pending(cx);
        }
        let next = if self.finishing.is_some() { Next::Wait } else { self.read_and_answer(cx, desk) };
        if matches!(next, Next::End(_)) {
            return next;
        }
        if !desk.out.is_empty() {
            match Pin::new(&mut self.wire).poll_write(cx, &desk.out) {
                Poll::Ready(Ok(written)) if written == desk.out.len() => {
                    desk.out.clear();
                    match Pin::new(&mut self.wire).poll_flush(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Next::End(Ending::Broken),
                        Poll::Pending => return self.hold(&[]),
                    }
                }
                Poll::Ready(Ok(written)) => return self.hold(desk.out.get(written..).unwrap_or_default()),
                Poll::Pending => return self.hold(&desk.out),
                Poll::Ready(Err(_)) => return Next::End(Ending::Broken),
            }
        }
        if self.conversation.session.going_away {
            // Its last words may have begun.
            self.set_ring();
        }
        match self.finishing {
            None => next,
            Some(_) if self.peer().in_flight() > 0 => Next::Wait,
            // A reply may have been left since the look.
            Some(_) if self.peer().has_mail() => Next::Again,
            Some(ending) => Next::End(ending),
        }
    }

    /// Reads once, or takes up what had to wait; handles every complete frame, appends the replies to what is written.
    fn read_and_answer(&mut self, cx: &mut Context<'_>, desk: &mut Desk) -> Next {
        if self.conversation.session.is_waiting() {
            return self.hear(&mut desk.out);
        }
        if self.conversation.is_held_back() {
            let held = self.conversation.take_kept();
            return self.answer(&held, held.len(), &mut desk.out);
        }
        let kept = self.conversation.kept().len();
        if desk.read.len() < kept.saturating_add(READ_BYTES / 2) {
            desk.read = vec![0; kept.saturating_add(READ_BYTES)].into();
        }
        let Some((held, room)) = desk.read.split_at_mut_checked(kept) else { return Next::Wait };
        held.copy_from_slice(self.conversation.kept());
        let room_bytes = room.len();
        let mut read = ReadBuf::new(room);
        // A read that does not fill the buffer has emptied the socket: tokio then waits for the next event without
        // another read.
        match Pin::new(&mut self.wire).poll_read(cx, &mut read) {
            Poll::Pending => return Next::Wait,
            // TLS that was closed without a word. Frames have lengths of their own, so nothing was cut off unseen.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Poll::Ready(Err(_)) => return Next::End(Ending::Broken),
            Poll::Ready(Ok(())) => {}
        }
        let fresh = read.filled().len();
        if fresh == 0 {
            self.finish(Ending::Client);
            return Next::Again;
        }
        let filled = desk.read.get(..kept.saturating_add(fresh)).unwrap_or_default();
        match self.answer(filled, kept, &mut desk.out) {
            Next::Again if fresh == room_bytes => {
                // The others of this thread come first.
                cx.waker().wake_by_ref();
                Next::Wait
            }
            next => next,
        }
    }

    /// An AUTH waits for the store: nothing is read before it is answered.
    fn hear(&mut self, out: &mut BytesMut) -> Next {
        let now = self.conversation.session.worker.core.clock.now();
        let was_authenticated = self.conversation.session.is_authenticated();
        let flow = self.conversation.session.hear(now, out);
        if was_authenticated != self.conversation.session.is_authenticated() {
            self.set_ring();
        }
        match flow {
            None => Next::Wait,
            Some(Flow::Close(ending)) => Next::End(ending),
            Some(Flow::Go | Flow::Finish) => Next::Again,
        }
    }

    /// Handles the complete frames of `filled`, the first `kept` bytes of which had been read before.
    fn answer(&mut self, filled: &[u8], kept: usize, out: &mut BytesMut) -> Next {
        let now = self.conversation.session.worker.core.clock.now();
        let out_bytes_max = self.conversation.session.worker.core.settings.outbound_bytes_max;
        let was_authenticated = self.conversation.session.is_authenticated();
        let Answered { consumed, flow } = self.conversation.answer(now, filled, out, out_bytes_max);
        if consumed > 0 {
            self.deadlines.heard(now.mono_ms());
        }
        if was_authenticated != self.conversation.session.is_authenticated() {
            // Silence may be too long before the handshake would have been.
            self.set_ring();
        }
        let rest = filled.get(consumed..).unwrap_or_default();
        if rest.is_empty() {
            if kept > 0 {
                self.conversation.keep(rest);
                self.deadlines.frame_ended();
            }
        } else {
            self.conversation.keep(rest);
            if consumed > 0 || kept == 0 {
                self.deadlines.frame_began(now.mono_ms());
                self.set_ring();
            }
        }
        match flow {
            Flow::Go => Next::Again,
            Flow::Finish => {
                self.finish(Ending::Client);
                Next::Again
            }
            Flow::Close(ending) => Next::End(ending),
        }
    }

    fn append_pending(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.pending.get_or_insert_default().extend_from_slice(bytes);
        }
    }

    /// Replies that the reader did not take at once: now it has to be waited for.
    fn hold(&mut self, rest: &[u8]) -> Next {
        self.pending.get_or_insert_default().extend_from_slice(rest);
        Next::Again
    }

    /// Writes what waits; while the reader takes nothing, nothing else is done for it.
    fn write_pending(&mut self, cx: &mut Context<'_>) -> Next {
        let pending_bytes_max = self.pending_bytes_max();
        while let Some(pending) = self.pending.as_mut().filter(|pending| !pending.is_empty()) {
            match Pin::new(&mut self.wire).poll_write(cx, pending) {
                Poll::Ready(Ok(written)) => {
                    pending.advance(written);
                    self.deadlines.moved();
                }
                Poll::Ready(Err(_)) => return Next::End(Ending::Broken),
                Poll::Pending if pending.len() > pending_bytes_max => return Next::End(Ending::SlowReader),
                Poll::Pending => return self.wait_for_reader(),
            }
        }
        match Pin::new(&mut self.wire).poll_flush(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Next::End(Ending::Broken),
            Poll::Pending => return self.wait_for_reader(),
        }
        // An idle connection holds no buffer.
        self.pending = None;
        self.deadlines.unblocked(self.conversation.session.worker.core.clock.now().mono_ms());
        self.set_ring();
        Next::Again
    }

    fn wait_for_reader(&mut self) -> Next {
        self.deadlines.blocked(self.conversation.session.worker.core.clock.now().mono_ms());
        self.set_ring();
        Next::Wait
    }

    /// Nothing more is read; the connection closes when everything is answered, or soon after.
    fn finish(&mut self, ending: Ending) {
        self.finishing = Some(ending);
        let now_ms = self.conversation.session.worker.core.clock.now().mono_ms();
        self.deadlines.close_after(now_ms, self.conversation.session.worker.core.settings.drain_timeout);
        self.set_ring();
    }

    fn go_away(&mut self, out: &mut BytesMut) {
        self.conversation.session.go_away(out);
        let now_ms = self.conversation.session.worker.core.clock.now().mono_ms();
        self.deadlines.close_after(now_ms, self.conversation.session.worker.core.settings.drain_timeout);
        self.deadlines.went_away(now_ms);
        self.set_ring();
    }

    /// Replies stop with the reading: they may be over the bound by the one that reached it, and by those to the
    /// BUYs that were in flight. Only pushes go on.
    fn pending_bytes_max(&self) -> usize {
        let in_flight_max = usize::from(self.conversation.session.in_flight_max());
        let in_flight_bytes = in_flight_max.saturating_mul(BUY_REPLY_BYTES_MAX);
        let outbound_bytes_max = self.conversation.session.worker.core.settings.outbound_bytes_max;
        outbound_bytes_max.saturating_add(REPLY_BYTES_MAX).saturating_add(in_flight_bytes)
    }

    /// Lets the roster ring when something may be overdue. It is told only of what comes sooner than it would ring
    /// anyway; a connection that is rung too early finds nothing overdue.
    fn set_ring(&mut self) {
        let next_ms =
            self.deadlines.next_ms(&self.conversation.session.worker.core.settings, self.standing());
        if next_ms < self.rings_ms {
            self.rings_ms = next_ms;
            self.conversation.session.worker.roster.set_due(self.place, next_ms);
        }
    }

    /// The roster rang: the gateway has ended, or something is overdue now, told to the client where it may still hear.
    fn overdue(&mut self, out: &mut BytesMut) -> Option<Ending> {
        self.rings_ms = NEVER_MS;
        if self.conversation.session.worker.core.is_stopped() {
            return Some(self.finishing.unwrap_or(Ending::Drained));
        }
        let now_ms = self.conversation.session.worker.core.clock.now().mono_ms();
        let settings = &self.conversation.session.worker.core.settings;
        let Some((ending, message)) = self.deadlines.overdue(now_ms, settings, self.standing()) else {
            self.set_ring();
            return None;
        };
        if let Some(message) = message {
            self.conversation.session.error(0, Status::TimedOut, message, out);
        }
        Some(if ending == Ending::Drained { self.finishing.unwrap_or(ending) } else { ending })
    }

    fn standing(&self) -> Standing {
        Standing {
            is_authenticated: self.conversation.session.is_authenticated(),
            is_answered: self.pending.is_none() && self.peer().in_flight() == 0,
        }
    }

    fn peer(&self) -> &Arc<Peer> {
        &self.conversation.session.peer
    }
}
