//! From feed entries to batches: what one transaction settles, and what is acknowledged after it. Pure.
//!
//! A batch is of one generation, because its transaction is (rule 13). Entries are never cut in two: one entry is
//! acknowledged as a whole. What says nothing to a writer (moves, loads, states that SQL told) rides along and is
//! acknowledged with its neighbours.

use std::collections::VecDeque;
use std::time::Instant;

use crate::protocol::OrderState;
use crate::stock::calls::{Change, Gen, SHARDS, ShardId};
use crate::store::redis::{Delivered, Entry, EntryId};
use crate::store::sql::mysql::Reservation;

/// Entries in one batch, rows or none: bounds what is held and what one acknowledgement names.
const ENTRIES_MAX: usize = 2048;

/// An entry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) shard: ShardId,
    pub(super) id: EntryId,
    pub(super) reason: String,
}

/// What is settled and acknowledged together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Under which all of it was read.
    pub(super) generation: Gen,
    pub(super) reservations: Vec<Reservation>,
    pub(super) malformed: Vec<Malformed>,
    /// By shard.
    pub(super) entries: [Vec<EntryId>; SHARDS],
}

impl Batch {
    fn new(generation: Gen) -> Self {
        Self { generation, reservations: Vec::new(), malformed: Vec::new(), entries: Default::default() }
    }

    pub(super) fn entry_count(&self) -> usize {
        self.entries.iter().fold(0, |sum, ids| sum.saturating_add(ids.len()))
    }

    /// The shards that it has entries of.
    pub(super) fn shards(&self) -> impl Iterator<Item = ShardId> {
        ShardId::all().zip(&self.entries).filter(|(_, ids)| !ids.is_empty()).map(|(shard, _)| shard)
    }

    fn add(&mut self, shard: ShardId, entry: Entry) {
        match entry.what {
            Ok(event) => self.reservations.extend(reserved(&event.change).map(|(user, mark)| Reservation {
                shard,
                entry: (entry.id.generation, entry.id.seq),
                user: *user,
                mark: *mark,
            })),
            Err(reason) => self.malformed.push(Malformed { shard, id: entry.id, reason }),
        }
        if let Some(ids) = self.entries.get_mut(shard.index()) {
            ids.push(entry.id);
        }
    }
}

type Marked = (crate::protocol::UserId, crate::stock::calls::Mark);

/// What an event tells a writer to settle: later states come from SQL itself.
fn reserved(change: &Change) -> impl Iterator<Item = &Marked> {
    let marks: &[Marked] = match change {
        Change::Marked(marks) => marks,
        Change::Moved | Change::Loaded => &[],
    };
    marks.iter().filter(|(_, mark)| mark.state == OrderState::Reserved)
}

/// Puts entries together until a batch is full.
#[derive(Debug)]
pub(super) struct Assembly {
    rows_max: usize,
    open: Option<(Instant, Batch)>,
    ready: VecDeque<Batch>,
}

impl Assembly {
    pub(super) fn new(rows_max: usize) -> Self {
        Self { rows_max: rows_max.max(1), open: None, ready: VecDeque::new() }
    }

    /// Takes entries in.
    pub(super) fn add(&mut self, delivered: Delivered, now: Instant) {
        for entry in delivered.entries {
            let rows = entry.what.as_ref().map_or(0, |event| reserved(&event.change).count());
            let fits = self.open.as_ref().is_none_or(|(_, batch)| {
                batch.generation == delivered.generation
                    && batch.reservations.len().saturating_add(rows) <= self.rows_max
                    && batch.entry_count() < ENTRIES_MAX
            });
            if !fits {
                self.close();
            }
            let (_, batch) = self.open.get_or_insert_with(|| (now, Batch::new(delivered.generation)));
            batch.add(delivered.shard, entry);
            if batch.reservations.len() >= self.rows_max {
                self.close();
            }
        }
    }

