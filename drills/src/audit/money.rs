//! What has to be equal after payments: each payment has paid one order or is owed back, each order that is over was paid
//! or has given its units back once, and nothing was closed before its time.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{Audited, Evidence, count};
use crate::layout::PRICE_MINOR;
use crate::pay_side::{PaySide, PaymentRow};
use crate::sql_side::OrderRow;
use crate::till::Taken;

// States of orders, by their numbers in SQL and on the wire.
const PENDING: u8 = 2;
const PAID: u8 = 3;
const CLOSED: u8 = 4;
const FAILED: u8 = 5;
const REFUND_DUE: u8 = 6;
const RECORDED: u8 = 7;
/// Steps of a life: only forward.
const STEPS: [(u8, u8); 8] = [
    (1, PENDING),
    (1, FAILED),
    (RECORDED, PENDING),
    (RECORDED, CLOSED),
    (RECORDED, FAILED),
    (PENDING, PAID),
    (PENDING, CLOSED),
    (CLOSED, REFUND_DUE),
];
/// States of payments.
const APPLIED: u8 = 2;
const TO_BE_GIVEN_BACK: u8 = 3;
/// Causes of refunds: its order was closed; no such order; it never came.
const ORDER_CLOSED: u8 = 1;
const NO_ORDER: [u8; 2] = [5, 6];
/// Causes of steps: not paid in time; asked for.
const TIMED_OUT: u8 = 2;
const ASKED_FOR: u8 = 3;

/// SQL's side of the money, and the payment centre's.
#[derive(Debug)]
pub(crate) struct Money<'a> {
    pub(crate) side: &'a PaySide,
    pub(crate) taken: &'a Taken,
    /// Payments that the payment centre has taken, late ones among them.
    pub(crate) payments: u64,
}

/// The figures of a life after the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) paid: u64,
    pub(crate) closed: u64,
    pub(crate) restocked: u64,
    pub(crate) refund_due: u64,
}

/// Orders that somebody closed as he may: not paid in time, or asked to.
pub(crate) fn closed_rightly(side: &PaySide) -> impl Iterator<Item = u64> {
    let is_so = |cause| matches!(cause, TIMED_OUT | ASKED_FOR);
    side.history.iter().filter(move |row| row.to == CLOSED && is_so(row.cause)).map(|row| row.number)
}

pub(super) fn audit(evidence: &Evidence<'_>, audited: &mut Audited) {
    let Some(money) = evidence.money else { return };
    let mut by_order: BTreeMap<u64, Vec<&PaymentRow>> = BTreeMap::new();
    for payment in &money.side.payments {
        by_order.entry(payment.number).or_default().push(payment);
    }
    audited.add("paid or closed", orders(evidence, &by_order));
    audited.add("payment", payments(evidence, money, &by_order));
    audited.add("restock", restocks(evidence, money));
    audited.add("history", history(evidence, money));
    audited.add("mark of an order that is over", marks(evidence));
    audited.add("RESULT of an order that is over", results(evidence));
    let in_state = |states: &[u8]| {
        count(evidence.sql.orders.values().filter(|order| states.contains(&order.state)).count())
    };
    audited.figures = Some(Figures {
        paid: in_state(&[PAID]),
        closed: in_state(&[CLOSED, REFUND_DUE]),
        restocked: money.side.ledger.iter().filter(|row| row.is_done).map(|row| row.quantity).sum(),
        refund_due: in_state(&[REFUND_DUE]),
    });
}

/// PAID is to have one payment of the price; CLOSED none that came later, `REFUND_DUE` one; nothing waits.
fn orders(evidence: &Evidence<'_>, by_order: &BTreeMap<u64, Vec<&PaymentRow>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, order) in &evidence.sql.orders {
        let payments = by_order.get(number).map_or(&[][..], Vec::as_slice);
        let applied: Vec<_> = payments.iter().filter(|payment| payment.state == APPLIED).collect();
        let is_late = payments.iter().any(|payment| payment.cause == ORDER_CLOSED);
        let is_right = match order.state {
            PAID => applied.len() == 1 && !is_late,
            REFUND_DUE => applied.is_empty() && is_late,
            CLOSED => applied.is_empty() && !is_late,
            FAILED => applied.is_empty(),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("order {number} {order:?} with {payments:?}"));
        }
        let price = PRICE_MINOR * order.quantity;
        if applied.iter().any(|payment| payment.amount_minor != price) {
            wrong.push(format!("order {number} costs {price}, and {applied:?} paid it"));
        }
    }
    wrong
}

