//! Whether what a user was told fits together, and RESULT with the database.

use crate::protocol::{Status, StatusClass, UserId};
use crate::rehearsal::evidence::Evidence;
use crate::rehearsal::history::{Asked, End, Event, Got, UserHistory};
use crate::rehearsal::verdict::{Check, Verdict};

use super::status_name;

/// Whoever has read that he won is told ALREADY with the same order, or to come back, or that it is not known;
/// and of two BUYs under way at the same time none is refused for good if the other wins.
pub(in crate::rehearsal) fn won_then_otherwise(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for (user, told) in evidence.history.iter() {
        let won = told.events.iter().filter(|event| event.asked == Asked::Buy && event.got.order().is_some());
        let Some(won) = won.min_by_key(|event| event.received_ns) else { continue };
        for event in told.events.iter().filter(|event| !std::ptr::eq(*event, won)) {
            if let Some(sentence) = contradiction(user, won, event) {
                verdict.find(Check::WonThenOtherwise, sentence);
            }
        }
    }
}

fn contradiction(user: UserId, won: &Event, event: &Event) -> Option<String> {
    let number = won.got.order()?.number;
    let is_after = event.sent_ns >= won.received_ns;
    let is_concurrent = !is_after
        && event.asked == Asked::Buy
        && event.received_ns > won.sent_ns
        && won.received_ns > event.sent_ns;
    let Got::Status(status) = event.got else {
        let is_queued_again =
            is_after && event.asked == Asked::Buy && event.got.status() == Some(Status::Queued.code());
        return is_queued_again.then(|| format!("user {user} held order {number} and was told QUEUED again"));
    };
    if is_after && !is_harmless(status) {
        return Some(format!("user {user} held order {number} and was then told {}", status_name(status)));
    }
    let is_final = matches!(Status::class_of(status), StatusClass::Refused | StatusClass::ClientFault);
    (is_concurrent && is_final).then(|| {
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
