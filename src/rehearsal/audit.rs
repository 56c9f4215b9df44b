//! The independent audit: what clients were told against what the database holds.
//!
//! Pure: it gets both sides as data and decides; the single checks are in `checks`. It believes neither
//! the gateway's counters nor the store's code.

use std::collections::HashMap;

use super::books::{Books, OrderRow};
use super::checks;
use super::history::SaleHistory;
use crate::protocol::UserId;

/// Sentences kept; more are only counted.
const SENTENCES_MAX: usize = 100;

/// What the audit looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// Every QUEUED and ALREADY has exactly one order row that says the same.
    Promises,
    /// No order of a user to whom none was promised.
    Unpromised,
    /// At most one live order per user and activity; no user saw two order numbers.
    OnePerUser,
    /// Units sold, free and between shards add up to the units loaded, in each shard and altogether.
    Conservation,
    /// Not more units sold than loaded.
    Oversold,
    /// No unit left that somebody wanted and was refused.
    Undersold,
    /// Where everybody wants one unit: as many orders as units or users, whichever are fewer.
    Exact,
    /// Nobody who had won was told anything else afterwards.
    WonThenOtherwise,
    /// RESULT says what the database says.
    Results,
    /// Pushes say what the database says.
    Pushes,
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Of what.
    pub check: Check,
    /// For people: which user, which order, what is wrong.
    pub sentence: String,
}

/// What the audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The first violations.
    pub findings: Vec<Finding>,
    /// All of them, also those without a sentence here.
    pub violations: u64,
    /// Units loaded, less those that users outside this sale hold.
    pub stock: u64,
    /// Live orders of this sale's users for its SKU.
    pub orders: u64,
    /// Units sold beyond the units loaded.
    pub oversold: u64,
    /// Units left that users wanted who were sent away.
    pub undersold: u64,
    /// Units free or between shards.
    pub stock_left: u64,
}

impl Verdict {
    /// Whether nothing was found.
    pub const fn is_ok(&self) -> bool {
        self.violations == 0
    }

    /// `ok`, or the first violation and how many more there are.
    pub fn sentence(&self) -> String {
        let Some(first) = self.findings.first() else { return "ok".to_owned() };
        match self.violations.saturating_sub(1) {
            0 => first.sentence.clone(),
            more => format!("{} (and {more} more)", first.sentence),
        }
    }

    pub(super) fn find(&mut self, check: Check, sentence: String) {
        self.violations = self.violations.saturating_add(1);
        if self.findings.len() < SENTENCES_MAX {
            self.findings.push(Finding { check, sentence });
        }
    }
}

/// Both sides, with the orders findable.
pub(super) struct Evidence<'a> {
    pub(super) history: &'a SaleHistory,
    pub(super) books: &'a Books,
    by_number: HashMap<u64, Vec<&'a OrderRow>>,
    by_user: HashMap<u64, Vec<&'a OrderRow>>,
}

impl<'a> Evidence<'a> {
    fn new(history: &'a SaleHistory, books: &'a Books) -> Self {
        let (mut by_number, mut by_user) = (HashMap::new(), HashMap::new());
        for order in &books.orders {
            by_number.entry(order.number).or_insert_with(Vec::new).push(order);
            by_user.entry(order.user).or_insert_with(Vec::new).push(order);
        }
        Self { history, books, by_number, by_user }
    }

    pub(super) fn with_number(&self, number: u64) -> &[&'a OrderRow] {
        self.by_number.get(&number).map_or(&[], Vec::as_slice)
    }

    pub(super) fn of_user(&self, user: UserId) -> &[&'a OrderRow] {
        self.by_user.get(&user.0).map_or(&[], Vec::as_slice)
    }

    pub(super) fn users_with_orders(&self) -> impl Iterator<Item = (UserId, &[&'a OrderRow])> {
        self.by_user.iter().map(|(user, orders)| (UserId(*user), orders.as_slice()))
    }

    /// Live orders of this sale's SKU, and whether their user takes part in the sale.
    pub(super) fn live_orders(&self) -> impl Iterator<Item = (&'a OrderRow, bool)> {
        let sku = self.history.sku.0;
        let live = self.books.orders.iter().filter(move |order| order.is_live() && order.sku == sku);
        live.map(|order| (order, self.history.of_user(UserId(order.user)).is_some()))
    }
}

/// Compares what clients were told with what the database holds.
pub fn audit(history: &SaleHistory, books: &Books) -> Verdict {
    let evidence = Evidence::new(history, books);
    let mut verdict = Verdict::default();
    let units = |sum: i64, order: &OrderRow| sum.saturating_add(i64::from(order.quantity));
    let others = evidence.live_orders().filter(|(_, takes_part)| !takes_part);
    let held_by_others = others.map(|(order, _)| order).fold(0, units);
    verdict.stock = unsigned(books.total().saturating_sub(held_by_others));
    verdict.orders = count(evidence.live_orders().filter(|(_, takes_part)| *takes_part).count());
    verdict.stock_left = unsigned(books.free_units().saturating_add(books.in_transit()));
    checks::stock::oversold(&evidence, &mut verdict);
    checks::orders::promises(&evidence, &mut verdict);
    checks::orders::unpromised(&evidence, &mut verdict);
    checks::orders::one_per_user(&evidence, &mut verdict);
    checks::stock::conservation(&evidence, &mut verdict);
    checks::stock::undersold(&evidence, &mut verdict);
    checks::stock::exact(&evidence, &mut verdict);
    checks::told::won_then_otherwise(&evidence, &mut verdict);
    checks::told::final_results(&evidence, &mut verdict);
    verdict
}

pub(super) fn unsigned(units: i64) -> u64 {
    u64::try_from(units).unwrap_or(0)
}

pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
