//! The one transaction that takes an activity over: what is owed to Redis is owed no more, orders become those of the
//! shards in this database, reservations that were handed in become orders while there are units for them, and the rest is
//! for sale.
//!
//! It holds the generation's row for itself: settlements, closes, payments and calls to the shards here wait for its end.
//! Whatever they decide afterwards they decide on what it left.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sqlx::{Connection, MySqlConnection};

use super::super::MySqlInstallation;
use super::super::books::LOADED;
use super::super::catalog::ActivityState;
use super::super::failure::{Failure, retried};
use super::super::leadership::Leadership;
use super::super::operator_rows::{commit, insert_load};
use super::super::orders::mark;
use super::super::payments::{apply_parked, tell};
use super::super::reservation::loads::{insert_own_load, record_applied};
use super::super::reservation::rows;
use super::orders::{self, DATABASE, REDIS};
use super::records::{self, Kind as RecordKind};
use super::{Ground, TakenSku, Takeover, TakeoverRefused, late, lock};
use crate::protocol::{ActivityId, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Change, Gen, Mark, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::sql::batch::Batch;
use crate::store::sql::stock_loads::{Kind, Load, Touched, apply};

/// A million orders take a minute.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

const NO_UNIT: &str = "handed in at a takeover, and no unit was left for it";
const SUPERSEDED: &str = "handed in at a takeover, and another order of the user stands";

impl MySqlInstallation {
    /// Takes an activity over, as the leader and under the generation that the leader has raised for it.
    pub async fn take_over(
        &self,
        leadership: &mut Leadership,
        generation: Gen,
        activity: ActivityId,
    ) -> Result<Takeover, StoreError> {
        let mut connection = leadership.connection().await?;
        retried!(PATIENCE; self.try_take_over(&mut connection, generation, activity))
    }

    async fn try_take_over(
        &self,
        connection: &mut MySqlConnection,
        generation: Gen,
        activity: ActivityId,
    ) -> Result<Takeover, Failure> {
        let mut transaction = connection.begin().await?;
        let Some(ground) = lock(&mut transaction, activity).await? else {
            return Ok(Takeover::Refused(TakeoverRefused::NoActivity(activity)));
        };
        if ground.generation != generation {
            return Ok(Takeover::Gen(ground.generation));
        }
        if ground.is_taken {
            return Ok(Takeover::WasDone(records::last(&mut transaction, activity).await?));
        }
        match ground.state {
            ActivityState::Loaded => {}
            ActivityState::Created => {
                return Ok(Takeover::Refused(TakeoverRefused::NotPreheated(activity)));
            }
            _ => return Ok(Takeover::Refused(TakeoverRefused::Ended(activity))),
        }
        let pay_by_ms = ground.now_ms.saturating_add(ground.pay_within_ms);
        orders::settle_rows(&mut transaction, activity, pay_by_ms).await?;
        forgive(&mut transaction, &ground).await?;
        let mut skus = stock_of(&mut transaction, activity).await?;
        orders::add_up(&mut transaction, activity, REDIS, &mut skus).await?;
        orders::turn(&mut transaction, activity, (REDIS, DATABASE)).await?;
        let told = Told::HandedIn(generation);
        let Judged { kept, failed } = judge(&mut transaction, told, activity, pay_by_ms, &mut skus).await?;
        let numbers: Vec<u64> = kept.iter().map(|(_, mark)| mark.order.0).collect();
        self.open_the_rest(&mut transaction, &ground, kept, &mut skus).await?;
        for (user, mark, why) in &failed {
            late::insert_failed(&mut transaction, *user, mark, why, ground.now_ms).await?;
        }
        keep_marks(&mut transaction, activity).await?;
        let unparked = apply_parked(&mut transaction, self, &numbers, ground.now_ms).await?;
        let skus: Vec<TakenSku> = skus.into_values().collect();
        close_books(&mut transaction, &ground, &skus).await?;
        records::write(&mut transaction, &ground, RecordKind::Taken, &skus).await?;
        commit(transaction).await?;
        tell(&unparked);
        let failed = failed.into_iter().map(|(user, mark, _)| (user, mark.order)).collect();
        Ok(Takeover::Done { skus, failed })
    }

    /// Opens the rest, and writes the orders of those who were handed in. Readers of the feeds find a gap, because marks
    /// came to be that no event tells.
    async fn open_the_rest(
        &self,
        connection: &mut MySqlConnection,
        ground: &Ground,
        kept: Vec<(UserId, Mark)>,
        skus: &mut BTreeMap<SkuId, TakenSku>,
    ) -> Result<(), Failure> {
        let mut batch = Batch::new(ground.generation, ground.now_ms, [0; SHARDS]);
        rows::lock_shards(connection, &ShardId::ALL, &mut batch).await?;
        let key = |sku: SkuId| SkuKey { activity: ground.activity, sku };
        rows::read_everywhere(connection, skus.keys().map(|sku| key(*sku)), &mut batch).await?;
        let mut touched = Touched::default();
        for (sku, of) in skus.iter_mut() {
            let key = key(*sku);
            of.reserve_free = late::free_of(&batch, key);
            let opened = u32::try_from(of.opened).unwrap_or(u32::MAX);
            let held = of.unpaid.saturating_add(of.paid).saturating_add(of.handed_in);
            let taken = u32::try_from(of.opened.saturating_add(held)).unwrap_or(u32::MAX);
            let ordinal = insert_own_load(connection, key, Kind::Add, taken).await?;
            let load = Load { ordinal, sku: key, kind: Kind::Add, amount: opened };
            let amounts = apply(&mut batch, &load, &mut touched).map_err(Failure::Corrupt)?;
            record_applied(connection, (ordinal, taken.into()), &amounts, ground.now_ms).await?;
        }
        batch.orders = kept;
        let all: Vec<SkuKey> = skus.keys().map(|sku| key(*sku)).collect();
        for shard in ShardId::ALL {
            if let Some(seq) = batch.seq.get_mut(shard.index()) {
                *seq = seq.saturating_add(1);
            }
            batch.append(shard, Change::Loaded, &all);
        }
        rows::write(connection, &mut batch, self.options.feed_events_max).await
    }
}

/// What Redis is owed it gets no more: loads count as they stand in SQL, units that were to go back are free here.
async fn forgive(connection: &mut MySqlConnection, ground: &Ground) -> Result<(), Failure> {
    for statement in [
        "UPDATE load_shards s JOIN loads l ON l.ordinal = s.ordinal AND l.state = 1 \
         SET s.applied = IF(l.kind = 1, s.wanted, 0) WHERE s.applied IS NULL AND ? > 0 AND l.activity = ?",
        "UPDATE loads SET state = 2, done_at_ms = ? WHERE state = 1 AND activity = ?",
        "UPDATE ledger SET done = 1, done_at_ms = ? WHERE done = 0 AND activity = ?",
        "UPDATE outbox x JOIN orders o ON o.number = x.number SET x.done = 1, x.done_at_ms = ? \
         WHERE x.done = 0 AND o.activity = ?",
    ] {
        sqlx::query(statement).bind(ground.now_ms).bind(ground.activity.0).execute(&mut *connection).await?;
    }
    Ok(())
}

/// The SKUs with what was ever loaded of them.
pub(super) async fn stock_of(
    connection: &mut MySqlConnection,
    activity: ActivityId,
) -> Result<BTreeMap<SkuId, TakenSku>, Failure> {
    let select = format!("SELECT s.sku, {LOADED} FROM sku_stock s WHERE s.activity = ?");
    let rows: Vec<(u16, i64)> =
        sqlx::query_as(sqlx::AssertSqlSafe(select)).bind(activity.0).fetch_all(connection).await?;
    let one = |(sku, total): (u16, i64)| {
        let sku = SkuId(sku);
        let total = u64::try_from(total).unwrap_or_default();
        (sku, TakenSku { total, ..TakenSku::of(sku) })
    };
    Ok(rows.into_iter().map(one).collect())
}

/// Where it stands what gateways know.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    /// Handed in under this generation.
    HandedIn(Gen),
    /// Told in answer to this look, which changes nothing.
    Look(u64),
}

