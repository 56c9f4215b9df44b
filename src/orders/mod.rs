//! Orders after the queue: the sidecar writer, which settles in SQL what gateways reserved in Redis and brings to its
//! end whatever SQL still owes to Redis.
//!
//! [`Writer`] is a set of tasks of one process; any number of processes share the work. Three tasks pass batches on
//! (`reader` → `settler` → `finisher`, bounded), one task each drives loads, preheats, the ledger and the outbox, the
//! settlement of what was only recorded (`backfill`), the
//! end of activities, the trimming of feeds, payments that came early; a few ask the payment centre about orders that were
//! not paid in time. Each may die at any instant: what was taken from a feed stays pending
//! there until it is settled, everything else is a row in SQL that stays due until it is done.
//!
//! The embedded form settles its orders itself; of all this it has only the tasks of payments ([`PaymentTasks`]).
//!
//! It never decides about a unit and never talks to a client. While Redis or SQL is away it tries again, more and more
//! slowly, and loses nothing.

mod archive;
mod backfill;
mod batch;
mod chore;
mod conservation;
mod context;
mod counters;
mod finisher;
mod follow_modes;
mod loads;
mod modes;
mod monitor;
mod owed;
mod pace;
mod payments;
mod put_back;
mod read_ahead;
mod reader;
pub mod reconcile;
mod retry;
mod settings;
mod settler;
mod shard_sums;
#[cfg(test)]
mod tests;
mod upkeep;
mod writer;

pub use backfill::{Backfill, Progress};
pub use counters::{Count, Counters, ShardLag};
pub use payments::{Notices, PaymentSettings, PaymentTasks};
pub use settings::Settings;
pub use writer::{Stopped, Writer};
