//! What takeovers and ways back came to, kept for whoever asks again.

use sqlx::MySqlConnection;

use super::super::failure::Failure;
use super::{Ground, TakenSku};
use crate::protocol::{ActivityId, SkuId};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Taken = 1,
    GivenBack = 2,
}

pub(super) async fn write(
    connection: &mut MySqlConnection,
    ground: &Ground,
    kind: Kind,
    skus: &[TakenSku],
) -> Result<(), Failure> {
    for one in skus {
        sqlx::query(
            "INSERT INTO takeovers (activity, sku, gen, kind, at_ms, total, unpaid, paid, closed, handed_in, \
             failed_orders, reserve_free, opened) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(ground.activity.0)
        .bind(one.sku.0)
        .bind(ground.generation.0)
        .bind(kind as u8)
        .bind(ground.now_ms)
        .bind(one.total)
        .bind(one.unpaid)
        .bind(one.paid)
        .bind(one.closed)
        .bind(one.handed_in)
        .bind(one.failed_orders)
        .bind(one.reserve_free)
        .bind(one.opened)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// What the last one came to.
pub(super) async fn last(
    connection: &mut MySqlConnection,
    activity: ActivityId,
) -> Result<Vec<TakenSku>, Failure> {
    type Row = (u16, u64, u64, u64, u64, u64, u64, u64, u64);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT sku, total, unpaid, paid, closed, handed_in, failed_orders, reserve_free, opened FROM takeovers t \
         WHERE activity = ? AND gen = (SELECT MAX(gen) FROM takeovers l WHERE l.activity = t.activity) ORDER BY sku",
    )
    .bind(activity.0)
    .fetch_all(connection)
    .await?;
    let one = |(sku, total, unpaid, paid, closed, handed_in, failed_orders, reserve_free, opened)| TakenSku {
        sku: SkuId(sku),
        total,
        unpaid,
        paid,
        closed,
        handed_in,
        failed_orders,
        reserve_free,
        opened,
    };
    Ok(rows.into_iter().map(one).collect())
}
