//! Reading the rows a transaction needs and writing back those that changed, many rows per statement; and snapshots.
//!
//! Run inside a transaction that holds the rows of its shards in `sql_shards`; any error ends that transaction.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use sqlx::MySqlConnection;

use super::event_codec;
use crate::protocol::{ActivityId, OrderNumber, SkuKey, UserId};
use crate::stock::calls::{Call, CallBody, Gen, Mark, ProcessNumber, ShardId, SkuCounters, Snapshot};
use crate::store::sql::batch::{Batch, LastCall, StockRow, TransferRow, counters};
use crate::store::sql::mysql::MySqlInstallation;
use crate::store::sql::mysql::failure::{self, Failure};
use crate::store::sql::mysql::orders::{MarkRow, SourcedMarkRow, mark, sourced_mark};
use crate::store::sql::mysql::statements::{Reading, Shapes, read as read_rows, write as write_rows};
use crate::store::sql::reply_codec;

/// The rows to read for one transaction. Duplicates are welcome.
#[derive(Debug, Default)]
pub(in super::super) struct Wanted {
    /// Only what is for sale: nothing of an activity that is ending.
    pub(in super::super) for_sale: bool,
    pub(in super::super) stock: Vec<(ShardId, SkuKey)>,
    pub(in super::super) transfers: Vec<(ShardId, SkuKey)>,
    pub(in super::super) marks: Vec<(ActivityId, UserId)>,
    /// Order numbers whose owners are to be known.
    pub(in super::super) owners: Vec<OrderNumber>,
}

impl Wanted {
    pub(super) fn of(call: &Call, look_up_owners: bool) -> Self {
        let mut wanted = Self { for_sale: true, ..Self::default() };
        match &call.body {
            CallBody::Reserve { bring_in, items } => {
                for announced in bring_in {
                    wanted.stock.push((call.shard, announced.sku));
                    wanted.transfers.push((announced.source, announced.sku));
                }
                for item in items {
                    wanted.stock.push((call.shard, item.sku));
                    wanted.marks.push((item.sku.activity, item.user));
                }
                if look_up_owners {
                    wanted.owners.extend(items.iter().map(|item| item.order));
                }
            }
            CallBody::MoveOut { sku, .. } => wanted.stock.push((call.shard, *sku)),
        }
        wanted.stock.sort_unstable();
        wanted.stock.dedup();
        wanted.transfers.extend_from_slice(&wanted.stock);
        wanted.transfers.sort_unstable();
        wanted.transfers.dedup();
        wanted.marks.sort_unstable();
        wanted.marks.dedup();
        wanted
    }
}

macro_rules! shapes {
    ($($name:ident = $head:literal, $row:literal, $between:literal, $tail:literal;)+) => {
        $(static $name: LazyLock<Shapes> = LazyLock::new(|| Shapes::joined($head, $row, $between, $tail));)+
    };
}

shapes! {
    READ_STOCK = "SELECT s.shard, s.activity, s.sku, s.free, a.pay_within_ms FROM sql_stock s \
        JOIN activities a ON a.id = s.activity AND a.state < 4 WHERE ",
        "(s.shard = ? AND s.activity = ? AND s.sku = ?)", " OR ", "";
    READ_STOCK_FOR_SALE = "SELECT s.shard, s.activity, s.sku, s.free, a.pay_within_ms FROM sql_stock s \
        JOIN activities a ON a.id = s.activity AND a.state < 3 WHERE ",
        "(s.shard = ? AND s.activity = ? AND s.sku = ?)", " OR ", "";
    READ_TRANSFERS = "SELECT shard, activity, sku, peer, moved_out, brought_in FROM sql_transfers WHERE ",
        "(shard = ? AND activity = ? AND sku = ?)", " OR ", "";
    READ_MARKS = "SELECT user, number, activity, sku, quantity, attempt, state, pay_by_ms, source \
        FROM orders WHERE ", "(activity = ? AND user = ?)", " OR ", "";
    READ_OWNERS = "SELECT number, activity, user FROM orders WHERE number IN (", "?", ",", ")";
    WRITE_ORDERS = "INSERT INTO orders (number, activity, user, attempt, sku, quantity, state, source, shard, \
        pay_by_ms, created_at_ms) VALUES ", "(?,?,?,?,?,?,?,2,?,?,?)", ",", "";
    WRITE_MARKS = "INSERT INTO sql_marks (shard, activity, user, attempt, number) VALUES ",
        "(?,?,?,?,?)", ",", "";
    WRITE_STOCK = "INSERT INTO sql_stock (shard, activity, sku, free) VALUES ", "(?,?,?,?)", ",",
        " ON DUPLICATE KEY UPDATE free = VALUES(free)";
    WRITE_TRANSFERS = "INSERT INTO sql_transfers (shard, activity, sku, peer, moved_out, brought_in) VALUES ",
        "(?,?,?,?,?,?)", ",",
        " ON DUPLICATE KEY UPDATE moved_out = VALUES(moved_out), brought_in = VALUES(brought_in)";
    WRITE_SHARDS = "INSERT INTO sql_shards (shard, gen, seq) VALUES ", "(?,?,?)", ",",
        " ON DUPLICATE KEY UPDATE gen = VALUES(gen), seq = VALUES(seq)";
    WRITE_CALLS = "INSERT INTO sql_calls (process, shard, number, reply, at_ms) VALUES ", "(?,?,?,?,?)", ",",
        " ON DUPLICATE KEY UPDATE number = VALUES(number), reply = VALUES(reply), at_ms = VALUES(at_ms)";
    WRITE_FEED = "INSERT INTO sql_feed (shard, gen, seq, body) VALUES ", "(?,?,?,?)", ",", "";
}

