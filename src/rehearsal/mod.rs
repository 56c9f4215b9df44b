//! A sale rehearsed against a running gateway, then audited.
//!
//! Used by `rushgate demo` and `rushgate-loadgen sale`; it speaks to the gateway only through its port and to the
//! database only by queries of its own; free units in Redis are read by whoever calls it ([`SharedStock`]). The steps: [`SalePlan`] says who buys what and how, [`run_sale`] lets
//! them buy and writes down what each was told ([`SaleHistory`]), a [`Life`] lets winners pay, or not, and sells again what was
//! closed, [`Source::read`] reads the database, [`audit()`] compares both, and a
//! [`Report`] says how it went, with a [`FunnelReport`] that whoever can ask the gateways completes; [`rehearse()`] is all of it.
//! Nothing here prints: see [`Progress`].
//!
//! It runs as tasks of the caller's runtime. A gateway that dies and comes back on the same address is survived
//! as long as the plan's patience lasts; one that does not come back ends the sale, and the audit says what is missing.

mod audit;
mod books;
mod buyer;
mod checks;
mod collect;
mod evidence;
mod funnel;
mod history;
mod life;
mod listeners;
mod living;
mod pay_centre;
mod plan;
mod progress;
mod recorder;
mod rehearse;
mod report;
mod sale;
mod source;
mod stage;
#[cfg(test)]
mod tests;
mod verdict;

pub use audit::audit;
pub use books::{Books, BooksError, CountedStock, LifeBooks, MySqlDatabase, OrderRow, Transfer};
pub use funnel::{Counted, Counts, FunnelReport, GatewayCounts, read_still};
pub use history::{Asked, Buys, End, Event, Got, Listening, SaleHistory, SeenOrder, Tally, UserHistory};
pub use life::{Life, LifeReport};
pub use pay_centre::{PayCentre, PayFaults};
pub use plan::{Mode, PlanError, Quantities, SalePlan};
pub use progress::{Phase, Progress, Silent, TerminalBar};
pub use rehearse::{RehearsalError, Rehearsed, rehearse};
pub use report::Report;
pub use sale::{SaleError, run_sale};
pub use source::{Reading, ShardUnits, SharedStock, Source};
pub use verdict::{Check, Finding, Verdict};
