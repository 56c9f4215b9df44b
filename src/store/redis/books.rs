//! What a reconciliation reads of a shard: everything of one activity at one (generation, seq), as it lies there,
//! whatever is wrong with it, and the reservations that its feed still tells.
//!
//! Called by `rushgate reconcile`, and by writers for their look at the counters alone. Changes nothing. Taken in guarded
//! pieces like a snapshot: first the stock, then the marks page by page, then the events since, which bring both to one
//! seq. A piece that finds another generation or another process, and a load in between, start the whole again.

use std::collections::{BTreeMap, HashMap, HashSet};

use redis::{Cmd, Value};

use super::answers::{bytes, list, malformed, number, tagged, text};
use super::codec;
use super::keys::GROUP;
use super::library;
use super::settle::amounts;
use super::shards::RedisShards;
use super::snapshot::{Head, recovering};
use super::streams::{RawEntry, entry_id};
use super::types::{AppliedLoad, EntryId};
use crate::protocol::{ActivityId, OrderState, SkuId, UserId};
use crate::stock::calls::{Change, Event, Gen, Mark, ShardId, SkuCounters};
use crate::store::StoreError;

/// How often the books are begun before the caller is told that the shard does not hold still.
const BEGUN_MAX: usize = 8;
/// Entries of a feed in one piece.
const ENTRIES_PER_PIECE: usize = 500;

/// An SKU's stock in a shard. Free units may be below zero: somebody else's hand was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkuBooks {
    /// Free units.
    pub free: i64,
    /// Cumulative units moved out, per target.
    pub out: BTreeMap<ShardId, u64>,
    /// Cumulative units brought in, per source.
    pub brought_in: BTreeMap<ShardId, u64>,
}

/// Everything that one shard holds of an activity, at one (generation, seq).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardBooks {
    /// The shard.
    pub shard: ShardId,
    /// Its generation.
    pub generation: Gen,
    /// Corrections that were ever made in it; another one counts only as long as this is so.
    pub mended: u64,
    /// Of every SKU that it knows.
    pub skus: BTreeMap<SkuId, SkuBooks>,
    /// Every load applied.
    pub loads: Vec<AppliedLoad>,
    /// Every mark.
    pub marks: HashMap<UserId, Mark>,
}

/// The first piece.
struct Begun {
    head: Head,
    books: ShardBooks,
}

impl RedisShards {
    /// Everything a shard holds of an activity; `None` where it holds nothing of it, or a tombstone. A shard that waits
    /// for its recovery is unavailable.
    pub async fn books(
        &self,
        shard: ShardId,
        activity: ActivityId,
    ) -> Result<Option<ShardBooks>, StoreError> {
        for _ in 0..BEGUN_MAX {
            let Some(Begun { mut head, mut books }) = self.stock_books(shard, activity).await? else {
                return Ok(None);
            };
            let Some(marks) = self.marks_since(shard, &head, activity).await? else { continue };
            books.marks = marks;
            if self.bring_up_to_date(shard, activity, &mut head, &mut books).await? {
                return Ok(Some(books));
            }
        }
        Err(StoreError::Unavailable(format!(
            "shard {} changed its generation or its stock again and again",
            shard.number()
        )))
    }

    /// The stock of an activity in a shard, without anything else.
    pub async fn stock_of(
        &self,
        shard: ShardId,
        activity: ActivityId,
    ) -> Result<BTreeMap<SkuId, SkuBooks>, StoreError> {
        let begun = self.stock_books(shard, activity).await?;
        Ok(begun.map(|begun| begun.books.skus).unwrap_or_default())
    }

    /// Every activity's counters in a shard at one seq, which is given with its generation.
    pub async fn counters(&self, shard: ShardId) -> Result<((Gen, u64), Vec<SkuCounters>), StoreError> {
        let head = self.head(shard).await?;
        Ok(((head.generation, head.seq), head.counters))
    }

