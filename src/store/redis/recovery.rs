//! What the leader of a recovery does with a shard (rule 11): looks at it, lets an open one take the new generation
//! over, fences a closed one, reads its content, and opens it again with what the leader made of it.
//!
//! Content is staged beside the shard's keys in small pieces; one function then decides whether this recovery is
//! still the one, and switches it in. What a leader that died has staged expires by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Cmd, Value};

use super::answers::{bytes, list, malformed, number, tagged, text};
use super::codec::{self, Fields};
use super::library;
use super::settle::amounts;
use super::shards::RedisShards;
use super::snapshot::activity_ids;
use super::types::{
    ActivityContent, ActivityPhase, Adopted, AppliedLoad, Fenced, Rebuilt, ShardContent, ShardState,
};
use crate::protocol::{ActivityId, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId, SkuCounters};
use crate::store::StoreError;

/// Fields read or staged in one piece.
const FIELDS_PER_PIECE: usize = 1000;
/// Marks in one event of a rebuilt feed.
const MARKS_PER_EVENT: usize = 256;
/// What is staged and never switched in goes after this.
const STAGED_SECONDS: u32 = 3600;
/// The one function that switches content in appends what is unsettled, however much that is.
const REBUILD_MAX: Duration = Duration::from_secs(10);
/// How often an open shard may have other activities than a moment before.
const ASKED_MAX: usize = 8;

/// Fields of a hash with their values.
type FieldValues = Vec<(Vec<u8>, Vec<u8>)>;

