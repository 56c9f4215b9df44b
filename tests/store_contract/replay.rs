//! A gateway's read model in its plainest form: follows the 16 feeds, and compares itself with snapshots.

use std::collections::BTreeMap;
use std::time::Duration;

use rushgate::protocol::{ActivityId, SkuKey, UserId};
use rushgate::stock::calls::{Change, Event, Gen, Mark, SHARDS, ShardId, SkuCounters, Snapshot};
use rushgate::store::{FeedRead, ReservationStore};

#[derive(Debug, Default, PartialEq, Eq)]
struct Shard {
    counters: BTreeMap<SkuKey, SkuCounters>,
    marks: BTreeMap<(ActivityId, UserId), Mark>,
}

pub struct Replay {
    generation: Gen,
    seq: [u64; SHARDS],
    shards: [Shard; SHARDS],
    /// Every event, in order.
    pub events: Vec<(ShardId, Event)>,
}

impl Replay {
    /// From a generation's beginning, in an installation that was empty then.
    pub fn from_start(generation: Gen) -> Self {
        Self {
            generation,
            seq: [0; SHARDS],
            shards: std::array::from_fn(|_| Shard::default()),
            events: Vec::new(),
        }
    }

    pub fn seq(&self, shard: ShardId) -> u64 {
        self.seq[shard.index()]
    }

    /// Reads once; whether there was anything.
    pub async fn read(&mut self, store: &impl ReservationStore, wait: Duration) -> bool {
        let news = store.read_feeds(&self.seq.map(|seq| (self.generation, seq)), wait).await.unwrap();
        let any = !news.is_empty();
        for (shard, read) in news {
            match read {
                FeedRead::Events(events) => events.into_iter().for_each(|event| self.apply(shard, event)),
                FeedRead::Gap => panic!("a gap in shard {shard:?} after {}", self.seq(shard)),
                FeedRead::Unread => panic!("shard {shard:?} could not be read"),
            }
        }
        any
    }

    /// Reads until nothing is left.
    pub async fn catch_up(&mut self, store: &impl ReservationStore) {
        while self.read(store, Duration::ZERO).await {}
    }

    fn apply(&mut self, shard: ShardId, event: Event) {
        assert_eq!(event.generation, self.generation);
        assert_eq!(event.seq, self.seq(shard) + 1, "seq has no gap and no repetition");
        self.seq[shard.index()] = event.seq;
        assert!(!event.counters.is_empty(), "an event touches some SKU");
        let model = &mut self.shards[shard.index()];
        for counters in &event.counters {
            model.counters.insert(counters.sku, counters.clone());
        }
        if let Change::Marked(marks) = &event.change {
            assert!(!marks.is_empty());
            for (user, mark) in marks {
                assert_eq!(ShardId::of(*user), shard);
                model.marks.insert((mark.sku.activity, *user), *mark);
            }
        }
        self.events.push((shard, event));
    }

    pub fn assert_equals(&self, snapshot: &Snapshot) {
        assert_eq!(snapshot.generation, self.generation);
        assert_eq!(snapshot.seq, self.seq(snapshot.shard), "shard {:?}", snapshot.shard);
        assert_eq!(self.shards[snapshot.shard.index()], model_of(snapshot), "shard {:?}", snapshot.shard);
    }
}

fn model_of(snapshot: &Snapshot) -> Shard {
    let model = Shard {
        counters: snapshot.counters.iter().map(|counters| (counters.sku, counters.clone())).collect(),
        marks: snapshot.marks.iter().map(|(user, mark)| ((mark.sku.activity, *user), *mark)).collect(),
    };
    assert_eq!(model.counters.len(), snapshot.counters.len(), "an SKU is told once");
    assert_eq!(model.marks.len(), snapshot.marks.len(), "a mark is told once");
    model
}