/// Everything that the payment centre took is in SQL, has paid its order or is owed back; what it refused is closed.
fn payments(
    evidence: &Evidence<'_>,
    money: &Money<'_>,
    by_order: &BTreeMap<u64, Vec<&PaymentRow>>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let known = count(money.side.payments.len());
    if known != money.payments {
        wrong.push(format!("the payment centre took {}, SQL knows {known}", money.payments));
    }
    let has_row =
        |number: &u64| evidence.sql.orders.contains_key(number) || evidence.sql.ledger.contains(number);
    for payment in &money.side.payments {
        let is_over = matches!(payment.state, APPLIED | TO_BE_GIVEN_BACK);
        if !is_over || (!has_row(&payment.number) && !NO_ORDER.contains(&payment.cause)) {
            wrong.push(format!("{payment:?}"));
        }
    }
    for (number, amount_minor) in &money.taken.paid {
        let payments = by_order.get(number).map_or(&[][..], Vec::as_slice);
        if !payments.iter().any(|payment| payment.amount_minor == *amount_minor) {
            wrong.push(format!("order {number}: {amount_minor} were taken, SQL has {payments:?}"));
        }
    }
    // Whoever paid before the payment centre closed his order has it, unless he himself asked for the close.
    let asked_for = money.side.history.iter().filter(|row| row.to == CLOSED && row.cause == ASKED_FOR);
    let asked_for: BTreeSet<u64> = asked_for.map(|row| row.number).collect();
    for number in money.taken.paid.keys().filter(|number| !asked_for.contains(number)) {
        let state = evidence.sql.orders.get(number).map(|order| order.state);
        if !matches!(state, None | Some(PAID | FAILED)) {
            wrong.push(format!("order {number} was paid before it was closed, in SQL it is {state:?}"));
        }
    }
    for number in &money.taken.refused {
        let state = evidence.sql.orders.get(number).map(|order| order.state);
        if !matches!(state, None | Some(CLOSED | REFUND_DUE | FAILED)) {
            wrong.push(format!("order {number} was closed at the payment centre, in SQL it is {state:?}"));
        }
    }
    wrong
}

/// Units came back once for each order that is over, and for no other; those of the reserve without a ledger.
fn restocks(evidence: &Evidence<'_>, money: &Money<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_number: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for row in &money.side.ledger {
        by_number.entry(row.number).or_default().push(row);
    }
    for (number, order) in &evidence.sql.orders {
        let rows = by_number.remove(number).unwrap_or_default();
        let is_once = |quantity| matches!(rows.as_slice(), [row] if row.is_done && row.quantity == quantity);
        let is_owed = !order.is_live() && !order.is_of_reserve;
        if if is_owed { !is_once(order.quantity) } else { !rows.is_empty() } {
            wrong.push(format!("order {number} {order:?}: ledger {rows:?}"));
        }
    }
    // What SQL refused has a row there alone.
    wrong.extend(
        by_number
            .into_iter()
            .filter(|(_, rows)| rows.len() != 1)
            .map(|(number, rows)| format!("order {number} has no row and {} in the ledger", rows.len())),
    );
    let units = |of: fn(&OrderRow) -> bool| -> u64 {
        let orders = evidence.sql.orders.values().filter(|order| !order.is_of_reserve && of(order));
        orders.map(|order| order.quantity).sum()
    };
    let (ever, live) = (units(|_| true), units(OrderRow::is_live));
    let has_row = |number: &u64| evidence.sql.orders.contains_key(number);
    let given_back = money.side.ledger.iter().filter(|row| has_row(&row.number));
    let given_back: u64 = given_back.map(|row| row.quantity).sum();
    if ever != live + given_back {
        wrong.push(format!("{ever} units were sold, {live} are, but {given_back} came back"));
    }
    wrong
}

/// Every step forward, from where the last one ended, to where the order is; no close for want of payment before the pay-by.
fn history(evidence: &Evidence<'_>, money: &Money<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<u64, u8> = BTreeMap::new();
    for row in &money.side.history {
        let before = ends.insert(row.number, row.to);
        let is_step = row.from == 0 || STEPS.contains(&(row.from, row.to));
        let goes_on = row.from == 0 || before.is_none_or(|before| before == row.from);
        let is_early = row.cause == TIMED_OUT && row.at_ms < row.pay_by_ms;
        if !is_step || !goes_on || is_early {
            wrong.push(format!("{row:?} after {before:?}"));
        }
    }
    for (number, end) in ends {
        let state = evidence.sql.orders.get(&number).map(|order| order.state);
        if state.is_some_and(|state| state != end) {
            wrong.push(format!("order {number} is {state:?}, its history ends with {end}"));
        }
    }
    wrong
}

/// Redis knows how each order ended.
fn marks(evidence: &Evidence<'_>) -> Vec<String> {
    if evidence.promise.is_archived {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (user, mark) in evidence.shards.iter().flat_map(|shard| &shard.marks) {
        let order = evidence.sql.orders.get(&mark.order);
        if order.is_some_and(|order| order.state != mark.state) {
            wrong.push(format!("user {user}: {mark:?}, SQL has {order:?}"));
        }
    }
    wrong
}

/// So does every gateway.
fn results(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (gateway, results) in evidence.results {
        for (user, said) in results {
            let Some(said) = said else { continue };
            let order = evidence.sql.orders.get(&said.number.0);
            if order.is_some_and(|order| order.state != said.state as u8) {
                wrong.push(format!(
                    "gateway {gateway} says {:?} to user {user}, SQL has {order:?}",
                    said.state
                ));
            }
        }
    }
    wrong
}
