//! What operators are shown, and the field names of `--json`. Pure data.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::protocol::{OrderState, SkuId, SkuKey};
use crate::store::catalog::{Activity, Sku};
use crate::store::sql::{NewLoad, PendingLoad, ReserveFigures, SkuFigures};

/// An activity as the catalogue has it, its articles with or without their figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActivityView<S = SkuView> {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whether its entry is open.
    pub entry_open: bool,
    /// Unix milliseconds.
    pub opens_at_ms: u64,
    /// Unix milliseconds.
    pub closes_at_ms: u64,
    /// Greatest quantity of one order.
    pub per_user_limit: u16,
    /// How often a user may buy again after his order was closed.
    pub buy_again_max: u8,
    /// The condition on claims; empty: none.
    pub eligibility: String,
    /// Whether only users of its allow-list may buy.
    pub allow_list: bool,
    /// By ascending id.
    pub skus: Vec<S>,
}

/// An article as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkuView {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// In minor units.
    pub price_minor: u64,
    /// Units loaded, additions less removals. In the result of a creation: units to load.
    pub stock_total: u32,
}

/// The result of a creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Created {
    /// What was written.
    pub activity: ActivityView,
    /// Loads that are still to be applied; empty when all stock is loaded, or will be by the preheat.
    pub pending_loads: Vec<String>,
    /// Unix milliseconds; when writers will load the stock, where that is left to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preheat_at_ms: Option<u64>,
    /// Who applies what is pending.
    #[serde(skip)]
    pub applied_by: AppliedBy,
}

/// Who applies loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedBy {
    /// The gateway that serves the data folder.
    Gateway,
    /// Any writer of the production store.
    Writer,
}

impl fmt::Display for AppliedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gateway => "the running or the next gateway",
            Self::Writer => "the running or the next writer",
        })
    }
}

/// The result of a preheat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preheated {
    /// The activity.
    pub id: u32,
    /// Loads that writers are still to apply; empty when all stock is in Redis.
    pub pending_loads: Vec<String>,
}

/// An activity with what its rows add up to, at one instant.
pub type ActivityDetail = ActivityView<SkuDetail>;

/// An article with its figures: `total = free + in_transit + recorded + sold`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkuDetail {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// In minor units.
    pub price_minor: u64,
    /// Units loaded, additions less removals.
    pub total: u64,
    /// Free units.
    pub free: u64,
    /// Units on their way between two shards; on sale like the free ones.
    pub in_transit: u64,
    /// Units of orders that are recorded and not settled yet; left out where there are none.
    #[serde(skip_serializing_if = "is_none")]
    pub recorded: u64,
    /// Units of orders that hold them.
    pub sold: u64,
    /// Number of orders by state.
    pub orders: BTreeMap<&'static str, u64>,
    /// Loads not applied yet, oldest first.
    pub pending_loads: Vec<LoadView>,
    /// What is held back from Redis, where anything ever was; in none of the other figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<ReserveView>,
}

/// What is held back from Redis: `total = free + sold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReserveView {
    /// Units held back, less those handed over to Redis.
    pub total: u64,
    /// Free units.
    pub free: u64,
    /// Units of orders that hold them.
    pub sold: u64,
}

/// A load that is not applied yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadView {
    /// Its id.
    pub id: String,
    /// `add` or `remove`.
    pub kind: &'static str,
    /// Units asked for.
    pub units: u32,
}

/// The result of adding or removing stock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StockChange {
    /// The activity.
    pub activity: u32,
    /// The SKU.
    pub sku: u16,
    /// The load's id.
    pub load: String,
    /// Units asked for.
    pub asked: u32,
    /// Units really added or removed; none while the load is pending.
    pub applied: Option<u32>,
    /// Who applies it while it is pending.
    #[serde(skip)]
    pub applied_by: AppliedBy,
}

impl StockChange {
    pub(super) fn new(
        key: SkuKey,
        load: String,
        asked: u32,
        applied: Option<u32>,
        applied_by: AppliedBy,
    ) -> Self {
        Self { activity: key.activity.0, sku: key.sku.0, load, asked, applied, applied_by }
    }
}

impl fmt::Display for StockChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.applied {
            Some(applied) => write!(f, "applied {applied} of {} units ({})", self.asked, self.load),
            None => write!(
                f,
                "pending: {} units will be applied by {} ({})",
                self.asked, self.applied_by, self.load
            ),
        }
    }
}

impl<S> ActivityView<S> {
    fn with(activity: &Activity, skus: Vec<S>) -> Self {
        Self {
            id: activity.id.0,
            name: activity.name.clone(),
            entry_open: activity.entry_open,
            opens_at_ms: activity.opens_at_ms,
            closes_at_ms: activity.closes_at_ms,
            per_user_limit: activity.per_user_limit,
            buy_again_max: activity.buy_again_max,
            eligibility: activity.eligibility.rule.clone(),
            allow_list: activity.eligibility.allow_list,
            skus,
        }
    }
}

impl From<&Activity> for ActivityView {
    fn from(activity: &Activity) -> Self {
        Self::with(activity, activity.skus.iter().map(SkuView::from).collect())
    }
}

impl From<&Sku> for SkuView {
    fn from(sku: &Sku) -> Self {
        Self {
            id: sku.id.0,
            name: sku.name.clone(),
            price_minor: sku.price_minor,
            stock_total: sku.stock_total,
        }
    }
}

impl ActivityDetail {
    pub(super) fn new(activity: &Activity, mut figures: BTreeMap<SkuId, SkuFigures>) -> Self {
        let detail = |sku: &Sku| SkuDetail::new(sku, figures.remove(&sku.id).unwrap_or_default());
        Self::with(activity, activity.skus.iter().map(detail).collect())
    }
}

impl SkuDetail {
    fn new(sku: &Sku, figures: SkuFigures) -> Self {
        let named = |(state, orders)| (OrderState::from_wire(state).map_or("unknown", state_name), orders);
        Self {
            id: sku.id.0,
            name: sku.name.clone(),
            price_minor: sku.price_minor,
            total: figures.total,
            free: figures.free,
            in_transit: figures.in_transit,
            recorded: figures.recorded,
            sold: figures.sold,
            orders: figures.orders.into_iter().map(named).collect(),
            pending_loads: figures.pending_loads.into_iter().map(LoadView::from).collect(),
            reserve: figures.reserve.map(|ReserveFigures { total, free, sold }| ReserveView {
                total,
                free,
                sold,
            }),
        }
    }
}

impl From<PendingLoad> for LoadView {
    fn from(load: PendingLoad) -> Self {
        let (kind, units) = match load.asked {
            NewLoad::Add(units) => ("add", units),
            NewLoad::Remove(units) => ("remove", units),
        };
        Self { id: load.id, kind, units }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_none(units: &u64) -> bool {
    *units == 0
}

const fn state_name(state: OrderState) -> &'static str {
    match state {
        OrderState::Reserved => "reserved",
        OrderState::PendingPayment => "pending_payment",
        OrderState::Paid => "paid",
        OrderState::Closed => "closed",
        OrderState::Failed => "failed",
        OrderState::RefundDue => "refund_due",
        OrderState::Recorded => "recorded",
    }
}
