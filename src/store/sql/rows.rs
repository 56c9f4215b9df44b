//! Reading the rows a transaction needs and writing back those that changed, many rows per statement.
//!
//! Statements come in a few fixed sizes, so that the connection's cache of prepared statements stays small.
//! Run by the writer task (or an operator's command) inside its transaction; any error ends that transaction.

use std::sync::LazyLock;

use sqlx::SqliteConnection;

use super::batch::{Batch, LastCall, StockRow, TransferRow};
use super::error::Failure;
pub(super) use super::statements::signed;
use super::statements::{Reading, Shapes, read, write};
use super::{orders, reply_codec};
use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ProcessNumber, SHARDS, ShardId};

/// The rows to read for one transaction. Duplicates are welcome.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) calls: Vec<(ProcessNumber, ShardId)>,
    pub(super) stock: Vec<(ShardId, SkuKey)>,
    pub(super) transfers: Vec<(ShardId, SkuKey)>,
}

macro_rules! shapes {
    ($($name:ident = $head:literal, $row:literal, $tail:literal;)+) => {
        $(static $name: LazyLock<Shapes> = LazyLock::new(|| Shapes::new($head, $row, $tail));)+
    };
}

// CROSS JOIN keeps the key list outermost, so that each key is one seek.
shapes! {
    READ_CALLS = "WITH k (process, shard) AS (VALUES ", "(?,?)", ") \
        SELECT c.process, c.shard, c.number, c.reply FROM k CROSS JOIN calls c \
        ON c.process = k.process AND c.shard = k.shard";
    READ_STOCK = "WITH k (shard, activity, sku) AS (VALUES ", "(?,?,?)", ") \
        SELECT s.shard, s.activity, s.sku, s.free, a.pay_within_ms FROM k CROSS JOIN stock s \
        ON s.shard = k.shard AND s.activity = k.activity AND s.sku = k.sku \
        CROSS JOIN activities a ON a.id = k.activity";
    READ_TRANSFERS = "WITH k (shard, activity, sku) AS (VALUES ", "(?,?,?)", ") \
        SELECT t.shard, t.activity, t.sku, t.peer, t.moved_out, t.brought_in FROM k CROSS JOIN transfers t \
        ON t.shard = k.shard AND t.activity = k.activity AND t.sku = k.sku";
    READ_MARKS = "WITH k (shard, activity, user) AS (VALUES ", "(?,?,?)", ") \
        SELECT o.user, o.number, o.activity, o.sku, o.quantity, o.attempt, o.state, o.pay_by_ms \
        FROM k CROSS JOIN orders o \
        ON o.shard = k.shard AND o.activity = k.activity AND o.user = k.user";
    READ_OWNERS = "WITH k (number) AS (VALUES ", "(?)", ") \
        SELECT o.number, o.activity, o.user FROM k CROSS JOIN orders o ON o.number = k.number";
    WRITE_STOCK = "INSERT INTO stock (shard, activity, sku, free) VALUES ", "(?,?,?,?)",
        " ON CONFLICT DO UPDATE SET free = excluded.free";
    WRITE_TRANSFERS = "INSERT INTO transfers (shard, activity, sku, peer, moved_out, brought_in) VALUES ",
        "(?,?,?,?,?,?)",
        " ON CONFLICT DO UPDATE SET moved_out = excluded.moved_out, brought_in = excluded.brought_in";
    WRITE_SHARDS = "INSERT INTO shards (shard, seq) VALUES ", "(?,?)",
        " ON CONFLICT DO UPDATE SET seq = excluded.seq";
    WRITE_CALLS = "INSERT INTO calls (process, shard, number, reply, at_ms) VALUES ", "(?,?,?,?,?)",
        " ON CONFLICT DO UPDATE SET number = excluded.number, reply = excluded.reply, at_ms = excluded.at_ms";
}

/// Reads what a transaction needs, marks apart. Called first in it, so that everything is of one instant.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    wanted: &Wanted,
    now_ms: u64,
) -> Result<Batch, Failure> {
    let batch = read_head(connection, now_ms).await?;
    load_more(connection, wanted, batch).await
}

