//! The view: what one gateway knows of every sub-key, from replies, feed and snapshots.
//!
//! Owned by the stock task; no I/O, no clock of its own. Each sub-key's counters carry the (generation, seq) they
//! are of, and an older one never overwrites a newer. "Nothing left anywhere" needs more than sixteen zeros: see
//! [`View::settle`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::board::Left;
use super::calls::{BringIn, Event, Gen, ShardId, SkuCounters, Snapshot};
use super::per_shard::PerShard;
use crate::protocol::SkuKey;

/// What applying an event to the view came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// It was the next one.
    Next,
    /// It was known already.
    Old,
    /// Something before it is missing, or it is of a newer generation: take a snapshot.
    Gap,
}

#[derive(Clone, Debug)]
struct Cell {
    /// `None`: this shard has not told of the SKU yet.
    seq: Option<u64>,
    free: u32,
    /// Cumulative, by target.
    out: PerShard<u64>,
    /// Cumulative, by source.
    brought_in: PerShard<u64>,
}

impl Cell {
    fn new() -> Self {
        Self { seq: None, free: 0, out: PerShard::new(|_| 0), brought_in: PerShard::new(|_| 0) }
    }
}

/// What is known of one SKU: its 16 sub-keys, and what follows from them.
#[derive(Debug)]
struct SkuView {
    cells: PerShard<Cell>,
    /// As of the last [`View::settle`].
    left: Left,
    free: u32,
    moving: u32,
}

impl SkuView {
    fn new() -> Box<Self> {
        Box::new(Self { cells: PerShard::new(|_| Cell::new()), left: Left::Unknown, free: 0, moving: 0 })
    }

    /// What went out of `source` for `target`, and what came in there.
    fn pair(&self, source: ShardId, target: ShardId) -> (u64, u64) {
        (self.cells[source].out[target], self.cells[target].brought_in[source])
    }
}

#[derive(Debug)]
struct ShardState {
    generation: Gen,
    /// Rises when what the shard has, or what is on its way to it, changes.
    revision: u64,
    /// Events up to this one have been applied, marks included.
    feed_seq: u64,
    /// `None` until the first snapshot of this generation, and after a gap.
    snapshot_seq: Option<u64>,
    /// When the feed was last known to be read to its end.
    current_at_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct View {
    skus: HashMap<SkuKey, Box<SkuView>>,
    shards: PerShard<ShardState>,
    /// By target: pairs seen with more out than in, and since when. In order, so that a run of the model can be
    /// repeated from its seed.
    open_moves: PerShard<BTreeMap<(SkuKey, ShardId), u64>>,
    /// By shard: what a reply told of, later than the feed has been applied to.
    ahead: PerShard<BTreeSet<SkuKey>>,
}

impl View {
    pub(super) fn new(generation: Gen) -> Self {
        let shard =
            |_| ShardState { generation, revision: 0, feed_seq: 0, snapshot_seq: None, current_at_ms: 0 };
        Self {
            skus: HashMap::new(),
            shards: PerShard::new(shard),
            open_moves: PerShard::new(|_| BTreeMap::new()),
            ahead: PerShard::new(|_| BTreeSet::new()),
        }
    }

    /// Whether a shard's snapshot is missing: nothing is sent to it until it is there.
    pub(super) fn needs_snapshot(&self, shard: ShardId) -> bool {
        self.shards[shard].snapshot_seq.is_none()
    }

    /// A gap was found in the shard's feed. A snapshot that comes now may have been taken long ago, so the shard is
    /// not current again before its feed has been read on from there.
    pub(super) fn lose(&mut self, shard: ShardId) {
        self.shards[shard].snapshot_seq = None;
        self.shards[shard].current_at_ms = 0;
    }

    /// The position up to which the shard's feed has been applied.
    pub(super) fn position(&self, shard: ShardId) -> (Gen, u64) {
        (self.shards[shard].generation, self.shards[shard].feed_seq)
    }

