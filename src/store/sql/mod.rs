//! The SQL stores. Now: the embedded one on SQLite, for one serving process, without any other service.
//!
//! The same answers as the stock protocol asks of a store of many processes: a group of calls is one
//! transaction on the 16 rows per SKU, an order row is the buyer's mark, settled at once; the feed is in
//! process; the generation rises at every start.
//!
//! Tasks: one writer task per open store (`writer`) owns the only connection that writes; readers (snapshots,
//! catalogue) use a small pool. Beside the audit of a rehearsal,
//! which reads by queries of its own, this is the only place that imports `sqlx`. On failure a call is answered
//! "unavailable" and nothing of it happened, or, when the failure came after the commit had reached the disk,
//! its stored reply says so when it is repeated.

mod allow_lists;
mod batch;
mod device_store;
mod devices;
mod eligibility;
mod error;
mod feed;
mod jobs;
mod loads;
mod lock;
pub mod mysql;
mod open;
mod operator;
mod order_changes;
mod orders;
mod overdue;
mod payment_columns;
mod payment_stores;
mod payments;
mod read;
mod registration;
mod reply_codec;
mod reserve_figures;
mod risk;
mod risk_stores;
mod rows;
mod sessions;
mod shares;
mod sqlite_store;
mod statements;
mod step;
mod stock_loads;
mod switch_stores;
mod switches;
mod writer;
mod writer_payments;

pub use allow_lists::AllowListFolder;
pub use error::OpenError;
pub use open::{IfMissing, OpenOptions, Synchronous};
pub use operator::{NewLoad, OperatorConnection, PendingLoad, Refused, SkuFigures};
pub use reserve_figures::ReserveFigures;
pub use risk_stores::RiskFolder;
pub use sessions::SessionFolder;
pub use sqlite_store::SqliteStore;
pub use switch_stores::SwitchFolder;
