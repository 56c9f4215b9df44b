//! What an operator's command writes: activities, their entry, additions and removals of stock; and what it reads.
//!
//! Every write is one transaction that raises the catalogue's version, which gateways poll. Stock in Redis never
//! changes here: a load is written, and writers drive it until every shard has it.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::MySqlConnection;
use tokio::time::Instant;

use super::MySqlInstallation;
use super::catalog::{self, ActivityState};
use super::failure::{Failure, retried};
use super::operator_rows::{
    MySqlRefused, Written, add_available, commit, insert_load, insert_shares, lock_activity,
};
use super::reservation::loads::insert_own_load;
use super::reservation::reserve::read_reserves;
use super::statements::{Shapes, write};
use super::takeover;
use crate::protocol::{ActivityId, OrderState, SkuId, SkuKey};
use crate::store::StoreError;
use crate::store::catalog::{Activity, STOCK_MAX};
use crate::store::sql::stock_loads::Kind;
use crate::store::sql::{NewLoad, PendingLoad, SkuFigures, shares};

const POLL: Duration = Duration::from_millis(20);

static INSERT_SKUS: LazyLock<Shapes> = LazyLock::new(|| {
    let head = "INSERT INTO skus (activity, sku, name, price_minor, planned_stock) VALUES ";
    Shapes::new(head, "(?,?,?,?,?)", "")
});

impl MySqlInstallation {
    /// Writes an activity with what its preheat will load (`stock_total` of its SKUs).
    pub async fn create(&self, activity: &Activity, pay_within_ms: u64) -> Result<(), MySqlRefused> {
        retried!(self.options.call_timeout; self.try_create(activity, pay_within_ms, &[]))?
    }

    /// The same, holding back some units of these SKUs: they are never loaded into Redis (rule 19), and are for sale
    /// from the database once its loads are driven.
    pub async fn create_holding(
        &self,
        activity: &Activity,
        pay_within_ms: u64,
        reserves: &[(SkuId, u32)],
    ) -> Result<(), MySqlRefused> {
        retried!(self.options.call_timeout; self.try_create(activity, pay_within_ms, reserves))?
    }

    /// Opens or closes an activity's entry.
    pub async fn set_entry(&self, id: ActivityId, open: bool) -> Result<(), MySqlRefused> {
        retried!(self.options.call_timeout; self.try_set_entry(id, open))?
    }

    /// Writes a load; its id.
    pub async fn write_load(&self, sku: SkuKey, load: NewLoad) -> Result<String, MySqlRefused> {
        retried!(self.options.call_timeout; self.try_write_load(sku, load))?
    }