    async fn stock_books(&self, shard: ShardId, activity: ActivityId) -> Result<Option<Begun>, StoreError> {
        let (what, keys) = ("the books", &self.inner.keys);
        let touched = vec![keys.meta(shard), keys.stock(shard, activity)];
        let answer = self.function(shard, what, library::BOOKS, touched, |command| {
            command.arg(activity.0);
        });
        let torn = || malformed(what, shard, "a torn list");
        let mut rest = match tagged(answer.await?) {
            Some((b'D', rest)) => rest,
            Some((b'N', _)) => return Ok(None),
            Some((b'R', _)) => return Err(recovering(shard)),
            _ => return Err(torn()),
        };
        let generation = rest.next().and_then(number).map(Gen).ok_or_else(torn)?;
        let epoch = rest.next().and_then(text).ok_or_else(torn)?;
        let seq = rest.next().and_then(number).ok_or_else(torn)?;
        let mended = rest.next().and_then(number).ok_or_else(torn)?;
        let fields = rest.next().and_then(list).ok_or_else(torn)?;
        let head = Head { generation, epoch, seq, activities: vec![activity], counters: Vec::new() };
        let mut books = ShardBooks {
            shard,
            generation,
            mended,
            skus: BTreeMap::new(),
            loads: Vec::new(),
            marks: HashMap::new(),
        };
        let key = keys.stock(shard, activity);
        let mut fields = fields.into_iter();
        while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
            let (field, value) = (text(field).ok_or_else(torn)?, bytes(value).ok_or_else(torn)?);
            books
                .put(&field, &value)
                .map_err(|problem| StoreError::Corrupt(format!("{key} field {field}: {problem}")))?;
        }
        Ok(Some(Begun { head, books }))
    }

    /// Whether all events since the first piece are in; otherwise it has to begin again.
    async fn bring_up_to_date(
        &self,
        shard: ShardId,
        activity: ActivityId,
        head: &mut Head,
        books: &mut ShardBooks,
    ) -> Result<bool, StoreError> {
        loop {
            let Some((upto, events)) = self.tail_piece(shard, head, head.seq).await? else {
                return Ok(false);
            };
            for event in events {
                head.seq = event.seq;
                if !books.apply(activity, event) {
                    return Ok(false);
                }
            }
            if head.seq >= upto {
                return Ok(true);
            }
        }
    }

    /// Reservations in entries that the writers' group has not finished: delivered to one and not acknowledged, or
    /// delivered to none.
    pub async fn unfinished(&self, shard: ShardId) -> Result<Vec<(UserId, Mark)>, StoreError> {
        let feed = self.inner.keys.feed(shard);
        // What is delivered after this is pending when that is read.
        let Some(delivered) = self.last_delivered(shard, &feed).await? else {
            return self.reservations(shard, "-".to_owned(), |_| true).await;
        };
        let pending = self.pending(shard, &feed).await?;
        let first = pending.iter().min().copied().unwrap_or(delivered);
        let is_unfinished = |id: EntryId| id > delivered || pending.contains(&id);
        self.reservations(shard, first.to_string(), is_unfinished).await
    }

    /// Every reservation that the feed still tells, finished or not.
    pub async fn recorded(&self, shard: ShardId) -> Result<Vec<(UserId, Mark)>, StoreError> {
        self.reservations(shard, "-".to_owned(), |_| true).await
    }

    async fn one(&self, shard: ShardId, command: Cmd, key: &str) -> Result<Value, StoreError> {
        let work = self.work(shard, "reading the feed", vec![command], vec![key.to_owned()]);
        Ok(self.run(&work).await?.into_iter().next().unwrap_or_default())
    }

    /// The last entry that the group was given; `None` while there is no group.
    async fn last_delivered(&self, shard: ShardId, feed: &str) -> Result<Option<EntryId>, StoreError> {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(feed);
        if number(self.one(shard, exists, feed).await?) != Some(1) {
            return Ok(None);
        }
        let mut groups = redis::cmd("XINFO");
        groups.arg("GROUPS").arg(feed);
        for group in list(self.one(shard, groups, feed).await?).unwrap_or_default() {
            let fields: Vec<Value> = match group {
                Value::Map(pairs) => pairs.into_iter().flat_map(|(name, value)| [name, value]).collect(),
                other => list(other).unwrap_or_default(),
            };
            let (mut fields, mut name, mut last) = (fields.into_iter(), None, None);
            while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
                match text(field).as_deref() {
                    Some("name") => name = text(value),
                    Some("last-delivered-id") => last = entry_id(value),
                    _ => {}
                }
            }
            if name.as_deref() == Some(GROUP) {
                return Ok(last);
            }
        }
        Ok(None)
    }

    async fn pending(&self, shard: ShardId, feed: &str) -> Result<HashSet<EntryId>, StoreError> {
        let (mut found, mut from) = (HashSet::new(), "-".to_owned());
        loop {
            let mut command = redis::cmd("XPENDING");
            command.arg(feed).arg(GROUP).arg(&from).arg("+").arg(ENTRIES_PER_PIECE);
            let page = list(self.one(shard, command, feed).await?).unwrap_or_default();
            let length = page.len();
            let mut last = None;
            for entry in page {
                last = list(entry).and_then(|entry| entry_id(entry.into_iter().next()?));
                found.extend(last);
            }
            match last {
                Some(last) if length >= ENTRIES_PER_PIECE => from = format!("({last}"),
                _ => return Ok(found),
            }
        }
    }

    /// Reservations in the entries from an id on that are wanted. What cannot be read holds none.
    async fn reservations(
        &self,
        shard: ShardId,
        mut from: String,
        is_wanted: impl Fn(EntryId) -> bool,
    ) -> Result<Vec<(UserId, Mark)>, StoreError> {
        let feed = self.inner.keys.feed(shard);
        let mut found = Vec::new();
        loop {
            let mut command = redis::cmd("XRANGE");
            command.arg(&feed).arg(&from).arg("+").arg("COUNT").arg(ENTRIES_PER_PIECE);
            let page = list(self.one(shard, command, &feed).await?).unwrap_or_default();
            let length = page.len();
            let mut last = None;
            for (id, body) in page.into_iter().filter_map(raw_entry) {
                last = Some(id);
                if is_wanted(id) {
                    found.extend(reserved(id, &body));
                }
            }
            match last {
                Some(last) if length >= ENTRIES_PER_PIECE => from = format!("({last}"),
                _ => return Ok(found),
            }
        }
    }
}

