//! The reader: takes entries from the 16 feeds and hands on batches.
//!
//! One task. It reads what is new, takes over what another writer left behind, and reads again what a recovery took
//! out of a writer's hands. It waits while batches it made are not taken, so what it holds is bounded. A read is never
//! given up in the middle: entries that were delivered and not seen would lie until they are claimed. When it fails,
//! what was read stays pending in the feeds.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::batch::{Assembly, Batch};
use super::context::Context;
use super::counters::Count;
use super::read_ahead::ReadAhead;
use super::retry::Retry;
use crate::stock::calls::{Change, Gen, ShardId};
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::redis::{ClaimCursor, Claimed, Delivered};

/// How long a read waits for something new: as long may a stop take to be heard.
const WAIT: Duration = Duration::from_millis(250);
/// Between two looks at what a recovery took, and while feeds lag behind one.
const RECHECK_PAUSE: Duration = Duration::from_millis(100);
/// Looks for what others left behind within the time after which it counts as left.
const CLAIMS_PER_IDLE: f32 = 4.0;

pub(super) struct Reader {
    context: Context,
    batches: mpsc::Sender<Batch>,
    assembly: Assembly,
    ahead: ReadAhead,
    retry: Retry,
    claimed_at: Option<Instant>,
    rechecked_at: Option<Instant>,
}

impl Reader {
    pub(super) fn new(context: Context, batches: mpsc::Sender<Batch>) -> Self {
        let settings = &context.settings;
        Self {
            assembly: Assembly::new(settings.batch_rows_max),
            ahead: ReadAhead::new(settings.batch_rows_max, settings.rows_per_s),
            retry: Retry::of("reading the feeds"),
            claimed_at: None,
            rechecked_at: None,
            context,
            batches,
        }
    }

    /// Until a stop is asked for; what was read by then is handed on.
    pub(super) async fn run(mut self) {
        while !self.context.stop.is_asked() {
            let step = self.step().await;
            let handed_on = self.hand_on().await;
            match step {
                Ok(()) => self.retry.succeeded(),
                Err(error) => {
                    self.assembly.close();
                    let pause = self.retry.failed(&error);
                    self.context.stop.pause(pause).await;
                }
            }
            if !handed_on {
                return;
            }
        }
        self.assembly.close();
        self.hand_on().await;
    }

    async fn step(&mut self) -> Result<(), StoreError> {
        if is_due(self.rechecked_at, RECHECK_PAUSE) {
            self.rechecked_at = Some(Instant::now());
            self.take_put_back().await?;
        }
        if is_due(self.claimed_at, self.context.settings.claim_idle.div_f32(CLAIMS_PER_IDLE)) {
            self.claimed_at = Some(Instant::now());
            self.take_over().await?;
        }
        let linger = self.context.settings.linger;
        let wait = match self.assembly.waiting_since() {
            Some(since) => linger.saturating_sub(since.elapsed()),
            None => WAIT,
        };
        let read = self.context.redis.read_group(&self.context.consumer, self.ahead.count(), wait).await?;
        if !read.is_empty() {
            crash_point::pass("writer.entries_read");
        }
        let mut lags = false;
        for delivered in read {
            lags |= !self.take(delivered);
        }
        if self.assembly.waiting_since().is_some_and(|since| since.elapsed() >= linger) {
            self.assembly.close();
        }
        if lags {
            self.context.stop.pause(RECHECK_PAUSE).await;
        }
        Ok(())
    }

    /// Takes entries in, unless their shard has not come to the newest generation yet: nothing may be settled under
    /// an older one.
    fn take(&mut self, delivered: Delivered) -> bool {
        let (context, entries) = (&self.context, &delivered.entries);
        if entries.is_empty() {
            return true;
        }
        context.counters.add_len(Count::EntriesRead, entries.len());
        context.put_back.learn(delivered.generation);
        if delivered.generation < context.put_back.newest() {
            context.counters.add_len(Count::EntriesPutBack, entries.len());
            context.put_back.dropped(delivered.shard);
            return false;
        }
        let rows = entries.iter().filter_map(|entry| match &entry.what.as_ref().ok()?.change {
            Change::Marked(marks) => Some(marks.len()),
            Change::Moved | Change::Loaded => None,
        });
        self.ahead.saw(entries.len(), rows.fold(0, usize::saturating_add));
        self.assembly.add(delivered, Instant::now());
        true
    }

    /// What some writer was given and has not acknowledged for too long.
    async fn take_over(&mut self) -> Result<(), StoreError> {
        for shard in ShardId::ALL {
            let idle = self.context.settings.claim_idle;
            if self.claim_all(shard, || idle).await?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What was given to any writer before a recovery.
    async fn take_put_back(&mut self) -> Result<(), StoreError> {
        for (shard, before) in self.context.put_back.due() {
            match self.claim_all(shard, || before.elapsed()).await? {
                Some(generation) => self.context.put_back.claimed(shard, generation, before),
                // Not open yet: at the next look.
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// A whole pass over one feed; the generation it was under, or `None` while the shard is closed.
    async fn claim_all(
        &mut self,
        shard: ShardId,
        idle: impl Fn() -> Duration,
    ) -> Result<Option<Gen>, StoreError> {
        let mut cursor = ClaimCursor::start();
        loop {
            let (consumer, count) = (&self.context.consumer, self.ahead.count());
            let claimed = self.context.redis.claim(shard, consumer, idle(), &cursor, count).await?;
            let Some(Claimed { cursor: next, delivered }) = claimed else { return Ok(None) };
            let generation = delivered.generation;
            if !delivered.entries.is_empty() {
                crash_point::pass("writer.entries_claimed");
                let entries = delivered.entries.len();
                tracing::info!(
                    shard = shard.number(),
                    entries,
                    "took over entries that were not acknowledged"
                );
                self.context.counters.add_len(Count::EntriesClaimed, entries);
            }
            if !self.take(delivered) || !self.hand_on().await {
                return Ok(None);
            }
            if next.is_start() || self.context.stop.is_asked() {
                return Ok(Some(generation));
            }
            cursor = next;
        }
    }

    /// Hands on what is ready; false when nobody takes it any more.
    async fn hand_on(&mut self) -> bool {
        while let Some(batch) = self.assembly.next() {
            if self.batches.send(batch).await.is_err() {
                return false;
            }
        }
        true
    }
}

fn is_due(last: Option<Instant>, interval: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= interval)
}