    /// Waits until a load is done, for `patience` at most (`None`: does not give up); units really added or taken.
    pub async fn settled_load(
        &self,
        load: &str,
        patience: Option<Duration>,
    ) -> Result<Option<u32>, StoreError> {
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        loop {
            let (state, applied) = retried!(self.options.call_timeout; self.read_load(load))?;
            if state == 2 {
                return Ok(Some(applied));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// What each SKU of an activity adds up to in SQL, all at one instant: `free` is what is not settled yet, whether
    /// free in a shard or reserved there.
    pub async fn figures(
        &self,
        id: ActivityId,
    ) -> Result<(Activity, BTreeMap<SkuId, SkuFigures>), MySqlRefused> {
        retried!(self.options.call_timeout; self.try_figures(id))?
    }

    async fn read_load(&self, load: &str) -> Result<(u8, u32), Failure> {
        let load = sqlx::query_as("SELECT state, applied FROM loads WHERE id = ?").bind(load);
        Ok(load.fetch_one(&self.pool).await?)
    }

    async fn try_create(
        &self,
        activity: &Activity,
        pay_within_ms: u64,
        reserves: &[(SkuId, u32)],
    ) -> Written<()> {
        let mut transaction = self.pool.begin().await?;
        let inserted = sqlx::query(concat!(
            "INSERT INTO activities (id, name, state, entry_open, opens_at_ms, closes_at_ms, per_user_limit, \
             pay_within_ms, eligibility, allow_list, buy_again_max, created_at_ms) VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ",
            now_ms!(),
            ")"
        ))
        .bind(activity.id.0)
        .bind(activity.name.as_str())
        .bind(activity.entry_open)
        .bind(activity.opens_at_ms)
        .bind(activity.closes_at_ms)
        .bind(activity.per_user_limit)
        .bind(pay_within_ms)
        .bind(activity.eligibility.rule.as_str())
        .bind(activity.eligibility.allow_list)
        .bind(activity.buy_again_max)
        .execute(&mut *transaction)
        .await
        .map_err(Failure::from);
        match inserted {
            Err(failure) if failure.is_duplicate() => {
                return Ok(Err(MySqlRefused::ActivityExists(activity.id)));
            }
            other => other?,
        };
        write(&mut transaction, &INSERT_SKUS, &activity.skus, |query, sku| {
            let query = query.bind(activity.id.0).bind(sku.id.0).bind(sku.name.clone());
            let reserve = reserves.iter().filter(|(of, _)| *of == sku.id).map(|(_, units)| *units);
            query.bind(sku.price_minor).bind(reserve.fold(sku.stock_total, u32::saturating_sub))
        })
        .await?;
        for (sku, units) in reserves {
            let sku = SkuKey { activity: activity.id, sku: *sku };
            insert_own_load(&mut transaction, sku, Kind::Add, *units).await?;
        }
        sqlx::query(
            "INSERT INTO sku_stock (activity, sku, available, sold, version) \
             SELECT activity, sku, 0, 0, 0 FROM skus WHERE activity = ?",
        )
        .bind(activity.id.0)
        .execute(&mut *transaction)
        .await?;
        commit(transaction).await?;
        Ok(Ok(()))
    }

    async fn try_set_entry(&self, id: ActivityId, open: bool) -> Written<()> {
        let mut transaction = self.pool.begin().await?;
        let changed = sqlx::query("UPDATE activities SET entry_open = ? WHERE id = ?")
            .bind(open)
            .bind(id.0)
            .execute(&mut *transaction)
            .await?;
        if changed.rows_affected() == 0 {
            return Ok(Err(MySqlRefused::NoActivity(id)));
        }
        commit(transaction).await?;
        Ok(Ok(()))
    }

    async fn try_write_load(&self, sku: SkuKey, load: NewLoad) -> Written<String> {
        let mut transaction = self.pool.begin().await?;
        let Some((state, _)) = lock_activity(&mut transaction, sku.activity).await? else {
            return Ok(Err(MySqlRefused::NoActivity(sku.activity)));
        };
        if state >= ActivityState::Ending {
            return Ok(Err(MySqlRefused::Ended(sku.activity)));
        }
        if takeover::is_taken(&mut transaction, sku.activity).await? {
            return Ok(Err(MySqlRefused::TakenOver(sku.activity)));
        }
        // Locked, so that two additions together do not exceed the greatest stock.
        let planned: Option<u32> = sqlx::query_scalar(
            "SELECT k.planned_stock FROM skus k JOIN sku_stock s ON s.activity = k.activity AND s.sku = k.sku \
             WHERE k.activity = ? AND k.sku = ? FOR UPDATE",
        )
        .bind(sku.activity.0)
        .bind(sku.sku.0)
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(planned) = planned else {
            return Ok(Err(MySqlRefused::NoSku(sku)));
        };
        let (kind, verb, amount) = match load {
            NewLoad::Add(amount) => (1, "add", amount),
            NewLoad::Remove(amount) => (2, "take", amount),
        };
        if kind == 1 {
            let planned = if state == ActivityState::Created { u64::from(planned) } else { 0 };
            let total =
                loaded(&mut transaction, sku).await?.saturating_add(planned).saturating_add(amount.into());
            if total > u64::from(STOCK_MAX) {
                return Ok(Err(MySqlRefused::TooMuchStock { sku, total }));
            }
            add_available(&mut transaction, sku, amount).await?;
        }
        let (ordinal, id) = insert_load(&mut transaction, sku, kind, verb, amount).await?;
        let shares = shares::split(amount, sku).into_iter().zip(0_u8..);
        // An addition is for all 16 shards; of a take, shards with nothing to give need not be asked.
        let shares: Vec<_> = shares
            .filter(|(units, _)| *units > 0 || kind == 1)
            .map(|(units, shard)| (ordinal, 1, shard, units))
            .collect();
        insert_shares(&mut transaction, &shares).await?;
        commit(transaction).await?;
        Ok(Ok(id))
    }

    async fn try_figures(&self, id: ActivityId) -> Written<(Activity, BTreeMap<SkuId, SkuFigures>)> {
        let mut transaction = self.repeatable_read().await?;
        let activities = catalog::read_activities(&mut transaction).await?;
        let Some(activity) = activities.into_iter().find(|one| one.id == id) else {
            return Ok(Err(MySqlRefused::NoActivity(id)));
        };
        let mut figures: BTreeMap<SkuId, SkuFigures> = BTreeMap::new();
        for sku in &activity.skus {
            figures.entry(sku.id).or_default().total = u64::from(sku.stock_total);
        }
        read_figures(&mut transaction, id, &mut figures).await?;
        read_reserves(&mut transaction, id, &mut figures).await?;
        transaction.rollback().await?;
        Ok(Ok((activity, figures)))
    }
}

/// Units loaded, or written to be; takes that may yet take nothing do not count.
async fn loaded(connection: &mut MySqlConnection, sku: SkuKey) -> Result<u64, Failure> {
    let total: u64 = sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(CASE kind WHEN 1 THEN CAST(applied AS SIGNED) ELSE -CAST(applied AS SIGNED) END), 0) \
           AS UNSIGNED) FROM loads WHERE activity = ? AND sku = ?",
    )
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .fetch_one(connection)
    .await?;
    Ok(total)
}

