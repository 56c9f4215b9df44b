//! The operator's operations on activities and their stock.
//!
//! Run by a short command in its own process, whether or not a gateway serves the data folder. Whatever is wrong
//! with what the operator gave is told at once, not one thing per attempt. Stock is never changed directly: a
//! load is written first and applied exactly once, by the serving gateway or, where there is none, right here, and in
//! the production store by a writer; a command that is killed in between leaves a pending load, never half of one.

mod connection;
mod error;
mod reserve;
mod validate;
mod views;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use connection::{Connection, Place};
use error::invalid;

use crate::protocol::{ActivityId, SkuId, SkuKey};
use crate::store::catalog::{Activity, ActivityChange};
use crate::store::sql::mysql::{MySqlOptions, MySqlRefused};
use crate::store::sql::{IfMissing, NewLoad};

pub use error::{ActivityError, Problems};
pub use reserve::NewReserve;
pub use validate::{NAME_CHARS_MAX, NewActivity, NewSku, PRICE_MAX};
pub use views::{
    ActivityDetail, ActivityView, AppliedBy, Created, LoadView, Preheated, ReserveView, SkuDetail, SkuView,
    StockChange,
};

/// How long a command waits for the serving gateway to apply what it wrote.
const PATIENCE: Duration = Duration::from_secs(2);

/// The operations on one data folder, or on the production store's database.
#[derive(Clone, Debug)]
pub struct Activities {
    place: Place,
    preheat_ahead: Duration,
}