    /// A newer generation is known: what was told under an older one counts no longer, in no shard, for the
    /// generation is the installation's. True if it was news.
    pub(super) fn raise_generation(&mut self, generation: Gen) -> bool {
        if self.shards.iter().all(|(_, state)| generation <= state.generation) {
            return false;
        }
        let known = std::mem::replace(self, Self::new(generation));
        // The SKUs stay known, so that what was published of them is taken back.
        self.skus = known.skus.into_keys().map(|sku| (sku, SkuView::new())).collect();
        for (shard, state) in self.shards.iter_mut() {
            state.revision = known.shards[shard].revision.wrapping_add(1);
        }
        true
    }

    /// Every SKU that was ever told of.
    pub(super) fn skus(&self) -> Vec<SkuKey> {
        self.skus.keys().copied().collect()
    }

    /// Applies a snapshot; false if it is of an older generation and was ignored.
    pub(super) fn apply_snapshot(&mut self, now_ms: u64, snapshot: &Snapshot) -> bool {
        if snapshot.generation != self.shards[snapshot.shard].generation {
            return false;
        }
        for counters in &snapshot.counters {
            self.apply_counters(now_ms, snapshot.shard, snapshot.seq, counters);
        }
        let state = &mut self.shards[snapshot.shard];
        state.feed_seq = state.feed_seq.max(snapshot.seq);
        state.snapshot_seq = Some(snapshot.seq);
        true
    }

    /// Applies the counters of a reply under `generation`; ignored when that is not the shard's.
    pub(super) fn apply_reply(
        &mut self,
        now_ms: u64,
        shard: ShardId,
        generation: Gen,
        seq: u64,
        counters: &[SkuCounters],
    ) {
        if generation == self.shards[shard].generation {
            for counters in counters {
                self.apply_counters(now_ms, shard, seq, counters);
            }
        }
    }

    /// Applies one event of a shard's feed.
    pub(super) fn apply_event(&mut self, now_ms: u64, shard: ShardId, event: &Event) -> Applied {
        let state = &self.shards[shard];
        if event.generation < state.generation
            || event.generation == state.generation && event.seq <= state.feed_seq
        {
            return Applied::Old;
        }
        if event.generation > state.generation
            || state.snapshot_seq.is_none()
            || event.seq != state.feed_seq.saturating_add(1)
        {
            return Applied::Gap;
        }
        for counters in &event.counters {
            self.apply_counters(now_ms, shard, event.seq, counters);
        }
        self.shards[shard].feed_seq = event.seq;
        Applied::Next
    }

    /// SKUs of which more may be said now than when they last changed: the feed, moved on by events of others,
    /// has come up to what a reply had told of them. Each is named once.
    pub(super) fn take_caught_up(&mut self, shard: ShardId) -> Vec<SkuKey> {
        let feed_seq = self.shards[shard].feed_seq;
        let skus = &self.skus;
        let is_ahead = |sku: &SkuKey| {
            skus.get(sku).and_then(|known| known.cells[shard].seq).is_some_and(|seq| seq > feed_seq)
        };
        let caught_up: Vec<SkuKey> = self.ahead[shard].iter().filter(|sku| !is_ahead(sku)).copied().collect();
        self.ahead[shard].retain(is_ahead);
        caught_up
    }

    /// The shard's feed was read to its end by a read that began at `at_ms`. Counts for nothing while a snapshot is
    /// missing: what was read was not applied.
    pub(super) fn current(&mut self, shard: ShardId, at_ms: u64) {
        let state = &mut self.shards[shard];
        if state.snapshot_seq.is_some() {
            state.current_at_ms = state.current_at_ms.max(at_ms);
        }
    }

    /// The oldest of the 16 feeds' last moments of being current.
    pub(super) fn current_since_ms(&self) -> u64 {
        let at = |(_, state): (_, &ShardState)| {
            if state.snapshot_seq.is_some() { state.current_at_ms } else { 0 }
        };
        self.shards.iter().map(at).min().unwrap_or(0)
    }

