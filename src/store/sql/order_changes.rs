//! Changes of the embedded store's orders after their purchase: the state, a line of history, the event that tells
//! gateways, and units that go back for sale.
//!
//! Run by the writer task inside a transaction that has seen the orders where the step begins; nobody else writes, so
//! they stand there still. What is told is published after the commit, with everything else that the batch holds.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::SqliteConnection;

use super::batch::Batch;
use super::error::Failure;
use super::rows::Wanted;
use super::statements::{Shapes, signed, write, write_with};
use super::step::Step;
use crate::protocol::{SkuKey, UserId};
use crate::stock::calls::{Change, Mark, ShardId};

/// The last values are the state to go to and the one to come from.
static MOVE: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "WITH k (number) AS (VALUES ",
        "(?)",
        ") UPDATE orders SET state = ? WHERE number IN (SELECT number FROM k) AND state = ?",
    )
});

static INSERT_HISTORY: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO order_history (number, from_state, state, cause, reason, at_ms) VALUES ",
        "(?,?,?,?,?,?)",
        "",
    )
});

/// An order that is there already ends the transaction: its units went back before.
static INSERT_LEDGER: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO ledger (number, shard, activity, sku, quantity, at_ms) VALUES ",
        "(?,?,?,?,?,?)",
        "",
    )
});

/// The rows that a transaction needs which gives the units of these orders back. Transfers too: an event tells all
/// counters of an SKU.
pub(super) fn wanted(orders: &[(UserId, Mark)]) -> Wanted {
    let keys: Vec<_> = orders.iter().map(|(user, mark)| (ShardId::of(*user), mark.sku)).collect();
    Wanted { stock: keys.clone(), transfers: keys, ..Wanted::default() }
}

/// Moves orders on that stand where the step begins, and tells of it.
pub(super) async fn advance(
    connection: &mut SqliteConnection,
    batch: &mut Batch,
    orders: &[(UserId, Mark)],
    step: Step<'_>,
) -> Result<(), Failure> {
    move_on(connection, batch, orders, step).await?;
    tell(batch, orders, step, &[]);
    Ok(())
}

/// The same, and their units go back for sale: stock and ledger, together with the state.
pub(super) async fn release(
    connection: &mut SqliteConnection,
    batch: &mut Batch,
    orders: &[(UserId, Mark)],
    step: Step<'_>,
) -> Result<(), Failure> {
    move_on(connection, batch, orders, step).await?;
    let now_ms = signed(batch.now_ms);
    write(connection, &INSERT_LEDGER, orders, |query, (user, mark)| {
        let query = query.bind(signed(mark.order.0)).bind(ShardId::of(*user).number());
        query.bind(mark.sku.activity.0).bind(mark.sku.sku.0).bind(mark.quantity).bind(now_ms)
    })
    .await?;
    for (user, mark) in orders {
        give_back(batch, *user, mark)?;
    }
    let mut skus: Vec<SkuKey> = orders.iter().map(|(_, mark)| mark.sku).collect();
    skus.sort_unstable();
    skus.dedup();
    tell(batch, orders, step, &skus);
    Ok(())
}

async fn move_on(
    connection: &mut SqliteConnection,
    batch: &Batch,
    orders: &[(UserId, Mark)],
    step: Step<'_>,
) -> Result<(), Failure> {
    step.checked().map_err(Failure::Corrupt)?;
    let from = step.from.map_or(0, |from| from as u8);
    let number = |(_, mark): &(UserId, Mark)| signed(mark.order.0);
    let states = |query: super::statements::Writing| query.bind(step.to as u8).bind(from);
    write_with(connection, &MOVE, orders, |query, order| query.bind(number(order)), states).await?;
    let (reason, now_ms) = (step.kept_reason(), signed(batch.now_ms));
    write(connection, &INSERT_HISTORY, orders, |query, order| {
        let query = query.bind(number(order)).bind(from).bind(step.to as u8).bind(step.cause as u8);
        query.bind(reason.clone()).bind(now_ms)
    })
    .await?;
    Ok(())
}

fn give_back(batch: &mut Batch, user: UserId, mark: &Mark) -> Result<(), Failure> {
    let order = mark.order;
    let row = batch.stock.get_mut(&(ShardId::of(user), mark.sku));
    let row =
        row.ok_or_else(|| Failure::Corrupt(format!("the stock that order {order} was sold from is gone")))?;
    let free = row.free.checked_add(mark.quantity.into());
    row.free = free.ok_or_else(|| Failure::Corrupt(format!("the units of order {order} have no room")))?;
    row.changed = true;
    Ok(())
}

/// One event per shard; `skus`: those whose units came back somewhere.
fn tell(batch: &mut Batch, orders: &[(UserId, Mark)], step: Step<'_>, skus: &[SkuKey]) {
    let mut by_shard: BTreeMap<ShardId, Vec<(UserId, Mark)>> = BTreeMap::new();
    for (user, mark) in orders {
        by_shard.entry(ShardId::of(*user)).or_default().push((*user, Mark { state: step.to, ..*mark }));
    }
    for (shard, marks) in by_shard {
        let touched: Vec<_> =
            skus.iter().filter(|sku| marks.iter().any(|(_, mark)| mark.sku == **sku)).copied().collect();
        batch.append(shard, Change::Marked(marks), &touched);
    }
}
