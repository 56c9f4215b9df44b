//! A reservation store in the database itself, for when Redis is gone: the same rules, on 16 rows per SKU.
//!
//! Shared by any number of gateways; no task of its own. A call is one transaction that holds its shard's row, so calls
//! to a shard come one after the other and those to different shards side by side. An order row is the buyer's mark,
//! settled at once. The feed is a table that every gateway polls; its own commits wake it at once. On failure a call is
//! answered "unavailable" and is repeated under its number; the stored reply says whether it was executed.

pub(super) mod books;
mod event_codec;
mod feed;
pub(super) mod loads;
pub(super) mod reserve;
pub(super) mod rows;

use std::time::Duration;

use sqlx::MySqlConnection;
use tokio::sync::watch;

use self::rows::Wanted;
use super::failure::{Failure, Tries, retried, unanswered};
use super::order_rows::lock_generation;
use super::order_states::{Step, insert_history};
use super::releases::CloseOutcome;
use super::{MySqlInstallation, ProcessKind, orders};
use crate::payment::Cause;
use crate::protocol::{ActivityId, OrderNumber, OrderState, UserId};
use crate::stock::calls::{Call, Change, Mark, Reply, SHARDS, ShardId, Snapshot};
use crate::store::catalog::{Activity, Catalogue, Ended};
use crate::store::sql::batch::Batch;
use crate::store::{FeedPositions, FeedRead, Registration, ReservationStore, StoreError};

/// The shards in the database, as a gateway uses them.
#[derive(Debug)]
pub struct MySqlStore {
    installation: MySqlInstallation,
    /// Counts this process's own commits that have events.
    published: watch::Sender<u64>,
}

/// Tries of a call whose rows another transaction inserted first.
const TRIES_MAX: u32 = 8;

impl MySqlStore {
    /// The store of an installation.
    pub fn new(installation: MySqlInstallation) -> Self {
        Self { installation, published: watch::Sender::new(0) }
    }

    /// Its installation.
    pub const fn installation(&self) -> &MySqlInstallation {
        &self.installation
    }

    /// Closes an order of this store that waits for its payment: one transaction for its state, its units and the
    /// event. No ledger: the units are here.
    pub async fn close_order(&self, order: OrderNumber) -> Result<CloseOutcome, StoreError> {
        retried!(self.installation.options.call_timeout; self.try_close(order, Step::TIMED_OUT))
    }

    /// The same because somebody asks for it.
    pub async fn close_order_asked(
        &self,
        order: OrderNumber,
        reason: &'static str,
    ) -> Result<CloseOutcome, StoreError> {
        let step = Step { cause: Cause::Asked, reason, ..Step::TIMED_OUT };
        retried!(self.installation.options.call_timeout; self.try_close(order, step))
    }

    async fn try_call(&self, call: &Call) -> Result<Reply, StoreError> {
        let mut tries = Tries::default();
        let mut duplicates = 0_u32;
        loop {
            let patience = self.installation.options.call_timeout;
            let execution = self.execute(call, duplicates > 0);
            let Ok(executed) = tokio::time::timeout(patience, execution).await else {
                return Err(unanswered(patience));
            };
            match executed {
                Ok(reply) => return Ok(reply),
                // A user's order, or an order number, that another transaction has committed since the look.
                Err(failure) if failure.is_duplicate() && duplicates < TRIES_MAX => {
                    duplicates = duplicates.saturating_add(1);
                }
                Err(failure) => {
                    if !tries.again(&failure).await {
                        return Err(failure.into());
                    }
                }
            }
        }
    }

    async fn execute(&self, call: &Call, look_up_owners: bool) -> Result<Reply, Failure> {
        let mut transaction = self.installation.pool.begin().await?;
        let (generation, now_ms) = lock_generation(&mut transaction).await?;
        let mut batch = Batch::new(generation, now_ms, [0; SHARDS]);
        rows::lock_shard(&mut transaction, call.shard, call.process, &mut batch).await?;
        let key = (call.process, call.shard);
        let is_new = batch.last_calls.get(&key).is_none_or(|last| last.number < call.number);
        if is_new && call.generation == generation {
            rows::read(&mut transaction, &Wanted::of(call, look_up_owners), &mut batch).await?;
        }
        let reply = batch.execute(call);
        if is_new {
            rows::write(&mut transaction, &mut batch, self.installation.options.feed_events_max).await?;
            transaction.commit().await?;
            self.publish(&batch);
        }
        Ok(reply)
    }