async fn read_figures(
    connection: &mut MySqlConnection,
    id: ActivityId,
    figures: &mut BTreeMap<SkuId, SkuFigures>,
) -> Result<(), Failure> {
    let stock: Vec<(u16, u32, u32)> =
        sqlx::query_as("SELECT sku, available, sold FROM sku_stock WHERE activity = ?")
            .bind(id.0)
            .fetch_all(&mut *connection)
            .await?;
    for (sku, available, sold) in stock {
        let figures = figures.entry(SkuId(sku)).or_default();
        figures.free = u64::from(available);
        figures.sold = u64::from(sold);
    }
    let recorded: Vec<(u16, u64)> = sqlx::query_as(
        "SELECT sku, CAST(SUM(quantity) AS UNSIGNED) FROM recorded WHERE activity = ? GROUP BY sku",
    )
    .bind(id.0)
    .fetch_all(&mut *connection)
    .await?;
    for (sku, units) in recorded {
        let figures = figures.entry(SkuId(sku)).or_default();
        figures.free = figures.free.saturating_sub(units);
        figures.recorded = units;
    }
    let orders: Vec<(u16, u8, i64)> = sqlx::query_as(
        "SELECT sku, state, COUNT(*) FROM orders WHERE activity = ? AND source = 1 GROUP BY sku, state",
    )
    .bind(id.0)
    .fetch_all(&mut *connection)
    .await?;
    for (sku, state, count) in orders {
        if OrderState::from_wire(state).is_some() {
            let count = u64::try_from(count).unwrap_or_default();
            figures.entry(SkuId(sku)).or_default().orders.insert(state, count);
        }
    }
    let planned: Vec<(u16, u32)> = sqlx::query_as(
        "SELECT k.sku, k.planned_stock FROM skus k JOIN activities a ON a.id = k.activity AND a.state = 1 \
         WHERE k.activity = ? AND k.planned_stock > 0",
    )
    .bind(id.0)
    .fetch_all(&mut *connection)
    .await?;
    for (sku, units) in planned {
        let sku = SkuKey { activity: id, sku: SkuId(sku) };
        let load = PendingLoad { id: format!("{sku}/preheat"), asked: NewLoad::Add(units) };
        figures.entry(sku.sku).or_default().pending_loads.push(load);
    }
    let pending: Vec<(u16, String, u8, u32)> = sqlx::query_as(
        "SELECT sku, id, kind, amount FROM loads WHERE activity = ? AND state = 1 ORDER BY ordinal",
    )
    .bind(id.0)
    .fetch_all(connection)
    .await?;
    for (sku, id, kind, amount) in pending {
        let asked = if kind == 1 { NewLoad::Add(amount) } else { NewLoad::Remove(amount) };
        figures.entry(SkuId(sku)).or_default().pending_loads.push(PendingLoad { id, asked });
    }
    Ok(())
}