impl Activities {
    /// On a data folder. Opens nothing yet.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { place: Place::Folder(data_dir.into()), preheat_ahead: Duration::ZERO }
    }

    /// On the production store's database; writers preheat so long before the opening. Opens nothing yet.
    pub fn on_server(options: MySqlOptions, preheat_ahead: Duration) -> Self {
        Self { place: Place::Server(options), preheat_ahead }
    }

    /// Creates an activity and loads its stock. Creates the data folder when it is missing. On the production store
    /// the stock is loaded here only where the opening is so near that a writer would do it now.
    pub async fn create(&self, new: &NewActivity) -> Result<Created, ActivityError> {
        self.create_holding(new, &[]).await
    }

    /// The same, with units of its stock that are held back from Redis.
    pub async fn create_holding(
        &self,
        new: &NewActivity,
        reserves: &[NewReserve],
    ) -> Result<Created, ActivityError> {
        let preheat_at_ms = self.preheat_at_ms(new);
        let mut problems = Vec::new();
        if self.is_server() && new.opens_at_ms <= now_ms() {
            problems.push(
                "the window opens now or did before; the stock is loaded into Redis before that, so let it open a \
                 little later (--opens +1m)"
                    .to_owned(),
            );
        }
        let checked = new.validate().and_then(|activity| {
            let held = reserve::check(&activity, reserves, self.is_server())?;
            Ok((activity, held))
        });
        let (activity, held) = match checked {
            Ok(checked) if problems.is_empty() => checked,
            other => {
                let found = other.err().unwrap_or_default();
                problems = found.into_iter().chain(problems).chain(self.taken(new.id).await).collect();
                return Err(ActivityError::Invalid(Problems(problems)));
            }
        };
        let mut connection = self.place.connect(IfMissing::Create).await?;
        let mut loads = connection.create(&activity, new.pay_within_ms, &held).await?;
        let is_left_to_writers = preheat_at_ms.is_some_and(|at_ms| at_ms > now_ms());
        if self.is_server() && !is_left_to_writers {
            loads = connection.preheat(activity.id).await?;
        }
        let pending = pending(&mut connection, loads).await?;
        connection.close().await;
        Ok(Created {
            activity: ActivityView::from(&activity),
            pending_loads: pending,
            preheat_at_ms: preheat_at_ms.filter(|_| is_left_to_writers),
            applied_by: self.applied_by(),
        })
    }

    /// Loads an activity's stock into Redis ahead of its opening; again is harmless.
    pub async fn preheat(&self, id: u64) -> Result<Preheated, ActivityError> {
        let id = activity_id(id)?;
        let mut connection = self.connect().await?;
        let loads = connection.preheat(id).await?;
        let pending_loads = pending(&mut connection, loads).await?;
        connection.close().await;
        Ok(Preheated { id: id.0, pending_loads })
    }

    /// Ends an activity for good: nothing is sold any more, and when nothing is due writers take it out of Redis. Again
    /// is harmless. One that still sells has to be closed first.
    pub async fn archive(&self, id: u64) -> Result<(), ActivityError> {
        let id = activity_id(id)?;
        let mut connection = self.connect().await?;
        let activities = connection.activities().await?;
        let selling = |one: &&Activity| one.id == id && one.entry_open && one.closes_at_ms > now_ms();
        if activities.iter().find(selling).is_some() {
            return Err(invalid(format!(
                "activity {id} is not over, and its entry is open; close it first: rushgate activity close {id}"
            )));
        }
        connection.end(id).await?;
        connection.close().await;
        Ok(())
    }

    /// Every activity that is not archived, by ascending id.
    pub async fn list(&self) -> Result<Vec<ActivityView>, ActivityError> {
        let mut connection = self.connect().await?;
        let activities = connection.activities().await?;
        connection.close().await;
        Ok(activities.iter().map(ActivityView::from).collect())
    }

    /// One activity with what its stock and orders add up to.
    pub async fn show(&self, id: u64) -> Result<ActivityDetail, ActivityError> {
        let id = activity_id(id)?;
        let mut connection = self.connect().await?;
        let (activity, figures) = connection.figures(id).await?;
        connection.close().await;
        Ok(ActivityDetail::new(&activity, figures))
    }

    /// Opens the entry: the activity sells inside its window.
    pub async fn open(&self, id: u64) -> Result<(), ActivityError> {
        self.set_entry(id, true).await
    }

    /// Closes the entry: everybody who has no order is answered ENDED.
    pub async fn close(&self, id: u64) -> Result<(), ActivityError> {
        self.set_entry(id, false).await
    }

    /// Changes what may be changed during a sale too: whom an activity is for, and how often a user may buy again. An
    /// empty rule is none.
    pub async fn change(&self, id: u64, change: &ActivityChange<'_>) -> Result<ActivityView, ActivityError> {
        let id = activity_id(id)?;
        let change = ActivityChange { rule: change.rule.map(str::trim), ..*change };
        let again = change.buy_again_max.map(|times| validate::buy_again(times.into()));
        let problems = change.rule.and_then(validate::rule_problem).into_iter();
        let problems: Vec<_> = problems.chain(again.and_then(Result::err)).collect();
        if !problems.is_empty() {
            return Err(ActivityError::Invalid(Problems(problems)));
        }
        let mut connection = self.connect().await?;
        connection.change_activity(id, change).await?;
        let activities = connection.activities().await?;
        connection.close().await;
        let activity = activities.iter().find(|activity| activity.id == id);
        Ok(activity.ok_or_else(|| invalid(format!("activity {id} is archived")))?.into())
    }

    /// Adds units to an SKU.
    pub async fn stock_add(&self, id: u64, sku: u64, units: u64) -> Result<StockChange, ActivityError> {
        self.change_stock(id, sku, units, NewLoad::Add).await
    }

    /// Removes units from an SKU, as far as they are free when the load is applied.
    pub async fn stock_remove(&self, id: u64, sku: u64, units: u64) -> Result<StockChange, ActivityError> {
        self.change_stock(id, sku, units, NewLoad::Remove).await
    }

    /// Takes units out of the reserve, as far as they are free, and adds them to what Redis sells.
    pub async fn stock_from_reserve(
        &self,
        id: u64,
        sku: u64,
        units: u64,
    ) -> Result<StockChange, ActivityError> {
        let mut connection = self.connect().await?;
        let (key, units) = changed(&mut connection, id, sku, units).await?;
        let (load, _) = connection.hand_over(key, units).await?;
        let applied = connection.settle(&load, PATIENCE).await?;
        connection.close().await;
        Ok(StockChange::new(key, load, units, applied, AppliedBy::Writer))
    }

    async fn change_stock(
        &self,
        id: u64,
        sku: u64,
        units: u64,
        load: fn(u32) -> NewLoad,
    ) -> Result<StockChange, ActivityError> {
        let mut connection = self.connect().await?;
        let (key, units) = changed(&mut connection, id, sku, units).await?;
        let id = connection.write_load(key, load(units)).await?;
        let applied = connection.settle(&id, PATIENCE).await?;
        connection.close().await;
        Ok(StockChange::new(key, id, units, applied, self.applied_by()))
    }

    async fn set_entry(&self, id: u64, open: bool) -> Result<(), ActivityError> {
        let id = activity_id(id)?;
        let mut connection = self.connect().await?;
        connection.set_entry(id, open).await?;
        connection.close().await;
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, ActivityError> {
        self.place.connect(IfMissing::Refuse).await
    }

    const fn is_server(&self) -> bool {
        matches!(self.place, Place::Server(_))
    }

    const fn applied_by(&self) -> AppliedBy {
        if self.is_server() { AppliedBy::Writer } else { AppliedBy::Gateway }
    }

    /// When writers load an activity's stock; `None` where they do not.
    fn preheat_at_ms(&self, new: &NewActivity) -> Option<u64> {
        let ahead_ms = u64::try_from(self.preheat_ahead.as_millis()).unwrap_or(u64::MAX);
        self.is_server().then(|| new.opens_at_ms.saturating_sub(ahead_ms))
    }

    /// The problem of an id that is taken, for telling it beside the others. A database that cannot be opened has
    /// no say here: the operator's input is wrong anyway.
    async fn taken(&self, id: u64) -> Option<String> {
        let id = activity_id(id).ok()?;
        let mut connection = self.connect().await.ok()?;
        let activities = connection.activities().await.ok()?;
        connection.close().await;
        activities
            .iter()
            .any(|activity| activity.id == id)
            .then(|| MySqlRefused::ActivityExists(id).to_string())
    }
}

