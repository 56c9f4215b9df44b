//! How a call's reply lies in its row: a version byte, then big-endian fields. No I/O.
//!
//! Replies written by an older version stay readable; an unknown version or a torn blob is an error that names
//! what is wrong, never a guess.

use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey};
use crate::stock::calls::{Done, Gen, ItemAnswer, Mark, Reply, ShardId, SkuCounters};

const VERSION: u8 = 1;

const DONE: u8 = 1;
const STALE: u8 = 2;
const GEN: u8 = 3;
const RECOVERING: u8 = 4;

const RESERVED: u8 = 1;
const ALREADY: u8 = 2;
const EMPTY_HERE: u8 = 3;
const NOT_AGAIN: u8 = 4;
const NOT_LOADED: u8 = 5;
const TOO_OFTEN: u8 = 6;

pub(super) fn encode(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.push(VERSION);
    match reply {
        Reply::Done(done) => {
            out.push(DONE);
            encode_done(&mut out, done);
        }
        Reply::Stale => out.push(STALE),
        Reply::Gen(current) => {
            out.push(GEN);
            out.extend(current.0.to_be_bytes());
        }
        Reply::Recovering => out.push(RECOVERING),
    }
    out
}

fn encode_done(out: &mut Vec<u8>, done: &Done) {
    out.extend(done.generation.0.to_be_bytes());
    out.extend(done.seq.to_be_bytes());
    encode_len(out, done.counters.len());
    for counters in &done.counters {
        encode_sku(out, counters.sku);
        out.extend(counters.free.to_be_bytes());
        encode_peers(out, &counters.out);
        encode_peers(out, &counters.brought_in);
    }
    encode_len(out, done.answers.len());
    for answer in &done.answers {
        match answer {
            ItemAnswer::Reserved => out.push(RESERVED),
            ItemAnswer::Already(mark) => {
                out.push(ALREADY);
                encode_mark(out, mark);
            }
            ItemAnswer::EmptyHere => out.push(EMPTY_HERE),
            ItemAnswer::NotAgain => out.push(NOT_AGAIN),
            ItemAnswer::NotLoaded => out.push(NOT_LOADED),
            ItemAnswer::TooOften { retry_after_ms } => {
                out.push(TOO_OFTEN);
                out.extend(retry_after_ms.to_be_bytes());
            }
        }
    }
}

fn encode_sku(out: &mut Vec<u8>, sku: SkuKey) {
    out.extend(sku.activity.0.to_be_bytes());
    out.extend(sku.sku.0.to_be_bytes());
}

fn encode_peers(out: &mut Vec<u8>, peers: &[(ShardId, u64)]) {
    encode_len(out, peers.len());
    for (peer, units) in peers {
        out.push(peer.number());
        out.extend(units.to_be_bytes());
    }
}

fn encode_mark(out: &mut Vec<u8>, mark: &Mark) {
    out.extend(mark.order.0.to_be_bytes());
    encode_sku(out, mark.sku);
    out.extend(mark.quantity.to_be_bytes());
    out.push(mark.attempt);
    out.push(mark.state as u8);
    out.extend(mark.pay_by_ms.to_be_bytes());
}

fn encode_len(out: &mut Vec<u8>, len: usize) {
    // A list is never longer than the call that made it, and a call has far fewer than 2³² items.
    out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
}

/// What is wrong with a stored reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("a stored reply has format version {0}, this rushgate reads {VERSION}")]
    Version(u8),
    #[error("a stored reply ends too early")]
    Short,
    #[error("a stored reply has bytes left over")]
    Long,
    #[error("a stored reply holds the unknown {0} {1}")]
    Unknown(&'static str, u8),
}