/// Reads what a transaction needs besides the rows that it goes on from.
pub(super) async fn load_more(
    connection: &mut SqliteConnection,
    wanted: &Wanted,
    mut batch: Batch,
) -> Result<Batch, Failure> {
    let (mut calls, mut stock, mut transfers) =
        (wanted.calls.clone(), wanted.stock.clone(), wanted.transfers.clone());
    calls.retain(|key| !batch.last_calls.contains_key(key));
    stock.retain(|key| !batch.stock.contains_key(key));
    transfers.retain(|key| !batch.transfers.contains_key(key));
    read_calls(connection, &calls, &mut batch).await?;
    read_stock(connection, &stock, &mut batch).await?;
    read_transfers(connection, &transfers, &mut batch).await?;
    // That there are none is known as well.
    for key in transfers {
        batch.transfers.entry(key).or_default();
    }
    Ok(batch)
}

/// Differs from what it was at another moment of this connection if another one has changed the database in between.
pub(super) async fn data_version(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await
}

async fn read_head(connection: &mut SqliteConnection, now_ms: u64) -> Result<Batch, Failure> {
    let rows: Vec<(i64, u8, i64)> =
        sqlx::query_as("SELECT i.gen, s.shard, s.seq FROM installation i CROSS JOIN shards s")
            .fetch_all(&mut *connection)
            .await?;
    let mut seq = [0; SHARDS];
    let mut generation = 0;
    for (gen_, shard, count) in &rows {
        generation = unsigned(*gen_)?;
        if let Some(slot) = seq.get_mut(usize::from(*shard)) {
            *slot = unsigned(*count)?;
        }
    }
    if rows.len() != SHARDS {
        return Err(Failure::Corrupt(format!("{} shard rows instead of {SHARDS}", rows.len())));
    }
    Ok(Batch::new(Gen(generation), now_ms, seq))
}

async fn read_calls(
    connection: &mut SqliteConnection,
    wanted: &[(ProcessNumber, ShardId)],
    batch: &mut Batch,
) -> Result<(), Failure> {
    type Row = (u32, u8, i64, Vec<u8>);
    let rows: Vec<Row> = read(connection, &READ_CALLS, wanted, |query, (process, shard)| {
        query.bind(process.0).bind(shard.number())
    })
    .await?;
    for (process, shard, number, reply) in rows {
        let reply = reply_codec::decode(&reply).map_err(|error| Failure::Corrupt(error.to_string()))?;
        let last = LastCall { number: unsigned(number)?, reply, changed: false };
        batch.last_calls.insert((ProcessNumber(process), shard_id(shard)?), last);
    }
    Ok(())
}

async fn read_stock(
    connection: &mut SqliteConnection,
    wanted: &[(ShardId, SkuKey)],
    batch: &mut Batch,
) -> Result<(), Failure> {
    let rows: Vec<(u8, u32, u16, u32, i64)> = read(connection, &READ_STOCK, wanted, bind_sku).await?;
    for (shard, activity, sku, free, pay_within_ms) in rows {
        let row = StockRow { free, pay_within_ms: unsigned(pay_within_ms)?, changed: false };
        batch.stock.insert((shard_id(shard)?, sku_key(activity, sku)), row);
    }
    Ok(())
}

async fn read_transfers(
    connection: &mut SqliteConnection,
    wanted: &[(ShardId, SkuKey)],
    batch: &mut Batch,
) -> Result<(), Failure> {
    let rows: Vec<TransferColumns> = read(connection, &READ_TRANSFERS, wanted, bind_sku).await?;
    for columns in rows {
        let (shard, sku, peer, row) = transfer(columns)?;
        batch.transfers.entry((shard, sku)).or_default().insert(peer, row);
    }
    Ok(())
}

/// Reads the marks of users, and the owners of order numbers.
pub(super) async fn read_marks(
    connection: &mut SqliteConnection,
    marks: &[(ShardId, ActivityId, UserId)],
    owners: &[OrderNumber],
    batch: &mut Batch,
) -> Result<(), Failure> {
    let rows: Vec<MarkColumns> = read(connection, &READ_MARKS, marks, |query, (shard, activity, user)| {
        query.bind(shard.number()).bind(activity.0).bind(signed(user.0))
    })
    .await?;
    for columns in rows {
        let (user, mark) = mark(columns)?;
        let latest = batch.marks.entry((mark.sku.activity, user)).or_insert(mark);
        if latest.attempt < mark.attempt {
            *latest = mark;
        }
    }
    let rows: Vec<(i64, u32, i64)> =
        read(connection, &READ_OWNERS, owners, |query, number| query.bind(signed(number.0))).await?;
    for (number, activity, user) in rows {
        let owner = (ActivityId(activity), UserId(unsigned(user)?));
        batch.owners.insert(OrderNumber(unsigned(number)?), owner);
    }
    Ok(())
}