/// An id that cannot be anybody's is told like one that is nobody's.
fn activity_id(id: u64) -> Result<ActivityId, ActivityError> {
    let id = u32::try_from(id).map_err(|_| invalid(format!("there is no activity {id}")))?;
    Ok(ActivityId(id))
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Waits for loads to be applied; those that are not yet.
async fn pending(connection: &mut Connection, loads: Vec<String>) -> Result<Vec<String>, ActivityError> {
    let mut pending = Vec::new();
    let deadline = tokio::time::Instant::now().checked_add(PATIENCE);
    for load in loads {
        // One patience for all: they are applied together.
        let left = deadline.map_or(PATIENCE, |at| at.saturating_duration_since(tokio::time::Instant::now()));
        if connection.settle(&load, left).await?.is_none() {
            pending.push(load);
        }
    }
    Ok(pending)
}

/// The SKU and the units of a change, or all that is wrong with them.
async fn changed(
    connection: &mut Connection,
    id: u64,
    sku: u64,
    units: u64,
) -> Result<(SkuKey, u32), ActivityError> {
    match (find(connection, id, sku).await?, validate::units(units)) {
        (Ok(key), Ok(units)) => Ok((key, units)),
        (found, units) => {
            let problems = found.err().into_iter().chain(units.err()).collect();
            Err(ActivityError::Invalid(Problems(problems)))
        }
    }
}

async fn find(
    connection: &mut Connection,
    id: u64,
    sku: u64,
) -> Result<Result<SkuKey, String>, ActivityError> {
    let activities = connection.activities().await?;
    let Some(activity) = activities.iter().find(|activity| u64::from(activity.id.0) == id) else {
        return Ok(Err(format!("there is no activity {id}")));
    };
    Ok(activity
        .skus
        .iter()
        .find(|found| u64::from(found.id.0) == sku)
        .map(|found| SkuKey { activity: activity.id, sku: SkuId(found.id.0) })
        .ok_or_else(|| format!("activity {id} has no SKU {sku}")))
}
