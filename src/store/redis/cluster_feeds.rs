//! Following the feeds of a cluster: every shard is read by itself, so that a node that is away holds up no other's news.
//!
//! Each shard has its own blocking read, run by a task that outlives the call that began it: the first one with news ends
//! the wait, the others go on and answer a later call. Before it waits, a call asks every shard once, so that those it
//! does not name were current when it began. A shard that did not answer, or not in time, is told as unread and not waited
//! for until it has answered again; its question goes on meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::answers::malformed;
use super::feed_reader::{Asked, State};
use super::feeds::read;
use super::link::Link;
use super::shards::RedisShards;
use super::streams::{BLOCK_MAX, RawEntry, blocking, streams, until};
use super::trouble;
use crate::stock::calls::{Gen, ShardId};
use crate::store::failures::{Failures, Say};
use crate::store::{FeedPositions, FeedRead, StoreError, watched};

/// A call waits so long for news while a shard is away, whatever its caller wants: nothing is complete anyway. So it does
/// when no shard can be followed.
const AWAY_PAUSE: Duration = Duration::from_millis(50);

/// What asking every shard once brought.
#[derive(Default)]
struct Round {
    news: Vec<(ShardId, FeedRead)>,
    answered: HashSet<ShardId>,
    error: Option<StoreError>,
}

impl Round {
    fn is_complete(&self) -> bool {
        ShardId::all().all(|shard| self.answered.contains(&shard))
    }

    /// With what is not known.
    fn told(mut self) -> Vec<(ShardId, FeedRead)> {
        let unread = ShardId::all().filter(|shard| !self.answered.contains(shard));
        self.news.extend(unread.map(|shard| (shard, FeedRead::Unread)));
        self.news
    }
}

impl RedisShards {
    /// An error only when no shard could be read.
    pub(super) async fn read_cluster(
        &self,
        state: &mut State,
        after: &FeedPositions,
        wait: Duration,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        let mut round = self.ask(state, after).await;
        if round.answered.is_empty() {
            return Err(round.error.unwrap_or_else(|| {
                StoreError::Unavailable("no node of the cluster told of its feeds in time".to_owned())
            }));
        }
        let wait = if round.is_complete() { wait } else { wait.max(AWAY_PAUSE) };
        if round.news.is_empty() && !wait.is_zero() {
            let deadline = Instant::now().checked_add(wait);
            round.news.extend(self.wait_for_news(state, after, &round.answered, deadline).await);
        }
        Ok(round.told())
    }

    /// Asks every shard once, all at the same time.
    async fn ask(&self, state: &mut State, after: &FeedPositions) -> Round {
        state.round = state.round.wrapping_add(1);
        let mut round = Round::default();
        while let Some(ended) = state.asked.try_join_next() {
            self.take_in(state, &mut round, after, ended.ok());
        }
        for shard in ShardId::ALL {
            self.ask_one(state, after, shard);
        }
        let deadline = Instant::now().checked_add(self.inner.options.call_timeout);
        while state.asking.iter().any(|shard| !state.away.contains(shard)) {
            let next = state.asked.join_next();
            let ended = match deadline {
                Some(deadline) => timeout_at(deadline, next).await,
                None => Ok(next.await),
            };
            match ended {
                Ok(ended) => self.take_in(state, &mut round, after, ended.and_then(Result::ok)),
                // Late: their answers count in a later round.
                Err(_) => state.away.extend(state.asking.iter().copied()),
            }
        }
        tell(state, &round);
        round
    }

    fn ask_one(&self, state: &mut State, after: &FeedPositions, shard: ShardId) {
        let Some(position) = after.get(shard.index()).copied() else { return };
        if !state.asking.insert(shard) {
            return;
        }
        let (this, round) = (self.clone(), state.round);
        state.asked.spawn(async move {
            let entries = watched::answered("reading a feed", this.entries_after(shard, position)).await;
            (shard, round, entries)
        });
    }

    async fn entries_after(&self, shard: ShardId, position: (Gen, u64)) -> Result<Vec<RawEntry>, StoreError> {
        let keys = &self.inner.keys;
        let command = read(keys, &[(shard, position)], None);
        let answers = self.run(&self.work(shard, "a feed", vec![command], vec![keys.feed(shard)])).await?;
        let streams = streams(answers.into_iter().next().unwrap_or_default());
        let streams = streams.map_err(|problem| malformed("a feed", shard, problem))?;
        Ok(streams.into_iter().flat_map(|(_, entries)| entries).collect())
    }