pub(super) fn decode(bytes: &[u8]) -> Result<Reply, DecodeError> {
    let mut input = Input(bytes);
    let version = input.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let reply = match input.u8()? {
        DONE => Reply::Done(input.done()?),
        STALE => Reply::Stale,
        GEN => Reply::Gen(Gen(input.u64()?)),
        RECOVERING => Reply::Recovering,
        other => return Err(DecodeError::Unknown("kind of reply", other)),
    };
    if input.0.is_empty() { Ok(reply) } else { Err(DecodeError::Long) }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.bytes().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.bytes().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.bytes().map(u64::from_be_bytes)
    }

    /// A list: its length, then its elements. The length is not trusted for an allocation.
    fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let len = self.u32()?;
        (0..len).map(|_| element(self)).collect()
    }

    fn done(&mut self) -> Result<Done, DecodeError> {
        Ok(Done {
            generation: Gen(self.u64()?),
            seq: self.u64()?,
            counters: self.list(Self::counters)?,
            answers: self.list(Self::answer)?,
        })
    }

    fn counters(&mut self) -> Result<SkuCounters, DecodeError> {
        Ok(SkuCounters {
            sku: self.sku()?,
            free: self.u32()?,
            out: self.list(Self::peer)?,
            brought_in: self.list(Self::peer)?,
        })
    }

    fn answer(&mut self) -> Result<ItemAnswer, DecodeError> {
        Ok(match self.u8()? {
            RESERVED => ItemAnswer::Reserved,
            ALREADY => ItemAnswer::Already(self.mark()?),
            EMPTY_HERE => ItemAnswer::EmptyHere,
            NOT_AGAIN => ItemAnswer::NotAgain,
            NOT_LOADED => ItemAnswer::NotLoaded,
            TOO_OFTEN => ItemAnswer::TooOften { retry_after_ms: self.u32()? },
            other => return Err(DecodeError::Unknown("answer", other)),
        })
    }

    fn sku(&mut self) -> Result<SkuKey, DecodeError> {
        Ok(SkuKey { activity: ActivityId(self.u32()?), sku: SkuId(self.u16()?) })
    }

    fn peer(&mut self) -> Result<(ShardId, u64), DecodeError> {
        let number = self.u8()?;
        let peer = ShardId::new(number).ok_or(DecodeError::Unknown("shard", number))?;
        Ok((peer, self.u64()?))
    }

    fn mark(&mut self) -> Result<Mark, DecodeError> {
        let order = OrderNumber(self.u64()?);
        let sku = self.sku()?;
        let quantity = self.u16()?;
        let attempt = self.u8()?;
        let state = self.u8()?;
        let state = OrderState::from_wire(state).ok_or(DecodeError::Unknown("order state", state))?;
        Ok(Mark { order, sku, quantity, attempt, state, pay_by_ms: self.u64()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn sku() -> impl Strategy<Value = SkuKey> {
        (any::<u32>(), any::<u16>())
            .prop_map(|(activity, sku)| SkuKey { activity: ActivityId(activity), sku: SkuId(sku) })
    }

    fn peers() -> impl Strategy<Value = Vec<(ShardId, u64)>> {
        proptest::collection::vec((0..16_u8, any::<u64>()), 0..16)
            .prop_map(|list| list.into_iter().map(|(p, n)| (ShardId::new(p).unwrap(), n)).collect())
    }

    fn answer() -> impl Strategy<Value = ItemAnswer> {
        let mark = (any::<u64>(), sku(), any::<u16>(), any::<u8>(), 1..8_u8, any::<u64>()).prop_map(
            |(order, sku, quantity, attempt, state, pay_by_ms)| {
                let state = OrderState::from_wire(state).unwrap();
                ItemAnswer::Already(Mark {
                    order: OrderNumber(order),
                    sku,
                    quantity,
                    attempt,
                    state,
                    pay_by_ms,
                })
            },
        );
        prop_oneof![
            Just(ItemAnswer::Reserved),
            mark,
            Just(ItemAnswer::EmptyHere),
            Just(ItemAnswer::NotAgain),
            Just(ItemAnswer::NotLoaded),
            any::<u32>().prop_map(|retry_after_ms| ItemAnswer::TooOften { retry_after_ms }),
        ]
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let counters = (sku(), any::<u32>(), peers(), peers())
            .prop_map(|(sku, free, out, brought_in)| SkuCounters { sku, free, out, brought_in });
        let done = (
            any::<u64>(),
            any::<u64>(),
            proptest::collection::vec(counters, 0..4),
            proptest::collection::vec(answer(), 0..9),
        )
            .prop_map(|(generation, seq, counters, answers)| {
                Reply::Done(Done { generation: Gen(generation), seq, counters, answers })
            });
        prop_oneof![
            4 => done,
            1 => Just(Reply::Stale),
            1 => any::<u64>().prop_map(|generation| Reply::Gen(Gen(generation))),
            1 => Just(Reply::Recovering),
        ]
    }

    proptest! {
        #[test]
        fn every_reply_comes_back_and_no_cut_of_it_is_taken_for_one(reply in reply()) {
            let bytes = encode(&reply);
            prop_assert_eq!(decode(&bytes), Ok(reply));
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut]).is_err());
            }
            let mut longer = bytes;
            longer.push(0);
            prop_assert_eq!(decode(&longer), Err(DecodeError::Long));
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
