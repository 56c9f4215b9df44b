//! What Redis holds, by raw commands and a decoding of the drill's own.

use std::collections::BTreeMap;

use rushgate_servers::{RespConnection, RespValue};

use crate::error::{DrillError, Result};
use crate::layout::{ACTIVITY, SHARDS};
use crate::shop::Shop;
use crate::sql_side::is_live;

/// A buyer's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) order: u64,
    pub(crate) sku: u16,
    pub(crate) quantity: u16,
    pub(crate) attempt: u8,
    pub(crate) state: u8,
}

impl Mark {
    /// Whether it holds units.
    pub(crate) fn is_live(&self) -> bool {
        is_live(self.state)
    }
}

/// A SKU's counters in a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) free: i64,
    /// By the other shard.
    pub(crate) out: BTreeMap<usize, u64>,
    pub(crate) brought_in: BTreeMap<usize, u64>,
    /// Added less taken, by the load ids that the shard has applied.
    pub(crate) loaded: i64,
}

/// One shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardSide {
    pub(crate) is_open: bool,
    pub(crate) generation: u64,
    pub(crate) counters: BTreeMap<u16, Counters>,
    /// By user.
    pub(crate) marks: BTreeMap<u64, Mark>,
    /// Read by the consumer group and not acknowledged.
    pub(crate) pending: u64,
    /// Whether the group has been given the newest entry.
    pub(crate) is_delivered: bool,
}

/// All 16.
pub(crate) async fn read(shop: &Shop) -> Result<Vec<ShardSide>> {
    let mut shards = Vec::with_capacity(SHARDS);
    for shard in 0..SHARDS {
        shards.push(read_shard(shop, shard).await?);
    }
    Ok(shards)
}

/// Every mark of all shards, by user.
pub(crate) async fn marks(shop: &Shop) -> Result<BTreeMap<u64, Mark>> {
    let mut marks = BTreeMap::new();
    for shard in 0..SHARDS {
        let mut connection = shop.shard_connection(shard).await?;
        marks.extend(marks_of(&mut connection, &Shop::key(shard, &format!("{ACTIVITY}:buyers"))).await?);
    }
    Ok(marks)
}

async fn read_shard(shop: &Shop, shard: usize) -> Result<ShardSide> {
    let mut connection = shop.shard_connection(shard).await?;
    let mut side = ShardSide::default();
    let meta = text_hash(&mut connection, &Shop::key(shard, "meta")).await?;
    let epoch = epoch_of(&mut connection).await?;
    let field =
        |name: &str| meta.get(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned());
    side.is_open = field("phase").as_deref() == Some("open") && field("epoch") == Some(epoch);
    side.generation = field("gen").and_then(|gen_| gen_.parse().ok()).unwrap_or(0);
    let stock = text_hash(&mut connection, &Shop::key(shard, &format!("{ACTIVITY}:stock"))).await?;
    side.counters = counters_of(&stock)?;
    side.marks = marks_of(&mut connection, &Shop::key(shard, &format!("{ACTIVITY}:buyers"))).await?;
    (side.pending, side.is_delivered) = group_of(&mut connection, &Shop::key(shard, "feed")).await?;
    Ok(side)
}

/// What a shard there may trust: the process and its replication id.
async fn epoch_of(connection: &mut RespConnection) -> Result<String> {
    let mut ids = Vec::new();
    for (section, name) in [("server", "run_id:"), ("replication", "master_replid:")] {
        let info = connection.call(&["INFO", section]).await?.to_string();
        let id = info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        ids.push(id.trim().to_owned());
    }
    Ok(ids.join(":"))
}

type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

async fn text_hash(connection: &mut RespConnection, key: &str) -> Result<Hash> {
    let RespValue::Array(Some(fields)) = connection.call(&["HGETALL", key]).await? else {
        return Err(DrillError::Malformed(format!("{key} is no hash")));
    };
    let mut hash = Hash::new();
    let mut fields = fields.into_iter().map(bytes_of);
    while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
        hash.insert(field, value);
    }
    Ok(hash)
}

fn bytes_of(value: RespValue) -> Vec<u8> {
    if let RespValue::Bulk(Some(bytes)) = value { bytes } else { value.to_string().into_bytes() }
}

