//! What a reconciliation corrects in SQL: counted stock by a difference, orders and ledger rows that are missing.
//!
//! Called by `rushgate reconcile --fix` alone. Each is one transaction that looks again, under its locks, whether there
//! is something to correct, so that each may be repeated. None of these gives units back: a ledger row does, and it is
//! written only where SQL has the order in a final state (rule 14 of the stock protocol).

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::books::{LOADED, PlacedOrder};
use super::failure::{Failure, retried};
use super::order_rows::{insert_orders, lock_generation, undo};
use super::order_states::{Step, insert_history, owe_mark};
use super::recorded;
use super::releases::{Release, insert_ledger, owe_again};
use crate::payment::Cause;
use crate::protocol::{OrderState, SkuKey};
use crate::stock::calls::{Gen, Mark};
use crate::store::StoreError;

/// In the history of what is restored.
const REASON: &str = "restored by a reconciliation";

/// By how much an SKU's stock was corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockMended {
    /// Units that no order holds.
    pub available: i64,
    /// Units that orders hold.
    pub sold: i64,
}

impl MySqlInstallation {
    /// Corrects an SKU's stock to what its loads and its orders add up to; by how much. `None`: SQL holds more orders than
    /// were ever loaded, or the SKU has no row; nothing changed.
    pub async fn mend_stock(&self, sku: SkuKey) -> Result<Option<StockMended>, StoreError> {
        retried!(self.options.call_timeout; self.try_mend_stock(sku))
    }

    /// Writes the row of a settled order anew, as its mark in Redis has it, and corrects its SKU's stock. Whether it did:
    /// not while the number or the user has another row, under another generation, or where too few units are left.
    pub async fn restore_order(&self, generation: Gen, order: &PlacedOrder) -> Result<bool, StoreError> {
        retried!(self.options.call_timeout; self.try_restore_order(generation, order))
    }

    /// Owes the release of an order that is over, anew or for the first time; whether SQL has it in a final state.
    pub async fn owe_release(&self, order: &PlacedOrder) -> Result<bool, StoreError> {
        retried!(self.options.call_timeout; self.try_owe_release(order))
    }

    async fn try_mend_stock(&self, sku: SkuKey) -> Result<Option<StockMended>, Failure> {
        let mut transaction = self.pool.begin().await?;
        lock_generation(&mut transaction).await?;
        let mended = balance(&mut transaction, sku).await?;
        if mended.is_some() {
            transaction.commit().await?;
        } else {
            undo(transaction).await;
        }
        Ok(mended)
    }

