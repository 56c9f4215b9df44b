//! Reading the 16 feeds: one look at the shards' positions, then the events of those that are ahead.
//!
//! Polls while there is nothing new, because other processes append too; a commit of this process ends the pause at
//! once. A reader whose next event was dropped, or whose generation is another, is told to take a snapshot.

use std::time::Duration;

use sqlx::MySqlPool;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::super::MySqlInstallation;
use super::super::failure::{self, Failure, retried};
use super::event_codec;
use crate::stock::calls::{Gen, ShardId};
use crate::store::{FeedPositions, FeedRead, StoreError};

/// Between two looks: 20 a second of each gateway, whatever the others sell. What this process commits wakes it at once; what
/// others do may be known a little later, since the transaction of a call decides, and the view may be 200 ms old at least
/// (`stock.view_lag_max`).
const POLL: Duration = Duration::from_millis(50);
/// Events of one shard in one read.
const EVENTS_MAX: u32 = 512;

pub(super) async fn read(
    installation: &MySqlInstallation,
    mut published: watch::Receiver<u64>,
    after: &FeedPositions,
    wait: Duration,
) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
    let deadline = Instant::now().checked_add(wait);
    loop {
        published.mark_unchanged();
        let news = retried!(installation.options.call_timeout; news(&installation.pool, after))?;
        let now = Instant::now();
        if !news.is_empty() || deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(news);
        }
        let pause_ends = now.checked_add(POLL).unwrap_or(now);
        let pause_ends = deadline.map_or(pause_ends, |deadline| deadline.min(pause_ends));
        // Either way it is time to look again.
        let _ = timeout_at(pause_ends, published.changed()).await;
    }
}

async fn news(pool: &MySqlPool, after: &FeedPositions) -> Result<Vec<(ShardId, FeedRead)>, Failure> {
    let heads: Vec<(u64, u8, u64, u64)> = sqlx::query_as(
        "SELECT i.gen, s.shard, s.gen, s.seq FROM installation i CROSS JOIN sql_shards s ORDER BY s.shard",
    )
    .fetch_all(pool)
    .await?;
    let mut news = Vec::new();
    for (current, shard, of, seq) in heads {
        let shard = failure::shard_id(shard)?;
        let Some((generation, applied)) = after.get(shard.index()) else { continue };
        if *generation != Gen(current) {
            news.push((shard, FeedRead::Gap));
        } else if of == current && seq > *applied {
            news.push((shard, events(pool, shard, *generation, *applied).await?));
        }
    }
    Ok(news)
}

async fn events(
    pool: &MySqlPool,
    shard: ShardId,
    generation: Gen,
    applied: u64,
) -> Result<FeedRead, Failure> {
    let rows: Vec<(u64, Vec<u8>)> = sqlx::query_as(
        "SELECT seq, body FROM sql_feed WHERE shard = ? AND gen = ? AND seq > ? ORDER BY seq LIMIT ?",
    )
    .bind(shard.number())
    .bind(generation.0)
    .bind(applied)
    .bind(EVENTS_MAX)
    .fetch_all(pool)
    .await?;
    let mut events = Vec::with_capacity(rows.len());
    let mut expected = applied;
    for (seq, body) in rows {
        expected = expected.saturating_add(1);
        if seq != expected {
            return Ok(FeedRead::Gap);
        }
        events.push(event_codec::decode(&body)?);
    }
    // The head was ahead, so something has to be there: it was dropped.
    Ok(if events.is_empty() { FeedRead::Gap } else { FeedRead::Events(events) })
}
