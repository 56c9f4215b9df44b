//! The 16 feeds of the embedded store: a bounded ring of events per shard, in this process only.
//!
//! The writer task publishes after each commit; readers copy out and wait for more. A reader that fell behind
//! the ring, or holds a position of another generation, is told to take a snapshot. Nothing here blocks for
//! longer than a copy, and nothing is lost when a reader is slow: the ring forgets, the reader starts anew.
//! What SQL holds is the truth: each transaction compares the rings with it before it changes anything.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::stock::calls::{Event, Gen, SHARDS, ShardId};
use crate::store::{FeedPositions, FeedRead};

#[derive(Debug)]
pub(super) struct Feeds {
    generation: Gen,
    events_max: usize,
    rings: [Mutex<Ring>; SHARDS],
    published: watch::Sender<u64>,
}

#[derive(Debug)]
struct Ring {
    /// The seq of the first event held, or of the next to come.
    first_seq: u64,
    events: VecDeque<Event>,
}

impl Ring {
    fn next_seq(&self) -> u64 {
        self.first_seq.saturating_add(self.events.len() as u64)
    }

    /// Makes `seq` the next to come; whether events were missing. Those who wait for them take a snapshot.
    fn expect(&mut self, seq: u64) -> bool {
        let missing = seq != self.next_seq();
        if missing {
            self.events.clear();
            self.first_seq = seq;
        }
        missing
    }

    fn push(&mut self, event: Event, events_max: usize) {
        self.expect(event.seq);
        self.events.push_back(event);
        while self.events.len() > events_max {
            self.events.pop_front();
            self.first_seq = self.first_seq.saturating_add(1);
        }
    }

    fn after(&self, seq: u64) -> FeedRead {
        let wanted = seq.saturating_add(1);
        let Some(skip) = wanted.checked_sub(self.first_seq) else {
            return FeedRead::Gap;
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        FeedRead::Events(self.events.iter().skip(skip).cloned().collect())
    }
}

impl Feeds {
    pub(super) fn new(generation: Gen, events_max: usize) -> Self {
        let ring = || Mutex::new(Ring { first_seq: 1, events: VecDeque::new() });
        Self {
            generation,
            events_max: events_max.max(1),
            rings: std::array::from_fn(|_| ring()),
            published: watch::Sender::new(0),
        }
    }

    /// Appends committed events, in order, and wakes the readers.
    pub(super) fn publish(&self, events: Vec<(ShardId, Event)>) {
        if events.is_empty() {
            return;
        }
        for (shard, event) in events {
            if let Some(ring) = self.rings.get(shard.index()) {
                lock(ring).push(event, self.events_max);
            }
        }
        self.wake();
    }

    /// Brings the rings in line with the seqs that SQL holds. They differ when a commit reached the disk but was
    /// reported as failed: its events were never published, and without this a reader would be told for ever
    /// that it is current.
    pub(super) fn align(&self, seqs: &[u64; SHARDS]) {
        let mut missing = false;
        for (ring, seq) in self.rings.iter().zip(seqs) {
            missing |= lock(ring).expect(seq.saturating_add(1));
        }
        if missing {
            self.wake();
        }
    }

    fn wake(&self) {
        self.published.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Events after `after`, waiting up to `wait` for the first.
    pub(super) async fn read(&self, after: &FeedPositions, wait: Duration) -> Vec<(ShardId, FeedRead)> {
        let deadline = Instant::now().checked_add(wait);
        let mut published = self.published.subscribe();
        loop {
            let news = self.news(after);
            if !news.is_empty() {
                return news;
            }
            // The sender lives as long as `self`, so `changed` fails never.
            match deadline {
                Some(deadline) => {
                    if timeout_at(deadline, published.changed()).await.is_err() {
                        return Vec::new();
                    }
                }
                None => {
                    if published.changed().await.is_err() {
                        return Vec::new();
                    }
                }
            }
        }
    }

    /// Events after `after`, where there is no gap.
    pub(super) fn events(&self, after: &FeedPositions) -> Vec<(ShardId, Vec<Event>)> {
        let events = |(shard, read)| match read {
            FeedRead::Events(events) => Some((shard, events)),
            FeedRead::Gap | FeedRead::Unread => None,
        };
        self.news(after).into_iter().filter_map(events).collect()
    }

    fn news(&self, after: &FeedPositions) -> Vec<(ShardId, FeedRead)> {
        let mut news = Vec::new();
        for ((shard, ring), (generation, seq)) in ShardId::all().zip(&self.rings).zip(after) {
            let read = if *generation == self.generation { lock(ring).after(*seq) } else { FeedRead::Gap };
            if read != FeedRead::Events(Vec::new()) {
                news.push((shard, read));
            }
        }
        news
    }
}

/// A ring is whole between any two statements that can panic, so poison means nothing.
fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::stock::calls::Change;

    const WAIT: Duration = Duration::from_secs(60);

    fn event(seq: u64) -> Event {
        Event { generation: Gen(1), seq, change: Change::Moved, counters: Vec::new() }
    }

    fn shard(number: u8) -> ShardId {
        ShardId::new(number).unwrap()
    }

    fn feeds(upto: u64) -> Feeds {
        let feeds = Feeds::new(Gen(1), 8);
        feeds.publish((1..=upto).map(|seq| (shard(3), event(seq))).collect());
        feeds
    }

    /// Shard 3 at `seq`, the others at the start.
    fn at(seq: u64) -> [u64; SHARDS] {
        let mut seqs = [0; SHARDS];
        seqs[3] = seq;
        seqs
    }

    fn after(seq: u64) -> FeedPositions {
        at(seq).map(|seq| (Gen(1), seq))
    }

    #[test]
    fn an_event_that_was_never_published_is_a_gap_and_the_next_one_follows() {
        let feeds = feeds(2);
        feeds.align(&at(3));
        assert_eq!(feeds.news(&after(2)), [(shard(3), FeedRead::Gap)]);
        assert_eq!(feeds.news(&after(3)), []);
        feeds.publish(vec![(shard(3), event(4))]);
        assert_eq!(feeds.news(&after(3)), [(shard(3), FeedRead::Events(vec![event(4)]))]);
        assert_eq!(feeds.news(&after(2)), [(shard(3), FeedRead::Gap)]);
    }

    #[test]
    fn rings_that_are_in_line_keep_their_events() {
        let feeds = feeds(2);
        feeds.align(&at(2));
        assert_eq!(feeds.news(&after(1)), [(shard(3), FeedRead::Events(vec![event(2)]))]);
        assert_eq!(*feeds.published.borrow(), 1, "nobody is woken");
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken_by_the_gap() {
        let feeds = feeds(2);
        let positions = after(2);
        let aligning = async {
            tokio::task::yield_now().await;
            feeds.align(&at(3));
        };
        let (read, ()) = tokio::join!(feeds.read(&positions, WAIT), aligning);
        assert_eq!(read, [(shard(3), FeedRead::Gap)]);
    }
}
