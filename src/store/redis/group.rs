//! The consumer group over the 16 feeds: reading, claiming, acknowledging, trimming (rules 13 and 15).
//!
//! A blocking group read is run by a task that outlives the call that began it, so that nothing delivered is lost
//! when a caller stops waiting; its entries answer the next call. Right after it, on the same connection, the shard
//! is asked for its generation: entries of one that waits for its recovery are left pending and come again by claim.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::{Pipeline, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::answers::{bytes, list, malformed, number, tagged, text};
use super::codec;
use super::group_readers::{Lane, Reader};
use super::keys::{GROUP, Keys};
use super::library;
use super::link::Link;
use super::options::RedisOptions;
use super::shards::{RedisShards, load_library};
use super::streams::{BLOCK_MAX, RawEntry, entry_id, put_block, streams, until};
use super::trouble::{self, Remedy};
use super::types::{Backlog, ClaimCursor, Claimed, Delivered, Entry, EntryId};
use crate::stock::calls::{Gen, ShardId};
use crate::store::{StoreError, watched};

/// Entries dropped by one trim, so that none holds Redis up.
const TRIMMED_MAX: u64 = 10_000;

impl RedisShards {
    /// Entries that nobody has been given yet, at most `count` per shard; waits up to `wait` when there are none.
    /// Makes the group where it is missing.
    pub async fn read_group(
        &self,
        consumer: &str,
        count: usize,
        wait: Duration,
    ) -> Result<Vec<Delivered>, StoreError> {
        let deadline = Instant::now().checked_add(wait);
        let reader = self.reader(consumer);
        let mut reader = reader.lock().await;
        let reader = &mut *reader;
        self.lay_out(reader);
        loop {
            for (number, lane) in reader.lanes.iter_mut().enumerate().filter(|(_, lane)| !lane.is_running) {
                lane.is_running = true;
                let read = GroupRead {
                    keys: self.inner.keys.clone(),
                    options: Arc::clone(&self.inner.options),
                    link: Arc::clone(&lane.link),
                    shards: lane.shards.clone(),
                    consumer: consumer.to_owned(),
                    count,
                };
                let block = until(deadline).min(BLOCK_MAX);
                reader.running.spawn(async move {
                    (number, watched::answered("reading entries of the feeds", read.run(block)).await)
                });
            }
            // A read ends by itself soon after the deadline; without a wait it must be let answer.
            let patience =
                deadline.and_then(|deadline| deadline.checked_add(self.inner.options.call_timeout));
            let first = match patience {
                Some(patience) => timeout_at(patience, reader.running.join_next()).await.ok().flatten(),
                None => reader.running.join_next().await,
            };
            let (mut delivered, mut failed, mut next) = (Vec::new(), None, first);
            while let Some(ended) = next {
                if let Ok((number, read)) = ended {
                    if let Some(lane) = reader.lanes.get_mut(number) {
                        lane.is_running = false;
                    }
                    match read {
                        Ok(some) => delivered.extend(some),
                        Err(error) => failed = Some(error),
                    }
                }
                next = reader.running.try_join_next();
            }
            if !delivered.is_empty() {
                return Ok(delivered);
            }
            if let Some(error) = failed {
                // Who serves what may have changed.
                let _ = self.inner.nodes.refresh().await;
                return Err(error);
            }
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if is_over && (!wait.is_zero() || reader.lanes.iter().all(|lane| !lane.is_running)) {
                return Ok(delivered);
            }
        }
    }

    fn reader(&self, consumer: &str) -> Arc<Mutex<Reader>> {
        let readers = &self.inner.groups.by_consumer;
        let mut readers = readers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(readers.entry(consumer.to_owned()).or_default())
    }

    /// Gives every lane that rests a connection to the node that serves it.
    fn lay_out(&self, reader: &mut Reader) {
        let (nodes, options) = (&self.inner.nodes, &self.inner.options);
        if reader.lanes.is_empty() {
            let lanes: Vec<Vec<ShardId>> = if options.cluster {
                ShardId::all().map(|shard| vec![shard]).collect()
            } else {
                vec![ShardId::all().collect()]
            };
            let lane = |shards: Vec<ShardId>| {
                let node = shards.first().map_or_else(String::new, |shard| nodes.master(*shard));
                Lane { shards, link: Arc::new(Link::new(&node, options)), is_running: false }
            };
            reader.lanes = lanes.into_iter().map(lane).collect();
        }
        for lane in reader.lanes.iter_mut().filter(|lane| !lane.is_running) {
            let node = lane.shards.first().map_or_else(String::new, |shard| nodes.master(*shard));
            if node != lane.link.node {
                lane.link = Arc::new(Link::new(&node, options));
            }
        }
    }

