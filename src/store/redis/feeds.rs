//! Following the 16 feeds: blocking reads on connections of their own.
//!
//! Without a cluster one `XREAD` blocks on all 16. In a cluster each shard has its own read, run by a task each that
//! outlives the call that began it: the first one with news ends the wait, the others go on and answer a later call.
//! Before it waits, a call asks every shard once, so that those it does not name were current when it began.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::answers::{malformed, text};
use super::codec;
use super::feed_reader::State;
use super::keys::Keys;
use super::link::Link;
use super::shards::RedisShards;
use super::streams::{BLOCK_MAX, RawEntry, blocking, put_block, streams, until};
use super::trouble::{self};
use super::types::EntryId;
use crate::stock::calls::{Gen, ShardId};
use crate::store::{FEED_PAGE_EVENTS, FeedPositions, FeedRead, StoreError};

/// Entries of one shard in one read.
const ENTRIES_MAX: usize = FEED_PAGE_EVENTS;

impl RedisShards {
    /// Events after `after`, for all shards; waits up to `wait` when there are none. Shards not named had no more
    /// when the call began. An entry that cannot be read is logged and told as a gap: a snapshot leads past it.
    pub async fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        let deadline = Instant::now().checked_add(wait);
        let mut state = self.inner.feeds.state.lock().await;
        if !self.inner.options.cluster {
            return self.read_single(&mut state, after, deadline).await;
        }
        let news = self.read_each(after).await?;
        if !news.is_empty() || wait.is_zero() {
            return Ok(news);
        }
        self.read_cluster(&mut state, after, deadline).await
    }

    /// Asks every shard once, all at the same time.
    async fn read_each(&self, after: &FeedPositions) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        let mut reads = JoinSet::new();
        for (shard, position) in ShardId::all().zip(after.iter().copied()) {
            let this = self.clone();
            reads.spawn(async move {
                let keys = &this.inner.keys;
                let command = read(keys, &[(shard, position)], None);
                let work = this.work(shard, "a feed", vec![command], vec![keys.feed(shard)]);
                let answer = this.run(&work).await?.into_iter().next().unwrap_or_default();
                let streams = streams(answer).map_err(|problem| malformed("a feed", shard, problem))?;
                Ok(this.interpret(shard, position, streams.into_iter().flat_map(|(_, entries)| entries)))
            });
        }
        let mut news = Vec::new();
        while let Some(read) = reads.join_next().await {
            news.extend(read.unwrap_or_else(|ended| Err(StoreError::Unavailable(ended.to_string())))?);
        }
        Ok(news)
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
            link.reset().await;
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

    async fn read_cluster(
        &self,
        state: &mut State,
        after: &FeedPositions,
        deadline: Option<Instant>,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        loop {
            for (shard, position) in ShardId::all().zip(after) {
                // One at an earlier position returns at once: there is something after it.
                if state.following.get(&shard).is_none_or(|running| running > position) {
                    self.follow(state, shard, *position, until(deadline).min(BLOCK_MAX));
                }
            }
            let woken = match deadline {
                Some(deadline) => match timeout_at(deadline, state.reads.join_next()).await {
                    Ok(woken) => woken,
                    Err(_) => return Ok(Vec::new()),
                },
                None => state.reads.join_next().await,
            };
            let Some(Ok((shard, position, read))) = woken else { continue };
            if state.following.get(&shard) == Some(&position) {
                state.following.remove(&shard);
            }
            let Some(asked) = after.get(shard.index()).copied().filter(|asked| position <= *asked) else {
                continue;
            };
            let entries = match read {
                Ok(entries) => entries,
                Err(error) => {
                    if let Err(error) = self.inner.nodes.refresh().await {
                        return Err(trouble::told(
                            &error,
                            "asking who serves what",
                            self.inner.nodes.first(),
                        ));
                    }
                    return Err(error);
                }
            };
            let is_new = |(id, _): &RawEntry| (id.generation, id.seq) > asked;
            let entries = entries.into_iter().filter(is_new);
            let news: Vec<_> = self.interpret(shard, asked, entries).into_iter().collect();
            if !news.is_empty() {
                return Ok(news);
            }
        }
    }

    /// Starts the blocking read of one shard.
    fn follow(&self, state: &mut State, shard: ShardId, position: (Gen, u64), block: Duration) {
        let node = self.inner.nodes.master(shard);
        let link =
            state.links.get(&shard).filter(|link| link.node == node && !state.following.contains_key(&shard));
        // A read at another position may still block the connection: a new one.
        let link = link.map_or_else(|| Arc::new(Link::new(&node, &self.inner.feeds.options)), Arc::clone);
        state.links.insert(shard, Arc::clone(&link));
        state.following.insert(shard, position);
        let command = read(&self.inner.keys, &[(shard, position)], Some(block));
        let within = self.inner.options.call_timeout;
        state.reads.spawn(async move {
            let answer = blocking(&link, command, block, within).await;
            let read = answer
                .map_err(|error| trouble::told(&error, "a feed", &link.node))
                .and_then(|answer| streams(answer).map_err(|problem| malformed("a feed", shard, problem)))
                .map(|streams| streams.into_iter().flat_map(|(_, entries)| entries).collect());
            (shard, position, read)
        });
    }

    /// What entries after a position mean to its reader; `None` for none.
    fn interpret(
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

fn read(keys: &Keys, positions: &[(ShardId, (Gen, u64))], block: Option<Duration>) -> Cmd {
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
