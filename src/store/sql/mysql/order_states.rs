//! Changes of an order's state after its row came to be: by compare-and-set, only forward, each with a line of history.
//!
//! Each function is part of a caller's transaction, which also writes what Redis has to learn of the change: a row of
//! the ledger where units come back, else one of the outbox, else, for an order of the database's own shards, an event.

use std::sync::LazyLock;

use sqlx::MySqlConnection;

use super::failure::Failure;
use super::statements::{Shapes, Writing, write};
use crate::protocol::{OrderNumber, OrderState};
pub(super) use crate::store::sql::step::Step;

static INSERT_HISTORY: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO order_history (number, from_state, state, cause, reason, at_ms) VALUES ",
        "(?,?,?,?,?,?)",
        "",
    )
});

static OWE_MARKS: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO outbox (number, state, done, created_at_ms) VALUES ",
        "(?,?,0,?)",
        " ON DUPLICATE KEY UPDATE number = number",
    )
});

/// Moves an order on, if it stands where the step begins; whether it did.
pub(super) async fn advance(
    connection: &mut MySqlConnection,
    order: OrderNumber,
    step: Step<'_>,
    now_ms: u64,
) -> Result<bool, Failure> {
    step.checked().map_err(Failure::Corrupt)?;
    let Some(from) = step.from else { return Ok(false) };
    let moved = sqlx::query("UPDATE orders SET state = ? WHERE number = ? AND state = ?")
        .bind(step.to as u8)
        .bind(order.0)
        .bind(from as u8)
        .execute(&mut *connection)
        .await?;
    if moved.rows_affected() == 0 {
        return Ok(false);
    }
    insert_history(connection, &[order], step, now_ms).await?;
    Ok(true)
}

/// The same line for each of these orders.
pub(super) async fn insert_history(
    connection: &mut MySqlConnection,
    orders: &[OrderNumber],
    step: Step<'_>,
    now_ms: u64,
) -> Result<(), Failure> {
    let reason = step.kept_reason();
    let bind = |query: Writing, order: &OrderNumber| {
        let query = query.bind(order.0).bind(step.from.map_or(0, |from| from as u8)).bind(step.to as u8);
        query.bind(step.cause as u8).bind(reason.clone()).bind(now_ms)
    };
    Ok(write(connection, &INSERT_HISTORY, orders, bind).await?)
}

/// Redis has to learn this state of each of these; once per order and state.
pub(super) async fn owe_marks(
    connection: &mut MySqlConnection,
    orders: &[OrderNumber],
    state: OrderState,
    now_ms: u64,
) -> Result<(), Failure> {
    let bind = |query: Writing, order: &OrderNumber| query.bind(order.0).bind(state as u8).bind(now_ms);
    Ok(write(connection, &OWE_MARKS, orders, bind).await?)
}

/// Redis has to learn this state; once per order and state.
pub(super) async fn owe_mark(
    connection: &mut MySqlConnection,
    order: OrderNumber,
    state: OrderState,
    now_ms: u64,
) -> Result<(), Failure> {
    owe_marks(connection, &[order], state, now_ms).await
}