    /// Takes over entries that were delivered at least `min_idle` ago and not acknowledged, and goes on where the
    /// cursor of the last step stands. `None` while the shard waits for its recovery.
    pub async fn claim(
        &self,
        shard: ShardId,
        consumer: &str,
        min_idle: Duration,
        cursor: &ClaimCursor,
        count: usize,
    ) -> Result<Option<Claimed>, StoreError> {
        let (what, keys) = ("a claim", &self.inner.keys);
        let ask = || async {
            let touched = vec![keys.meta(shard), keys.feed(shard)];
            self.function(shard, what, library::CLAIM, touched, |command| {
                command
                    .arg(GROUP)
                    .arg(consumer)
                    .arg(min_idle.as_millis().to_string())
                    .arg(&cursor.0)
                    .arg(count);
            })
            .await
        };
        let answer = match ask().await {
            Err(StoreError::Unavailable(said)) if said.contains("NOGROUP") => {
                self.make_group(shard).await?;
                ask().await?
            }
            answer => answer?,
        };
        let torn = || malformed(what, shard, "a torn list");
        let Some((b'D', mut rest)) = tagged(answer) else { return Ok(None) };
        let generation = rest.next().and_then(number).map(Gen).ok_or_else(torn)?;
        let cursor = rest.next().and_then(text).map(ClaimCursor).ok_or_else(torn)?;
        let mut entries = Vec::new();
        while let (Some(id), Some(body)) = (rest.next(), rest.next()) {
            entries.push((entry_id(id).ok_or_else(torn)?, bytes(body).unwrap_or_default()));
        }
        let entries = entries.into_iter().map(|raw| entry(keys, shard, raw)).collect();
        Ok(Some(Claimed { cursor, delivered: Delivered { shard, generation, entries } }))
    }

    /// Says that entries are done with.
    pub async fn acknowledge(&self, shard: ShardId, ids: &[EntryId]) -> Result<(), StoreError> {
        for ids in ids.chunks(1000) {
            let feed = self.inner.keys.feed(shard);
            let mut command = redis::cmd("XACK");
            command.arg(&feed).arg(GROUP);
            for id in ids {
                command.arg(id.to_string());
            }
            self.run(&self.work(shard, "an acknowledgement", vec![command], vec![feed])).await?;
        }
        Ok(())
    }

    /// What the group has not finished in one shard.
    pub async fn backlog(&self, shard: ShardId) -> Result<Backlog, StoreError> {
        let what = "a backlog";
        let keys = vec![self.inner.keys.feed(shard)];
        let answer = self.function(shard, what, library::BACKLOG, keys, |command| {
            command.arg(GROUP);
        });
        let numbers: Vec<_> =
            list(answer.await?).unwrap_or_default().into_iter().filter_map(number).collect();
        let [entries_pending, entries_undelivered, oldest] = numbers.as_slice() else {
            return Err(malformed(what, shard, "other than three numbers"));
        };
        Ok(Backlog {
            entries_pending: *entries_pending,
            entries_undelivered: *entries_undelivered,
            oldest_at_ms: Some(*oldest).filter(|at_ms| *at_ms > 0),
        })
    }

    /// Drops entries older than `kept_for` that are delivered and acknowledged; always leaves the newest. How many;
    /// call again while it drops many. Nothing goes before the group exists.
    pub async fn trim(&self, shard: ShardId, kept_for: Duration) -> Result<u64, StoreError> {
        let keys = vec![self.inner.keys.meta(shard), self.inner.keys.feed(shard)];
        let answer = self.function(shard, "trimming", library::TRIM, keys, |command| {
            command.arg(GROUP).arg(kept_for.as_millis().to_string()).arg(TRIMMED_MAX);
        });
        number(answer.await?).ok_or_else(|| malformed("trimming", shard, "no number"))
    }

    async fn make_group(&self, shard: ShardId) -> Result<(), StoreError> {
        let feed = self.inner.keys.feed(shard);
        let made = self.run(&self.work(shard, "the group", vec![create(&feed)], vec![feed])).await;
        match made {
            Err(StoreError::Unavailable(said)) if said.contains("BUSYGROUP") => Ok(()),
            made => made.map(|_| ()),
        }
    }
}

fn create(feed: &str) -> redis::Cmd {
    let mut command = redis::cmd("XGROUP");
    command.arg("CREATE").arg(feed).arg(GROUP).arg("0").arg("MKSTREAM");
    command
}

