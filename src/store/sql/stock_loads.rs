//! How a load changes the 16 stock rows of an SKU, in both databases. Pure.

use std::collections::BTreeSet;

use super::batch::{Batch, StockRow};
use super::shares;
use crate::protocol::SkuKey;
use crate::stock::calls::{SHARDS, ShardId};

/// How a load changes stock; the numbers are SQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Add = 1,
    Remove = 2,
}

impl Kind {
    pub(super) fn of(number: u8) -> Self {
        if number == Self::Add as u8 { Self::Add } else { Self::Remove }
    }
}

pub(super) struct Load {
    pub(super) ordinal: u64,
    pub(super) sku: SkuKey,
    pub(super) kind: Kind,
    pub(super) amount: u32,
}

/// SKUs whose rows were changed, by shard.
pub(super) type Touched = [BTreeSet<SkuKey>; SHARDS];

/// Changes the stock rows; the units per shard. `Err` says why what the rows hold cannot be true.
pub(super) fn apply(batch: &mut Batch, load: &Load, touched: &mut Touched) -> Result<[u32; SHARDS], String> {
    let mut free = [0; SHARDS];
    for (slot, shard) in free.iter_mut().zip(ShardId::ALL) {
        *slot = batch.stock.get(&(shard, load.sku)).map_or(0, |row| row.free);
    }
    let amounts = match load.kind {
        Kind::Add => shares::split(load.amount, load.sku),
        Kind::Remove => shares::take(load.amount, &free),
    };
    for (((shard, units), free), touched) in ShardId::all().zip(&amounts).zip(free).zip(touched) {
        let after = match load.kind {
            Kind::Add => free.checked_add(*units),
            Kind::Remove => free.checked_sub(*units),
        };
        let after =
            after.ok_or_else(|| format!("load {} would bring {} out of range", load.ordinal, load.sku))?;
        let row = batch.stock.get(&(shard, load.sku));
        // The first addition makes the SKU loaded in all 16 shards, also where no unit falls.
        if after != free || (row.is_none() && load.kind == Kind::Add) {
            let pay_within_ms = row.map_or(0, |row| row.pay_within_ms);
            batch.stock.insert((shard, load.sku), StockRow { free: after, pay_within_ms, changed: true });
            touched.insert(load.sku);
        }
    }
    Ok(amounts)
}
