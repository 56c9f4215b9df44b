//! Numbered calls: items go to the function grouped by activity, answers come back into the items' order.

use std::collections::HashSet;

use redis::{Cmd, Value};

use super::answers::malformed;
use super::codec::{self, Fields, Malformed};
use super::library;
use super::nodes::Use;
use super::options::AttemptLimit;
use super::shards::{RedisShards, Work};
use crate::protocol::{ActivityId, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{BringIn, Call, CallBody, Done, Gen, Item, ItemAnswer, Mark, Reply, ShardId};
use crate::store::StoreError;

/// Numbers that a script's arithmetic keeps exact.
const EXACT_MAX: u64 = 1 << 53;

/// What a call asks of one activity.
struct Group {
    activity: ActivityId,
    skus: Vec<SkuId>,
    moves: Vec<u8>,
    items: Vec<u8>,
    /// Of each item, 1 if it is promised.
    promised: Vec<u8>,
    /// Where each item stands in the call.
    positions: Vec<usize>,
    /// Whether a user has several items here: the function then looks at what it has marked itself.
    is_anybody_twice: bool,
}

/// A call as its function takes it.
pub(super) struct Prepared<'a> {
    pub(super) call: &'a Call,
    groups: Vec<Group>,
    pub(super) keys: Vec<String>,
}

impl RedisShards {
    /// Executes one numbered call, or gives the stored reply if this number was executed before. With replicas to
    /// wait for, a reply counts only when they have it; otherwise it is an error, and the call is repeated.
    pub async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        let prepared = self.prepare(call)?;
        let (answer, reached) = self.execute(self.call_work(&prepared)).await?;
        self.reply(&prepared, answer, reached)
    }

    pub(super) fn prepare<'a>(&self, call: &'a Call) -> Result<Prepared<'a>, StoreError> {
        if !is_exact(call) {
            return Err(StoreError::Corrupt(format!(
                "call {} of generation {} is beyond 2^53",
                call.number, call.generation.0
            )));
        }
        let (names, shard) = (&self.inner.keys, call.shard);
        let mut keys = vec![names.meta(shard), names.feed(shard), names.calls(shard)];
        let mut groups = Vec::new();
        match &call.body {
            CallBody::Reserve { bring_in, items } => {
                groups = grouped(shard, bring_in, items);
                for group in &groups {
                    keys.extend([names.stock(shard, group.activity), names.buyers(shard, group.activity)]);
                }
                keys.extend(self.attempts().map(|limit| names.attempts(shard, limit.window.as_millis())));
            }
            CallBody::MoveOut { sku, .. } => keys.push(names.stock(shard, sku.activity)),
        }
        Ok(Prepared { call, groups, keys })
    }

    pub(super) fn call_work(&self, prepared: &Prepared<'_>) -> Work {
        let (call, keys) = (prepared.call, &prepared.keys);
        let limit = self.attempts();
        let function = match &call.body {
            CallBody::Reserve { .. } if limit.is_some() => library::RESERVE_LIMITED,
            CallBody::Reserve { .. } => library::RESERVE,
            CallBody::MoveOut { .. } => library::MOVE_OUT,
        };
        let mut command = library::fcall(function, keys);
        command.arg(call.generation.0).arg(call.process.0).arg(call.number).arg(call.shard.number());
        match &call.body {
            CallBody::Reserve { .. } => {
                put_limit(&mut command, limit);
                prepared.groups.iter().for_each(|group| group.put(&mut command, limit.is_some()));
            }
            CallBody::MoveOut { sku, target, want } => {
                command.arg(sku.activity.0).arg(sku.sku.0).arg(target.number()).arg(*want);
            }
        }
        self.work(call.shard, "a call", vec![command], keys.clone())
    }

    /// How often a user may ask, if not as often as he comes.
    pub(super) fn attempts(&self) -> Option<AttemptLimit> {
        self.inner.options.attempts
    }

    /// Runs a call, with the wait for replicas where it is asked for: the answer, and how many replicas have it.
    pub(super) async fn execute(&self, mut work: Work) -> Result<(Value, u32), StoreError> {
        let options = &self.inner.options;
        if options.wait_replicas > 0 {
            let mut wait = redis::cmd("WAIT");
            wait.arg(options.wait_replicas).arg(options.wait_timeout.as_millis().to_string());
            work.commands.push(wait);
            // WAIT waits for the writes of its own connection, and holds everybody on it up.
            work.purpose = Use::Waiting(work.shard);
            work.within = work.within.saturating_add(options.wait_timeout);
        }
        let mut answers = self.run(&work).await?.into_iter();
        let answer = answers.next().unwrap_or_default();
        let reached = match answers.next() {
            Some(Value::Int(replicas)) => u32::try_from(replicas).unwrap_or(0),
            _ => u32::MAX,
        };
        Ok((answer, reached))
    }

    /// What a function answered to a call that `reached` so many replicas.
    pub(super) fn reply(
        &self,
        prepared: &Prepared<'_>,
        answer: Value,
        reached: u32,
    ) -> Result<Reply, StoreError> {
        let (shard, options) = (prepared.call.shard, &self.inner.options);
        let Value::BulkString(reply) = answer else {
            return Err(malformed("a call", shard, "no text"));
        };
        if reply.first() == Some(&b'D') && reached < options.wait_replicas {
            return Err(StoreError::Unavailable(format!(
                "a call in shard {} reached {reached} of {} replicas in {} ms",
                shard.number(),
                options.wait_replicas,
                options.wait_timeout.as_millis()
            )));
        }
        let items = match &prepared.call.body {
            CallBody::Reserve { items, .. } => items.len(),
            CallBody::MoveOut { .. } => 0,
        };
        decode(&reply, &prepared.groups, items).map_err(|problem| malformed("a call", shard, problem))
    }
}