    /// When the oldest entry that is not in a closed batch came.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.open.as_ref().map(|(since, _)| *since)
    }

    /// Closes what is open, full or not.
    pub(super) fn close(&mut self) {
        self.ready.extend(self.open.take().map(|(_, batch)| batch));
    }

    /// The next closed batch.
    pub(super) fn next(&mut self) -> Option<Batch> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "tests"
    )]

    use super::*;
    use crate::protocol::{ActivityId, OrderNumber, SkuId, SkuKey, UserId};
    use crate::stock::calls::{Event, Mark};

    fn mark(order: u64, state: OrderState) -> Mark {
        let sku = SkuKey { activity: ActivityId(1), sku: SkuId(1) };
        Mark { order: OrderNumber(order), sku, quantity: 1, attempt: 1, state, pay_by_ms: 0 }
    }

    fn entry(generation: u64, seq: u64, change: Change) -> Entry {
        let (generation, counters) = (Gen(generation), Vec::new());
        Entry {
            id: EntryId { generation, seq },
            at_ms: 1,
            what: Ok(Event { generation, seq, change, counters }),
        }
    }

    fn reserves(generation: u64, seq: u64, rows: u64) -> Entry {
        let marks = (0..rows).map(|n| (UserId(seq * 1000 + n), mark(seq * 1000 + n, OrderState::Reserved)));
        entry(generation, seq, Change::Marked(marks.collect()))
    }

    fn delivered(generation: u64, entries: Vec<Entry>) -> Delivered {
        Delivered { shard: ShardId::ALL[3], generation: Gen(generation), entries }
    }

    fn batches(rows_max: usize, given: Vec<Delivered>) -> Vec<(u64, usize, usize)> {
        let mut assembly = Assembly::new(rows_max);
        let now = Instant::now();
        for one in given {
            assembly.add(one, now);
        }
        assembly.close();
        assert_eq!(assembly.waiting_since(), None);
        std::iter::from_fn(|| assembly.next())
            .map(|batch| (batch.generation.0, batch.reservations.len(), batch.entry_count()))
            .collect()
    }

    #[test]
    fn entries_are_never_cut_and_a_batch_is_full_at_its_rows() {
        let entries = vec![
            reserves(1, 1, 3),
            reserves(1, 2, 3),
            reserves(1, 3, 3),
            reserves(1, 4, 30),
            reserves(1, 5, 1),
        ];
        assert_eq!(batches(7, vec![delivered(1, entries)]), [(1, 6, 2), (1, 3, 1), (1, 30, 1), (1, 1, 1)]);
    }

    #[test]
    fn a_batch_is_of_one_generation() {
        let given = vec![
            delivered(1, vec![reserves(1, 1, 1)]),
            // Appended before a recovery, read after it.
            delivered(2, vec![reserves(1, 2, 1), reserves(2, 1, 1)]),
        ];
        assert_eq!(batches(100, given), [(1, 1, 1), (2, 2, 2)]);
    }

    #[test]
    fn what_says_nothing_to_a_writer_is_acknowledged_with_its_neighbours() {
        let settled = Change::Marked(vec![(UserId(9), mark(9, OrderState::PendingPayment))]);
        let entries = vec![
            entry(1, 0, Change::Moved),
            reserves(1, 1, 2),
            entry(1, 2, settled),
            entry(1, 3, Change::Loaded),
        ];
        assert_eq!(batches(100, vec![delivered(1, entries)]), [(1, 2, 4)]);
    }

    #[test]
    fn a_malformed_entry_is_kept_apart_from_its_neighbours() {
        let mut assembly = Assembly::new(100);
        let mut bad = reserves(1, 2, 1);
        bad.what = Err("x:{03}:feed entry 1-2: no header".to_owned());
        assembly.add(delivered(1, vec![reserves(1, 1, 1), bad, reserves(1, 3, 1)]), Instant::now());
        assembly.close();
        let batch = assembly.next().unwrap();
        assert_eq!((batch.reservations.len(), batch.entry_count()), (2, 3));
        assert_eq!(batch.malformed[0].id.seq, 2);
        assert_eq!(batch.shards().collect::<Vec<_>>(), [ShardId::ALL[3]]);
    }

    #[test]
    fn entries_without_rows_fill_a_batch_too() {
        let entries = (0..5000).map(|seq| entry(1, seq, Change::Moved)).collect();
        let closed = batches(100, vec![delivered(1, entries)]);
        assert_eq!(closed, [(1, 0, 2048), (1, 0, 2048), (1, 0, 904)]);
    }
}
