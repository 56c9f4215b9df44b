//! Following the 16 feeds: blocking reads on connections of their own.
//!
//! Without a cluster one `XREAD` blocks on all 16. `cluster_feeds` has the reads of a cluster.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline};
use tokio::time::Instant;

use super::answers::text;
use super::codec;
use super::feed_reader::State;
use super::keys::Keys;
use super::link::Link;
use super::shards::RedisShards;
use super::streams::{BLOCK_MAX, RawEntry, blocking, put_block, streams, until};
use super::trouble;
use super::types::EntryId;
use crate::stock::calls::{Gen, ShardId};
use crate::store::{FEED_PAGE_EVENTS, FeedPositions, FeedRead, StoreError};

/// Entries of one shard in one read.
const ENTRIES_MAX: usize = FEED_PAGE_EVENTS;

impl RedisShards {
    /// Events after `after`, for all shards; waits up to `wait` when there are none. Shards not named had no more
    /// when the call began. An entry that cannot be read is logged and told as a gap: a snapshot leads past it. An error
    /// when no shard can be read; while others can, one that cannot is told as unread.
    pub async fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        let mut state = self.inner.feeds.state.lock().await;
        if self.inner.options.cluster {
            return self.read_cluster(&mut state, after, wait).await;
        }
        self.read_single(&mut state, after, Instant::now().checked_add(wait)).await
    }

    async fn read_single(
        &self,
        state: &mut State,
        after: &FeedPositions,
        deadline: Option<Instant>,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        let (options, keys) = (&self.inner.options, &self.inner.keys);
        let link = state.single.get_or_insert_with(|| Arc::new(Link::new(self.inner.nodes.first(), options)));
        let link = Arc::clone(link);
        if std::mem::replace(&mut state.is_blocked, true) {
            link.reset();
        }
        let positions: Vec<_> = ShardId::all().zip(after.iter().copied()).collect();
        loop {
            let block = until(deadline).min(BLOCK_MAX);
            let command = read(keys, &positions, Some(block));
            let answer = blocking(&link, command, block, options.call_timeout)
                .await
                .map_err(|error| trouble::told(&error, "a feed", &link.node));
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => return Err(self.wrong_feed(&link, error).await),
            };
            let streams =
                streams(answer).map_err(|problem| StoreError::Corrupt(format!("a feed: {problem}")))?;
            let mut news = Vec::new();
            for (key, entries) in streams {
                let Some((shard, position)) =
                    positions.iter().find(|(shard, _)| keys.feed(*shard).as_bytes() == key.as_slice())
                else {
                    continue;
                };
                news.extend(self.interpret(*shard, *position, entries.into_iter()));
            }
            if !news.is_empty() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                state.is_blocked = false;
                return Ok(news);
            }
        }
    }

    /// Names the feed that is of another type, if one is.
    async fn wrong_feed(&self, link: &Link, error: StoreError) -> StoreError {
        if !matches!(error, StoreError::Corrupt(_)) {
            return error;
        }
        let mut types = Pipeline::new();
        let feeds: Vec<_> = ShardId::all().map(|shard| self.inner.keys.feed(shard)).collect();
        for feed in &feeds {
            types.cmd("TYPE").arg(feed);
        }
        let answers = link.send(&types, self.inner.options.call_timeout).await.unwrap_or_default();
        let wrong = feeds.iter().zip(answers).find_map(|(feed, answer)| {
            text(answer).filter(|found| found != "stream" && found != "none").map(|found| (feed, found))
        });
        match wrong {
            Some((feed, found)) => StoreError::Corrupt(format!(
                "a feed: the key {feed} at {} is a {found}, which rushgate did not make",
                link.node
            )),
            None => error,
        }
    }

    /// What entries after a position mean to its reader; `None` for none.
    pub(super) fn interpret(
        &self,
        shard: ShardId,
        (generation, seq): (Gen, u64),
        entries: impl Iterator<Item = RawEntry>,
    ) -> Option<(ShardId, FeedRead)> {
        let (mut events, mut due, mut is_gap) = (Vec::new(), seq.wrapping_add(1), false);
        for (id, body) in entries {
            if id != (EntryId { generation, seq: due }) {
                is_gap = true;
                break;
            }
            match codec::event(id.generation, id.seq, &body).1 {
                Ok(event) => events.push(event),
                Err(problem) => {
                    tracing::error!(
                        key = self.inner.keys.feed(shard), entry = %id, problem,
                        "a feed entry cannot be read; a snapshot leads past it"
                    );
                    is_gap = true;
                    break;
                }
            }
            due = due.wrapping_add(1);
        }
        match (events.is_empty(), is_gap) {
            // Also where events come before it: told alone they would pass for all there is.
            (_, true) => Some((shard, FeedRead::Gap)),
            (false, false) => Some((shard, FeedRead::Events(events))),
            (true, false) => None,
        }
    }
}

pub(super) fn read(keys: &Keys, positions: &[(ShardId, (Gen, u64))], block: Option<Duration>) -> Cmd {
    let mut command = redis::cmd("XREAD");
    command.arg("COUNT").arg(ENTRIES_MAX);
    put_block(&mut command, block);
    command.arg("STREAMS");
    for (shard, _) in positions {
        command.arg(keys.feed(*shard));
    }
    for (_, (generation, seq)) in positions {
        command.arg(EntryId { generation: *generation, seq: *seq }.to_string());
    }
    command
}