impl Prepared<'_> {
    /// Its arguments among those of several shards.
    pub(super) fn put(&self, command: &mut Cmd, is_limited: bool) {
        command.arg(self.call.number).arg(self.call.shard.number()).arg(self.groups.len());
        for group in &self.groups {
            group.put(command, is_limited);
        }
    }
}

/// Whether a script's arithmetic keeps the call's numbers exact.
pub(super) const fn is_exact(call: &Call) -> bool {
    call.number < EXACT_MAX && call.generation.0 < EXACT_MAX
}

/// The limit among a call's arguments.
pub(super) fn put_limit(command: &mut Cmd, limit: Option<AttemptLimit>) {
    if let Some(AttemptLimit { count_max, window }) = limit {
        command.arg(count_max).arg(window.as_millis().to_string());
    }
}

impl Group {
    fn put(&self, command: &mut Cmd, is_limited: bool) {
        let skus: Vec<u8> = self.skus.iter().flat_map(|sku| sku.0.to_be_bytes()).collect();
        command.arg(self.activity.0).arg(skus).arg(self.moves.as_slice()).arg(self.items.as_slice());
        command.arg(u8::from(self.is_anybody_twice));
        if is_limited {
            let promised = self.promised.as_slice();
            command.arg(if promised.contains(&1) { promised } else { &[] });
        }
    }
}

fn group(groups: &mut Vec<Group>, sku: SkuKey) -> Option<&mut Group> {
    let at = groups.iter().position(|group| group.activity == sku.activity).unwrap_or_else(|| {
        let activity = sku.activity;
        groups.push(Group {
            activity,
            skus: Vec::new(),
            moves: Vec::new(),
            items: Vec::new(),
            promised: Vec::new(),
            positions: Vec::new(),
            is_anybody_twice: false,
        });
        groups.len().saturating_sub(1)
    });
    let group = groups.get_mut(at)?;
    // A batch names few SKUs; a list keeps their order and needs no hashing.
    if !group.skus.contains(&sku.sku) {
        group.skus.push(sku.sku);
    }
    Some(group)
}

/// Groups what is asked by activity. Items that no correct caller sends are left out: they are answered as not loaded.
fn grouped(shard: ShardId, bring_in: &[BringIn], items: &[Item]) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut seen = HashSet::with_capacity(items.len());
    for announced in bring_in {
        if let Some(group) = group(&mut groups, announced.sku) {
            group.moves.extend(announced.sku.sku.0.to_be_bytes());
            group.moves.push(announced.source.number());
            group.moves.extend(announced.out.min(EXACT_MAX).to_be_bytes());
        }
    }
    for (position, item) in items.iter().enumerate() {
        if let Some(fault) = fault_of(shard, item) {
            tracing::error!(
                user = %item.user, order = %item.order, sku = %item.sku, shard = shard.number(), fault,
                "an item that no correct caller sends was refused"
            );
            continue;
        }
        if let Some(group) = group(&mut groups, item.sku) {
            let mark = Mark {
                order: item.order,
                sku: item.sku,
                quantity: item.quantity,
                attempt: item.attempt,
                state: OrderState::Reserved,
                pay_by_ms: 0,
            };
            codec::put_short(&mut group.items, item.user, &mark);
            group.promised.push(u8::from(item.promised));
            group.positions.push(position);
            group.is_anybody_twice |= !seen.insert((item.sku.activity, item.user));
        }
    }
    groups
}

fn fault_of(shard: ShardId, item: &Item) -> Option<&'static str> {
    if UserId::new(item.user.0).is_none() {
        return Some("user id out of range");
    }
    if ShardId::of(item.user) != shard {
        return Some("the user belongs to another shard");
    }
    if item.quantity == 0 {
        return Some("quantity 0");
    }
    if item.order.0 == 0 || i64::try_from(item.order.0).is_err() {
        return Some("order number out of range");
    }
    None
}

fn decode(reply: &[u8], groups: &[Group], items: usize) -> Result<Reply, Malformed> {
    let mut fields = Fields::of(reply);
    match fields.u8()? {
        b'D' => {
            let (generation, seq, counters) = (Gen(fields.u64()?), fields.u64()?, fields.counters()?);
            let mut answers = vec![ItemAnswer::NotLoaded; items];
            for group in groups {
                decode_answers(&mut fields, group, &mut answers)?;
            }
            Ok(Reply::Done(Done { generation, seq, counters, answers }))
        }
        b'S' => Ok(Reply::Stale),
        b'G' => Ok(Reply::Gen(Gen(fields.u64()?))),
        b'R' => Ok(Reply::Recovering),
        other => Err(format!("letter {other}")),
    }
}

fn decode_answers(
    fields: &mut Fields<'_>,
    group: &Group,
    answers: &mut [ItemAnswer],
) -> Result<(), Malformed> {
    let all_reserved = fields.u8()? == 1;
    for position in &group.positions {
        let answer = match if all_reserved { 1 } else { fields.u8()? } {
            1 => ItemAnswer::Reserved,
            2 => ItemAnswer::Already(fields.mark(group.activity, true)?),
            3 => ItemAnswer::EmptyHere,
            4 => ItemAnswer::NotAgain,
            5 => ItemAnswer::NotLoaded,
            6 => ItemAnswer::TooOften { retry_after_ms: fields.u32()? },
            other => return Err(format!("item answer {other}")),
        };
        if let Some(slot) = answers.get_mut(*position) {
            *slot = answer;
        }
    }
    Ok(())
}
