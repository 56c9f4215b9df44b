//! Orders the clients saw against order rows.

use crate::protocol::{Status, UserId};
use crate::rehearsal::books::OrderRow;
use crate::rehearsal::evidence::Evidence;
use crate::rehearsal::history::{Asked, Event, SeenOrder, UserHistory};
use crate::rehearsal::verdict::{Check, Verdict};

use super::{describe_end, status_name};

/// Every order that a client saw stands in the database, once, and says the same.
pub(in crate::rehearsal) fn promises(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for (user, told) in evidence.history.iter() {
        for event in &told.events {
            let Some(seen) = event.got.order() else { continue };
            if let Some(wrong) = mismatch(evidence, user, told, event, seen) {
                let check = match event.asked {
                    Asked::Buy => Check::Promises,
                    Asked::Result | Asked::FinalResult => Check::Results,
                    Asked::Push => Check::Pushes,
                };
                let told_by = told_by(event);
                let number = seen.number;
                verdict
                    .find(check, format!("user {user} was told of order {number} by {told_by}, but {wrong}"));
            }
        }
    }
}

fn told_by(event: &Event) -> String {
    match event.asked {
        Asked::Buy => event.got.status().map_or_else(String::new, status_name),
        Asked::Result | Asked::FinalResult => "RESULT".to_owned(),
        Asked::Push => "a push".to_owned(),
    }
}

fn mismatch(
    evidence: &Evidence<'_>,
    user: UserId,
    told: &UserHistory,
    event: &Event,
    seen: &SeenOrder,
) -> Option<String> {
    let row = match evidence.with_number(seen.number.0) {
        [] => return Some("no such order stands in the database".to_owned()),
        [row] => row,
        rows => return Some(format!("{} orders with that number stand in the database", rows.len())),
    };
    if seen.activity != evidence.history.activity {
        return Some(format!("for activity {}", seen.activity));
    }
    if row.user != user.0 {
        return Some(format!("in the database it is user {}'s", row.user));
    }
    if (row.sku, row.quantity) != (seen.sku.0, seen.quantity) {
        let (quantity, sku) = (seen.quantity, seen.sku);
        return Some(format!(
            "with {quantity} of SKU {sku}; in the database it is {} of SKU {}",
            row.quantity, row.sku
        ));
    }
    let is_new = event.got.status() == Some(Status::Queued.code()) && event.asked == Asked::Buy;
    if is_new && (seen.sku, seen.quantity) != (evidence.history.sku, told.quantity) {
        let (wanted, sku) = (told.quantity, evidence.history.sku);
        return Some(format!(
            "{wanted} of SKU {sku} had been asked for and it is {} of SKU {}",
            row.quantity, row.sku
        ));
    }
    None
}

/// No live order belongs to a user of the sale to whom nobody promised it. A user who cannot know may own one, as
/// long as RESULT does not deny it.
pub(in crate::rehearsal) fn unpromised(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for row in evidence.books.orders.iter().filter(|row| row.is_live()) {
        let user = UserId(row.user);
        let Some(told) = evidence.history.of_user(user) else { continue };
        let knows = |event: &Event| event.got.order().is_some_and(|seen| seen.number.0 == row.number);
        if told.events.iter().any(knows) || (is_left_unknown(told) && !is_denied(told)) {
            continue;
        }
        let number = row.number;
        let end = describe_end(told);
        verdict.find(
            Check::Unpromised,
            format!(
                "order {number} of user {user} stands in the database, but nobody told the user of it: {end}"
            ),
        );
    }
}

/// Whether the last that a user heard of his purchase left its outcome open.
fn is_left_unknown(told: &UserHistory) -> bool {
    use crate::rehearsal::history::End;
    match told.end {
        End::Unknown => true,
        End::Won(_) | End::Refused(_) => false,
        End::GaveUp(_) | End::Fault(_) | End::Unreachable => told.was_unknown(),
    }
}

fn is_denied(told: &UserHistory) -> bool {
    let last = told.events.iter().rev().find(|event| event.asked == Asked::FinalResult);
    last.is_some_and(|event| event.got.status() == Some(Status::NoOrder.code()))
}

/// One live order per user and activity, one order number per user.
pub(in crate::rehearsal) fn one_per_user(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for (user, rows) in evidence.users_with_orders() {
        let live: Vec<&&OrderRow> = rows.iter().filter(|row| row.is_live()).collect();
        if let [first, second, ..] = live.as_slice() {
            let (first, second) = (first.number, second.number);
            let count = live.len();
            verdict.find(
                Check::OnePerUser,
                format!(
                    "user {user} holds {count} live orders in one activity, {first} and {second} among them"
                ),
            );
        }
    }
    for (user, told) in evidence.history.iter() {
        let mut seen = told.events.iter().filter_map(|event| Some(event.got.order()?.number));
        let Some(first) = seen.next() else { continue };
        if let Some(other) = seen.find(|number| *number != first) {
            verdict
                .find(Check::OnePerUser, format!("user {user} was told of two orders, {first} and {other}"));
        }
    }
}