/// `free:SKU` is text, `out:SKU` and `in:SKU` are entries of 9 bytes (shard, units), `load:ID` of 10 (SKU, units).
fn counters_of(stock: &Hash) -> Result<BTreeMap<u16, Counters>> {
    let mut counters: BTreeMap<u16, Counters> = BTreeMap::new();
    for (field, value) in stock {
        let name = String::from_utf8_lossy(field);
        let malformed = || DrillError::Malformed(format!("stock field {name} holds {value:?}"));
        let (kind, rest) = name.split_once(':').ok_or_else(malformed)?;
        if kind == "load" {
            for entry in value.chunks(10) {
                let (sku, units) = entry.split_at_checked(2).ok_or_else(malformed)?;
                let units = i64::from_be_bytes(units.try_into().map_err(|_| malformed())?);
                let sku = u16::from_be_bytes(sku.try_into().map_err(|_| malformed())?);
                counters.entry(sku).or_default().loaded += units;
            }
            continue;
        }
        let of_sku = counters.entry(rest.parse().map_err(|_| malformed())?).or_default();
        match kind {
            "free" => of_sku.free = String::from_utf8_lossy(value).parse().map_err(|_| malformed())?,
            "out" => of_sku.out = peers_of(value).ok_or_else(malformed)?,
            "in" => of_sku.brought_in = peers_of(value).ok_or_else(malformed)?,
            _ => return Err(malformed()),
        }
    }
    Ok(counters)
}

fn peers_of(value: &[u8]) -> Option<BTreeMap<usize, u64>> {
    let mut peers = BTreeMap::new();
    for entry in value.chunks(9) {
        let (peer, units) = entry.split_first()?;
        peers.insert(usize::from(*peer), u64::from_be_bytes(units.try_into().ok()?));
    }
    Some(peers)
}

/// User 8 bytes; order 8, SKU 2, quantity 2, attempt 1, state 1, and once settled the pay-by time.
async fn marks_of(connection: &mut RespConnection, key: &str) -> Result<BTreeMap<u64, Mark>> {
    let mut marks = BTreeMap::new();
    for (user, mark) in text_hash(connection, key).await? {
        let malformed = || DrillError::Malformed(format!("{key} holds {mark:?} for {user:?}"));
        let read = || {
            let user = u64::from_be_bytes(user.as_slice().try_into().ok()?);
            let (order, rest) = mark.split_first_chunk::<8>()?;
            let (sku, rest) = rest.split_first_chunk::<2>()?;
            let (quantity, rest) = rest.split_first_chunk::<2>()?;
            let ([attempt, state], rest) = rest.split_first_chunk::<2>()?;
            let is_whole = rest.is_empty() || rest.len() == 8;
            let mark = Mark {
                order: u64::from_be_bytes(*order),
                sku: u16::from_be_bytes(*sku),
                quantity: u16::from_be_bytes(*quantity),
                attempt: *attempt,
                state: *state,
            };
            is_whole.then_some((user, mark))
        };
        let (user, mark) = read().ok_or_else(malformed)?;
        marks.insert(user, mark);
    }
    Ok(marks)
}

/// Entries pending in the group, and whether it was given the newest entry. A feed that does not exist is done.
async fn group_of(connection: &mut RespConnection, feed: &str) -> Result<(u64, bool)> {
    let Ok(stream) = connection.call(&["XINFO", "STREAM", feed]).await else { return Ok((0, true)) };
    let newest = named(&stream, "last-generated-id");
    let groups = connection.call(&["XINFO", "GROUPS", feed]).await?;
    let RespValue::Array(Some(groups)) = groups else { return Ok((0, false)) };
    let Some(group) = groups.iter().find(|group| named(group, "name").as_deref() == Some("settle")) else {
        return Ok((0, false));
    };
    let pending = named(group, "pending").and_then(|count| count.parse().ok()).unwrap_or(0);
    Ok((pending, named(group, "last-delivered-id") == newest))
}

/// A field of an answer that is a list of names and values.
fn named(value: &RespValue, name: &str) -> Option<String> {
    let RespValue::Array(Some(fields)) = value else { return None };
    let at = fields.chunks(2).find(|pair| pair.first().is_some_and(|field| field.to_string() == name))?;
    Some(at.get(1)?.to_string())
}