/// How many events come between two looks for events to drop.
const DROP_EVERY: u64 = 64;

/// Locks a shard and reads its position and the process's last call to it.
pub(super) async fn lock_shard(
    connection: &mut MySqlConnection,
    shard: ShardId,
    process: ProcessNumber,
    batch: &mut Batch,
) -> Result<(), Failure> {
    lock_shards(connection, &[shard], batch).await?;
    let last: Option<(u64, Vec<u8>)> =
        sqlx::query_as("SELECT number, reply FROM sql_calls WHERE process = ? AND shard = ?")
            .bind(process.0)
            .bind(shard.number())
            .fetch_optional(connection)
            .await?;
    if let Some((number, reply)) = last {
        let reply = reply_codec::decode(&reply).map_err(|error| Failure::Corrupt(error.to_string()))?;
        batch.last_calls.insert((process, shard), LastCall { number, reply, changed: false });
    }
    Ok(())
}

/// Locks shards, in their order, and reads their positions.
pub(in super::super) async fn lock_shards(
    connection: &mut MySqlConnection,
    shards: &[ShardId],
    batch: &mut Batch,
) -> Result<(), Failure> {
    for shard in shards {
        let (generation, seq): (u64, u64) =
            sqlx::query_as("SELECT gen, seq FROM sql_shards WHERE shard = ? FOR UPDATE")
                .bind(shard.number())
                .fetch_one(&mut *connection)
                .await?;
        if let Some(slot) = batch.seq.get_mut(shard.index()) {
            // A new generation's feed starts anew.
            *slot = if Gen(generation) == batch.generation { seq } else { 0 };
        }
    }
    Ok(())
}

fn bind_sku<T>(query: Reading<T>, (shard, key): (ShardId, SkuKey)) -> Reading<T> {
    query.bind(shard.number()).bind(key.activity.0).bind(key.sku.0)
}

/// What all shards have of these SKUs.
pub(in super::super) async fn read_everywhere(
    connection: &mut MySqlConnection,
    skus: impl IntoIterator<Item = SkuKey>,
    batch: &mut Batch,
) -> Result<(), Failure> {
    let everywhere = |sku| ShardId::all().map(move |shard| (shard, sku));
    let keys: Vec<_> = skus.into_iter().flat_map(everywhere).collect();
    let wanted = Wanted { stock: keys.clone(), transfers: keys, ..Wanted::default() };
    read(connection, &wanted, batch).await
}

pub(in super::super) async fn read(
    connection: &mut MySqlConnection,
    wanted: &Wanted,
    batch: &mut Batch,
) -> Result<(), Failure> {
    let shapes = if wanted.for_sale { &READ_STOCK_FOR_SALE } else { &READ_STOCK };
    let rows: Vec<(u8, u32, u16, u32, u64)> = read_rows(connection, shapes, &wanted.stock, bind_sku).await?;
    for (shard, activity, sku, free, pay_within_ms) in rows {
        let key = (failure::shard_id(shard)?, failure::sku_key(activity, sku));
        batch.stock.insert(key, StockRow { free, pay_within_ms, changed: false });
    }
    let rows: Vec<TransferColumns> =
        read_rows(connection, &READ_TRANSFERS, &wanted.transfers, bind_sku).await?;
    for row in rows {
        let (shard, sku, peer, row) = transfer(row)?;
        batch.transfers.entry((shard, sku)).or_default().insert(peer, row);
    }
    read_marks(connection, wanted, batch).await
}

