//! Shared rates in Redis: a pool of tokens for each rate that some gateway wants more of, changed by one function.
//!
//! All of it lies in the slot of shard 0 and belongs to no shard; all of it expires within seconds. A call that Redis
//! executes twice moves tokens once, by its number.

use redis::Value;

use super::answers::{list, malformed, number, text};
use super::library;
use super::shards::RedisShards;
use crate::stock::calls::{ProcessNumber, ShardId};
use crate::store::StoreError;
use crate::store::slices::{SILENT_AFTER, SliceCall, SliceReply, SliceStore, UNWANTED_AFTER};

/// Whose slot they lie in.
const SHARD: ShardId = ShardId::ALL[0];
const WHAT: &str = "sharing rates";

impl SliceStore for RedisShards {
    async fn exchange_slices(&self, call: &SliceCall) -> Result<Option<SliceReply>, StoreError> {
        let answer = self.function(SHARD, WHAT, library::SLICES, self.slice_keys(), |command| {
            command.arg(call.gateway.0).arg(call.number);
            command.arg(SILENT_AFTER.as_millis().to_string()).arg(UNWANTED_AFTER.as_millis().to_string());
            for rate in &call.rates {
                command.arg(&rate.name).arg(rate.give).arg(rate.want).arg(rate.pool_max);
            }
        });
        let reply = reply(answer.await?).ok_or_else(|| malformed(WHAT, SHARD, "something else"))?;
        Ok(Some(reply))
    }

    async fn leave_slices(&self, gateway: ProcessNumber) -> Result<(), StoreError> {
        let keys = &self.inner.keys;
        let (mut living, mut calls) = (redis::cmd("ZREM"), redis::cmd("HDEL"));
        living.arg(keys.gateways()).arg(gateway.0);
        calls.arg(keys.gateway_calls()).arg(gateway.0);
        self.run(&self.work(SHARD, WHAT, vec![living, calls], self.slice_keys())).await.map(|_| ())
    }
}

impl RedisShards {
    fn slice_keys(&self) -> Vec<String> {
        let keys = &self.inner.keys;
        vec![keys.gateways(), keys.gateway_calls(), keys.wanted_rates(), keys.rate_pools()]
    }
}

fn reply(answer: Value) -> Option<SliceReply> {
    let tokens = |value: Value| number(value).and_then(|tokens| u32::try_from(tokens).ok());
    let mut parts = list(answer)?.into_iter();
    let gateways = tokens(parts.next()?)?;
    let granted = list(parts.next()?)?.into_iter().map(tokens).collect::<Option<_>>()?;
    let mut told = list(parts.next()?)?.into_iter();
    let mut wanted = Vec::with_capacity(told.len() / 2);
    while let (Some(name), Some(pool)) = (told.next(), told.next()) {
        // What is no text is no name of ours.
        if let (Some(name), Some(pool)) = (text(name), tokens(pool)) {
            wanted.push((name, pool));
        }
    }
    Some(SliceReply { gateways, granted, wanted })
}
