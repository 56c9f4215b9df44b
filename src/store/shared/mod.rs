//! The shared store: the form for many gateways. Redis holds stock, buyers and events; SQL holds process numbers, the
//! installation's generation, activities and orders. This composes the two and adds what neither knows: the lease,
//! the recovery of shards that went back in time, the sale clock.
//!
//! [`SharedStore`] is what a gateway is given; [`Keeper`] is its task (writers run one too): it renews the heartbeat
//! and, when shards are closed, tries to lead their recovery. Neither ever decides about a unit: scripts in Redis and
//! transactions in SQL do. While SQL is away the lease runs out and nothing is acknowledged; while Redis is away
//! every call fails and is repeated; neither loses anything. Circuit breakers shut the gate to new purchases meanwhile.

mod breakers;
mod cancels;
mod devices;
mod keeper;
mod lease;
mod merge;
mod recovery;
mod risk;
mod store;
mod switches;
pub mod takeover;
mod units;

pub use breakers::{BreakersView, DegradingRules};
pub use keeper::{Keeper, KeeperState};
#[cfg(test)]
pub(crate) use merge::rebuilt;
pub use store::SharedStore;
pub use switches::InstallationSwitches;
