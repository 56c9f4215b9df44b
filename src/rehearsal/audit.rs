//! The independent audit: what clients were told against what the database holds.
//!
//! Pure: it gets both sides as data and decides; the single checks are in `checks`. It believes neither
//! the gateway's counters nor the store's code.

use super::books::{Books, OrderRow};
use super::checks;
use super::evidence::Evidence;
use super::history::SaleHistory;
use super::verdict::{Verdict, count, unsigned};

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
    checks::stock::settled(&evidence, &mut verdict);
    checks::stock::oversold(&evidence, &mut verdict);
    checks::orders::promises(&evidence, &mut verdict);
    checks::orders::unpromised(&evidence, &mut verdict);
    checks::orders::one_per_user(&evidence, &mut verdict);
    checks::stock::conservation(&evidence, &mut verdict);
    checks::stock::counted(&evidence, &mut verdict);
    checks::stock::undersold(&evidence, &mut verdict);
    checks::stock::exact(&evidence, &mut verdict);
    checks::told::won_then_otherwise(&evidence, &mut verdict);
    checks::told::final_results(&evidence, &mut verdict);
    verdict
}