async fn read_marks(
    connection: &mut MySqlConnection,
    wanted: &Wanted,
    batch: &mut Batch,
) -> Result<(), Failure> {
    let rows: Vec<SourcedMarkRow> =
        read_rows(connection, &READ_MARKS, &wanted.marks, |query, (activity, user)| {
            query.bind(activity.0).bind(user.0)
        })
        .await?;
    for row in rows {
        let (user, mark, from_redis) = sourced_mark(row)?;
        // An order that Redis sold stands in the way while it is live; its attempts are numbered apart.
        if from_redis && !mark.state.is_live() {
            continue;
        }
        let rank = |mark: &Mark| (mark.state.is_live(), mark.attempt);
        let latest = batch.marks.entry((mark.sku.activity, user)).or_insert(mark);
        if rank(latest) < rank(&mark) {
            *latest = mark;
        }
    }
    let rows: Vec<(u64, u32, u64)> =
        read_rows(connection, &READ_OWNERS, &wanted.owners, |query, number| query.bind(number.0)).await?;
    for (number, activity, user) in rows {
        batch.owners.insert(OrderNumber(number), (ActivityId(activity), UserId(user)));
    }
    Ok(())
}

/// Writes every changed row of a batch, and its events.
pub(in super::super) async fn write(
    connection: &mut MySqlConnection,
    batch: &mut Batch,
    feed_events_max: u32,
) -> Result<(), Failure> {
    write_orders(connection, batch).await?;
    let mut stock: Vec<_> = batch.stock.iter().filter(|(_, row)| row.changed).collect();
    stock.sort_unstable_by_key(|(key, _)| **key);
    write_rows(connection, &WRITE_STOCK, &stock, |query, ((shard, key), row)| {
        query.bind(shard.number()).bind(key.activity.0).bind(key.sku.0).bind(row.free)
    })
    .await?;
    let mut transfers: Vec<_> = batch
        .transfers
        .iter()
        .flat_map(|(key, peers)| peers.iter().map(move |(peer, row)| (key, peer, row)))
        .filter(|(_, _, row)| row.changed)
        .collect();
    transfers.sort_unstable_by_key(|(key, peer, _)| (**key, **peer));
    write_rows(connection, &WRITE_TRANSFERS, &transfers, |query, ((shard, key), peer, row)| {
        let query = query.bind(shard.number()).bind(key.activity.0).bind(key.sku.0);
        query.bind(peer.number()).bind(row.moved_out).bind(row.brought_in)
    })
    .await?;
    let calls: Vec<_> = batch.last_calls.iter().filter(|(_, call)| call.changed).collect();
    let now_ms = batch.now_ms;
    write_rows(connection, &WRITE_CALLS, &calls, |query, ((process, shard), call)| {
        let query = query.bind(process.0).bind(shard.number()).bind(call.number);
        query.bind(reply_codec::encode(&call.reply)).bind(now_ms)
    })
    .await?;
    write_events(connection, batch, feed_events_max).await
}

async fn write_orders(connection: &mut MySqlConnection, batch: &mut Batch) -> Result<(), sqlx::Error> {
    batch.orders.sort_unstable_by_key(|(_, mark)| mark.order);
    let now_ms = batch.now_ms;
    write_rows(connection, &WRITE_ORDERS, &batch.orders, |query, (user, mark)| {
        let query = query.bind(mark.order.0).bind(mark.sku.activity.0).bind(user.0).bind(mark.attempt);
        let query = query.bind(mark.sku.sku.0).bind(mark.quantity).bind(mark.state as u8);
        query.bind(ShardId::of(*user).number()).bind(mark.pay_by_ms).bind(now_ms)
    })
    .await?;
    write_rows(connection, &WRITE_MARKS, &batch.orders, |query, (user, mark)| {
        let query = query.bind(ShardId::of(*user).number()).bind(mark.sku.activity.0).bind(user.0);
        query.bind(mark.attempt).bind(mark.order.0)
    })
    .await
}

