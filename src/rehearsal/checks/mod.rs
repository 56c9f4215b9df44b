//! The audit's checks, each a function of the evidence that adds what it finds to the verdict.

pub(super) mod orders;
pub(super) mod stock;
pub(super) mod told;

use crate::protocol::Status;

/// A status for people.
fn status_name(code: u16) -> String {
    Status::from_wire(code).map_or_else(|| format!("status {code:#06x}"), |status| status.name().to_owned())
}