impl RedisShards {
    /// What a shard says of itself, open or not.
    pub async fn shard_state(&self, shard: ShardId) -> Result<ShardState, StoreError> {
        let what = "a shard's state";
        let keys = vec![self.inner.keys.meta(shard)];
        let answer = self.function(shard, what, library::STATE, keys, |_| {}).await?;
        let torn = || malformed(what, shard, "a torn list");
        let mut parts = list(answer).ok_or_else(torn)?.into_iter();
        let own_epoch = parts.next().and_then(text).ok_or_else(torn)?;
        let mut fields = parts.next().and_then(list).ok_or_else(torn)?.into_iter();
        let mut meta = BTreeMap::new();
        while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
            meta.insert(text(field).ok_or_else(torn)?, text(value).ok_or_else(torn)?);
        }
        let number = |name: &str| meta.get(name).and_then(|value| value.parse().ok()).unwrap_or_default();
        let mut activities = Vec::new();
        for (field, value) in &meta {
            let Some(id) = field.strip_prefix("a:") else { continue };
            let phase = match value.as_str() {
                "live" => ActivityPhase::Live,
                "ending" => ActivityPhase::Ending,
                "archived" => ActivityPhase::Archived,
                other => return Err(malformed(what, shard, format!("activity {id} in phase {other}"))),
            };
            activities.push((ActivityId(id.parse().map_err(|_| torn())?), phase));
        }
        activities.sort_unstable_by_key(|(id, _)| *id);
        let epoch = meta.get("epoch").cloned();
        let is_open =
            epoch.as_ref() == Some(&own_epoch) && meta.get("phase").is_some_and(|phase| phase == "open");
        Ok(ShardState {
            own_epoch,
            epoch,
            generation: Gen(number("gen")),
            is_open,
            seq: number("seq"),
            activities,
        })
    }

    /// Lets an open shard take over a new generation, and tells its counters at that moment. Refused when it is
    /// closed, of another epoch than was seen, or of a later generation.
    pub async fn adopt(&self, shard: ShardId, epoch: &str, generation: Gen) -> Result<Adopted, StoreError> {
        let (what, keys) = ("adopting a generation", &self.inner.keys);
        let mut activities: Vec<ActivityId> = Vec::new();
        for _ in 0..ASKED_MAX {
            let mut touched = vec![keys.meta(shard), keys.feed(shard)];
            touched.extend(activities.iter().map(|activity| keys.stock(shard, *activity)));
            let answer = self.function(shard, what, library::ADOPT, touched, |command| {
                command.arg(epoch).arg(generation.0);
                for activity in &activities {
                    command.arg(activity.0);
                }
            });
            match tagged(answer.await?) {
                Some((b'D', mut rest)) => {
                    let blob = rest.next().and_then(bytes).unwrap_or_default();
                    let counters = Fields::of(&blob).counters();
                    return counters.map(Adopted::Adopted).map_err(|problem| malformed(what, shard, problem));
                }
                Some((b'A', mut rest)) => {
                    let named = rest.next().and_then(activity_ids);
                    activities = named.ok_or_else(|| malformed(what, shard, "no list of activities"))?;
                }
                Some((b'X', _)) => return Ok(Adopted::Refused),
                _ => return Err(malformed(what, shard, "an unknown letter")),
            }
        }
        Err(StoreError::Unavailable(format!("shard {} has other activities every time", shard.number())))
    }

    /// Closes an open shard of a generation below this one: it is to be rebuilt, not adopted. Refused when it is closed, of
    /// another epoch than was seen, or not so old.
    pub async fn shut(&self, shard: ShardId, epoch: &str, below: Gen) -> Result<Fenced, StoreError> {
        self.bar(shard, ("shutting a shard", library::SHUT), epoch, below).await
    }

    /// Keeps a closed shard closed to every recovery before this generation: a leader that was superseded while it read
    /// opens nothing any more. Before this one reads.
    pub async fn fence(&self, shard: ShardId, epoch: &str, generation: Gen) -> Result<Fenced, StoreError> {
        self.bar(shard, ("fencing a shard", library::FENCE), epoch, generation).await
    }

    async fn bar(
        &self,
        shard: ShardId,
        (what, function): (&'static str, &'static str),
        epoch: &str,
        generation: Gen,
    ) -> Result<Fenced, StoreError> {
        let keys = vec![self.inner.keys.meta(shard)];
        let answer = self.function(shard, what, function, keys, |command| {
            command.arg(epoch).arg(generation.0);
        });
        match tagged(answer.await?) {
            Some((b'D', _)) => Ok(Fenced::Fenced),
            Some((b'X', _)) => Ok(Fenced::Refused),
            _ => Err(malformed(what, shard, "an unknown letter")),
        }
    }

    /// Everything a closed shard holds. Nobody changes a closed shard; that it stayed in one epoch while it
    /// was read is checked.
    pub async fn content(&self, shard: ShardId) -> Result<ShardContent, StoreError> {
        let state = self.shard_state(shard).await?;
        let mut activities = Vec::with_capacity(state.activities.len());
        for (id, phase) in state.activities {
            let mut content =
                ActivityContent { id, phase, counters: Vec::new(), loads: Vec::new(), marks: Vec::new() };
            if phase != ActivityPhase::Archived {
                self.read_stock(shard, &mut content).await?;
                self.read_marks(shard, &mut content).await?;
            }
            activities.push(content);
        }
        let after = self.shard_state(shard).await?;
        if after.own_epoch != state.own_epoch || after.is_open != state.is_open {
            return Err(StoreError::Unavailable(format!(
                "shard {} went to another Redis, or that was promoted, while it was read",
                shard.number()
            )));
        }
        Ok(ShardContent { epoch: state.own_epoch, activities })
    }

    async fn read_stock(&self, shard: ShardId, content: &mut ActivityContent) -> Result<(), StoreError> {
        let key = self.inner.keys.stock(shard, content.id);
        let wrong =
            |field: &str, problem: &str| StoreError::Corrupt(format!("{key} field {field}: {problem}"));
        let mut skus: BTreeMap<SkuId, SkuCounters> = BTreeMap::new();
        for (field, value) in self.scan(shard, &key).await? {
            let field = String::from_utf8_lossy(&field).into_owned();
            let Some((kind, name)) = field.split_once(':') else {
                return Err(wrong(&field, "no known field"));
            };
            if kind == "load" {
                let amounts = amounts(&value).map_err(|problem| wrong(&field, &problem))?;
                content.loads.push(AppliedLoad { id: name.to_owned(), amounts });
                continue;
            }
            let sku = SkuId(name.parse().map_err(|_| wrong(&field, "no SKU"))?);
            let counters = skus.entry(sku).or_insert_with(|| SkuCounters {
                sku: SkuKey { activity: content.id, sku },
                free: 0,
                out: Vec::new(),
                brought_in: Vec::new(),
            });
            let peers = || codec::peers_of(&value).map_err(|problem| wrong(&field, &problem));
            match kind {
                "free" => {
                    let free = std::str::from_utf8(&value).ok().and_then(|free| free.parse().ok());
                    counters.free = free.ok_or_else(|| wrong(&field, "no number of units"))?;
                }
                "out" => counters.out = peers()?,
                "in" => counters.brought_in = peers()?,
                _ => return Err(wrong(&field, "no known field")),
            }
        }
        content.counters = skus.into_values().collect();
        content.loads.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        Ok(())
    }

    async fn read_marks(&self, shard: ShardId, content: &mut ActivityContent) -> Result<(), StoreError> {
        let key = self.inner.keys.buyers(shard, content.id);
        let mut marks: BTreeMap<UserId, Mark> = BTreeMap::new();
        for (user, mark) in self.scan(shard, &key).await? {
            let read = Fields::of(&user).u64().and_then(|user| {
                let mark = Fields::of(&mark).mark(content.id, mark.len() >= 22)?;
                Ok((UserId(user), mark))
            });
            let (user, mark) =
                read.map_err(|problem| StoreError::Corrupt(format!("a mark in {key}: {problem}")))?;
            marks.insert(user, mark);
        }
        content.marks = marks.into_iter().collect();
        Ok(())
    }

    /// A hash, page by page; a field may come twice.
    async fn scan(&self, shard: ShardId, key: &str) -> Result<FieldValues, StoreError> {
        let (what, mut cursor) = ("reading a shard", "0".to_owned());
        let torn = || malformed(what, shard, "a torn page");
        let mut found = Vec::new();
        loop {
            let mut command = redis::cmd("HSCAN");
            command.arg(key).arg(&cursor).arg("COUNT").arg(FIELDS_PER_PIECE);
            let answers = self.run(&self.work(shard, what, vec![command], vec![key.to_owned()])).await?;
            let page = answers.into_iter().next().and_then(list).ok_or_else(torn)?;
            let mut page = page.into_iter();
            let next = page.next().and_then(text).ok_or_else(torn)?;
            let mut fields = page.next().and_then(list).ok_or_else(torn)?.into_iter();
            while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
                found.push((bytes(field).ok_or_else(torn)?, bytes(value).ok_or_else(torn)?));
            }
            if next == "0" {
                return Ok(found);
            }
            cursor = next;
        }
    }

    /// Opens a closed shard under a new generation with the content that the leader made. Decided by one function:
    /// the epoch must be the one that was seen, no later recovery may have been here, and it must not be
    /// open yet. Every mark still RESERVED is told in the feed once more, for writers that may not have seen it.
    pub async fn rebuild(
        &self,
        shard: ShardId,
        epoch: &str,
        generation: Gen,
        content: &ShardContent,
    ) -> Result<Rebuilt, StoreError> {
        let (what, keys) = ("a rebuild", &self.inner.keys);
        // Two leaders at once must not stage into the same place.
        let attempt = format!("{}-{:016x}", generation.0, fastrand::u64(..));
        let is_dead = |activity: &&ActivityContent| activity.phase == ActivityPhase::Archived;
        let dead: Vec<_> = content.activities.iter().filter(is_dead).collect();
        let live: Vec<_> = content.activities.iter().filter(|activity| !is_dead(activity)).collect();
        let mut touched = vec![keys.meta(shard), keys.feed(shard)];
        let (mut named, mut events, mut staged_keys) = (Vec::new(), Vec::new(), Vec::new());
        for activity in &live {
            let staged = ["stock", "buyers"].map(|what| keys.staged(shard, &attempt, activity.id, what));
            let [stock, buyers] = &staged;
            let counts = [
                self.stage(shard, stock, stock_fields(activity)).await?,
                self.stage(shard, buyers, buyer_fields(activity)).await?,
            ];
            touched.extend([keys.stock(shard, activity.id), keys.buyers(shard, activity.id)]);
            staged_keys.extend(staged.iter().cloned());
            touched.extend(staged);
            named.push((activity.id, activity.phase, counts));
            let unsettled: Vec<_> = activity
                .marks
                .iter()
                .filter(|(_, mark)| mark.state == OrderState::Reserved)
                .copied()
                .collect();
            events.extend(
                unsettled.chunks(MARKS_PER_EVENT).map(|marks| codec::marked_body(activity.id, marks)),
            );
        }
        for activity in &dead {
            touched.extend([keys.stock(shard, activity.id), keys.buyers(shard, activity.id)]);
        }
        let mut command = library::fcall(library::REBUILD, &touched);
        command.arg(epoch).arg(generation.0).arg(live.len()).arg(dead.len());
        for (id, phase, [stock, buyers]) in &named {
            let phase = if *phase == ActivityPhase::Ending { "ending" } else { "live" };
            command.arg(id.0).arg(phase).arg(*stock).arg(*buyers);
        }
        for activity in &dead {
            command.arg(activity.id.0);
        }
        for event in &events {
            command.arg(event.as_slice());
        }
        let mut work = self.work(shard, what, vec![command], touched);
        work.within = work.within.max(REBUILD_MAX);
        let answer = self.run(&work).await.map(|answers| answers.into_iter().next().unwrap_or_default());
        let outcome = answer.and_then(|answer| rebuilt(what, shard, answer));
        if !matches!(outcome, Ok(Rebuilt::Opened)) && !staged_keys.is_empty() {
            // Best effort: it expires by itself, too.
            let mut remove = redis::cmd("UNLINK");
            remove.arg(&staged_keys);
            let _ = self.run(&self.work(shard, what, vec![remove], staged_keys)).await;
        }
        outcome
    }

    /// Lays fields beside the shard; how many different ones that were.
    async fn stage(&self, shard: ShardId, key: &str, fields: FieldValues) -> Result<usize, StoreError> {
        let what = "staging a rebuild";
        let fields: BTreeMap<_, _> = fields.into_iter().collect();
        let mut piece = Vec::new();
        for (field, value) in &fields {
            piece.push((field, value));
            if piece.len() >= FIELDS_PER_PIECE {
                self.run(&self.work(shard, what, stage_commands(key, &piece), vec![key.to_owned()])).await?;
                piece.clear();
            }
        }
        if !piece.is_empty() {
            self.run(&self.work(shard, what, stage_commands(key, &piece), vec![key.to_owned()])).await?;
        }
        Ok(fields.len())
    }
}

