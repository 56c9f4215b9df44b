//! The settler: one SQL transaction per batch, at a steady rate.
//!
//! One task. A batch that cannot be committed is tried again until it can: nothing behind it overtakes it, and
//! memory stays bounded because the reader waits. One that was read under an older generation than the database's is
//! dropped and read again. When this task dies, entries are pending in their feeds, committed or not; the next writer's
//! transaction finds out (rule 13).

use tokio::sync::mpsc;

use super::batch::{Batch, Malformed};
use super::context::Context;
use super::counters::Count;
use super::retry::Retry;
use crate::stock::calls::Gen;
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::sql::mysql::{SettleOutcome, Settlement};

/// A batch whose transaction is committed.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) batch: Batch,
    /// One for each of its reservations.
    pub(super) settlements: Vec<Settlement>,
}

pub(super) struct Settler {
    context: Context,
    batches: mpsc::Receiver<Batch>,
    settled: mpsc::Sender<Settled>,
    retry: Retry,
}

impl Settler {
    pub(super) fn new(
        context: Context,
        batches: mpsc::Receiver<Batch>,
        settled: mpsc::Sender<Settled>,
    ) -> Self {
        Self { context, batches, settled, retry: Retry::of("settling orders in the database") }
    }

    /// Until the reader has ended and everything it handed on is settled; false if something was given up.
    pub(super) async fn run(mut self) -> bool {
        while let Some(batch) = self.batches.recv().await {
            self.context.keep_pace(batch.reservations.len()).await;
            let Some(settlements) = self.settle(&batch).await else {
                if self.context.stop.is_overdue() {
                    return false;
                }
                continue;
            };
            self.tell(&batch, &settlements);
            if self.settled.send(Settled { batch, settlements }).await.is_err() {
                return false;
            }
        }
        true
    }

    /// `None`: dropped, to be read again; or given up because the stop is overdue.
    async fn settle(&mut self, batch: &Batch) -> Option<Vec<Settlement>> {
        loop {
            match self.try_settle(batch).await {
                Ok(SettleOutcome::Committed(settlements)) => {
                    self.retry.succeeded();
                    return Some(settlements);
                }
                Ok(SettleOutcome::Gen(current)) => {
                    self.retry.succeeded();
                    tracing::info!(
                        read_under = batch.generation.0,
                        current = current.0,
                        entries = batch.entry_count(),
                        "a recovery has begun since these entries were read: they are read again"
                    );
                    put_back(&self.context, batch, Some(current));
                    return None;
                }
                Err(error) => {
                    let pause = self.retry.failed(&error);
                    tokio::time::sleep(pause).await;
                    if self.context.stop.is_overdue() {
                        return None;
                    }
                }
            }
        }
    }

    async fn try_settle(&self, batch: &Batch) -> Result<SettleOutcome, StoreError> {
        for Malformed { shard, id, reason } in &batch.malformed {
            crash_point::pass("writer.before_dead_letter");
            self.context.sql.keep_malformed(*shard, (id.generation, id.seq), reason).await?;
            crash_point::pass("writer.after_dead_letter");
        }
        if batch.reservations.is_empty() {
            return Ok(SettleOutcome::Committed(Vec::new()));
        }
        let Context { sql, counters, modes, .. } = &self.context;
        let modes = modes.get(sql, counters).await?;
        crash_point::pass("writer.before_commit");
        let outcome = sql.settle_or_record(batch.generation, &batch.reservations, &modes).await?;
        crash_point::pass("writer.after_commit");
        Ok(outcome)
    }

    fn tell(&self, batch: &Batch, settlements: &[Settlement]) {
        let counters = &self.context.counters;
        for Malformed { shard, id, reason } in &batch.malformed {
            counters.add(Count::DeadLetters, 1);
            tracing::error!(
                shard = shard.number(), entry = %id, reason,
                "an entry of the feed cannot be read: it is kept as a dead letter and acknowledged"
            );
        }
        if !settlements.is_empty() {
            counters.add(Count::Batches, 1);
        }
        for settlement in settlements {
            counters.add(
                match settlement {
                    Settlement::Settled(_) => Count::RowsSettled,
                    Settlement::Recorded(_) => Count::RowsRecorded,
                    Settlement::WasSettled(_) => Count::RowsKnown,
                    Settlement::Superseded { .. } => Count::Superseded,
                    Settlement::Collision { .. } => Count::Collisions,
                    Settlement::Failed { .. } => Count::DeadLetters,
                },
                1,
            );
        }
    }
}

/// Lets go of a batch's entries, which stay pending and are read again.
pub(super) fn put_back(context: &Context, batch: &Batch, current: Option<Gen>) {
    if let Some(current) = current {
        context.put_back.learn(current);
    }
    for shard in batch.shards() {
        context.put_back.dropped(shard);
    }
    context.counters.add_len(Count::EntriesPutBack, batch.entry_count());
}

/// How many batches may wait between two stages.
pub(super) const WAITING_BATCHES: usize = 1;
