//! What a session's handles and its connection task share: bytes to write, requests in flight, the connection's fate.
//!
//! One short mutex, never held across an await. Handles append frames and wake the task; the task swaps the whole
//! buffer out, so that requests queued close together leave in one write.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

use super::slots::{Open, Slots};
use super::{ClientError, EndReason, OnBehalf, Pending, ServerClock, Settings};
use crate::protocol::{Head, Opcode, Request, encode, put_tlv, tlv};

/// What a fatal ERROR said before the connection closed.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) hint_ms: u32,
    pub(super) message: String,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) out: BytesMut,
    pub(super) slots: Slots,
    /// When a deadline may have passed next.
    pub(super) sweep_at: Option<Instant>,
    /// Set by the gateway's GOAWAY: not before this instant again.
    pub(super) reconnect_at: Option<Instant>,
    pub(super) closing: bool,
    pub(super) ended: Option<EndReason>,
    pub(super) told: Option<Told>,
    pub(super) clock: ServerClock,
    pub(super) keepalive: Option<Duration>,
    /// Pushes nobody was quick enough to take.
    pub(super) pushes_dropped: u64,
}

#[derive(Debug)]
pub(super) struct Shared {
    inner: Mutex<Inner>,
    /// Wakes the connection task.
    pub(super) wake: Notify,
    /// BUYs that may still be sent; starts at 0, AUTH's reply opens it.
    pub(super) permits: Semaphore,
    pub(super) settings: Settings,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        Self { inner: Mutex::default(), wake: Notify::new(), permits: Semaphore::new(0), settings }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves the state as it was between two statements, all of which are harmless alone.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request and tells who waits for it.
    pub(super) fn queue(
        &self,
        request: &Request<'_>,
        on_behalf: Option<&OnBehalf<'_>>,
        timeout: Duration,
    ) -> Result<Pending, ClientError> {
        let (waiter, receiver) = oneshot::channel();
        let sent_at = Instant::now();
        let deadline = sent_at.checked_add(timeout).unwrap_or(sent_at);
        let open =
            Open { opcode: request.opcode(), sent_at, deadline, waiter: Some(waiter), is_heartbeat: false };
        let is_first = {
            let mut inner = self.lock();
            inner.check_open()?;
            let is_first = inner.out.is_empty();
            inner.push(open, request, on_behalf, self.settings.buy_patience_ms)?;
            is_first
        };
        if is_first {
            self.wake.notify_one();
        }
        Ok(Pending::new(receiver))
    }

    /// The connection is over: everything outstanding learns that its outcome is unknown.
    pub(super) fn end(&self, reason: EndReason) {
        let (waiters, reason) = {
            let mut inner = self.lock();
            let reason = inner.told.as_ref().map_or(reason, |told| EndReason::Told(told.status));
            inner.ended.get_or_insert(reason);
            inner.out = BytesMut::new();
            (inner.slots.drain().collect::<Vec<_>>(), reason)
        };
        self.permits.close();
        for waiter in waiters {
            // A waiter that is gone asked and left; there is nobody to tell.
            drop(waiter.send(Err(ClientError::Lost(reason))));
        }
    }
}

impl Inner {
    /// Whether new requests may be queued.
    pub(super) fn check_open(&self) -> Result<(), ClientError> {
        if let Some(reason) = self.ended {
            return Err(ClientError::Closed(reason));
        }
        if let Some(at) = self.reconnect_at {
            let left = at.saturating_duration_since(Instant::now()).as_millis();
            return Err(ClientError::GoingAway {
                reconnect_after_ms: u32::try_from(left).unwrap_or(u32::MAX),
            });
        }
        if self.closing { Err(ClientError::Closed(EndReason::ClosedHere)) } else { Ok(()) }
    }

    /// Appends a request under a fresh id.
    pub(super) fn push(
        &mut self,
        open: Open,
        request: &Request<'_>,
        on_behalf: Option<&OnBehalf<'_>>,
        buy_patience_ms: u32,
    ) -> Result<(), ClientError> {
        let deadline = open.deadline;
        let request_id =
            self.slots.insert(open).map_err(|_| ClientError::InFlightFull { in_flight: Slots::CAPACITY })?;
        self.sweep_at = Some(self.sweep_at.map_or(deadline, |at| at.min(deadline)));
        let mut head = Head::request(request.opcode(), request_id);
        if request.opcode() == Opcode::Buy {
            head.hint_ms = buy_patience_ms;
        }
        encode(&mut self.out, head, |ext| put_on_behalf(ext, on_behalf), |body| request.write(body));
        Ok(())
    }

    /// Appends this side's last frame.
    pub(super) fn push_goaway(&mut self) {
        encode(&mut self.out, Head::request(Opcode::Goaway, 0), |_| {}, |body| Request::Goaway.write(body));
    }
}

fn put_on_behalf(ext: &mut BytesMut, on_behalf: Option<&OnBehalf<'_>>) {
    let Some(on_behalf) = on_behalf else { return };
    ext.reserve(64);
    put_tlv(ext, tlv::USER, &on_behalf.user.0.to_be_bytes());
    match on_behalf.client_addr {
        Some(std::net::IpAddr::V4(addr)) => put_tlv(ext, tlv::CLIENT_ADDR, &addr.octets()),
        Some(std::net::IpAddr::V6(addr)) => put_tlv(ext, tlv::CLIENT_ADDR, &addr.octets()),
        None => {}
    }
    if let Some(device) = on_behalf.device {
        put_tlv(ext, tlv::DEVICE, device.as_bytes());
    }
    if let Some(claims) = on_behalf.claims {
        put_tlv(ext, tlv::CLAIMS, claims.as_bytes());
    }
}
