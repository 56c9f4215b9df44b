//! Reading the embedded store's database. Run once before a sale and once after it; nothing is changed.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};

use super::{Books, BooksError, LifeBooks, OrderRow, SHARDS, Transfer, shard};
use crate::protocol::{ActivityId, OrderState, SkuId};

/// Reads the books of one SKU.
pub(super) async fn read(database: &Path, activity: ActivityId, sku: SkuId) -> Result<Books, BooksError> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .read_only(true)
        .busy_timeout(Duration::from_secs(30))
        .disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options)
        .await
        .map_err(|source| BooksError::Open { path: database.display().to_string(), source })?;
    let books = read_from(&mut connection, activity, sku).await?;
    connection.close().await?;
    Ok(books)
}

async fn read_from(
    connection: &mut SqliteConnection,
    activity: ActivityId,
    sku: SkuId,
) -> Result<Books, BooksError> {
    // One snapshot: the gateway may still be bringing units in.
    let mut snapshot = connection.begin().await?;
    let mut books = Books::default();
    let activity = i64::from(activity.0);
    let sku = i64::from(sku.0);
    let orders = "SELECT number, user, sku, quantity, attempt, state, shard FROM orders WHERE activity = ?";
    for row in sqlx::query(orders).bind(activity).fetch_all(&mut *snapshot).await? {
        books.orders.push(order(&row)?);
    }
    let stock = "SELECT shard, free FROM stock WHERE activity = ? AND sku = ?";
    for row in sqlx::query(stock).bind(activity).bind(sku).fetch_all(&mut *snapshot).await? {
        let shard = shard(row.try_get("shard")?)?;
        if let Some(slot) = books.free.get_mut(shard) {
            *slot = Some(row.try_get("free")?);
        }
    }
    let transfers = "SELECT shard, peer, moved_out, brought_in FROM transfers WHERE activity = ? AND sku = ?";
    for row in sqlx::query(transfers).bind(activity).bind(sku).fetch_all(&mut *snapshot).await? {
        books.transfers.push(Transfer {
            shard: shard(row.try_get("shard")?)?,
            peer: shard(row.try_get("peer")?)?,
            moved_out: row.try_get("moved_out")?,
            brought_in: row.try_get("brought_in")?,
        });
    }
    let limit = "SELECT per_user_limit FROM activities WHERE id = ?";
    if let Some(row) = sqlx::query(limit).bind(activity).fetch_optional(&mut *snapshot).await? {
        let limit: i64 = row.try_get("per_user_limit")?;
        let in_range = u16::try_from(limit);
        books.per_user_limit =
            Some(in_range.map_err(|_| BooksError::Row(format!("a per-user limit of {limit}")))?);
    }
    // State 2 is "done": a pending load has not reached the stock rows.
    let loads = "SELECT kind, applied, amounts FROM loads WHERE activity = ? AND sku = ? AND state = 2";
    for row in sqlx::query(loads).bind(activity).bind(sku).fetch_all(&mut *snapshot).await? {
        add_load(&mut books, &row)?;
    }
    books.life = Some(read_life(&mut snapshot, activity, sku).await?);
    snapshot.rollback().await?;
    Ok(books)
}

async fn read_life(
    connection: &mut SqliteConnection,
    activity: i64,
    sku: i64,
) -> Result<LifeBooks, BooksError> {
    let ledger = "SELECT number, quantity FROM ledger WHERE activity = ? AND sku = ?";
    let ledger: Vec<(i64, i64)> =
        sqlx::query_as(ledger).bind(activity).bind(sku).fetch_all(&mut *connection).await?;
    let payments = "SELECT p.number, p.state FROM payments p JOIN orders o ON o.number = p.number \
                    WHERE o.activity = ? AND o.sku = ? AND p.state IN (2, 3)";
    let payments: Vec<(i64, i64)> =
        sqlx::query_as(payments).bind(activity).bind(sku).fetch_all(connection).await?;
    let number = |number: i64| {
        u64::try_from(number).map_err(|_| BooksError::Row(format!("an order number of {number}")))
    };
    let mut life = LifeBooks::default();
    for (order, quantity) in ledger {
        life.ledger.push((number(order)?, quantity));
    }
    for (order, state) in payments {
        if state == 2 {
            life.applied.push(number(order)?);
        } else {
            life.refunds = life.refunds.saturating_add(1);
        }
    }
    Ok(life)
}

fn add_load(books: &mut Books, row: &SqliteRow) -> Result<(), BooksError> {
    let kind: i64 = row.try_get("kind")?;
    let applied: i64 = row.try_get("applied")?;
    let amounts: String = row.try_get("amounts")?;
    let amounts: Vec<i64> = serde_json::from_str(&amounts)
        .map_err(|_| BooksError::Row(format!("a load whose amounts are `{amounts}`")))?;
    let sum = amounts.iter().fold(0_i64, |sum, amount| sum.saturating_add(*amount));
    if amounts.len() != SHARDS || sum != applied {
        return Err(BooksError::Row(format!("a load of {applied} units whose 16 amounts are {amounts:?}")));
    }
    for (shard, amount) in amounts.into_iter().enumerate() {
        books.add_loaded(shard, kind, amount)?;
    }
    Ok(())
}

fn order(row: &SqliteRow) -> Result<OrderRow, BooksError> {
    let number: i64 = row.try_get("number")?;
    let field = |name: &str| -> Result<i64, sqlx::Error> { row.try_get(name) };
    let out_of_range = || BooksError::Row(format!("order {number}, which has a field out of range"));
    let state = u8::try_from(field("state")?).ok();
    Ok(OrderRow {
        number: u64::try_from(number).map_err(|_| out_of_range())?,
        user: u64::try_from(field("user")?).map_err(|_| out_of_range())?,
        sku: u16::try_from(field("sku")?).map_err(|_| out_of_range())?,
        quantity: u16::try_from(field("quantity")?).map_err(|_| out_of_range())?,
        attempt: u8::try_from(field("attempt")?).map_err(|_| out_of_range())?,
        state: state.and_then(OrderState::from_wire),
        shard: shard(field("shard")?)?,
    })
}
