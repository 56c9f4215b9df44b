//! The audit's checks, each a function of the evidence that adds what it finds to the verdict.

pub(super) mod orders;
pub(super) mod stock;
pub(super) mod told;

use super::history::{End, UserHistory};
use crate::protocol::Status;

/// A status for people.
fn status_name(code: u16) -> String {
    Status::from_wire(code).map_or_else(|| format!("status {code:#06x}"), |status| status.name().to_owned())
}

/// How a user's purchase ended, for people.
fn describe_end(told: &UserHistory) -> String {
    match told.end {
        End::Won(number) => format!("the user won order {number}"),
        End::Refused(status) => format!("the last answer was {}", status_name(status)),
        End::GaveUp(status) => format!("patience ended after {}", status_name(status)),
        End::Fault(status) => format!("the gateway called the request wrong with {}", status_name(status)),
        End::Unknown => "the outcome stayed unknown".to_owned(),
        End::Unreachable => "the user reached no gateway".to_owned(),
    }
}
