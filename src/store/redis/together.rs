//! Reserve calls of several shards as one function call.
//!
//! A call of one or two items costs Redis mostly what any call costs: being woken, reading it, asking for its own
//! epoch and the time. Calls that are ready together share that. Each of them stays what it is: its number, its guard,
//! its reply or its error are its own, and it is repeated by its number, alone or together with others. A cluster runs
//! no function over keys of several slots: there each goes by itself.

use redis::Value;

use super::answers::malformed;
use super::call::{self, Prepared};
use super::library;
use super::nodes::Use;
use super::shards::{RedisShards, Work};
use crate::stock::calls::{Call, CallBody, Reply};
use crate::store::StoreError;

/// Items of one function call, so that Redis is not held up longer than by the greatest call of one shard.
const ITEMS_MAX: usize = 256;

impl RedisShards {
    /// Splits calls that are ready now into those that are best given to [`call_together`](Self::call_together).
    pub fn together(&self, calls: Vec<Call>) -> Vec<Vec<Call>> {
        if self.inner.options.cluster {
            calls.into_iter().map(|call| vec![call]).collect()
        } else {
            parties(calls)
        }
    }

    /// Executes calls of different shards, each as [`call`](Self::call) does; what they came to, in their order.
    pub async fn call_together(&self, calls: &[Call]) -> Vec<Result<Reply, StoreError>> {
        if let [call] = calls {
            return vec![self.call(call).await];
        }
        match self.in_one_go(calls).await {
            Ok(outcomes) => outcomes,
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// An error is that of all of them: none is known to have been executed.
    async fn in_one_go(&self, calls: &[Call]) -> Result<Vec<Result<Reply, StoreError>>, StoreError> {
        let prepared: Vec<Prepared<'_>> =
            calls.iter().map(|call| self.prepare(call)).collect::<Result<_, _>>()?;
        let Some(first) = calls.first() else { return Ok(Vec::new()) };
        let (answer, reached) = self.execute(self.work_of(first, &prepared)).await?;
        let Value::Array(answers) = answer else {
            return Err(malformed("calls together, the first", first.shard, "no list"));
        };
        if answers.len() != prepared.len() {
            let problem = format!("{} answers to {}", answers.len(), prepared.len());
            return Err(malformed("calls together, the first", first.shard, problem));
        }
        let mut outcomes = Vec::with_capacity(prepared.len());
        for (prepared, answer) in prepared.iter().zip(answers) {
            outcomes.push(match answer {
                Value::ServerError(error) => {
                    let link = self.inner.nodes.link(&self.inner.nodes.master(first.shard), Use::Commands);
                    Err(self.told(&self.call_work(prepared), &error.into(), &link).await)
                }
                answer => self.reply(prepared, answer, reached),
            });
        }
        Ok(outcomes)
    }

    fn work_of(&self, first: &Call, prepared: &[Prepared<'_>]) -> Work {
        let keys: Vec<String> = prepared.iter().flat_map(|prepared| prepared.keys.iter().cloned()).collect();
        let limit = self.attempts();
        let function = if limit.is_some() { library::RESERVE_MANY_LIMITED } else { library::RESERVE_MANY };
        let mut command = library::fcall(function, &keys);
        command.arg(first.generation.0).arg(first.process.0);
        call::put_limit(&mut command, limit);
        for prepared in prepared {
            prepared.put(&mut command, limit.is_some());
        }
        self.work(first.shard, "calls together, the first", vec![command], keys)
    }
}

/// Reserve calls of one process and generation, each of another shard, in their order; as few parties as the bound
/// allows. Whatever else there is goes by itself.
fn parties(calls: Vec<Call>) -> Vec<Vec<Call>> {
    let mut parties: Vec<Vec<Call>> = Vec::new();
    let mut open: Vec<Call> = Vec::new();
    let mut open_items = 0_usize;
    for call in calls {
        let (CallBody::Reserve { bring_in, items }, true) = (&call.body, call::is_exact(&call)) else {
            parties.push(vec![call]);
            continue;
        };
        let items = items.len().saturating_add(bring_in.len());
        let fits = open.first().is_none_or(|first| {
            first.process == call.process
                && first.generation == call.generation
                && open_items.saturating_add(items) <= ITEMS_MAX
        });
        if !fits || open.iter().any(|other| other.shard == call.shard) {
            parties.push(std::mem::take(&mut open));
            open_items = 0;
        }
        open_items = open_items.saturating_add(items);
        open.push(call);
    }
    if !open.is_empty() {
        parties.push(open);
    }
    parties
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::protocol::{ActivityId, OrderNumber, SkuId, SkuKey, UserId};
    use crate::stock::calls::{Gen, Item, ProcessNumber, ShardId};

    fn call(shard: usize, items: usize) -> Call {
        let sku = SkuKey { activity: ActivityId(1), sku: SkuId(1) };
        let item =
            Item { user: UserId(1), sku, order: OrderNumber(1), quantity: 1, attempt: 1, promised: false };
        Call {
            process: ProcessNumber(1),
            generation: Gen(1),
            shard: ShardId::ALL[shard],
            number: 1,
            body: CallBody::Reserve { bring_in: Vec::new(), items: vec![item; items] },
        }
    }

    fn shapes(calls: Vec<Call>) -> Vec<Vec<u8>> {
        let numbers = |party: Vec<Call>| party.iter().map(|call| call.shard.number()).collect();
        parties(calls).into_iter().map(numbers).collect()
    }

    #[test]
    fn small_calls_of_all_shards_are_one_party() {
        assert_eq!(shapes((0..16).map(|shard| call(shard, 1)).collect()), [(0..16).collect::<Vec<u8>>()]);
        assert!(shapes(Vec::new()).is_empty());
    }

    #[test]
    fn a_party_has_no_more_items_than_one_shard_may_have() {
        let calls = vec![call(0, 100), call(1, 100), call(2, 57), call(3, 300), call(4, 256), call(5, 1)];
        assert_eq!(shapes(calls), [vec![0, 1], vec![2], vec![3], vec![4], vec![5]]);
    }

    #[test]
    fn nobody_goes_with_another_generation_or_process_or_twice_with_one_shard() {
        let mut calls = vec![call(0, 1), call(1, 1), call(2, 1), call(2, 1)];
        calls[1].generation = Gen(2);
        calls[2].generation = Gen(2);
        calls[2].process = ProcessNumber(2);
        assert_eq!(shapes(calls), [vec![0], vec![1], vec![2], vec![2]]);
    }

    #[test]
    fn a_move_goes_by_itself() {
        let mut calls = vec![call(0, 1), call(1, 1), call(2, 1)];
        let CallBody::Reserve { items, .. } = &calls[1].body else { return };
        calls[1].body = CallBody::MoveOut { sku: items[0].sku, target: ShardId::ALL[3], want: 1 };
        assert_eq!(shapes(calls), [vec![1], vec![0, 2]]);
    }
}