fn entry(keys: &Keys, shard: ShardId, (id, body): RawEntry) -> Entry {
    let (at_ms, event) = codec::event(id.generation, id.seq, &body);
    Entry { id, at_ms, what: event.map_err(|problem| format!("{} entry {id}: {problem}", keys.feed(shard))) }
}

/// One group read and the guards after it.
struct GroupRead {
    keys: Keys,
    options: Arc<RedisOptions>,
    link: Arc<Link>,
    shards: Vec<ShardId>,
    consumer: String,
    count: usize,
}

impl GroupRead {
    async fn run(&self, block: Duration) -> Result<Vec<Delivered>, StoreError> {
        let mut made_groups = false;
        loop {
            let answers = match self.send(block).await {
                Ok(answers) => answers,
                Err(error) if !made_groups && error.to_string().contains("NOGROUP") => {
                    made_groups = true;
                    self.make_groups().await.map_err(|error| self.told(&error))?;
                    continue;
                }
                Err(error) => return Err(self.told(&error)),
            };
            return self.deliver(answers).await;
        }
    }

    /// The read's own answer is no error; those of the guards may be.
    async fn send(&self, block: Duration) -> Result<std::vec::IntoIter<Value>, RedisError> {
        let mut commands = Pipeline::new();
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(self.count.max(1));
        put_block(&mut read, Some(block));
        read.arg("STREAMS");
        for shard in &self.shards {
            read.arg(self.keys.feed(*shard));
        }
        for _ in &self.shards {
            read.arg(">");
        }
        commands.add_command(read);
        for shard in &self.shards {
            commands.add_command(library::fcall(library::GUARD, &[self.keys.meta(*shard)]));
        }
        let within = self.options.call_timeout.saturating_add(block);
        let mut answers = self.link.send(&commands, within).await?;
        if let Some(first) = answers.first_mut() {
            *first = std::mem::take(first).extract_error()?;
        }
        Ok(answers.into_iter())
    }

    async fn deliver(&self, mut answers: std::vec::IntoIter<Value>) -> Result<Vec<Delivered>, StoreError> {
        let read = streams(answers.next().unwrap_or_default())
            .map_err(|problem| StoreError::Corrupt(format!("a group read: {problem}")))?;
        if read.is_empty() {
            return Ok(Vec::new());
        }
        let mut delivered = Vec::new();
        for (shard, guard) in self.shards.iter().zip(answers) {
            let key = self.keys.feed(*shard);
            let Some((_, entries)) = read.iter().find(|(found, _)| found.as_slice() == key.as_bytes()) else {
                continue;
            };
            let Some(generation) = self.generation(*shard, guard).await? else {
                tracing::warn!(
                    shard = shard.number(),
                    entries = entries.len(),
                    "entries of a shard that waits for its recovery are left pending"
                );
                continue;
            };
            let entries = entries.iter().map(|raw| entry(&self.keys, *shard, raw.clone())).collect();
            delivered.push(Delivered { shard: *shard, generation, entries });
        }
        Ok(delivered)
    }

    /// The shard's generation, if it is open.
    async fn generation(&self, shard: ShardId, guard: Value) -> Result<Option<Gen>, StoreError> {
        let guard = match guard.extract_error() {
            Ok(guard) => guard,
            Err(error) if trouble::remedy(&error, false) == Remedy::LoadLibrary => {
                let within = self.options.call_timeout;
                load_library(&self.link, within).await.map_err(|error| self.told(&error))?;
                let mut commands = Pipeline::new();
                commands.add_command(library::fcall(library::GUARD, &[self.keys.meta(shard)]));
                let answers = self.link.send(&commands, within).await.map_err(|error| self.told(&error))?;
                let answer = answers.into_iter().next().unwrap_or_default();
                answer.extract_error().map_err(|error| self.told(&error))?
            }
            Err(error) => return Err(self.told(&error)),
        };
        match tagged(guard) {
            Some((b'D', mut rest)) => Ok(rest.next().and_then(number).map(Gen)),
            Some((b'R', _)) => Ok(None),
            _ => Err(malformed("a guard", shard, "no guard")),
        }
    }

    async fn make_groups(&self) -> Result<(), RedisError> {
        let mut commands = Pipeline::new();
        for shard in &self.shards {
            commands.add_command(create(&self.keys.feed(*shard)));
        }
        for answer in self.link.send(&commands, self.options.call_timeout).await? {
            match answer.extract_error() {
                Err(error) if error.code() != Some("BUSYGROUP") => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn told(&self, error: &RedisError) -> StoreError {
        trouble::told(error, "a group read", &self.link.node)
    }
}