async fn write_events(
    connection: &mut MySqlConnection,
    batch: &Batch,
    feed_events_max: u32,
) -> Result<(), Failure> {
    write_rows(connection, &WRITE_FEED, &batch.events, |query, (shard, event)| {
        let query = query.bind(shard.number()).bind(event.generation.0).bind(event.seq);
        query.bind(event_codec::encode(event))
    })
    .await?;
    // One row per shard: the last event's seq is the greatest.
    let heads: BTreeMap<ShardId, u64> =
        batch.events.iter().map(|(shard, event)| (*shard, event.seq)).collect();
    let heads: Vec<_> = heads.into_iter().collect();
    write_rows(connection, &WRITE_SHARDS, &heads, |query, (shard, seq)| {
        query.bind(shard.number()).bind(batch.generation.0).bind(*seq)
    })
    .await?;
    let max = u64::from(feed_events_max.max(1));
    for (shard, seq) in heads {
        // Now and then, and so that more are never left than twice as many, also of a short feed.
        if seq.checked_rem(DROP_EVERY.min(max)) == Some(0) {
            sqlx::query("DELETE FROM sql_feed WHERE shard = ? AND (gen < ? OR (gen = ? AND seq <= ?))")
                .bind(shard.number())
                .bind(batch.generation.0)
                .bind(batch.generation.0)
                .bind(seq.saturating_sub(max))
                .execute(&mut *connection)
                .await?;
        }
    }
    Ok(())
}

/// Everything a shard holds of the activities that are not archived, at one instant.
pub(super) async fn snapshot(installation: &MySqlInstallation, shard: ShardId) -> Result<Snapshot, Failure> {
    let mut transaction = installation.repeatable_read().await?;
    let (generation, of, seq): (u64, u64, u64) = sqlx::query_as(
        "SELECT i.gen, s.gen, s.seq FROM installation i CROSS JOIN sql_shards s WHERE s.shard = ?",
    )
    .bind(shard.number())
    .fetch_one(&mut *transaction)
    .await?;
    let counters = shard_counters(&mut transaction, shard).await?;
    let marks = shard_marks(&mut transaction, shard).await?;
    transaction.rollback().await?;
    let seq = if of == generation { seq } else { 0 };
    Ok(Snapshot { shard, generation: Gen(generation), seq, counters, marks })
}

type TransferColumns = (u8, u32, u16, u8, u64, u64);

fn transfer(columns: TransferColumns) -> Result<(ShardId, SkuKey, ShardId, TransferRow), Failure> {
    let (shard, activity, sku, peer, moved_out, brought_in) = columns;
    let row = TransferRow { moved_out, brought_in, changed: false };
    Ok((failure::shard_id(shard)?, failure::sku_key(activity, sku), failure::shard_id(peer)?, row))
}

async fn shard_counters(
    connection: &mut MySqlConnection,
    shard: ShardId,
) -> Result<Vec<SkuCounters>, Failure> {
    let moved: Vec<TransferColumns> = sqlx::query_as(
        "SELECT shard, activity, sku, peer, moved_out, brought_in FROM sql_transfers WHERE shard = ?",
    )
    .bind(shard.number())
    .fetch_all(&mut *connection)
    .await?;
    let mut transfers: HashMap<SkuKey, BTreeMap<ShardId, TransferRow>> = HashMap::new();
    for columns in moved {
        let (_, sku, peer, row) = transfer(columns)?;
        transfers.entry(sku).or_default().insert(peer, row);
    }
    let stock: Vec<(u32, u16, u32)> = sqlx::query_as(
        "SELECT s.activity, s.sku, s.free FROM sql_stock s JOIN activities a ON a.id = s.activity AND a.state < 4 \
         WHERE s.shard = ? ORDER BY s.activity, s.sku",
    )
    .bind(shard.number())
    .fetch_all(connection)
    .await?;
    let one = |(activity, sku, free)| {
        let sku = failure::sku_key(activity, sku);
        counters(sku, free, transfers.get(&sku))
    };
    Ok(stock.into_iter().map(one).collect())
}

async fn shard_marks(
    connection: &mut MySqlConnection,
    shard: ShardId,
) -> Result<Vec<(UserId, Mark)>, Failure> {
    let rows: Vec<MarkRow> = sqlx::query_as(
        "SELECT o.user, o.number, o.activity, o.sku, o.quantity, o.attempt, o.state, o.pay_by_ms \
         FROM sql_marks m JOIN activities a ON a.id = m.activity AND a.state < 4 \
         JOIN orders o ON o.number = m.number \
         WHERE m.shard = ? ORDER BY m.activity, m.user, m.attempt",
    )
    .bind(shard.number())
    .fetch_all(connection)
    .await?;
    // The latest attempt alone is the user's mark.
    let mut latest: Vec<(UserId, Mark)> = Vec::with_capacity(rows.len());
    for row in rows {
        let (user, mark) = mark(row)?;
        match latest.last_mut() {
            Some((same, slot)) if *same == user && slot.sku.activity == mark.sku.activity => *slot = mark,
            _ => latest.push((user, mark)),
        }
    }
    Ok(latest)
}
