//! Requests that wait for their replies, found by request id without hashing.

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Answer, ClientError};
use crate::protocol::Opcode;

/// Whom a reply is handed to.
pub(super) type Waiter = oneshot::Sender<Result<Answer, ClientError>>;

/// One request in flight.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) opcode: Opcode,
    pub(super) sent_at: Instant,
    pub(super) deadline: Instant,
    /// `None`: a heartbeat of the connection's own, or a request whose deadline passed. Its slot stays taken until the
    /// reply comes, for the gateway still counts it.
    pub(super) waiter: Option<Waiter>,
    /// A heartbeat: without a reply in time the connection is dead.
    pub(super) is_heartbeat: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    open: Option<Open>,
}

/// A slab: the low 16 bits of a request id are the slot + 1, the upper 16 the slot's generation, so that a reply
/// that comes twice, or to a slot used anew, finds nothing.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

/// What [`Slots::expire`] found.
#[derive(Debug, Default)]
pub(super) struct Expired {
    pub(super) waiters: Vec<Waiter>,
    pub(super) heartbeat_missed: bool,
    /// The earliest deadline still ahead.
    pub(super) next: Option<Instant>,
}

impl Slots {
    /// The greatest number of requests in flight that ids can name.
    pub(super) const CAPACITY: usize = 65_535;

    /// Takes a slot; `Err` gives the request back when all are taken.
    pub(super) fn insert(&mut self, open: Open) -> Result<u32, Open> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() >= Self::CAPACITY => return Err(open),
            None => {
                let Ok(index) = u16::try_from(self.slots.len()) else { return Err(open) };
                self.slots.push(Slot::default());
                index
            }
        };
        let Some(slot) = self.slots.get_mut(usize::from(index)) else { return Err(open) };
        slot.open = Some(open);
        Ok((u32::from(slot.generation) << 16) | u32::from(index).saturating_add(1))
    }

    /// Frees the slot of a reply's request id; `None` when nothing waits under it.
    pub(super) fn take(&mut self, request_id: u32) -> Option<Open> {
        let index = u16::try_from(request_id & 0xFFFF).ok()?.checked_sub(1)?;
        let slot = self.slots.get_mut(usize::from(index))?;
        if u32::from(slot.generation) != request_id >> 16 {
            return None;
        }
        let open = slot.open.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(open)
    }

    /// Takes the waiters whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) -> Expired {
        let mut expired = Expired::default();
        for open in self.slots.iter_mut().filter_map(|slot| slot.open.as_mut()) {
            if open.waiter.is_none() && !open.is_heartbeat {
                continue;
            }
            if open.deadline > now {
                expired.next = Some(expired.next.map_or(open.deadline, |next| next.min(open.deadline)));
                continue;
            }
            expired.heartbeat_missed |= open.is_heartbeat;
            expired.waiters.extend(open.waiter.take());
        }
        expired
    }

    /// Every waiter, when the connection is over.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiter> {
        self.free.clear();
        std::mem::take(&mut self.slots).into_iter().filter_map(|slot| slot.open?.waiter)
    }

    /// Whether somebody still waits for a reply.
    pub(super) fn has_waiters(&self) -> bool {
        self.slots.iter().any(|slot| slot.open.as_ref().is_some_and(|open| open.waiter.is_some()))
    }

    /// Requests the gateway has not answered.
    pub(super) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]
    use super::*;
    use std::time::Duration;

    fn open(deadline: Instant) -> (Open, oneshot::Receiver<Result<Answer, ClientError>>) {
        let (waiter, receiver) = oneshot::channel();
        let sent_at = Instant::now();
        let open = Open { opcode: Opcode::Buy, sent_at, deadline, waiter: Some(waiter), is_heartbeat: false };
        (open, receiver)
    }

    #[test]
    fn ids_are_never_zero_and_a_second_reply_finds_nothing() {
        let mut slots = Slots::default();
        let now = Instant::now();
        let mut receivers = Vec::new();
        for _ in 0..Slots::CAPACITY {
            let (open, receiver) = open(now);
            assert_ne!(slots.insert(open).unwrap() & 0xFFFF, 0);
            receivers.push(receiver);
        }
        assert!(slots.insert(open(now).0).is_err());
        assert!(slots.take(9).is_some());
        assert!(slots.take(9).is_none());
        let again = slots.insert(open(now).0).unwrap();
        assert_eq!((again & 0xFFFF, again >> 16), (9, 1));
        assert!(slots.take(9).is_none(), "the old id does not reach the slot's new request");
        assert!(slots.take(again).is_some());
        assert!(slots.take(0).is_none());
        assert_eq!(slots.len(), Slots::CAPACITY - 1);
    }

    #[test]
    fn a_passed_deadline_frees_the_waiter_but_not_the_slot() {
        let mut slots = Slots::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let id = slots.insert(open(now).0).unwrap();
        slots.insert(open(later).0).unwrap();
        let expired = slots.expire(now);
        assert_eq!((expired.waiters.len(), expired.next, slots.len()), (1, Some(later), 2));
        assert_eq!(slots.expire(now).waiters.len(), 0);
        assert!(slots.take(id).unwrap().waiter.is_none());
        assert!(slots.has_waiters());
        assert_eq!(slots.drain().count(), 1);
    }
}
