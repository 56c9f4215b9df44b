//! Who may pass: limits, identity, risk lists, eligibility, switches. Pure decisions: time is an argument, nothing here
//! reads a clock or a socket.
//!
//! Runs wherever it is called, on the gateway's worker threads. Never awaits, never holds a lock across a call.
//! Nothing here fails on what a client sends: it is refused, and by what is told.

pub mod behaviour;
mod cidr;
pub mod clients;
pub mod devices;
pub mod eligibility;
pub mod flag;
pub mod identity;
pub mod limits;
pub mod risk;
pub mod switches;

pub use cidr::{Cidr, CidrError};