impl Told {
    const fn rows(self) -> (&'static str, u64) {
        match self {
            Self::HandedIn(generation) => ("hand_in_marks h WHERE h.state = 1 AND h.gen", generation.0),
            Self::Look(look) => ("takeover_look_marks h WHERE h.look", look),
        }
    }
}

/// What gateways have told and SQL knows nothing of, the earliest number first. One that is in the ledger is over.
async fn promises(
    connection: &mut MySqlConnection,
    told: Told,
    activity: ActivityId,
) -> Result<Vec<(UserId, Mark)>, Failure> {
    let (from, key) = told.rows();
    let select = format!(
        "SELECT DISTINCT h.user, h.number, h.sku, h.quantity, h.attempt FROM {from} = ? AND h.activity = ? \
           AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.number = h.number) \
           AND NOT EXISTS (SELECT 1 FROM ledger l WHERE l.number = h.number AND l.user = h.user) \
         ORDER BY h.number"
    );
    let rows: Vec<(u64, u64, u16, u16, u8)> =
        sqlx::query_as(sqlx::AssertSqlSafe(select)).bind(key).bind(activity.0).fetch_all(connection).await?;
    let promise = |(user, number, sku, quantity, attempt)| {
        mark((user, number, activity.0, sku, quantity, attempt, OrderState::Reserved as u8, 0))
    };
    rows.into_iter().map(promise).collect()
}

