//! Reconciliation: Redis against SQL against the ledger, per SKU and shard, while the sale runs or after it.
//!
//! Run by `rushgate reconcile`, on its own task; it needs no writer, but most of what it sets right is finished by one.
//! `evidence` reads, Redis before SQL; `compare` decides, pure; `difference` names what was found and what to do next;
//! `mend` corrects, only when asked to, by differences and through the ledger.
//!
//! Nothing stops while it reads, so two sides are never of one instant. What is compared does not change with time: a
//! shard's own sum is taken at one (generation, seq) and every function of the shard keeps it; so does every transaction
//! for SQL's. What can be seen on one side before the other (an order that was settled between two reads) is looked at a
//! second time, and counts only if it is still so.
//!
//! It never writes a value over a live counter, never gives units back that no final order in SQL stands for, and never
//! deletes a mark. When it fails half way, what it has corrected is right already: run it again.

mod compare;
mod difference;
mod evidence;
mod figures;
mod findings;
mod marks;
mod mend;
mod reserve;
mod run;
mod watch;

pub use difference::{Difference, Kind, Remedy};
pub use figures::{Explained, ShardFigures, SkuFigures};
pub use run::{ActivityReport, Reconciliation, Request};
pub use watch::{Stage, Watch};
