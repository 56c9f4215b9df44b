//! What a recovery of all shards writes, for models that keep their rows in memory.

use std::collections::BTreeMap;

use super::{Known, SqlLoad, SqlOrder, merge};
use crate::protocol::{ActivityId, SkuId, UserId};
use crate::stock::calls::{Mark, ShardId};
use crate::store::redis::ShardContent;

/// What is known: what survived, what gateways handed in, orders with whether they are in the ledger, loads.
pub(crate) struct Found {
    pub(crate) surviving: Vec<(ShardId, ShardContent)>,
    pub(crate) handed_in: Vec<(UserId, Mark)>,
    pub(crate) orders: Vec<(UserId, Mark, bool)>,
    pub(crate) loads: Vec<Load>,
}

/// One shard's share of a load.
pub(crate) struct Load {
    pub(crate) shard: ShardId,
    pub(crate) activity: ActivityId,
    pub(crate) id: String,
    pub(crate) amounts: Vec<(SkuId, i64)>,
}

/// What the shards are written with, and the promises that are broken.
pub(crate) struct Rebuilt {
    pub(crate) contents: Vec<(ShardId, ShardContent)>,
    pub(crate) broken: Vec<(UserId, Mark)>,
}

/// Computes it as the leader does.
pub(crate) fn rebuilt(found: Found) -> Rebuilt {
    let order = |(user, mark, is_in_ledger)| SqlOrder { user, mark, is_in_ledger };
    let load = |Load { shard, activity, id, amounts }| SqlLoad {
        shard,
        activity,
        id,
        amounts,
        is_undone_take: false,
    };
    let merged = merge(Known {
        surviving: found.surviving,
        open: Vec::new(),
        handed_in: found.handed_in,
        orders: found.orders.into_iter().map(order).collect(),
        loads: found.loads.into_iter().map(load).collect(),
        phases: BTreeMap::new(),
    });
    Rebuilt { contents: merged.contents, broken: merged.broken }
}