/// What becomes of promises.
#[derive(Default)]
pub(super) struct Judged {
    kept: Vec<(UserId, Mark)>,
    failed: Vec<(UserId, Mark, &'static str)>,
}

/// The earliest number first, while there are units; what is left then is opened.
pub(super) async fn judge(
    connection: &mut MySqlConnection,
    told: Told,
    activity: ActivityId,
    pay_by_ms: u64,
    skus: &mut BTreeMap<SkuId, TakenSku>,
) -> Result<Judged, Failure> {
    let promises = promises(connection, told, activity).await?;
    for (sku, of) in skus.iter_mut() {
        let held = of.unpaid.saturating_add(of.paid);
        of.opened = of.total.saturating_sub(held);
        if held > of.total {
            tracing::error!(
                activity = activity.0,
                sku = sku.0,
                total = of.total,
                held,
                "settled orders hold more units than were ever loaded; nothing of this SKU is opened"
            );
        }
    }
    let mut standing = standing(connection, told, activity).await?;
    let mut judged = Judged::default();
    for (user, mark) in promises {
        let (holds, last_attempt) = standing.entry(user).or_default();
        let Some(of) = skus.get_mut(&mark.sku.sku) else { continue };
        let quantity = u64::from(mark.quantity);
        if *holds || of.opened < quantity {
            of.failed_orders = of.failed_orders.saturating_add(1);
            judged.failed.push((user, mark, if *holds { SUPERSEDED } else { NO_UNIT }));
            continue;
        }
        of.opened = of.opened.saturating_sub(quantity);
        of.handed_in = of.handed_in.saturating_add(quantity);
        *holds = true;
        let attempt = mark.attempt.max(last_attempt.saturating_add(1));
        judged.kept.push((user, Mark { state: OrderState::PendingPayment, pay_by_ms, attempt, ..mark }));
    }
    Ok(judged)
}

/// Of those who were told of: whether an order of theirs lives, and their last attempt.
async fn standing(
    connection: &mut MySqlConnection,
    told: Told,
    activity: ActivityId,
) -> Result<HashMap<UserId, (bool, u8)>, Failure> {
    let (from, key) = told.rows();
    let select = format!(
        "SELECT user, attempt, state FROM orders WHERE activity = ? AND state <> 5 \
         AND user IN (SELECT h.user FROM {from} = ? AND h.activity = ?)"
    );
    let rows: Vec<(u64, u8, u8)> = sqlx::query_as(sqlx::AssertSqlSafe(select))
        .bind(activity.0)
        .bind(key)
        .bind(activity.0)
        .fetch_all(connection)
        .await?;
    let mut standing: HashMap<UserId, (bool, u8)> = HashMap::new();
    for (user, attempt, state) in rows {
        let (holds, last) = standing.entry(UserId(user)).or_default();
        *holds |= OrderState::from_wire(state).is_some_and(OrderState::is_live);
        *last = attempt.max(*last);
    }
    Ok(standing)
}

/// A snapshot of the shards here finds all of the activity's orders.
async fn keep_marks(connection: &mut MySqlConnection, activity: ActivityId) -> Result<(), Failure> {
    sqlx::query(
        "INSERT IGNORE INTO sql_marks (shard, activity, user, attempt, number) \
         SELECT shard, activity, user, attempt, number FROM orders \
         WHERE activity = ? AND source = 2 AND state <> 5",
    )
    .bind(activity.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Redis has nothing of it any more, in SQL's books too; and whoever reads these knows since when.
async fn close_books(
    connection: &mut MySqlConnection,
    ground: &Ground,
    skus: &[TakenSku],
) -> Result<(), Failure> {
    for one in skus {
        let total = u32::try_from(one.total).unwrap_or(u32::MAX);
        let sku = SkuKey { activity: ground.activity, sku: one.sku };
        let (ordinal, _) = insert_load(connection, sku, Kind::Remove as u8, "taken", total).await?;
        sqlx::query("UPDATE loads SET state = 2, applied = amount, done_at_ms = ? WHERE ordinal = ?")
            .bind(ground.now_ms)
            .bind(ordinal)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("UPDATE sku_stock SET available = 0, sold = 0, version = version + 1 WHERE activity = ?")
        .bind(ground.activity.0)
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "UPDATE activities SET taken_over = 1, taken_gen = ?, \
         taken_loads = (SELECT COALESCE(MAX(ordinal), 0) FROM loads WHERE activity = ?) WHERE id = ?",
    )
    .bind(ground.generation.0)
    .bind(ground.activity.0)
    .bind(ground.activity.0)
    .execute(&mut *connection)
    .await?;
    sqlx::query("UPDATE installation SET rebuild_below = ?")
        .bind(ground.generation.0)
        .execute(connection)
        .await?;
    Ok(())
}
