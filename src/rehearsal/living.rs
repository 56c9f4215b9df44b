//! What comes after a rehearsed sale: unpaid orders are closed, and their units are sold to those who had gone away
//! empty-handed, until every unit is paid for or nobody wants one; and the books at the end.
//!
//! Run by the rehearsal's task between the sale and the audit. How things stand is read from the database, by queries of
//! the rehearsal's own, and bought is through the gateway like everything else.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::books::{Books, BooksError};
use super::history::End;
use super::life::{Life, LifeReport};
use super::progress::{Phase, Progress};
use super::sale::Selling;
use super::source::Source;
use super::verdict::{Check, Verdict, count, unsigned};
use crate::protocol::{OrderState, SkuId};

/// Between two looks at the books.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// So many come back for each unit that is for sale again: more than there are, so that the last hear "sold out".
const WISHERS_PER_UNIT: usize = 2;

/// Lets units be paid for, closed and sold again until there is nothing left to wait for. How many were sold again, and
/// what was still open when patience ended.
pub(super) async fn live(
    selling: &mut Selling,
    life: &Life,
    source: &Source,
    progress: &dyn Progress,
) -> Result<(u64, Option<String>), BooksError> {
    let (activity, sku) = selling.what();
    let mut wishers: VecDeque<u32> = selling.sent_away().into();
    let deadline = Instant::now().checked_add(life.patience);
    let (mut resold, mut shown) = (0_u64, 0_u64);
    let mut books = source.read(activity, sku).await?;
    progress.begin(Phase::Living, unsigned(books.total()));
    let open = loop {
        let paid = unsigned(units(&books, sku, OrderState::Paid));
        for _ in shown..paid {
            progress.step();
        }
        shown = shown.max(paid);
        let (pending, free) = (waiting(&books, sku), books.free_units().saturating_add(books.in_transit()));
        if pending == 0 && (free == 0 || wishers.is_empty()) {
            break None;
        }
        if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
            break Some(format!(
                "after {:?} {pending} orders still wait for their payment, and {free} units for a buyer",
                life.patience
            ));
        }
        if free > 0 && !wishers.is_empty() {
            let wanted = usize::try_from(free).unwrap_or(usize::MAX).saturating_mul(WISHERS_PER_UNIT);
            let who: Vec<u32> = wishers.drain(..wanted.min(wishers.len())).collect();
            selling.wave(who.clone()).await;
            let won = |index: &u32| matches!(selling.end_of(*index), Some(End::Won(_)));
            resold = resold.saturating_add(count(who.iter().filter(|index| won(index)).count()));
            wishers.extend(who.into_iter().filter(|index| selling.is_sent_away(*index)));
        } else {
            sleep(LOOK_INTERVAL).await;
        }
        books = source.read(activity, sku).await?;
    };
    progress.end();
    Ok((resold, open))
}

fn units(books: &Books, sku: SkuId, state: OrderState) -> i64 {
    let rows = books.orders.iter().filter(|order| order.sku == sku.0 && order.state == Some(state));
    rows.fold(0, |sum, order| sum.saturating_add(order.quantity.into()))
}

fn waiting(books: &Books, sku: SkuId) -> u64 {
    let waits = |state| {
        matches!(state, Some(OrderState::PendingPayment | OrderState::Reserved | OrderState::Recorded))
    };
    count(books.orders.iter().filter(|order| order.sku == sku.0 && waits(order.state)).count())
}

/// The books at the end; what does not add up is a finding.
pub(super) fn close_books(books: &Books, sku: SkuId, resold: u64, verdict: &mut Verdict) -> LifeReport {
    let Some(life) = &books.life else { return LifeReport { resold, ..LifeReport::default() } };
    let before = verdict.violations;
    let of_state = |wanted: &[OrderState]| -> Vec<(u64, i64)> {
        let rows = books.orders.iter().filter(|order| order.sku == sku.0);
        let rows = rows.filter(|order| order.state.is_some_and(|state| wanted.contains(&state)));
        let mut rows: Vec<_> = rows.map(|order| (order.number, i64::from(order.quantity))).collect();
        rows.sort_unstable();
        rows
    };
    let closed = of_state(&[OrderState::Closed, OrderState::RefundDue]);
    let mut ledger = life.ledger.clone();
    ledger.sort_unstable();
    if closed != ledger {
        verdict.find(
            Check::Conservation,
            format!(
                "{} orders were closed, and the ledger gave back those of {}",
                closed.len(),
                ledger.len()
            ),
        );
    }
    let paid: Vec<u64> = of_state(&[OrderState::Paid]).into_iter().map(|(number, _)| number).collect();
    let mut applied = life.applied.clone();
    applied.sort_unstable();
    if paid != applied {
        verdict.find(
            Check::Conservation,
            format!("{} orders are paid by {} payments", paid.len(), applied.len()),
        );
    }
    let held =
        units(books, sku, OrderState::Paid).saturating_add(units(books, sku, OrderState::PendingPayment));
    let left = books.free_units().saturating_add(books.in_transit());
    if left.saturating_add(held) != books.total() {
        let total = books.total();
        verdict.find(
            Check::Conservation,
            format!("{left} units left and {held} paid or pending are not the {total} loaded"),
        );
    }
    let is_sound = !verdict.findings.iter().any(|finding| finding.check == Check::Conservation);
    LifeReport {
        paid: count(paid.len()),
        pending: waiting(books, sku),
        closed: count(closed.len()),
        restocked: unsigned(ledger.iter().fold(0_i64, |sum, (_, quantity)| sum.saturating_add(*quantity))),
        resold,
        refund_due: life.refunds,
        conserved: is_sound && verdict.violations == before,
    }
}