fn raw_entry(entry: Value) -> Option<RawEntry> {
    let mut parts = list(entry)?.into_iter();
    let id = entry_id(parts.next()?)?;
    let body = parts.next().and_then(list).and_then(|fields| bytes(fields.into_iter().nth(1)?));
    Some((id, body.unwrap_or_default()))
}

fn reserved(id: EntryId, body: &[u8]) -> Vec<(UserId, Mark)> {
    match codec::event(id.generation, id.seq, body) {
        (_, Ok(Event { change: Change::Marked(mut marks), .. })) => {
            marks.retain(|(_, mark)| mark.state == OrderState::Reserved);
            marks
        }
        _ => Vec::new(),
    }
}

impl ShardBooks {
    /// Takes in one field of the stock's hash.
    fn put(&mut self, field: &str, value: &[u8]) -> Result<(), String> {
        let (kind, name) = field.split_once(':').ok_or("no known field")?;
        if kind == "load" {
            self.loads.push(AppliedLoad { id: name.to_owned(), amounts: amounts(value)? });
            return Ok(());
        }
        let sku = self.skus.entry(SkuId(name.parse().map_err(|_| "no SKU")?)).or_default();
        match kind {
            "free" => {
                let free = std::str::from_utf8(value).ok().and_then(|free| free.parse().ok());
                sku.free = free.ok_or("no number of units")?;
            }
            "out" => sku.out = codec::peers_of(value)?.into_iter().collect(),
            "in" => sku.brought_in = codec::peers_of(value)?.into_iter().collect(),
            _ => return Err("no known field".to_owned()),
        }
        Ok(())
    }

    /// Takes in an event; whether it could be: a load's amount stands in no event.
    fn apply(&mut self, activity: ActivityId, event: Event) -> bool {
        let is_ours = |counters: &&SkuCounters| counters.sku.activity == activity;
        for counters in event.counters.iter().filter(is_ours) {
            if event.change == Change::Loaded {
                return false;
            }
            let sku = SkuBooks {
                free: counters.free.into(),
                out: counters.out.iter().copied().collect(),
                brought_in: counters.brought_in.iter().copied().collect(),
            };
            self.skus.insert(counters.sku.sku, sku);
        }
        if let Change::Marked(marks) = event.change {
            self.marks.extend(marks.into_iter().filter(|(_, mark)| mark.sku.activity == activity));
        }
        true
    }
}
