//! A peer: what other tasks may do with a connection, which is to leave a reply or a push for it.
//!
//! The connection's own task takes the bytes and writes them, and closes a reader too slow for them. Leaving bytes
//! never waits: replies are bounded by the BUYs that may be in flight; a push that finds too many others waiting is
//! dropped (RESULT is the truth). The lock is held for one append or one take.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::{BufMut, BytesMut};
use tokio::sync::Notify;

use crate::protocol::{Head, Opcode, Order, Reply, Status, UserId, encode, put_tlv, tlv};

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
    in_flight: AtomicU32,
    pub(super) wake: Notify,
}

impl Peer {
    pub(super) fn new(id: u64, addr: IpAddr, outbound_bytes_max: usize) -> Self {
        Self {
            id,
            addr,
            outbound_bytes_max,
            outbox: Mutex::default(),
            in_flight: AtomicU32::new(0),
            wake: Notify::new(),
        }
    }

    /// BUYs not answered yet.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// A BUY went to the stock task.
    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// A BUY that did not go to the stock task after all.
    pub(super) fn abandon(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// Leaves the reply to a BUY.
    pub(super) fn answer(&self, request_id: u32, status: Status, hint_ms: u32, reply: &Reply) {
        let head = Head::reply(Opcode::Buy, request_id, status, hint_ms);
        {
            let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
            encode(&mut outbox.bytes, head, |_| {}, |body| reply.write(body));
        }
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.wake.notify_one();
    }

    /// Leaves a `RESULT_PUSH`; `user` is named on service connections. False if it had to be dropped.
    pub(super) fn push(&self, user: Option<UserId>, order: Order) -> bool {
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
        self.wake.notify_one();
        true
    }

    /// Moves what was left to the end of `pending`.
    pub(super) fn take_outbox(&self, pending: &mut BytesMut) {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.push_bytes = 0;
        if pending.is_empty() {
            std::mem::swap(pending, &mut outbox.bytes);
        } else {
            pending.put_slice(&outbox.bytes);
            outbox.bytes.clear();
        }
    }
}
