//! Whether what a user was told fits together, and RESULT with the database.

use crate::protocol::{Status, StatusClass, UserId};
use crate::rehearsal::evidence::Evidence;
use crate::rehearsal::history::{Asked, End, Event, Got, UserHistory};
use crate::rehearsal::verdict::{Check, Verdict};

use super::status_name;

/// Whoever has read that he won, by whatever answer or push, is told ALREADY with the same order, or to come back, or
/// that it is not known; and of two BUYs under way at the same time none is refused for good if the other wins.
pub(in crate::rehearsal) fn won_then_otherwise(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for (user, told) in evidence.history.iter() {
        let with_order = || told.events.iter().filter(|event| event.got.order().is_some());
        let Some(knew) = with_order().min_by_key(|event| event.received_ns) else { continue };
        let bought = with_order().filter(|event| event.asked == Asked::Buy);
        let bought = bought.min_by_key(|event| event.received_ns);
        // An order that was closed since may be told of as such at any time: when it was, nobody here knows.
        let rows = knew.got.order().map_or(&[][..], |order| evidence.with_number(order.number.0));
        if rows.iter().any(|row| row.is_closed()) {
            continue;
        }
        for event in told.events.iter().filter(|event| !std::ptr::eq(*event, knew)) {
            let sentence = told_otherwise(user, knew, event);
            if let Some(sentence) = sentence.or_else(|| refused_beside(user, bought?, event)) {
                verdict.find(Check::WonThenOtherwise, sentence);
            }
        }
    }
}

/// What was asked after the user knew of his order, and answered as if he held none.
fn told_otherwise(user: UserId, knew: &Event, event: &Event) -> Option<String> {
    if event.sent_ns < knew.received_ns {
        return None;
    }
    let number = knew.got.order()?.number;
    match event.got {
        Got::Status(status) if !is_harmless(status) => {
            Some(format!("user {user} held order {number} and was then told {}", status_name(status)))
        }
        Got::Order(status, _) if event.asked == Asked::Buy && status == Status::Queued.code() => {
            Some(format!("user {user} held order {number} and was told QUEUED again"))
        }
        Got::Status(_) | Got::Order(..) | Got::Unknown | Got::NotSent => None,
    }
}

/// A BUY refused for good while the one that won was under way.
fn refused_beside(user: UserId, bought: &Event, event: &Event) -> Option<String> {
    let Got::Status(status) = event.got else { return None };
    let is_beside =
        event.asked == Asked::Buy && event.received_ns > bought.sent_ns && bought.received_ns > event.sent_ns;
    let is_final = matches!(Status::class_of(status), StatusClass::Refused | StatusClass::ClientFault);
    let number = bought.got.order()?.number;
    (is_beside && is_final).then(|| {
        format!(
            "of two BUYs that user {user} sent at once one won order {number} and the other was told {}",
            status_name(status)
        )
    })
}

/// What a winner may be told besides his order. "Not enough left" is about stock he no longer asks for.
fn is_harmless(status: u16) -> bool {
    match Status::class_of(status) {
        StatusClass::RetryLater => status != Status::Insufficient.code(),
        StatusClass::Reconnect | StatusClass::Unknown => true,
        StatusClass::Ok | StatusClass::Refused | StatusClass::ClientFault => false,
    }
}

/// After the sale RESULT denies no order that stands, and tells every winner of his.
pub(in crate::rehearsal) fn final_results(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for (user, told) in evidence.history.iter() {
        let last = told.events.iter().rev().find(|event| event.asked == Asked::FinalResult);
        let standing = evidence.of_user(user).iter().find(|row| row.is_live());
        let is_denied = last.is_some_and(|event| event.got.status() == Some(Status::NoOrder.code()));
        match (standing, told.end) {
            (Some(row), _) if is_denied => {
                let number = row.number;
                verdict.find(
                    Check::Results,
                    format!("RESULT told user {user} of no order, but order {number} stands in the database"),
                );
            }
            (_, End::Won(number)) if last.is_none_or(|event| event.got.order().is_none()) => {
                let answer = describe(last, told);
                verdict.find(
                    Check::Results,
                    format!("user {user} won order {number}, but RESULT did not confirm it after the sale: {answer}"),
                );
            }
            _ => {}
        }
    }
}

fn describe(last: Option<&Event>, told: &UserHistory) -> String {
    match last {
        None => "it was not asked".to_owned(),
        Some(event) => match event.got.status() {
            Some(status) => status_name(status),
            None => format!("no answer, after {} events", told.events.len()),
        },
    }
}