fn stage_commands(key: &str, fields: &[(&Vec<u8>, &Vec<u8>)]) -> Vec<Cmd> {
    let mut set = redis::cmd("HSET");
    set.arg(key);
    for (field, value) in fields {
        set.arg(field.as_slice()).arg(value.as_slice());
    }
    let mut expire = redis::cmd("EXPIRE");
    expire.arg(key).arg(STAGED_SECONDS);
    vec![set, expire]
}

fn stock_fields(activity: &ActivityContent) -> FieldValues {
    let mut fields = Vec::new();
    let mut put = |field: String, value: Vec<u8>| fields.push((field.into_bytes(), value));
    for counters in &activity.counters {
        let sku = counters.sku.sku;
        put(format!("free:{sku}"), counters.free.to_string().into_bytes());
        for (kind, units) in [("out", &counters.out), ("in", &counters.brought_in)] {
            if !units.is_empty() {
                put(format!("{kind}:{sku}"), codec::peers(units));
            }
        }
    }
    for load in &activity.loads {
        let amounts = load.amounts.iter();
        let blob =
            amounts.flat_map(|(sku, amount)| sku.0.to_be_bytes().into_iter().chain(amount.to_be_bytes()));
        put(format!("load:{}", load.id), blob.collect());
    }
    fields
}

fn buyer_fields(activity: &ActivityContent) -> FieldValues {
    activity.marks.iter().map(|(user, mark)| (user.0.to_be_bytes().to_vec(), codec::mark(mark))).collect()
}

fn rebuilt(what: &str, shard: ShardId, answer: Value) -> Result<Rebuilt, StoreError> {
    let torn = || malformed(what, shard, "an unknown letter");
    let (letter, mut rest) = tagged(answer).ok_or_else(torn)?;
    let mut generation = || rest.next().and_then(number).map(Gen).ok_or_else(torn);
    Ok(match letter {
        b'D' => Rebuilt::Opened,
        b'O' => Rebuilt::AlreadyOpen(generation()?),
        b'L' => Rebuilt::LaterGeneration(generation()?),
        b'E' => Rebuilt::OtherEpoch(rest.next().and_then(text).ok_or_else(torn)?),
        _ => return Err(torn()),
    })
}
