//! One connection's conversation, apart from its socket: bytes in, replies out.
//!
//! Runs on the connection's task, inside one wake; synchronous, no I/O. What it may still have to say comes by the
//! peer (outcomes of BUYs that stand in the queue, pushes). A fault of the stream ends it with an ERROR frame; nothing
//! that is fed makes it panic, and what it keeps is never more than one incomplete frame and what had to wait behind
//! replies that nobody took, or behind an AUTH whose session is looked up.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::BytesMut;

use super::Core;
use super::clock::Now;
use super::counters::Ending;
use super::peer::Peer;
use super::session::Session;
use super::stage::Flow;
use super::worker::Worker;
use crate::protocol::decode;

/// What became of the bytes that a conversation was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// How many of them were complete frames.
    pub(super) consumed: usize,
    pub(super) flow: Flow,
}

/// See the module. Outside the gateway it is for trying what bytes do to it: without a socket, without deadlines.
#[derive(Debug)]
pub struct Conversation {
    pub(super) session: Session,
    /// The incomplete frame, or frames held back while replies wait.
    unread: Box<[u8]>,
}

impl Conversation {
    pub(super) fn new(worker: Arc<Worker>, peer: Arc<Peer>) -> Self {
        Self { session: Session::new(worker, peer), unread: Box::default() }
    }

    /// One that no socket belongs to.
    pub(super) fn apart(core: &Arc<Core>, from: IpAddr) -> Self {
        let worker = Arc::new(Worker::new(Arc::clone(core)));
        let (id, outbound_bytes_max) = (core.next_connection_id(), core.settings.outbound_bytes_max);
        let peer = Peer::new(id, from, outbound_bytes_max, Arc::clone(&worker.post));
        Self::new(worker, Arc::new(peer))
    }

    /// Takes `bytes` as they came from the wire, in any pieces, and appends to `out` what is answered at once. An
    /// ending says that the connection closes here (for [`Ending::Client`]: once its BUYs are answered); nothing may
    /// be fed after that.
    pub fn feed(&mut self, bytes: &[u8], out: &mut BytesMut) -> Option<Ending> {
        if self.unread.is_empty() {
            return self.answer_all(bytes, out);
        }
        let mut filled = self.take_kept().into_vec();
        filled.extend_from_slice(bytes);
        self.answer_all(&filled, out)
    }

    /// Answers as the connection does for a reader who takes everything at once.
    fn answer_all(&mut self, filled: &[u8], out: &mut BytesMut) -> Option<Ending> {
        let now = self.session.worker.core.clock.now();
        if let Some(Flow::Close(ending)) = self.session.hear(now, out) {
            return Some(ending);
        }
        let mut rest = filled;
        loop {
            let out_bytes_max =
                out.len().saturating_add(self.session.worker.core.settings.outbound_bytes_max);
            let answered = self.answer(now, rest, out, out_bytes_max);
            rest = rest.get(answered.consumed..).unwrap_or_default();
            match answered.flow {
                Flow::Close(ending) => return Some(ending),
                Flow::Finish => return Some(Ending::Client),
                Flow::Go if self.would_answer(rest) => {}
                Flow::Go => break,
            }
        }
        if !rest.is_empty() {
            self.keep(rest);
        }
        None
    }

    /// Moves to `out` what was left for this connection meanwhile: outcomes of its BUYs, pushes.
    pub fn take_mail(&mut self, out: &mut BytesMut) {
        self.session.peer.take_mail(out);
    }

    /// BUYs not answered yet.
    pub fn in_flight(&self) -> u32 {
        self.session.peer.in_flight()
    }

    /// Handles the complete frames at the front of `bytes`, until they are over or `out` holds `out_bytes_max`.
    pub(super) fn answer(
        &mut self,
        now: Now,
        bytes: &[u8],
        out: &mut BytesMut,
        out_bytes_max: usize,
    ) -> Answered {
        let answered = self.answer_frames(now, bytes, out, out_bytes_max);
        self.session.knock.settle(self.session.worker.core.funnel.doors());
        answered
    }

    fn answer_frames(
        &mut self,
        now: Now,
        bytes: &[u8],
        out: &mut BytesMut,
        out_bytes_max: usize,
    ) -> Answered {
        let mut consumed: usize = 0;
        let mut warm: usize = 0;
        let view = self.session.worker.core.funnel.view();
        while let Some(rest) = bytes.get(consumed..) {
            if warm == 0 {
                warm = self.session.warm(rest);
            }
            warm = warm.saturating_sub(1);
            if out.len() >= out_bytes_max || self.session.is_waiting() {
                break;
            }
            let (frame, frame_bytes) = match decode(rest, self.session.frame_bytes_max()) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    self.session.error(0, error.status(), &error.to_string(), out);
                    return Answered { consumed, flow: Flow::Close(Ending::BadFrame) };
                }
            };
            consumed = consumed.saturating_add(frame_bytes);
            let flow = self.session.on_frame(now, &view, &frame, out);
            if flow != Flow::Go {
                return Answered { consumed, flow };
            }
        }
        Answered { consumed, flow: Flow::Go }
    }

    /// Keeps what could not be handled yet.
    pub(super) fn keep(&mut self, rest: &[u8]) {
        self.unread = rest.into();
    }

    /// What was kept last time.
    pub(super) fn kept(&self) -> &[u8] {
        &self.unread
    }

    /// What was kept, no longer kept.
    pub(super) fn take_kept(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.unread)
    }

    /// Whether what was kept could be answered now: only when it had to wait, behind replies or behind an AUTH.
    pub(super) fn is_held_back(&self) -> bool {
        !self.unread.is_empty() && self.would_answer(&self.unread)
    }

    fn would_answer(&self, bytes: &[u8]) -> bool {
        !self.session.is_waiting() && !matches!(decode(bytes, self.session.frame_bytes_max()), Ok(None))
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.session.end();
    }
}