fn bind_sku<T>(query: Reading<T>, (shard, key): (ShardId, SkuKey)) -> Reading<T> {
    query.bind(shard.number()).bind(key.activity.0).bind(key.sku.0)
}

/// Writes every changed row of a batch.
pub(super) async fn store(connection: &mut SqliteConnection, batch: &Batch) -> Result<(), sqlx::Error> {
    orders::insert(connection, batch).await?;
    let mut stock: Vec<_> = batch.stock.iter().filter(|(_, row)| row.changed).collect();
    stock.sort_unstable_by_key(|(key, _)| **key);
    write(connection, &WRITE_STOCK, &stock, |query, ((shard, key), row)| {
        query.bind(shard.number()).bind(key.activity.0).bind(key.sku.0).bind(row.free)
    })
    .await?;
    let transfers: Vec<_> = batch
        .transfers
        .iter()
        .flat_map(|(key, peers)| peers.iter().map(move |(peer, row)| (key, peer, row)))
        .filter(|(_, _, row)| row.changed)
        .collect();
    write(connection, &WRITE_TRANSFERS, &transfers, |query, ((shard, key), peer, row)| {
        let query = query.bind(shard.number()).bind(key.activity.0).bind(key.sku.0);
        query.bind(peer.number()).bind(signed(row.moved_out)).bind(signed(row.brought_in))
    })
    .await?;
    let mut appended: Vec<_> = batch.events.iter().map(|(shard, event)| (*shard, event.seq)).collect();
    // One row per shard: the last event's seq is the greatest.
    appended.sort_unstable();
    appended.reverse();
    appended.dedup_by_key(|(shard, _)| *shard);
    write(connection, &WRITE_SHARDS, &appended, |query, (shard, seq)| {
        query.bind(shard.number()).bind(signed(*seq))
    })
    .await?;
    let calls: Vec<_> = batch.last_calls.iter().filter(|(_, call)| call.changed).collect();
    write(connection, &WRITE_CALLS, &calls, |query, ((process, shard), call)| {
        let query = query.bind(process.0).bind(shard.number()).bind(signed(call.number));
        query.bind(reply_codec::encode(&call.reply)).bind(signed(batch.now_ms))
    })
    .await
}

pub(super) type MarkColumns = (i64, i64, u32, u16, u16, u8, u8, i64);

pub(super) fn mark(columns: MarkColumns) -> Result<(UserId, Mark), Failure> {
    let (user, number, activity, sku, quantity, attempt, state, pay_by_ms) = columns;
    let state = OrderState::from_wire(state)
        .ok_or_else(|| Failure::Corrupt(format!("order {number} has the unknown state {state}")))?;
    let mark = Mark {
        order: OrderNumber(unsigned(number)?),
        sku: sku_key(activity, sku),
        quantity,
        attempt,
        state,
        pay_by_ms: unsigned(pay_by_ms)?,
    };
    Ok((UserId(unsigned(user)?), mark))
}

pub(super) type TransferColumns = (u8, u32, u16, u8, i64, i64);

pub(super) fn transfer(columns: TransferColumns) -> Result<(ShardId, SkuKey, ShardId, TransferRow), Failure> {
    let (shard, activity, sku, peer, moved_out, brought_in) = columns;
    let row =
        TransferRow { moved_out: unsigned(moved_out)?, brought_in: unsigned(brought_in)?, changed: false };
    Ok((shard_id(shard)?, sku_key(activity, sku), shard_id(peer)?, row))
}

pub(super) fn sku_key(activity: u32, sku: u16) -> SkuKey {
    SkuKey { activity: ActivityId(activity), sku: SkuId(sku) }
}

pub(super) fn shard_id(number: u8) -> Result<ShardId, Failure> {
    ShardId::new(number).ok_or_else(|| Failure::Corrupt(format!("there is no shard {number}")))
}

pub(super) fn unsigned(value: i64) -> Result<u64, Failure> {
    u64::try_from(value).map_err(|_| Failure::Corrupt(format!("a negative value {value}")))
}
