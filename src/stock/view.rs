//! The view: what one gateway knows of every sub-key, from replies, feed and snapshots.
//!
//! Owned by the stock task; no I/O, no clock of its own. Each sub-key's counters carry the (generation, seq) they
//! are of, and an older one never overwrites a newer. "Nothing left anywhere" needs more than sixteen zeros: see
//! [`View::left`].

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

#[derive(Clone, Debug, Default)]
struct Cell {
    /// `None`: this shard has not told of the SKU yet.
    seq: Option<u64>,
    free: u32,
    out: Vec<(ShardId, u64)>,
    brought_in: Vec<(ShardId, u64)>,
}

#[derive(Debug)]
struct ShardState {
    generation: Gen,
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
    skus: HashMap<SkuKey, PerShard<Cell>>,
    shards: PerShard<ShardState>,
    /// By target: pairs seen with more out than in, and since when. In order, so that a run of the model can be
    /// repeated from its seed.
    open_moves: PerShard<BTreeMap<(SkuKey, ShardId), u64>>,
    /// By shard: what a reply told of, later than the feed has been applied to.
    ahead: PerShard<BTreeSet<SkuKey>>,
}

impl View {
    pub(super) fn new(generation: Gen) -> Self {
        let shard = |_| ShardState { generation, feed_seq: 0, snapshot_seq: None, current_at_ms: 0 };
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
        self.skus = known.skus.into_keys().map(|sku| (sku, PerShard::new(|_| Cell::default()))).collect();
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
        let is_ahead =
            |sku: &SkuKey| skus.get(sku).and_then(|cells| cells[shard].seq).is_some_and(|seq| seq > feed_seq);
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
        let cells = self.skus.entry(counters.sku).or_insert_with(|| PerShard::new(|_| Cell::default()));
        let cell = &mut cells[shard];
        if cell.seq.is_some_and(|known| known > seq) {
            return;
        }
        cell.seq = Some(seq);
        if seq > self.shards[shard].feed_seq {
            self.ahead[shard].insert(counters.sku);
        }
        cell.free = counters.free;
        cell.out.clone_from(&counters.out);
        cell.brought_in.clone_from(&counters.brought_in);
        let outgoing: Vec<ShardId> = cell.out.iter().map(|(target, _)| *target).collect();
        let incoming: Vec<ShardId> = ShardId::all().filter(|source| *source != shard).collect();
        for target in outgoing {
            self.note_move(now_ms, counters.sku, shard, target);
        }
        for source in incoming {
            self.note_move(now_ms, counters.sku, source, shard);
        }
    }

    fn note_move(&mut self, now_ms: u64, sku: SkuKey, source: ShardId, target: ShardId) {
        let (out, brought_in) = self.pair(sku, source, target);
        let moves = &mut self.open_moves[target];
        if out > brought_in {
            moves.entry((sku, source)).or_insert(now_ms);
        } else {
            moves.remove(&(sku, source));
        }
    }

    fn pair(&self, sku: SkuKey, source: ShardId, target: ShardId) -> (u64, u64) {
        let amount = |list: &[(ShardId, u64)], other: ShardId| {
            list.iter().find(|(shard, _)| *shard == other).map_or(0, |(_, units)| *units)
        };
        self.skus.get(&sku).map_or((0, 0), |cells| {
            (amount(&cells[source].out, target), amount(&cells[target].brought_in, source))
        })
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
        self.skus.get(&sku).map_or(0, |cells| cells[shard].free)
    }

    /// Free units last seen over all sub-keys, moving ones left out.
    pub(super) fn free_everywhere(&self, sku: SkuKey) -> u32 {
        self.skus
            .get(&sku)
            .map_or(0, |cells| cells.iter().map(|(_, cell)| cell.free).fold(0, u32::saturating_add))
    }

    /// Units last seen anywhere: free or moving.
    pub(super) fn seen_anywhere(&self, sku: SkuKey) -> u32 {
        let moving = ShardId::all()
            .flat_map(|target| self.arriving(target))
            .filter(|(bring_in, _, _)| bring_in.sku == sku)
            .map(|(_, units, _)| units);
        moving.fold(self.free_everywhere(sku), u32::saturating_add)
    }

    /// How many units are left, if the view is complete and still: all 16 shards have told, every pair has as
    /// much in as out, and the feed (which carries the marks) has been applied up to all of it. Whether it is
    /// fresh is the caller's to ask: [`View::current_since_ms`].
    pub(super) fn left(&self, sku: SkuKey) -> Left {
        let Some(cells) = self.skus.get(&sku) else { return Left::Unknown };
        let mut pairs_out: usize = 0;
        let mut pairs_in: usize = 0;
        for (shard, cell) in cells.iter() {
            let state = &self.shards[shard];
            let told = cell.seq.is_some_and(|seq| seq <= state.feed_seq) && state.snapshot_seq.is_some();
            let still = cell.out.iter().all(|&(target, out)| self.pair(sku, shard, target) == (out, out));
            if !told || !still {
                return Left::Unknown;
            }
            pairs_out = pairs_out.saturating_add(cell.out.iter().filter(|(_, units)| *units > 0).count());
            pairs_in =
                pairs_in.saturating_add(cell.brought_in.iter().filter(|(_, units)| *units > 0).count());
        }
        if pairs_out == pairs_in { Left::Exactly(self.free_everywhere(sku)) } else { Left::Unknown }
    }
}
