//! How marks, counters and events lie in Redis: fixed big-endian fields. No I/O.
//!
//! Reading never trusts a length: what is torn or unknown is an error that says where, never a guess.

use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Change, Event, Gen, Mark, ShardId, SkuCounters};

const FORMAT: u8 = 1;
const BEGUN: u8 = 0;
const MARKED: u8 = 1;
const MOVED: u8 = 2;
const LOADED: u8 = 3;

/// What is malformed, in words.
pub(super) type Malformed = String;

/// Reads fields off a blob, from its beginning.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(blob: &'a [u8]) -> Self {
        Self { rest: blob }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| format!("{} bytes where {count} are due", self.rest.len()))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| "a field of another width".to_owned())
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A mark of 14 bytes (no pay-by time yet) or 22.
    pub(super) fn mark(&mut self, activity: ActivityId, is_long: bool) -> Result<Mark, Malformed> {
        let order = OrderNumber(self.u64()?);
        let sku = SkuKey { activity, sku: SkuId(self.u16()?) };
        let (quantity, attempt, state) = (self.u16()?, self.u8()?, self.u8()?);
        let state = OrderState::from_wire(state).ok_or_else(|| format!("order state {state}"))?;
        let pay_by_ms = if is_long { self.u64()? } else { 0 };
        Ok(Mark { order, sku, quantity, attempt, state, pay_by_ms })
    }

    /// Marks of one activity until the blob ends.
    pub(super) fn marks(
        &mut self,
        activity: ActivityId,
        is_long: bool,
        into: &mut Vec<(UserId, Mark)>,
    ) -> Result<(), Malformed> {
        while !self.is_empty() {
            into.push((UserId(self.u64()?), self.mark(activity, is_long)?));
        }
        Ok(())
    }

    fn peers(&mut self) -> Result<Vec<(ShardId, u64)>, Malformed> {
        let count = usize::from(self.u8()?);
        (0..count)
            .map(|_| {
                let peer = self.u8()?;
                Ok((ShardId::new(peer).ok_or_else(|| format!("peer shard {peer}"))?, self.u64()?))
            })
            .collect()
    }

    /// Counters of several activities.
    pub(super) fn counters(&mut self) -> Result<Vec<SkuCounters>, Malformed> {
        let mut counters = Vec::new();
        for _ in 0..self.u16()? {
            let (activity, skus) = (ActivityId(self.u32()?), self.u16()?);
            for _ in 0..skus {
                let sku = SkuKey { activity, sku: SkuId(self.u16()?) };
                let (free, out, brought_in) = (self.u32()?, self.peers()?, self.peers()?);
                counters.push(SkuCounters { sku, free, out, brought_in });
            }
        }
        Ok(counters)
    }

    fn mark_groups(&mut self) -> Result<Vec<(UserId, Mark)>, Malformed> {
        let mut marks = Vec::new();
        for _ in 0..self.u16()? {
            let (activity, count, item_bytes) = (ActivityId(self.u32()?), self.u32()?, self.u8()?);
            let is_long = match item_bytes {
                22 => false,
                30 => true,
                other => return Err(format!("marks of {other} bytes")),
            };
            let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(item_bytes.into()));
            let blob = self.bytes(bytes.ok_or_else(|| format!("{count} marks"))?)?;
            Fields::of(blob).marks(activity, is_long, &mut marks)?;
        }
        Ok(marks)
    }
}

/// An entry's body: when it came, and what happened.
pub(super) fn event(generation: Gen, seq: u64, body: &[u8]) -> (u64, Result<Event, Malformed>) {
    let mut fields = Fields::of(body);
    let header = (|| Ok::<_, Malformed>((fields.u8()?, fields.u8()?, fields.u64()?)))();
    let (format, kind, at_ms) = match header {
        Ok(header) => header,
        Err(problem) => return (0, Err(problem)),
    };
    if format != FORMAT {
        return (0, Err(format!("entry format {format}, this version knows {FORMAT}")));
    }
    let mut read = || {
        let marks = fields.mark_groups()?;
        let counters = fields.counters()?;
        if !fields.is_empty() {
            return Err("bytes after its end".to_owned());
        }
        let change = match kind {
            MARKED => Change::Marked(marks),
            BEGUN | MOVED => Change::Moved,
            LOADED => Change::Loaded,
            other => return Err(format!("entry kind {other}")),
        };
        Ok(Event { generation, seq, change, counters })
    };
    (at_ms, read())
}

