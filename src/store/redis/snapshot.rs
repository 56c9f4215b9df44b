//! Snapshots, time and probes.
//!
//! A snapshot is taken in guarded pieces, so that no piece holds Redis up: first all counters at one seq, then the
//! marks page by page, then the events since that seq, which bring everything to the last one's. A piece that finds
//! another generation or another process starts the whole again.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Pipeline, Value};

use super::answers::{list, malformed, number, tagged, text};
use super::codec::{self, Fields};
use super::library;
use super::nodes::Use;
use super::shards::RedisShards;
use super::streams::entry_id;
use super::trouble;
use crate::protocol::{ActivityId, SkuKey, UserId};
use crate::stock::calls::{Change, Event, Gen, Mark, ShardId, SkuCounters, Snapshot};
use crate::store::StoreError;

/// Marks in one piece, about; 64 KiB of them.
const MARKS_PER_PIECE: usize = 2000;
/// Events in one piece.
const EVENTS_PER_PIECE: usize = 200;
/// How often a snapshot is begun before the caller is told that the shard does not hold still.
const BEGUN_MAX: usize = 8;

/// What the pieces must agree on.
pub(super) struct Head {
    pub(super) generation: Gen,
    pub(super) epoch: String,
    pub(super) seq: u64,
    pub(super) activities: Vec<ActivityId>,
    pub(super) counters: Vec<SkuCounters>,
}

/// What a snapshot has gathered.
struct Gathered {
    counters: HashMap<SkuKey, SkuCounters>,
    marks: HashMap<(ActivityId, UserId), Mark>,
    seq: u64,
}

impl RedisShards {
    /// Everything one shard holds, consistent at one (generation, seq). A shard that waits for its recovery is
    /// unavailable.
    pub async fn snapshot(&self, shard: ShardId) -> Result<Snapshot, StoreError> {
        for _ in 0..BEGUN_MAX {
            let head = self.head(shard).await?;
            if let Some(gathered) = self.gather(shard, &head).await? {
                let mut counters: Vec<_> = gathered.counters.into_values().collect();
                counters.sort_unstable_by_key(|counters| counters.sku);
                let marks = gathered.marks.into_iter().map(|((_, user), mark)| (user, mark)).collect();
                let (generation, seq) = (head.generation, gathered.seq);
                return Ok(Snapshot { shard, generation, seq, counters, marks });
            }
        }
        Err(StoreError::Unavailable(format!(
            "shard {} changed its generation again and again",
            shard.number()
        )))
    }

    /// The time since the Unix epoch, by the clock of the node named first; while that one is away, of the next one
    /// that answers.
    pub async fn time(&self) -> Result<Duration, StoreError> {
        let mut first_error = None;
        for node in &self.inner.options.nodes {
            match self.time_at(node).await {
                Ok(time) => return Ok(time),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| StoreError::Unavailable("no node of Redis is named".to_owned())))
    }