    fn apply_counters(&mut self, now_ms: u64, shard: ShardId, seq: u64, counters: &SkuCounters) {
        let known = self.skus.entry(counters.sku).or_insert_with(SkuView::new);
        let cell = &mut known.cells[shard];
        if cell.seq.is_some_and(|known| known > seq) {
            return;
        }
        cell.seq = Some(seq);
        cell.free = counters.free;
        for (list, amounts) in [(&counters.out, &mut cell.out), (&counters.brought_in, &mut cell.brought_in)]
        {
            *amounts = PerShard::new(|_| 0);
            for &(other, units) in list {
                amounts[other] = units;
            }
        }
        let state = &mut self.shards[shard];
        state.revision = state.revision.wrapping_add(1);
        if seq > state.feed_seq {
            self.ahead[shard].insert(counters.sku);
        }
        let mut note_move = |source: ShardId, target: ShardId| {
            let (out, brought_in) = known.pair(source, target);
            let moves = &mut self.open_moves[target];
            let state = &mut self.shards[target];
            if out > brought_in {
                moves.entry((counters.sku, source)).or_insert(now_ms);
                state.revision = state.revision.wrapping_add(1);
            } else if !moves.is_empty() && moves.remove(&(counters.sku, source)).is_some() {
                state.revision = state.revision.wrapping_add(1);
            }
        };
        for other in ShardId::ALL {
            note_move(shard, other);
            note_move(other, shard);
        }
    }

    fn pair(&self, sku: SkuKey, source: ShardId, target: ShardId) -> (u64, u64) {
        self.skus.get(&sku).map_or((0, 0), |known| known.pair(source, target))
    }

    /// Rises when what the shard has, or what is on its way to it, changes.
    pub(super) fn revision(&self, shard: ShardId) -> u64 {
        self.shards[shard].revision
    }

    /// Units announced to `target` and not brought in yet, with since when the oldest is known.
    pub(super) fn arriving(&self, target: ShardId) -> impl Iterator<Item = (BringIn, u32, u64)> {
        self.open_moves[target].iter().map(move |(&(sku, source), &since_ms)| {
            let (out, brought_in) = self.pair(sku, source, target);
            let units = u32::try_from(out.saturating_sub(brought_in)).unwrap_or(u32::MAX);
            (BringIn { sku, source, out }, units, since_ms)
        })
    }

    /// Free units last seen in one sub-key.
    pub(super) fn free(&self, sku: SkuKey, shard: ShardId) -> u32 {
        self.skus.get(&sku).map_or(0, |known| known.cells[shard].free)
    }

    /// Free units last seen over all sub-keys, moving ones left out.
    pub(super) fn free_everywhere(&self, sku: SkuKey) -> u32 {
        self.skus.get(&sku).map_or(0, |known| known.free)
    }

    /// Units last seen anywhere: free or moving.
    pub(super) fn seen_anywhere(&self, sku: SkuKey) -> u32 {
        self.skus.get(&sku).map_or(0, |known| known.free.saturating_add(known.moving))
    }

    /// How many units are left, as of the last [`View::settle`]. Whether that is fresh is the caller's to ask:
    /// [`View::current_since_ms`].
    pub(super) fn left(&self, sku: SkuKey) -> Left {
        self.skus.get(&sku).map_or(Left::Unknown, |known| known.left)
    }

    /// Works out what the sub-keys of an SKU come to; to be called when one has changed, or the feed has caught up
    /// with it.
    ///
    /// How many are left is known if the view is complete and still: all 16 shards have told, every pair has as
    /// much in as out, and the feed (which carries the marks) has been applied up to all of it.
    pub(super) fn settle(&mut self, sku: SkuKey) -> (Left, u32) {
        let Some(known) = self.skus.get_mut(&sku) else { return (Left::Unknown, 0) };
        let (mut told, mut still) = (true, true);
        let (mut free, mut moving) = (0_u32, 0_u64);
        for (shard, cell) in known.cells.iter() {
            let state = &self.shards[shard];
            told &= cell.seq.is_some_and(|seq| seq <= state.feed_seq) && state.snapshot_seq.is_some();
            free = free.saturating_add(cell.free);
            for target in ShardId::ALL {
                let (out, brought_in) = known.pair(shard, target);
                still &= out == brought_in;
                moving = moving.saturating_add(out.saturating_sub(brought_in));
            }
        }
        known.free = free;
        known.moving = u32::try_from(moving).unwrap_or(u32::MAX);
        known.left = if told && still { Left::Exactly(free) } else { Left::Unknown };
        (known.left, free)
    }
}
