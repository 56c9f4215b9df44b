//! What is on sale, as the funnel reads it: activities with their window, SKUs with their board slot, and which entries
//! are open.
//!
//! A snapshot that is replaced whole when operators change something, by the task that follows the catalogue or by the
//! one that follows the switches; read by every connection without a lock. That an entry is closed by a switch is
//! worked into it, so that no request has to ask, and so are the rates of all limits. Where the limit of an activity
//! stands is shared by all snapshots of it.

use std::sync::Arc;

use super::allow_lists::AllowLists;
use super::eligibility::Terms;
use crate::admission::identity::ClaimNames;
use crate::admission::limits::{ActivityLimit, Rates, Share};
use crate::admission::switches::{Entry, SwitchBoard};
use crate::protocol::{ActivityId, ActivityState, SkuId, SkuKey};
use crate::stock::{Board, Slot};
use crate::store::catalog::{Activity, Ended};

/// One SKU on sale.
#[derive(Clone, Debug)]
pub(super) struct SkuOnSale {
    /// Its number.
    pub(super) id: SkuId,
    /// Price in minor units.
    pub(super) price_minor: u64,
    /// Units loaded so far.
    pub(super) stock_total: u32,
    /// What is known of the rest.
    pub(super) slot: Arc<Slot>,
}

/// One activity on sale.
#[derive(Clone, Debug)]
pub(super) struct Sale {
    /// Its number.
    pub(super) id: ActivityId,
    /// Whether its entry is open: by the catalogue, and by the switches.
    pub(super) entry_open: bool,
    /// By the catalogue alone.
    is_open_in_catalogue: bool,
    /// Whether it was taken over from Redis, and is sold from the reserve alone.
    pub(super) is_taken: bool,
    /// Unix milliseconds of the sale clock.
    pub(super) opens_at_ms: u64,
    /// Unix milliseconds of the sale clock.
    pub(super) closes_at_ms: u64,
    /// Greatest quantity of a user's one order.
    pub(super) per_user_limit: u16,
    /// How often a user may buy again after his order was closed.
    pub(super) buy_again_max: u8,
    /// How often it may be asked for within its window.
    pub(super) limit: ActivityLimit,
    /// Whom it is for.
    pub(super) terms: Arc<Terms>,
    /// By ascending id.
    pub(super) skus: Vec<SkuOnSale>,
}

impl Sale {
    /// The SKU of this number.
    pub(super) fn sku(&self, id: SkuId) -> Option<&SkuOnSale> {
        self.skus.binary_search_by_key(&id, |sku| sku.id).ok().and_then(|index| self.skus.get(index))
    }

    /// Where it stands by the sale clock.
    pub(super) const fn state(&self, sale_ms: u64) -> ActivityState {
        if !self.entry_open || sale_ms >= self.closes_at_ms {
            ActivityState::Ended
        } else if sale_ms < self.opens_at_ms {
            ActivityState::Upcoming
        } else {
            ActivityState::Open
        }
    }
}

/// All activities.
#[derive(Clone, Debug)]
pub(super) struct OnSale {
    /// By ascending id.
    sales: Vec<Sale>,
    /// What has ended for good, by ascending id. One that is not archived yet may be among the sales too, closed.
    ended: Vec<Ended>,
    /// What the entries and the rates obey.
    switches: Arc<SwitchBoard>,
    rates: Arc<Rates>,
    /// The entry of all activities, also of those that are not known.
    pub(super) entry_open: bool,
}

impl OnSale {
    /// Ties activities to their slots on the board and to what decides whom they are for; every entry as the catalogue
    /// says, every rate as configured, and every limit fresh.
    pub(super) fn new(
        activities: Vec<Activity>,
        mut ended: Vec<Ended>,
        ties: &Ties<'_>,
        rates: Arc<Rates>,
    ) -> Self {
        let mut sales: Vec<Sale> =
            activities.into_iter().map(|activity| tie(activity, ties, &rates)).collect();
        sales.sort_by_key(|sale| sale.id);
        ended.sort_by_key(|one| one.id);
        let mut on_sale =
            Self { sales: Vec::new(), ended, switches: Arc::default(), rates, entry_open: true };
        for sale in &mut sales {
            sale.is_open_in_catalogue &= on_sale.ended(sale.id).is_none();
            sale.entry_open = sale.is_open_in_catalogue;
        }
        on_sale.sales = sales;
        on_sale
    }

    /// The same activities, these of them taken over.
    pub(super) fn taking_over(mut self, taken: &[ActivityId]) -> Self {
        for sale in &mut self.sales {
            sale.is_taken = taken.contains(&sale.id);
        }
        self
    }