    async fn time_at(&self, node: &str) -> Result<Duration, StoreError> {
        let mut commands = Pipeline::new();
        commands.cmd("TIME");
        let link = self.inner.nodes.link(node, Use::Commands);
        let failed = |error| trouble::told(&error, "asking the time", node);
        let answers = link.send(&commands, self.inner.options.call_timeout).await.map_err(failed)?;
        let answer = answers.into_iter().next().unwrap_or_default().extract_error().map_err(failed)?;
        let mut parts = list(answer).unwrap_or_default().into_iter().map(number);
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(seconds), Some(micros)) => {
                Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
            }
            _ => Err(StoreError::Corrupt(format!("Redis at {node} does not tell the time"))),
        }
    }

    /// Whether every shard would serve a call now: runs a function on each.
    pub async fn probe(&self) -> Result<(), StoreError> {
        for shard in ShardId::all() {
            let keys = vec![self.inner.keys.meta(shard)];
            let answer = self.function(shard, "a probe", library::GUARD, keys, |_| {}).await?;
            match tagged(answer) {
                Some((b'D', _)) => {}
                Some((b'R', _)) => return Err(recovering(shard)),
                _ => return Err(malformed("a probe", shard, "no guard")),
            }
        }
        Ok(())
    }

    /// Counters of everything, at one seq.
    pub(super) async fn head(&self, shard: ShardId) -> Result<Head, StoreError> {
        let (what, keys) = ("a snapshot", &self.inner.keys);
        let mut activities: Vec<ActivityId> = Vec::new();
        for _ in 0..BEGUN_MAX {
            let mut touched = vec![keys.meta(shard)];
            touched.extend(activities.iter().map(|activity| keys.stock(shard, *activity)));
            let answer = self
                .function(shard, what, library::COUNTERS, touched, |command| {
                    for activity in &activities {
                        command.arg(activity.0);
                    }
                })
                .await?;
            match tagged(answer).ok_or_else(|| malformed(what, shard, "no list"))? {
                (b'D', rest) => {
                    return head_of(rest, activities).ok_or_else(|| malformed(what, shard, "a torn head"));
                }
                (b'A', mut rest) => {
                    let named = rest.next().and_then(activity_ids);
                    activities = named.ok_or_else(|| malformed(what, shard, "no list of activities"))?;
                }
                _ => return Err(recovering(shard)),
            }
        }
        Err(StoreError::Unavailable(format!("shard {} has other activities every time", shard.number())))
    }

    /// `None` when it has to begin again.
    async fn gather(&self, shard: ShardId, head: &Head) -> Result<Option<Gathered>, StoreError> {
        let counters = head.counters.iter().map(|counters| (counters.sku, counters.clone())).collect();
        let mut gathered = Gathered { counters, marks: HashMap::new(), seq: head.seq };
        for activity in &head.activities {
            let Some(marks) = self.marks_since(shard, head, *activity).await? else { return Ok(None) };
            gathered.marks.extend(marks.into_iter().map(|(user, mark)| ((*activity, user), mark)));
        }
        Ok(self.gather_tail(shard, head, &mut gathered).await?.then_some(gathered))
    }

    /// An activity's marks, each as it stood at the head or later; `None` when it has to begin again.
    pub(super) async fn marks_since(
        &self,
        shard: ShardId,
        head: &Head,
        activity: ActivityId,
    ) -> Result<Option<HashMap<UserId, Mark>>, StoreError> {
        let (what, keys) = ("a snapshot", &self.inner.keys);
        let (mut found, mut cursor) = (HashMap::new(), "0".to_owned());
        loop {
            let touched = vec![keys.meta(shard), keys.buyers(shard, activity)];
            let answer = self
                .function(shard, what, library::MARKS, touched, |command| {
                    command.arg(head.generation.0).arg(&head.epoch).arg(&cursor).arg(MARKS_PER_PIECE);
                })
                .await?;
            let Some((b'D', mut rest)) = tagged(answer) else { return Ok(None) };
            let next = rest.next().and_then(text);
            let blob = rest.next().and_then(super::answers::bytes);
            let (Some(next), Some(blob)) = (next, blob) else {
                return Err(malformed(what, shard, "a torn page of marks"));
            };
            let mut marks = Vec::new();
            Fields::of(&blob).marks(activity, true, &mut marks).map_err(|problem| {
                StoreError::Corrupt(format!("{}: {problem}", keys.buyers(shard, activity)))
            })?;
            found.extend(marks);
            if next == "0" {
                return Ok(Some(found));
            }
            cursor = next;
        }
    }

    /// Applies what happened since the head's seq; the marks scanned are all at some seq up to the end of it.
    async fn gather_tail(
        &self,
        shard: ShardId,
        head: &Head,
        gathered: &mut Gathered,
    ) -> Result<bool, StoreError> {
        loop {
            let Some((upto, events)) = self.tail_piece(shard, head, gathered.seq).await? else {
                return Ok(false);
            };
            for event in events {
                gathered.apply(event);
            }
            if gathered.seq >= upto {
                return Ok(true);
            }
        }
    }

    /// The shard's seq, and some of the events after one; `None` when it has to begin again.
    pub(super) async fn tail_piece(
        &self,
        shard: ShardId,
        head: &Head,
        after: u64,
    ) -> Result<Option<(u64, Vec<Event>)>, StoreError> {
        let (what, keys) = ("a snapshot", &self.inner.keys);
        let touched = vec![keys.meta(shard), keys.feed(shard)];
        let answer = self
            .function(shard, what, library::TAIL, touched, |command| {
                command.arg(head.generation.0).arg(&head.epoch).arg(after).arg(EVENTS_PER_PIECE);
            })
            .await?;
        let Some((b'D', mut rest)) = tagged(answer) else { return Ok(None) };
        let Some(upto) = rest.next().and_then(number) else {
            return Err(malformed(what, shard, "a torn tail"));
        };
        let (mut events, mut seq) = (Vec::new(), after);
        while let (Some(id), Some(body)) = (rest.next(), rest.next()) {
            let Some(event) = self.tail_event(shard, id, body)? else { return Ok(None) };
            seq = seq.saturating_add(1);
            if event.seq != seq {
                // Trimmed while the marks were read.
                return Ok(None);
            }
            events.push(event);
        }
        Ok(Some((upto, events)))
    }

    fn tail_event(&self, shard: ShardId, id: Value, body: Value) -> Result<Option<Event>, StoreError> {
        let (Some(id), Some(body)) = (entry_id(id), super::answers::bytes(body)) else { return Ok(None) };
        let (_, event) = codec::event(id.generation, id.seq, &body);
        let feed = self.inner.keys.feed(shard);
        event.map(Some).map_err(|problem| StoreError::Corrupt(format!("{feed} entry {id}: {problem}")))
    }
}

impl Gathered {
    fn apply(&mut self, event: Event) {
        self.seq = event.seq;
        for counters in event.counters {
            self.counters.insert(counters.sku, counters);
        }
        if let Change::Marked(marks) = event.change {
            self.marks.extend(marks.into_iter().map(|(user, mark)| ((mark.sku.activity, user), mark)));
        }
    }
}

pub(super) fn recovering(shard: ShardId) -> StoreError {
    StoreError::Unavailable(format!("shard {} waits for its recovery", shard.number()))
}

pub(super) fn activity_ids(ids: Value) -> Option<Vec<ActivityId>> {
    let mut ids = list(ids)?
        .into_iter()
        .map(|id| number(id).and_then(|id| u32::try_from(id).ok()).map(ActivityId))
        .collect::<Option<Vec<_>>>()?;
    ids.sort_unstable();
    Some(ids)
}

fn head_of(mut rest: std::vec::IntoIter<Value>, activities: Vec<ActivityId>) -> Option<Head> {
    let generation = Gen(number(rest.next()?)?);
    let (epoch, seq) = (text(rest.next()?)?, number(rest.next()?)?);
    let blob = super::answers::bytes(rest.next()?)?;
    let counters = Fields::of(&blob).counters().ok()?;
    Some(Head { generation, epoch, seq, activities, counters })
}
