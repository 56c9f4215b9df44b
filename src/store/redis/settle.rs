//! What writers tell Redis: loads, settlements, releases, the end of an activity. Every one may be repeated.

use std::collections::BTreeMap;

use super::answers::{guarded, malformed};
use super::codec::{self, Fields};
use super::keys::GROUP;
use super::library;
use super::shards::RedisShards;
use super::types::{ActivityPhase, Guarded, Release};
use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, UserId};
use crate::stock::calls::{Gen, Mark, ProcessNumber, ShardId};
use crate::store::StoreError;

/// Marks in one settled call.
const MARKS_MAX: usize = 1000;

impl RedisShards {
    /// Adds stock (0 makes an SKU known), or takes of what is free (below zero), once per load id; per SKU what was
    /// really added or taken, the same again when it is repeated. An archived activity gives and takes nothing.
    pub async fn load(
        &self,
        shard: ShardId,
        generation: Gen,
        load_id: &str,
        activity: ActivityId,
        changes: &[(SkuId, i64)],
    ) -> Result<Guarded<Vec<(SkuId, u32)>>, StoreError> {
        let (what, keys) = ("a load", &self.inner.keys);
        let blob: Vec<u8> = changes
            .iter()
            .flat_map(|(sku, amount)| sku.0.to_be_bytes().into_iter().chain(amount.to_be_bytes()))
            .collect();
        let touched = vec![keys.meta(shard), keys.feed(shard), keys.stock(shard, activity)];
        let answer = self.function(shard, what, library::LOAD, touched, |command| {
            command.arg(generation.0).arg(activity.0).arg(load_id).arg(blob);
        });
        guarded(what, shard, answer.await?)?.try_map(|blob| {
            let amounts = amounts(&blob).map_err(|problem| malformed(what, shard, problem))?;
            amounts
                .into_iter()
                .map(|(sku, amount)| u32::try_from(amount.unsigned_abs()).map(|amount| (sku, amount)))
                .collect::<Result<_, _>>()
                .map_err(|_| malformed(what, shard, "more units than an SKU may have"))
        })
    }

    /// Moves marks forward to what SQL says; those of another order number, or already there, stay as they are.
    pub async fn settled(
        &self,
        shard: ShardId,
        generation: Gen,
        marks: &[(UserId, Mark)],
    ) -> Result<Guarded<()>, StoreError> {
        let (what, keys) = ("a settlement", &self.inner.keys);
        let mut outcome = Guarded::Done(());
        for some in marks.chunks(MARKS_MAX) {
            let mut groups: BTreeMap<ActivityId, Vec<u8>> = BTreeMap::new();
            for (user, mark) in some {
                codec::put_long(groups.entry(mark.sku.activity).or_default(), *user, mark);
            }
            let mut touched = vec![keys.meta(shard), keys.feed(shard)];
            touched.extend(groups.keys().map(|activity| keys.buyers(shard, *activity)));
            let answer = self.function(shard, what, library::SETTLED, touched, |command| {
                command.arg(generation.0);
                for (activity, blob) in groups {
                    command.arg(activity.0).arg(blob);
                }
            });
            outcome = guarded(what, shard, answer.await?)?.try_map(|_| Ok(()))?;
            if outcome != Guarded::Done(()) {
                break;
            }
        }
        Ok(outcome)
    }

    /// Releases a live mark of this order number and gives its units back. Called only by what drives the ledger.
    pub async fn release(
        &self,
        shard: ShardId,
        generation: Gen,
        activity: ActivityId,
        user: UserId,
        order: OrderNumber,
        state: OrderState,
    ) -> Result<Guarded<Release>, StoreError> {
        let (what, keys) = ("a release", &self.inner.keys);
        if !matches!(state, OrderState::Closed | OrderState::Failed) {
            return Err(StoreError::Corrupt(format!("order {order} is to be released as {state:?}")));
        }
        let touched = vec![
            keys.meta(shard),
            keys.feed(shard),
            keys.stock(shard, activity),
            keys.buyers(shard, activity),
        ];
        let answer = self.function(shard, what, library::RELEASE, touched, |command| {
            let (user, order) = (user.0.to_be_bytes(), order.0.to_be_bytes());
            command.arg(generation.0).arg(activity.0).arg(&user).arg(&order).arg(state as u8);
        });
        guarded(what, shard, answer.await?)?.try_map(|letter| match letter.as_slice() {
            b"R" => Ok(Release::Released),
            b"W" => Ok(Release::WasReleased),
            b"N" => Ok(Release::NotHis),
            _ => Err(malformed(what, shard, "an unknown letter")),
        })
    }

    /// Ends an activity in one shard: nothing of it is reserved or moved out any more.
    pub async fn end(
        &self,
        shard: ShardId,
        generation: Gen,
        activity: ActivityId,
    ) -> Result<Guarded<ActivityPhase>, StoreError> {
        let keys = vec![self.inner.keys.meta(shard)];
        self.change_phase(shard, generation, activity, library::END, keys).await
    }

    /// Deletes an activity that has ended in one shard and leaves a tombstone; one that has not stays live. Only when
    /// everything of it is settled, released and nowhere in transit (rule 21).
    pub async fn archive(
        &self,
        shard: ShardId,
        generation: Gen,
        activity: ActivityId,
    ) -> Result<Guarded<ActivityPhase>, StoreError> {
        let keys = &self.inner.keys;
        let keys = vec![keys.meta(shard), keys.stock(shard, activity), keys.buyers(shard, activity)];
        self.change_phase(shard, generation, activity, library::ARCHIVE, keys).await
    }

    async fn change_phase(
        &self,
        shard: ShardId,
        generation: Gen,
        activity: ActivityId,
        function: &str,
        keys: Vec<String>,
    ) -> Result<Guarded<ActivityPhase>, StoreError> {
        let what = "the end of an activity";
        let answer = self.function(shard, what, function, keys, |command| {
            command.arg(generation.0).arg(activity.0);
        });
        guarded(what, shard, answer.await?)?.try_map(|letter| match letter.as_slice() {
            b"E" => Ok(ActivityPhase::Ending),
            b"A" => Ok(ActivityPhase::Archived),
            b"L" => Ok(ActivityPhase::Live),
            _ => Err(malformed(what, shard, "an unknown letter")),
        })
    }

    /// Forgets the last calls of processes that have been silent for long, and their consumers, of which every start of
    /// a writer leaves one behind; those with entries pending stay, for somebody to claim them.
    pub async fn forget_processes(&self, shard: ShardId, silent: &[ProcessNumber]) -> Result<(), StoreError> {
        for silent in silent.chunks(1000) {
            let touched = vec![self.inner.keys.calls(shard), self.inner.keys.feed(shard)];
            let answer = self.function(shard, "forgetting processes", library::FORGET, touched, |command| {
                command.arg(GROUP);
                for process in silent {
                    command.arg(process.0);
                }
            });
            answer.await?;
        }
        Ok(())
    }
}

/// Amounts per SKU, as a load's field holds them.
pub(super) fn amounts(blob: &[u8]) -> Result<Vec<(SkuId, i64)>, codec::Malformed> {
    let mut fields = Fields::of(blob);
    let mut amounts = Vec::new();
    while !fields.is_empty() {
        amounts.push((SkuId(fields.u16()?), fields.i64()?));
    }
    Ok(amounts)
}