    /// Whether an activity was taken over.
    pub(super) fn is_taken(&self, id: ActivityId) -> bool {
        self.sale(id).is_some_and(|sale| sale.is_taken)
    }

    /// Whether any was.
    pub(super) fn has_taken(&self) -> bool {
        self.sales.iter().any(|sale| sale.is_taken)
    }

    /// The same activities in the place of `before`: under its switches, with its rates, and each with its limit from
    /// there, wherever that stands.
    pub(super) fn instead_of(mut self, before: &Self, now_ns: u64) -> Self {
        for sale in &mut self.sales {
            if let Some(before) = before.sale(sale.id) {
                sale.limit = before.limit.clone();
            }
        }
        self.with(now_ns, Arc::clone(&before.rates)).under(&before.switches)
    }

    /// The same activities under these switches from that time on.
    pub(super) fn obeying(self, switches: &Arc<SwitchBoard>, now_ns: u64) -> Self {
        let rates = switches.rates();
        let rates = if *self.rates.switches() == rates {
            Arc::clone(&self.rates)
        } else {
            Arc::new(self.rates.switched(now_ns, rates))
        };
        self.with(now_ns, rates).under(switches)
    }

    /// The same activities with this share of the rates that are for all gateways, from that time on.
    pub(super) fn sharing(self, share: Share, now_ns: u64) -> Self {
        let rates = Arc::new(self.rates.shared(now_ns, share));
        self.with(now_ns, rates)
    }

    fn with(mut self, now_ns: u64, rates: Arc<Rates>) -> Self {
        for sale in &mut self.sales {
            sale.limit = sale.limit.changed(now_ns, rates.activity(sale.id), rates.share());
        }
        self.rates = rates;
        self
    }

    fn under(mut self, switches: &Arc<SwitchBoard>) -> Self {
        let closed = switches.closed_activities();
        self.entry_open = switches.entry() == Entry::Open;
        self.switches = Arc::clone(switches);
        for sale in &mut self.sales {
            let is_closed = !self.entry_open || closed.binary_search(&sale.id).is_ok();
            sale.entry_open = sale.is_open_in_catalogue && !is_closed;
        }
        self
    }

    /// The rates in force.
    pub(super) const fn rates(&self) -> &Arc<Rates> {
        &self.rates
    }

    /// All activities that are on sale.
    pub(super) fn sales(&self) -> &[Sale] {
        &self.sales
    }

    /// How many are on sale, closed ones included.
    pub(super) fn len(&self) -> usize {
        self.sales.len()
    }

    /// How the activity ended, if it has ended for good.
    pub(super) fn ended(&self, id: ActivityId) -> Option<Ended> {
        let index = self.ended.binary_search_by_key(&id, |one| one.id).ok()?;
        self.ended.get(index).copied()
    }

    /// Whether its orders are in the database alone.
    pub(super) fn is_archived(&self, id: ActivityId) -> bool {
        self.ended(id).is_some_and(|ended| ended.archived_at_ms.is_some())
    }

    /// When the next window ends; the end of time when none will.
    pub(super) fn next_end_ms(&self, sale_ms: u64) -> u64 {
        let ends = self.sales.iter().map(|sale| sale.closes_at_ms).filter(|&end_ms| end_ms > sale_ms);
        ends.min().unwrap_or(u64::MAX)
    }

    /// The activity of this number.
    pub(super) fn sale(&self, id: ActivityId) -> Option<&Sale> {
        self.sales.binary_search_by_key(&id, |sale| sale.id).ok().and_then(|index| self.sales.get(index))
    }
}

/// What activities are tied to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ties<'a> {
    pub(super) board: &'a Board,
    pub(super) claims: &'a ClaimNames,
    pub(super) lists: &'a AllowLists,
}

fn tie(activity: Activity, ties: &Ties<'_>, rates: &Rates) -> Sale {
    let terms = Terms::new(activity.id, &activity.eligibility, ties.claims, ties.lists);
    let mut skus: Vec<SkuOnSale> = activity
        .skus
        .into_iter()
        .map(|sku| SkuOnSale {
            id: sku.id,
            price_minor: sku.price_minor,
            stock_total: sku.stock_total,
            slot: ties.board.slot(SkuKey { activity: activity.id, sku: sku.id }),
        })
        .collect();
    skus.sort_by_key(|sku| sku.id);
    Sale {
        id: activity.id,
        entry_open: activity.entry_open,
        is_open_in_catalogue: activity.entry_open,
        is_taken: false,
        opens_at_ms: activity.opens_at_ms,
        closes_at_ms: activity.closes_at_ms,
        per_user_limit: activity.per_user_limit,
        buy_again_max: activity.buy_again_max,
        limit: ActivityLimit::new(rates.activity(activity.id), rates.share()),
        terms: Arc::new(terms),
        skus,
    }
}