    async fn try_close(&self, order: OrderNumber, step: Step<'_>) -> Result<CloseOutcome, Failure> {
        let mut transaction = self.installation.pool.begin().await?;
        let (generation, now_ms) = lock_generation(&mut transaction).await?;
        let Some((user, mark)) = orders::by_number(&mut transaction, order).await? else {
            return Ok(CloseOutcome::NoOrder);
        };
        let shard = ShardId::of(user);
        let mut batch = Batch::new(generation, now_ms, [0; SHARDS]);
        rows::lock_shards(&mut transaction, &[shard], &mut batch).await?;
        let closed = sqlx::query("UPDATE orders SET state = 4 WHERE number = ? AND state = 2 AND source = 2")
            .bind(order.0)
            .execute(&mut *transaction)
            .await?;
        if closed.rows_affected() == 0 {
            return Ok(CloseOutcome::Stands(mark));
        }
        // The event tells all counters of the SKU.
        let keys = vec![(shard, mark.sku)];
        let wanted = Wanted { stock: keys.clone(), transfers: keys, ..Wanted::default() };
        rows::read(&mut transaction, &wanted, &mut batch).await?;
        if let Some(row) = batch.stock.get_mut(&(shard, mark.sku)) {
            row.free = row.free.saturating_add(u32::from(mark.quantity));
            row.changed = true;
        }
        let mark = Mark { state: OrderState::Closed, ..mark };
        insert_history(&mut transaction, &[order], step, now_ms).await?;
        batch.append(shard, Change::Marked(vec![(user, mark)]), &[mark.sku]);
        rows::write(&mut transaction, &mut batch, self.installation.options.feed_events_max).await?;
        transaction.commit().await?;
        self.publish(&batch);
        Ok(CloseOutcome::Closed)
    }

    /// Wakes this process's readers.
    fn publish(&self, batch: &Batch) {
        if !batch.events.is_empty() {
            self.published.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

/// Appends the event that tells gateways how an order of this store stands, in the transaction that changed it.
pub(super) async fn tell(
    connection: &mut MySqlConnection,
    installation: &MySqlInstallation,
    order: OrderNumber,
    now_ms: u64,
) -> Result<(), Failure> {
    let (generation, _) = lock_generation(connection).await?;
    let Some((user, mark)) = orders::by_number(connection, order).await? else { return Ok(()) };
    let shard = ShardId::of(user);
    let mut batch = Batch::new(generation, now_ms, [0; SHARDS]);
    rows::lock_shards(connection, &[shard], &mut batch).await?;
    batch.append(shard, Change::Marked(vec![(user, mark)]), &[]);
    rows::write(connection, &mut batch, installation.options.feed_events_max).await
}

impl ReservationStore for MySqlStore {
    async fn register(&self) -> Result<Registration, StoreError> {
        self.installation.register(ProcessKind::Gateway).await
    }

    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        self.try_call(call).await
    }

    async fn snapshot(&self, shard: ShardId) -> Result<Snapshot, StoreError> {
        retried!(self.installation.options.call_timeout; rows::snapshot(&self.installation, shard))
    }

    async fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        feed::read(&self.installation, self.published.subscribe(), after, wait).await
    }
}

impl Catalogue for MySqlStore {
    async fn version(&self) -> Result<u64, StoreError> {
        self.installation.version().await
    }

    /// Its stock is this store's.
    async fn activities(&self) -> Result<Vec<Activity>, StoreError> {
        retried!(self.installation.options.call_timeout; loads::activities(&self.installation))
    }

    async fn ended(&self) -> Result<Vec<Ended>, StoreError> {
        self.installation.ended().await
    }

    async fn order_of(&self, user: UserId, activity: ActivityId) -> Result<Option<Mark>, StoreError> {
        self.installation.order_of(user, activity).await
    }

    async fn drive_loads(&self) -> Result<u64, StoreError> {
        let mut applied = 0_u64;
        loop {
            match retried!(self.installation.options.call_timeout; self.apply_some_loads())? {
                0 => return Ok(applied),
                some => applied = applied.saturating_add(some),
            }
        }
    }
}
