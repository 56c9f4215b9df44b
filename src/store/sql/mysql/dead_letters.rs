//! Dead letters: what came out of a feed and could not be settled, or was paid and cannot be judged, with the reason, for
//! people to look at.

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::failure::{self, Failure, retried};
use super::reservations::Reservation;
use crate::protocol::{OrderNumber, SkuKey, UserId};
use crate::stock::calls::{Gen, ShardId};
use crate::store::StoreError;

/// Characters of a reason that are kept.
const REASON_CHARS_MAX: usize = 1000;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Ascending.
    pub id: u64,
    /// Whose feed it was in.
    pub shard: ShardId,
    /// The generation and seq of its entry; 0 and 0 where it is a payment that cannot be judged.
    pub entry: (Gen, u64),
    /// The order number; 0 where the entry itself could not be read.
    pub order: OrderNumber,
    /// Whose it was; 0 where that is not known.
    pub user: UserId,
    /// What was reserved.
    pub sku: SkuKey,
    /// How many units.
    pub quantity: u16,
    /// Why it could not be settled.
    pub reason: String,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
}

type Row = (u64, u8, u64, u64, u64, u64, u32, u16, u16, String, u64);

impl MySqlInstallation {
    /// Keeps a feed entry that could not be read at all. Once per entry.
    pub async fn keep_malformed(
        &self,
        shard: ShardId,
        entry: (Gen, u64),
        reason: &str,
    ) -> Result<(), StoreError> {
        retried!(self.options.call_timeout; self.try_keep_malformed(shard, entry, reason))
    }

    /// Dead letters by ascending id, from after one (0: from the first).
    pub async fn dead_letters(&self, after: u64, limit: u32) -> Result<Vec<DeadLetter>, StoreError> {
        retried!(self.options.call_timeout; self.read_dead_letters(after, limit))
    }

    async fn read_dead_letters(&self, after: u64, limit: u32) -> Result<Vec<DeadLetter>, Failure> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, shard, gen, seq, number, user, activity, sku, quantity, reason, at_ms FROM dead_letters \
             WHERE id > ? ORDER BY id LIMIT ?",
        )
        .bind(after)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        let letter = |(id, shard, r#gen, seq, number, user, activity, sku, quantity, reason, at_ms): Row| {
            Ok(DeadLetter {
                id,
                shard: failure::shard_id(shard)?,
                entry: (Gen(r#gen), seq),
                order: OrderNumber(number),
                user: UserId(user),
                sku: failure::sku_key(activity, sku),
                quantity,
                reason,
                at_ms,
            })
        };
        rows.into_iter().map(letter).collect()
    }

    async fn try_keep_malformed(
        &self,
        shard: ShardId,
        entry: (Gen, u64),
        reason: &str,
    ) -> Result<(), Failure> {
        sqlx::query(concat!(
            "INSERT INTO dead_letters (shard, gen, seq, number, user, activity, sku, quantity, attempt, reason, at_ms) \
             VALUES (?, ?, ?, 0, 0, 0, 0, 0, 0, ?, ", now_ms!(), ") ON DUPLICATE KEY UPDATE reason = VALUES(reason)"
        ))
        .bind(shard.number())
        .bind(entry.0.0)
        .bind(entry.1)
        .bind(shortened(reason))
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

fn shortened(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

pub(super) async fn insert(
    connection: &mut MySqlConnection,
    one: &Reservation,
    reason: &str,
    now_ms: u64,
) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO dead_letters (shard, gen, seq, number, user, activity, sku, quantity, attempt, reason, at_ms) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE reason = VALUES(reason)",
    )
    .bind(one.shard.number())
    .bind(one.entry.0.0)
    .bind(one.entry.1)
    .bind(one.mark.order.0)
    .bind(one.user.0)
    .bind(one.mark.sku.activity.0)
    .bind(one.mark.sku.sku.0)
    .bind(one.mark.quantity)
    .bind(one.mark.attempt)
    .bind(shortened(reason))
    .bind(now_ms)
    .execute(connection)
    .await?;
    Ok(())
}

/// Keeps why nothing can be done for an order that has a row. Once per order; a later reason takes the place of the one before.
pub(super) async fn insert_of_order(
    connection: &mut MySqlConnection,
    order: OrderNumber,
    reason: &str,
    now_ms: u64,
) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO dead_letters (shard, gen, seq, number, user, activity, sku, quantity, attempt, reason, at_ms) \
         SELECT shard, 0, 0, number, user, activity, sku, quantity, attempt, ?, ? FROM orders WHERE number = ? \
         ON DUPLICATE KEY UPDATE reason = VALUES(reason)",
    )
    .bind(shortened(reason))
    .bind(now_ms)
    .bind(order.0)
    .execute(connection)
    .await?;
    Ok(())
}
