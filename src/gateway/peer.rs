//! A peer: what other tasks may do with a connection, which is to leave a reply or a push for it, or to wake it.
//!
//! The connection's own task takes the bytes and writes them, and closes a reader too slow for them. Leaving bytes
//! never waits: replies are bounded by the BUYs that may be in flight; a push that finds too many others waiting is
//! dropped (RESULT is the truth). The lock is held for one append or one take.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use atomic_waker::AtomicWaker;
use bytes::{BufMut, BytesMut};

use super::post::{Post, Round};
use crate::protocol::{Head, Opcode, Order, Reply, Status, UserId, encode, put_tlv, tlv};

/// A BUY's reply with its ORDER body, and the push of the order behind it.
const ANSWER_BYTES: usize = 128;
/// Answers for which room is made at once.
const ANSWERS_EXPECTED_MAX: usize = 32;

#[derive(Debug, Default)]
struct Outbox {
    bytes: BytesMut,
    /// Those of them that are pushes.
    push_bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Peer {
    /// For support; named in HELLO's reply.
    pub(super) id: u64,
    /// Where it comes from.
    pub(super) addr: IpAddr,
    outbound_bytes_max: usize,
    outbox: Mutex<Outbox>,
    /// Something is in the outbox: the connection looks here at every wake, and takes the lock only then.
    has_mail: AtomicBool,
    /// The roster rang: something may be overdue.
    is_due: AtomicBool,
    in_flight: AtomicU32,
    waker: AtomicWaker,
    post: Arc<Post>,
}

impl Peer {
    pub(super) fn new(id: u64, addr: IpAddr, outbound_bytes_max: usize, post: Arc<Post>) -> Self {
        Self {
            id,
            addr,
            outbound_bytes_max,
            outbox: Mutex::default(),
            has_mail: AtomicBool::new(false),
            is_due: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            waker: AtomicWaker::new(),
            post,
        }
    }

    /// Whom to wake when something is left here; to be said before looking for it.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Wakes the connection to look for what is overdue; best on its own thread.
    pub(super) fn ring(&self) {
        self.is_due.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the roster rang since the last call.
    pub(super) fn take_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire) && self.is_due.swap(false, Ordering::AcqRel)
    }

    /// BUYs not answered yet, and RESULTs that are being looked up.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// A request went to another task, which will answer it.
    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// A request that did not go there after all.
    pub(super) fn abandon(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// Leaves the reply to a request that was begun.
    pub(super) fn answer(
        &self,
        opcode: Opcode,
        request_id: u32,
        status: Status,
        hint_ms: u32,
        reply: &Reply,
        round: &mut Round,
    ) {
        let head = Head::reply(opcode, request_id, status, hint_ms);
        {
            let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
            if outbox.bytes.is_empty() {
                outbox.bytes.reserve(self.answers_bytes_expected());
            }
            encode(&mut outbox.bytes, head, |_| {}, |body| reply.write(body));
        }
        // Announced before it is counted as answered: a connection that ends when nothing is in flight looks for mail
        // after that. And woken after it: one that took the mail in between waits for the count.
        let is_first = !self.has_mail.swap(true, Ordering::AcqRel);
        let was_last = self.in_flight.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_first || was_last {
            self.call(round);
        }
    }

    /// A guess at what comes into an empty outbox before it is taken: outcomes come in batches.
    fn answers_bytes_expected(&self) -> usize {
        let in_flight = usize::try_from(self.in_flight()).unwrap_or(usize::MAX);
        in_flight.min(ANSWERS_EXPECTED_MAX).saturating_mul(ANSWER_BYTES)
    }

    /// Leaves a `RESULT_PUSH`; `user` is named on service connections. False if it had to be dropped.
    pub(super) fn push(&self, user: Option<UserId>, order: Order, round: &mut Round) -> bool {
        let head = Head::reply(Opcode::ResultPush, 0, Status::Ok, 0);
        let ext = |out: &mut BytesMut| {
            if let Some(user) = user {
                put_tlv(out, tlv::USER, &user.0.to_be_bytes());
            }
        };
        {
            let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
            if outbox.push_bytes >= self.outbound_bytes_max {
                return false;
            }
            let before = outbox.bytes.len();
            encode(&mut outbox.bytes, head, ext, |body| Reply::Order(order).write(body));
            let added = outbox.bytes.len().saturating_sub(before);
            outbox.push_bytes = outbox.push_bytes.saturating_add(added);
        }
        // Woken once for all that is left before it looks.
        if !self.has_mail.swap(true, Ordering::AcqRel) {
            self.call(round);
        }
        true
    }

    /// Wakes the connection for what was left for it elsewhere.
    pub(super) fn wake(&self, round: &mut Round) {
        self.call(round);
    }

    /// Has the connection woken by its worker. Without a waker it is called already and has not come yet, or nobody
    /// waits here.
    fn call(&self, round: &mut Round) {
        if let Some(waker) = self.waker.take() {
            self.post.put(waker, round);
        }
    }

    /// Whether something was left that was not taken yet.
    pub(super) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Moves what was left to the end of `out`.
    pub(super) fn take_mail(&self, out: &mut BytesMut) {
        // Cleared before the lock is taken: what is left after that wakes anew.
        if !self.has_mail() || !self.has_mail.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.push_bytes = 0;
        out.put_slice(&outbox.bytes);
        // An idle connection holds no buffer.
        outbox.bytes = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    #[test]
    fn whoever_sees_that_nothing_is_in_flight_finds_the_answer() {
        let peer = Arc::new(Peer::new(1, IpAddr::V4(Ipv4Addr::LOCALHOST), 1024, Arc::default()));
        let answering = Arc::clone(&peer);
        let (ask, asked) = std::sync::mpsc::sync_channel(0);
        let stock_task = thread::spawn(move || {
            while let Ok(request_id) = asked.recv() {
                answering.answer(
                    Opcode::Buy,
                    request_id,
                    Status::SoldOut,
                    0,
                    &Reply::Empty,
                    &mut Round::default(),
                );
            }
        });
        for request_id in 1..=20_000 {
            peer.begin();
            assert!(ask.send(request_id).is_ok());
            while peer.in_flight() > 0 {
                std::hint::spin_loop();
            }
            let mut mail = BytesMut::new();
            peer.take_mail(&mut mail);
            assert_eq!(mail.len(), 24, "the answer to {request_id} is lost");
        }
        drop(ask);
        assert!(stock_task.join().is_ok());
    }
}