fn put_mark(out: &mut Vec<u8>, mark: &Mark) {
    out.extend(mark.order.0.to_be_bytes());
    out.extend(mark.sku.sku.0.to_be_bytes());
    out.extend(mark.quantity.to_be_bytes());
    out.extend([mark.attempt, mark.state as u8]);
}

/// A mark as the buyers' hash holds it.
pub(super) fn mark(mark: &Mark) -> Vec<u8> {
    let mut out = Vec::with_capacity(22);
    put_mark(&mut out, mark);
    if mark.state != OrderState::Reserved {
        out.extend(mark.pay_by_ms.to_be_bytes());
    }
    out
}

/// User and mark, 22 bytes: what reserve takes.
pub(super) fn put_short(out: &mut Vec<u8>, user: UserId, mark: &Mark) {
    out.extend(user.0.to_be_bytes());
    put_mark(out, mark);
}

/// User and mark, 30 bytes: what settled takes.
pub(super) fn put_long(out: &mut Vec<u8>, user: UserId, mark: &Mark) {
    put_short(out, user, mark);
    out.extend(mark.pay_by_ms.to_be_bytes());
}

/// Units per peer, as the stock hash holds them.
pub(super) fn peers(units: &[(ShardId, u64)]) -> Vec<u8> {
    let mut sorted = units.to_vec();
    sorted.sort_unstable();
    sorted
        .into_iter()
        .flat_map(|(peer, units)| [peer.number()].into_iter().chain(units.to_be_bytes()))
        .collect()
}

pub(super) fn peers_of(blob: &[u8]) -> Result<Vec<(ShardId, u64)>, Malformed> {
    let mut fields = Fields::of(blob);
    let mut units = Vec::new();
    while !fields.is_empty() {
        let peer = fields.u8()?;
        units.push((ShardId::new(peer).ok_or_else(|| format!("peer shard {peer}"))?, fields.u64()?));
    }
    Ok(units)
}

/// The body of an event that tells marks of one activity, without its header and the number of its groups (one).
pub(super) fn marked_body(activity: ActivityId, marks: &[(UserId, Mark)]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(activity.0.to_be_bytes());
    body.extend(u32::try_from(marks.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.push(22);
    for (user, mark) in marks {
        put_short(&mut body, *user, mark);
    }
    body.extend(0_u16.to_be_bytes());
    body
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn marks() -> Vec<(UserId, Mark)> {
        let sku = SkuKey { activity: ActivityId(9), sku: SkuId(3) };
        let mark = Mark {
            order: OrderNumber((1 << 62) + 1),
            sku,
            quantity: 2,
            attempt: 1,
            state: OrderState::Reserved,
            pay_by_ms: 0,
        };
        vec![(UserId(5), mark), (UserId(u64::MAX >> 1), Mark { quantity: 1, ..mark })]
    }

    fn body() -> Vec<u8> {
        let mut body = vec![FORMAT, MARKED];
        body.extend(77_u64.to_be_bytes());
        body.extend(1_u16.to_be_bytes());
        body.extend(marked_body(ActivityId(9), &marks()));
        body
    }

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let (at_ms, read) = event(Gen(4), 6, &body());
        let event = read.unwrap();
        assert_eq!((at_ms, event.generation, event.seq, event.counters.len()), (77, Gen(4), 6, 0));
        assert_eq!(event.change, Change::Marked(marks()));
    }

    #[test]
    fn no_torn_or_changed_body_panics_and_every_torn_one_is_told() {
        let whole = body();
        for end in 0..whole.len() {
            assert!(event(Gen(1), 1, &whole[..end]).1.is_err(), "{end}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                drop(event(Gen(1), 1, &changed));
            }
        }
    }

    #[test]
    fn peers_are_read_as_they_were_written_in_ascending_order() {
        let units = [(ShardId::ALL[9], 1 << 40), (ShardId::ALL[2], 7)];
        assert_eq!(peers_of(&peers(&units)).unwrap(), [units[1], units[0]]);
    }
}
