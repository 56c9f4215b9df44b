//! The 16 feeds of the embedded store: a bounded ring of events per shard, in this process only.
//!
//! The writer task publishes after each commit; readers copy out and wait for more. A reader that fell behind
//! the ring, or holds a position of another generation, is told to take a snapshot. Nothing here blocks for
//! longer than a copy, and nothing is lost when a reader is slow: the ring forgets, the reader starts anew.

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

    fn push(&mut self, event: Event, events_max: usize) {
        if event.seq != self.next_seq() {
            // An event is missing (a commit that was reported as failed had reached the disk): those who wait
            // for it take a snapshot.
            self.events.clear();
            self.first_seq = event.seq;
        }
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
