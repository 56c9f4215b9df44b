//! Settlement (rule 13 of the stock protocol): reservations become orders, stock is deducted for rows really inserted.
//! Where the switch `orders.mode` says so, they are only recorded (`recorded`): a row, and nothing else.
//!
//! One transaction per batch, run by any number of writers at once. Fast: lock the generation for sharing, insert all
//! rows, deduct per SKU, apply payments that came before their orders, commit; it reads nothing else, and fails as a whole when any row is not new. Then the same batch is
//! done carefully (`settle_carefully`), which finds out what each row is. Rows and SKUs are taken in one order by
//! everybody, so that writers that meet wait rather than deadlock.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError};

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::failure::{Failure, retried};
use super::order_rows::{insert_orders, lock_generation_to_settle, undo};
use super::payments::{self, apply_parked};
use super::recorded;
use super::reservations::{Reservation, SettleOutcome, Settlement};
use super::settle_batch::Batch;
use super::settle_carefully::{self, Rows};
use super::statements::{Shapes, read};
use crate::payment::PaymentState;
use crate::protocol::{ActivityId, OrderState, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};
use crate::store::StoreError;
use crate::store::orders_modes::OrdersModes;

static PAY_WITHIN: LazyLock<Shapes> =
    LazyLock::new(|| Shapes::new("SELECT id, pay_within_ms FROM activities WHERE id IN (", "?", ")"));

/// Rounds of the careful way. One that another writer's commit disturbed sees that commit in the next.
const ROUNDS_MAX: u32 = 16;

impl MySqlInstallation {
    /// Settles a batch that was read from the feeds under `generation`.
    pub async fn settle(
        &self,
        generation: Gen,
        reservations: &[Reservation],
    ) -> Result<SettleOutcome, StoreError> {
        self.settle_or_record(generation, reservations, &OrdersModes::default()).await
    }

    /// The same; orders of activities that are to be recorded are.
    pub async fn settle_or_record(
        &self,
        generation: Gen,
        reservations: &[Reservation],
        modes: &OrdersModes,
    ) -> Result<SettleOutcome, StoreError> {
        let pay_within_ms = retried!(self.options.call_timeout; self.pay_within(reservations))?;
        let batch = Batch { generation, reservations, pay_within_ms, modes };
        if batch.looks_good()
            && let Some(outcome) = retried!(self.options.call_timeout; self.settle_fast(&batch))?
        {
            return Ok(outcome);
        }
        let mut rows = Rows::Together;
        for _ in 0..ROUNDS_MAX {
            match retried!(self.options.call_timeout; settle_carefully::settle(self, &batch, rows))? {
                settle_carefully::Round::Done(outcome) => return Ok(outcome),
                settle_carefully::Round::Disturbed => {}
                settle_carefully::Round::BadRow => rows = Rows::OneByOne,
            }
        }
        Err(StoreError::Unavailable(format!(
            "a batch of {} reservations was disturbed {ROUNDS_MAX} times by other writers",
            reservations.len()
        )))
    }

    /// `None`: some row is not new, or not good.
    async fn settle_fast(&self, batch: &Batch<'_>) -> Result<Option<SettleOutcome>, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (current, taken, now_ms) = lock_generation_to_settle(&mut transaction).await?;
        if current != batch.generation {
            return Ok(Some(SettleOutcome::Gen(current)));
        }
        if batch.is_older_than(taken) {
            return Ok(None);
        }
        let mut settled: Vec<_> = batch.reservations.iter().map(|one| batch.settled(one, now_ms)).collect();
        let mut orders: Vec<_> = batch.reservations.iter().zip(&settled).collect();
        orders.sort_unstable_by_key(|(_, mark)| mark.order);
        let orders: Vec<_> = orders.iter().map(|(one, mark)| (one.shard, one.user, **mark)).collect();
        let Err(failure) = write_all(&mut transaction, &orders, now_ms).await else {
            let is_settled = |mark: &Mark| mark.state != OrderState::Recorded;
            let numbers = orders.iter().filter(|(_, _, mark)| is_settled(mark));
            let numbers: Vec<_> = numbers.map(|(_, _, mark)| mark.order.0).collect();
            let unparked = apply_parked(&mut transaction, self, &numbers, now_ms).await?;
            for one in unparked.iter().filter(|one| one.state == PaymentState::Applied) {
                let paid = settled.iter_mut().filter(|mark| mark.order == one.payment.order);
                paid.for_each(|mark| mark.state = OrderState::Paid);
            }
            transaction.commit().await?;
            payments::tell(&unparked);
            let settlements = settled.into_iter().map(Settlement::of).collect();
            return Ok(Some(SettleOutcome::Committed(settlements)));
        };
        undo(transaction).await;
        if failure.is_duplicate() || failure.is_bad_row() { Ok(None) } else { Err(failure) }
    }

    /// How long orders may be paid, by activity; activities that are not there are left out.
    async fn pay_within(&self, reservations: &[Reservation]) -> Result<HashMap<ActivityId, u64>, Failure> {
        let mut found = HashMap::new();
        let mut missing = Vec::new();
        {
            let known = self.pay_within_ms.read().unwrap_or_else(PoisonError::into_inner);
            for one in reservations {
                let id = one.mark.sku.activity;
                match known.get(&id) {
                    Some(ms) => drop(found.insert(id, *ms)),
                    None if missing.contains(&id) => {}
                    None => missing.push(id),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let mut connection = self.pool.acquire().await?;
        let rows: Vec<(u32, u64)> =
            read(&mut connection, &PAY_WITHIN, &missing, |query, id: ActivityId| query.bind(id.0)).await?;
        let mut known = self.pay_within_ms.write().unwrap_or_else(PoisonError::into_inner);
        for (id, ms) in rows {
            known.insert(ActivityId(id), ms);
            found.insert(ActivityId(id), ms);
        }
        Ok(found)
    }
}

async fn write_all(
    connection: &mut MySqlConnection,
    orders: &[(ShardId, UserId, Mark)],
    now_ms: u64,
) -> Result<(), Failure> {
    insert_orders(connection, orders, now_ms).await?;
    recorded::write_units(connection, orders.iter().map(|(_, _, mark)| mark)).await
}
