//! The finisher: tells each shard what was settled, then acknowledges the entries (rule 13: never before).
//!
//! One task, and one for each shard of the batch it is at, because the shards answer independently. A shard that
//! is closed, or of another generation, keeps its entries pending: they are read again, found to be settled, and told
//! then. One that does not answer is asked until it does.

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::context::Context;
use super::counters::Count;
use super::retry::Retry;
use super::settler::Settled;
use crate::protocol::UserId;
use crate::stock::calls::{Gen, Mark, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::redis::{EntryId, Guarded, RedisShards};
use crate::store::sql::mysql::{Reservation, Settlement};

pub(super) struct Finisher {
    context: Context,
    settled: mpsc::Receiver<Settled>,
    retry: Retry,
}

/// One shard's part of a batch.
#[derive(Debug)]
struct Part {
    shard: ShardId,
    generation: Gen,
    marks: Vec<(UserId, Mark)>,
    entries: Vec<EntryId>,
}

/// What came of a part.
enum Told {
    Acknowledged(usize),
    /// The shard is closed (`None`), or of another generation.
    NotNow(Part, Option<Gen>),
    Failed(Part, StoreError),
}

impl Finisher {
    pub(super) fn new(context: Context, settled: mpsc::Receiver<Settled>) -> Self {
        Self { context, settled, retry: Retry::of("telling Redis what is settled") }
    }

    /// Until the settler has ended and everything is told; false if something was given up.
    pub(super) async fn run(mut self) -> bool {
        while let Some(settled) = self.settled.recv().await {
            let mut parts = parts(settled);
            while !parts.is_empty() {
                let (failed, error) = self.tell(parts).await;
                parts = failed;
                let Some(error) = error else { break };
                let pause = self.retry.failed(&error);
                if self.context.stop.is_overdue() {
                    return false;
                }
                tokio::time::sleep(pause).await;
            }
            self.retry.succeeded();
        }
        true
    }

    /// The parts that failed, and why one of them did.
    async fn tell(&self, parts: Vec<Part>) -> (Vec<Part>, Option<StoreError>) {
        let mut telling = JoinSet::new();
        for part in parts {
            let redis = self.context.redis.clone();
            telling.spawn(async move { tell(&redis, part).await });
        }
        let (mut failed, mut why) = (Vec::new(), None);
        while let Some(told) = telling.join_next().await {
            match told {
                Ok(Told::Acknowledged(entries)) => {
                    self.context.counters.add_len(Count::EntriesAcknowledged, entries);
                }
                Ok(Told::NotNow(part, current)) => {
                    tracing::info!(
                        shard = part.shard.number(),
                        entries = part.entries.len(),
                        "a shard was recovered since these entries were read: they are read again"
                    );
                    if let Some(current) = current {
                        self.context.put_back.learn(current);
                    }
                    self.context.put_back.dropped(part.shard);
                    self.context.counters.add_len(Count::EntriesPutBack, part.entries.len());
                }
                Ok(Told::Failed(part, error)) => {
                    failed.push(part);
                    why = Some(error);
                }
                // Only a panic ends a part like that; its entries stay pending.
                Err(error) => tracing::error!(%error, "telling a shard what is settled broke off"),
            }
        }
        (failed, why)
    }
}

async fn tell(redis: &RedisShards, part: Part) -> Told {
    if !part.marks.is_empty() {
        match redis.settled(part.shard, part.generation, &part.marks).await {
            Ok(Guarded::Done(())) => {}
            Ok(Guarded::Gen(current)) => return Told::NotNow(part, Some(current)),
            Ok(Guarded::Recovering) => return Told::NotNow(part, None),
            Err(error) => return Told::Failed(part, error),
        }
        crash_point::pass("writer.after_settled");
    }
    match redis.acknowledge(part.shard, &part.entries).await {
        Ok(()) => {
            crash_point::pass("writer.after_acknowledge");
            Told::Acknowledged(part.entries.len())
        }
        Err(error) => Told::Failed(part, error),
    }
}

fn parts(settled: Settled) -> Vec<Part> {
    let Settled { batch, settlements } = settled;
    let mut marks: [Vec<(UserId, Mark)>; SHARDS] = Default::default();
    for (one, settlement) in batch.reservations.iter().zip(&settlements) {
        if let (Some(mark), Some(list)) = (learnt(one, settlement), marks.get_mut(one.shard.index())) {
            list.push((one.user, mark));
        }
    }
    ShardId::all()
        .zip(marks)
        .zip(batch.entries)
        .filter(|(_, entries)| !entries.is_empty())
        .map(|((shard, marks), entries)| Part { shard, generation: batch.generation, marks, entries })
        .collect()
}

/// What a shard has to learn of a reservation; orders that failed or are closed, paid afterwards or not, are the ledger's:
/// a mark that says so before its release keeps the units for ever.
pub(super) fn learnt(one: &Reservation, settlement: &Settlement) -> Option<Mark> {
    match settlement {
        Settlement::Settled(mark) | Settlement::Recorded(mark) => Some(*mark),
        Settlement::WasSettled(mark) => {
            (mark.state.is_live() && mark.order == one.mark.order).then_some(*mark)
        }
        Settlement::Superseded { already } => {
            tracing::warn!(
                activity = %one.mark.sku.activity, sku = %one.mark.sku.sku, user = %one.user,
                order = %one.mark.order, already = %already.order,
                "an order failed because another order of the user stands; its units go back"
            );
            None
        }
        Settlement::Collision { .. } | Settlement::Failed { .. } => None,
    }
}