    async fn try_restore_order(&self, generation: Gen, order: &PlacedOrder) -> Result<bool, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (current, now_ms) = lock_generation(&mut transaction).await?;
        let is_over: Option<u8> = sqlx::query_scalar("SELECT done FROM ledger WHERE number = ? AND user = ?")
            .bind(order.mark.order.0)
            .bind(order.user.0)
            .fetch_optional(&mut *transaction)
            .await?;
        if current != generation || is_over.is_some() || !order.mark.state.is_live() {
            undo(transaction).await;
            return Ok(false);
        }
        let has_paid: Option<String> =
            sqlx::query_scalar("SELECT id FROM payments WHERE number = ? AND state = 2 LIMIT 1")
                .bind(order.mark.order.0)
                .fetch_optional(&mut *transaction)
                .await?;
        let state = if has_paid.is_some() { OrderState::Paid } else { order.mark.state };
        let mark = Mark { state, ..order.mark };
        let inserted = insert_orders(&mut transaction, &[(order.shard, order.user, mark)], now_ms).await;
        match inserted.map_err(Failure::from) {
            Err(failure) if failure.is_duplicate() || failure.is_bad_row() => {
                undo(transaction).await;
                return Ok(false);
            }
            other => other?,
        }
        if state == OrderState::Recorded {
            recorded::insert(&mut transaction, &[mark]).await?;
        }
        if state != order.mark.state {
            owe_mark(&mut transaction, mark.order, state, now_ms).await?;
        }
        let step = Step { from: None, to: state, cause: Cause::Asked, reason: REASON };
        insert_history(&mut transaction, &[mark.order], step, now_ms).await?;
        let is_balanced = balance(&mut transaction, mark.sku).await?.is_some();
        if is_balanced {
            transaction.commit().await?;
        } else {
            undo(transaction).await;
        }
        Ok(is_balanced)
    }

    async fn try_owe_release(&self, order: &PlacedOrder) -> Result<bool, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (_, now_ms) = lock_generation(&mut transaction).await?;
        let (number, user) = (order.mark.order.0, order.user.0);
        let row: Option<u8> =
            sqlx::query_scalar("SELECT state FROM orders WHERE number = ? AND user = ? FOR UPDATE")
                .bind(number)
                .bind(user)
                .fetch_optional(&mut *transaction)
                .await?;
        let ledger: Option<u8> =
            sqlx::query_scalar("SELECT state FROM ledger WHERE number = ? AND user = ? FOR UPDATE")
                .bind(number)
                .bind(user)
                .fetch_optional(&mut *transaction)
                .await?;
        let state = match row.and_then(OrderState::from_wire) {
            Some(state) if state.is_live() => None,
            Some(OrderState::Failed) => Some(OrderState::Failed),
            Some(_) => Some(OrderState::Closed),
            // An order that the database refuses in any state: its ledger row stands for it.
            None => ledger.and_then(OrderState::from_wire),
        };
        let Some(state) = state else {
            undo(transaction).await;
            return Ok(false);
        };
        let mark = Mark { state, pay_by_ms: 0, ..order.mark };
        let release = Release { id: 0, shard: order.shard, user: order.user, mark };
        if ledger.is_some() {
            owe_again(&mut transaction, &release, now_ms).await?;
        } else {
            insert_ledger(&mut transaction, &release, now_ms).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }
}

/// Brings an SKU's row to what its loads and orders add up to, by the differences. Its row is locked first: who changes
/// orders or loads changes it in the same transaction, so that what is summed up here is what the row was to say.
async fn balance(connection: &mut MySqlConnection, sku: SkuKey) -> Result<Option<StockMended>, Failure> {
    let select =
        format!("SELECT s.available, s.sold, {LOADED} FROM sku_stock s WHERE s.activity = ? AND s.sku = ?");
    let locked: Option<(u32, u32)> =
        sqlx::query_as("SELECT available, sold FROM sku_stock WHERE activity = ? AND sku = ? FOR UPDATE")
            .bind(sku.activity.0)
            .bind(sku.sku.0)
            .fetch_optional(&mut *connection)
            .await?;
    if locked.is_none() {
        return Ok(None);
    }
    let (available, sold, loaded): (u32, u32, i64) = sqlx::query_as(sqlx::AssertSqlSafe(select))
        .bind(sku.activity.0)
        .bind(sku.sku.0)
        .fetch_one(&mut *connection)
        .await?;
    // Those of recorded orders are deducted when they are settled.
    let held: i64 = sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(quantity), 0) AS SIGNED) FROM orders \
         WHERE activity = ? AND sku = ? AND source = 1 AND live = 1 AND state <> 7",
    )
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .fetch_one(&mut *connection)
    .await?;
    let left = loaded.saturating_sub(held);
    if left < 0 {
        return Ok(None);
    }
    let mended = StockMended {
        available: left.saturating_sub(available.into()),
        sold: held.saturating_sub(sold.into()),
    };
    if mended != StockMended::default() {
        sqlx::query(
            "UPDATE sku_stock SET available = CAST(available AS SIGNED) + ?, sold = CAST(sold AS SIGNED) + ?, \
             version = version + 1 WHERE activity = ? AND sku = ?",
        )
        .bind(mended.available)
        .bind(mended.sold)
        .bind(sku.activity.0)
        .bind(sku.sku.0)
        .execute(connection)
        .await?;
    }
    Ok(Some(mended))
}