    fn take_in(&self, state: &mut State, round: &mut Round, after: &FeedPositions, ended: Option<Asked>) {
        let Some((shard, asked_in, read)) = ended else {
            // Only the runtime's end does that; nobody is waited for any more.
            state.asking.clear();
            return;
        };
        state.asking.remove(&shard);
        match read {
            Err(error) => {
                state.away.insert(shard);
                round.error = Some(error);
            }
            Ok(entries) => {
                state.away.remove(&shard);
                if asked_in != state.round {
                    // It says what was before this call.
                    self.ask_one(state, after, shard);
                } else if let Some(position) = after.get(shard.index()) {
                    round.answered.insert(shard);
                    round.news.extend(self.interpret(shard, *position, entries.into_iter()));
                }
            }
        }
    }

    /// The first news of any of these shards. One whose read fails is not read on in this call.
    async fn wait_for_news(
        &self,
        state: &mut State,
        after: &FeedPositions,
        shards: &HashSet<ShardId>,
        deadline: Option<Instant>,
    ) -> Option<(ShardId, FeedRead)> {
        let mut failed = HashSet::new();
        let now = Instant::now();
        let pause_end = now.checked_add(AWAY_PAUSE).unwrap_or(now);
        loop {
            for (shard, position) in ShardId::all().zip(after) {
                // One at an earlier position returns at once: there is something after it.
                let is_due = state.following.get(&shard).is_none_or(|running| running > position);
                if is_due && shards.contains(&shard) && !failed.contains(&shard) {
                    self.follow(state, shard, *position, until(deadline).min(BLOCK_MAX));
                }
            }
            let woken = match deadline {
                Some(deadline) => timeout_at(deadline, state.reads.join_next()).await.ok()?,
                None => state.reads.join_next().await,
            };
            let Some(woken) = woken else {
                // None could be followed: without a pause the next call would come at once.
                sleep_until(deadline.unwrap_or(pause_end).min(pause_end)).await;
                return None;
            };
            let Ok((shard, position, read)) = woken else { continue };
            if state.following.get(&shard) == Some(&position) {
                state.following.remove(&shard);
            }
            let asked = after.get(shard.index()).copied().filter(|asked| position <= *asked);
            let (Some(asked), true) = (asked, shards.contains(&shard)) else { continue };
            let entries = match read {
                Ok(entries) => entries,
                Err(error) => {
                    // The next call asks it, and who serves it if need be.
                    failed.insert(shard);
                    not_followed(&mut state.unfollowed, shard, &error);
                    continue;
                }
            };
            if let Some(failures) = state.unfollowed.succeeded() {
                tracing::info!(failures, "feeds are followed again");
            }
            let is_new = |(id, _): &RawEntry| (id.generation, id.seq) > asked;
            let news = self.interpret(shard, asked, entries.into_iter().filter(is_new));
            if news.is_some() {
                return news;
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
            let read = async {
                let answer = blocking(&link, command, block, within).await;
                let answer = answer.map_err(|error| trouble::told(&error, "a feed", &link.node))?;
                let streams = streams(answer).map_err(|problem| malformed("a feed", shard, problem))?;
                Ok(streams.into_iter().flat_map(|(_, entries)| entries).collect())
            };
            (shard, position, watched::answered("following a feed", read).await)
        });
    }
}

fn not_followed(unfollowed: &mut Failures, shard: ShardId, error: &StoreError) {
    let shard = shard.number();
    match unfollowed.failed(std::time::Instant::now()) {
        Say::Nothing => {}
        Say::First => tracing::warn!(shard, %error, "a feed cannot be followed; it is asked now and then"),
        Say::Summary(times) => {
            tracing::warn!(shard, %error, times, "feeds cannot be followed; they are asked now and then");
        }
    }
}

/// Says once, and now and then, that shards are away.
fn tell(state: &mut State, round: &Round) {
    if round.is_complete() {
        if let Some(failures) = state.failures.succeeded() {
            tracing::info!(failures, "the feeds of all shards are read again");
        }
        return;
    }
    let mut shards: Vec<u8> = state.away.iter().map(|shard| shard.number()).collect();
    shards.sort_unstable();
    let error = round.error.as_ref().map_or_else(|| "no answer yet".to_owned(), ToString::to_string);
    match state.failures.failed(std::time::Instant::now()) {
        Say::Nothing => {}
        Say::First => tracing::warn!(?shards, error, "feeds cannot be read; those of other shards are"),
        Say::Summary(times) => {
            tracing::warn!(?shards, error, times, "feeds cannot be read; those of other shards are");
        }
    }
}
