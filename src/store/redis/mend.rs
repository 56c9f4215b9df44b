//! What a reconciliation corrects in a shard, each by a difference and under the generation and the count of corrections
//! that were read with the books: a second copy of a correction, or one of another reconciliation, does nothing.
//!
//! Called by `rushgate reconcile --fix` alone. None of these gives units of an order back: that is the ledger's. When a
//! reply is lost the outcome is unknown: read the books again, what was corrected is not wrong any more.

use redis::{Cmd, Value};

use super::answers::{bytes, malformed};
use super::codec::{self, Fields};
use super::library;
use super::shards::RedisShards;
use super::types::AppliedLoad;
use crate::protocol::{ActivityId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};
use crate::store::StoreError;

/// Marks in one call.
const MARKS_MAX: usize = 256;

/// What came of a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mended {
    /// Done: by how many units, or how many of what was given.
    By(i64),
    /// Nothing done: the shard is of another generation, waits for its recovery, has been corrected since it was read, or
    /// the activity has ended there. Read the books again.
    ReadAgain,
}

/// Where a correction goes: a shard as its books were read.
#[derive(Clone, Copy, Debug)]
pub struct MendAt {
    /// The shard.
    pub shard: ShardId,
    /// Its generation.
    pub generation: Gen,
    /// The corrections that were made in it before.
    pub mended: u64,
    /// The activity.
    pub activity: ActivityId,
}

impl RedisShards {
    /// Raises an SKU's free units by a difference, or lowers them by as many of it as are free.
    pub async fn mend_units(&self, at: &mut MendAt, sku: SkuKey, by: i64) -> Result<Mended, StoreError> {
        self.mend(at, library::MEND_UNITS, Part::FeedAndStock, |command| {
            command.arg(sku.sku.0).arg(by);
        })
        .await
    }

    /// Raises what left this shard for another to what arrived there. Moves no units.
    pub async fn mend_out(
        &self,
        at: &mut MendAt,
        sku: SkuKey,
        target: ShardId,
        units: u64,
    ) -> Result<Mended, StoreError> {
        self.mend(at, library::MEND_MOVED, Part::FeedAndStock, |command| {
            command.arg(sku.sku.0).arg("out").arg(target.number()).arg(units);
        })
        .await
    }

    /// Brings in what left another shard for this one, up to a cumulative number read under this generation.
    pub async fn mend_in(
        &self,
        at: &mut MendAt,
        sku: SkuKey,
        source: ShardId,
        units: u64,
    ) -> Result<Mended, StoreError> {
        self.mend(at, library::MEND_MOVED, Part::FeedAndStock, |command| {
            command.arg(sku.sku.0).arg("in").arg(source.number()).arg(units);
        })
        .await
    }

    /// Remembers a load that SQL knows to be applied. Moves no units.
    pub async fn mend_load(&self, at: &mut MendAt, load: &AppliedLoad) -> Result<Mended, StoreError> {
        let amounts = load.amounts.iter();
        let blob: Vec<u8> = amounts
            .flat_map(|(sku, amount)| sku.0.to_be_bytes().into_iter().chain(amount.to_be_bytes()))
            .collect();
        self.mend(at, library::MEND_LOAD, Part::Stock, |command| {
            command.arg(&load.id).arg(blob);
        })
        .await
    }

    /// Writes marks of orders for users who have none that is live. Takes no units.
    pub async fn mend_marks(&self, at: &mut MendAt, marks: &[(UserId, Mark)]) -> Result<Mended, StoreError> {
        let marks = marks.chunks(MARKS_MAX).map(|some| {
            let mut blob = Vec::new();
            for (user, mark) in some {
                codec::put_long(&mut blob, *user, mark);
            }
            blob
        });
        self.mend_all(at, library::MEND_MARKS, marks).await
    }

    /// Appends the records of reservations once more, of those that still stand so.
    pub async fn mend_records(
        &self,
        at: &mut MendAt,
        marks: &[(UserId, Mark)],
    ) -> Result<Mended, StoreError> {
        let marks = marks.chunks(MARKS_MAX).map(|some| {
            let mut blob = Vec::new();
            for (user, mark) in some {
                codec::put_short(&mut blob, *user, mark);
            }
            blob
        });
        self.mend_all(at, library::MEND_RECORDS, marks).await
    }

    async fn mend_all(
        &self,
        at: &mut MendAt,
        function: &str,
        blobs: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Mended, StoreError> {
        let mut all = 0_i64;
        for blob in blobs {
            match self
                .mend(at, function, Part::FeedAndBuyers, |command| {
                    command.arg(blob);
                })
                .await?
            {
                Mended::By(some) => all = all.saturating_add(some),
                Mended::ReadAgain => return Ok(Mended::ReadAgain),
            }
        }
        Ok(Mended::By(all))
    }

    async fn mend(
        &self,
        at: &mut MendAt,
        function: &str,
        part: Part,
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<Mended, StoreError> {
        let (what, keys, shard) = ("a correction", &self.inner.keys, at.shard);
        let mut touched = vec![keys.meta(shard)];
        touched.extend(match part {
            Part::Stock => vec![keys.stock(shard, at.activity)],
            Part::FeedAndStock => vec![keys.feed(shard), keys.stock(shard, at.activity)],
            Part::FeedAndBuyers => vec![keys.feed(shard), keys.buyers(shard, at.activity)],
        });
        let answer = self.function(shard, what, function, touched, |command| {
            command.arg(at.generation.0).arg(at.activity.0).arg(at.mended);
            arguments(command);
        });
        let mended = mended(shard, answer.await?)?;
        if mended != Mended::ReadAgain {
            at.mended = at.mended.saturating_add(1);
        }
        Ok(mended)
    }
}

/// What a function touches beside the shard's head.
#[derive(Clone, Copy)]
enum Part {
    Stock,
    FeedAndStock,
    FeedAndBuyers,
}

fn mended(shard: ShardId, answer: Value) -> Result<Mended, StoreError> {
    let torn = || malformed("a correction", shard, "an unknown letter");
    let answer = bytes(answer).ok_or_else(torn)?;
    match answer.split_first() {
        Some((b'D', rest)) => Fields::of(rest).i64().map(Mended::By).map_err(|_| torn()),
        Some((b'R' | b'G' | b'S', _)) => Ok(Mended::ReadAgain),
        _ => Err(torn()),
    }
}
