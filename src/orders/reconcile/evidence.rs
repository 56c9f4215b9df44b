//! Reads both sides: Redis first, what is on its way second, SQL last.
//!
//! In this order a mark without an order row, whose record was finished when the feed was read, has none: a row is
//! committed before its record is finished. And what left a shard is read after what arrived from it, so that nothing
//! can have arrived that never left.

use std::collections::{HashMap, HashSet};

use super::watch::{Stage, Watch};
use crate::protocol::{ActivityId, OrderNumber, SkuId, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};
use crate::store::StoreError;
use crate::store::redis::{RedisShards, ShardBooks};
use crate::store::sql::mysql::{MySqlInstallation, SqlBooks};

/// Everything that was read of one activity.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) activity: ActivityId,
    /// Of each shard, in order; empty where it holds nothing of the activity.
    pub(super) shards: Vec<ShardBooks>,
    /// Reservations on their way to SQL.
    pub(super) unfinished: HashMap<(UserId, OrderNumber), Mark>,
    /// Reservations that the feeds of some shards still tell.
    pub(super) recorded: Vec<(UserId, Mark)>,
    /// Cumulative units that left a shard for another, read after all of `shards`.
    pub(super) left: HashMap<(SkuId, ShardId, ShardId), u64>,
    pub(super) sql: SqlBooks,
}

/// Reads everything.
pub(super) async fn read(
    redis: &RedisShards,
    sql: &MySqlInstallation,
    activity: ActivityId,
    watch: &dyn Watch,
) -> Result<Evidence, StoreError> {
    let mut shards = Vec::new();
    for (done, shard) in (0..).zip(ShardId::ALL) {
        watch.at(Stage::Shards, done, 16);
        let books = redis.books(shard, activity).await?;
        shards.push(books.unwrap_or_else(|| empty(shard)));
    }
    let mut left = HashMap::new();
    let mut unfinished = HashMap::new();
    for (done, shard) in (0..).zip(ShardId::ALL) {
        watch.at(Stage::Feeds, done, 16);
        for (sku, books) in redis.stock_of(shard, activity).await? {
            left.extend(books.out.into_iter().map(|(target, units)| ((sku, shard, target), units)));
        }
        let ours = redis.unfinished(shard).await?.into_iter();
        let ours = ours.filter(|(_, mark)| mark.sku.activity == activity);
        unfinished.extend(ours.map(|(user, mark)| ((user, mark.order), mark)));
    }
    // As many orders as marks, or nearly.
    let marks = shards.iter().fold(0_usize, |sum, books: &ShardBooks| sum.saturating_add(books.marks.len()));
    let read = |orders: usize| {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        watch.at(Stage::Database, count(orders), count(marks.max(orders)));
    };
    read(0);
    let sql = sql.books_watched(activity, &read).await?;
    let generations: HashSet<Gen> = shards
        .iter()
        .map(|books| books.generation)
        .filter(|generation| *generation > Gen(0))
        .chain([sql.generation])
        .collect();
    if generations.len() > 1 {
        return Err(StoreError::Unavailable("a recovery has begun meanwhile".to_owned()));
    }
    Ok(Evidence { activity, shards, unfinished, recorded: Vec::new(), left, sql })
}

impl Evidence {
    /// Reads what the feeds of these shards still tell, finished or not: where units are missing, a mark may be.
    pub(super) async fn read_records(
        &mut self,
        redis: &RedisShards,
        shards: &[ShardId],
    ) -> Result<(), StoreError> {
        let activity = self.activity;
        for shard in shards {
            let recorded = redis.recorded(*shard).await?.into_iter();
            self.recorded.extend(recorded.filter(|(_, mark)| mark.sku.activity == activity));
        }
        Ok(())
    }
}

fn empty(shard: ShardId) -> ShardBooks {
    ShardBooks {
        shard,
        generation: Gen(0),
        mended: 0,
        skus: std::collections::BTreeMap::new(),
        loads: Vec::new(),
        marks: HashMap::new(),
    }
}
