//! What is on sale: activities and their SKUs, as operators made them and gateways read them.

use std::future::Future;

use super::StoreError;
use crate::protocol::{ActivityId, SkuId, UserId};
use crate::stock::calls::Mark;

/// The greatest number of SKUs in one activity (an ACTIVITY reply has to fit its cap).
pub const SKUS_PER_ACTIVITY_MAX: usize = 1000;

/// The greatest stock of one SKU, additions included; every counter of it then fits 32 bits.
pub const STOCK_MAX: u32 = 1_000_000_000;

/// The greatest number of times that a user may buy again: an attempt is one byte.
pub const BUY_AGAIN_MAX: u8 = 254;

/// One flash sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Its number.
    pub id: ActivityId,
    /// For operators; not sent to clients.
    pub name: String,
    /// Whether its entry is open (the operator's `open` and `close`); closed → ENDED inside and after the window.
    pub entry_open: bool,
    /// Unix milliseconds of the sale clock.
    pub opens_at_ms: u64,
    /// Unix milliseconds, after `opens_at_ms`; from then on ENDED.
    pub closes_at_ms: u64,
    /// Greatest quantity of the one order a user may hold, at least 1.
    pub per_user_limit: u16,
    /// How often a user may buy again after his order was closed, at most [`BUY_AGAIN_MAX`]; 0 = never.
    pub buy_again_max: u8,
    /// Whom it is for.
    pub eligibility: Eligibility,
    /// 1 to [`SKUS_PER_ACTIVITY_MAX`], by ascending id.
    pub skus: Vec<Sku>,
}

/// Whom an activity is for, as operators wrote it. A store knows nothing of what a rule means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eligibility {
    /// A condition on claims; empty: none.
    pub rule: String,
    /// Whether only users on its allow-list may buy.
    pub allow_list: bool,
}

/// What an operator changes of an activity that may be on sale; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityChange<'a> {
    /// The condition on claims; empty: none.
    pub rule: Option<&'a str>,
    /// Whether only users on its allow-list may buy.
    pub allow_list: Option<bool>,
    /// How often a user may buy again.
    pub buy_again_max: Option<u8>,
}

/// One article of an activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sku {
    /// Its number within the activity.
    pub id: SkuId,
    /// For operators.
    pub name: String,
    /// Price in minor units of the shop's currency.
    pub price_minor: u64,
    /// Units loaded so far, additions and removals included (the `total` of the conservation formula).
    pub stock_total: u32,
}

/// An activity that has ended for good (rule 21 of the stock protocol): nothing of it is sold any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub id: ActivityId,
    /// Since when its orders are in the database alone, Unix milliseconds; `None` while the shards still hold them.
    pub archived_at_ms: Option<u64>,
}

/// Where a gateway learns what is on sale.
pub trait Catalogue: Send + Sync + 'static {
    /// A number that changes with every change that an operator makes. Cheap: asked many times a second.
    fn version(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;
    /// All activities that are not archived.
    fn activities(&self) -> impl Future<Output = Result<Vec<Activity>, StoreError>> + Send;
    /// All activities that have ended for good, archived ones included. Read before [`activities`](Self::activities):
    /// an activity that is archived in between is then in neither, or in this one, never on sale alone.
    fn ended(&self) -> impl Future<Output = Result<Vec<Ended>, StoreError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }
    /// All activities that were taken over from Redis, and are sold from the reserve (rule 20 of the stock protocol).
    fn taken_over(&self) -> impl Future<Output = Result<Vec<ActivityId>, StoreError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }
    /// The user's latest order in an activity, as the database has it, whether or not the activity is archived: the
    /// one that stands, else the one that came furthest. Asked seldom, and never on the way of a BUY.
    fn order_of(
        &self,
        user: UserId,
        activity: ActivityId,
    ) -> impl Future<Output = Result<Option<Mark>, StoreError>> + Send {
        let _ = (user, activity);
        std::future::ready(Ok(None))
    }
    /// Applies the additions and removals of stock that operators have written and nobody has applied yet, each
    /// once; how many that were.
    fn drive_loads(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;
}
