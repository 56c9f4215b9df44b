//! The life of an order after its settlement: paid by a notice of the payment centre, or asked about and closed.
//!
//! Notices are taken on the writer's admin port, by as many tasks as there are requests, and kept in one transaction
//! each. Overdue orders are taken from the database by a few tasks of every writer, the payment centre is asked to close
//! them, and what it says is done: only *closed* closes. A payment centre that does not answer stops nothing else, and
//! nothing is closed meanwhile. Whoever dies in between has done a whole step or none.
//!
//! The same on both databases ([`PaymentStore`](crate::store::payments::PaymentStore)): in the embedded form, which has no
//! writers, the serving process runs them ([`PaymentTasks`]).

mod alarms;
mod cancels;
mod centre;
mod life;
mod notices;
mod overdue;
mod parked;
mod peak;
mod tasks;

pub(super) use cancels::Cancels;
#[cfg(test)]
pub(super) use centre::{AskError, AskToClose};
pub(super) use life::Life;
pub use notices::Notices;
pub(super) use overdue::Overdues;
pub(super) use parked::Parked;
pub(super) use peak::Peak;
pub use tasks::PaymentTasks;

use std::time::Duration;

use crate::payment::Keys;
use crate::payment::http::Target;

/// What a writer is told about payments.
#[derive(Clone, Debug)]
pub struct PaymentSettings {
    /// What notices are signed with, and questions; `None`: no notices are taken.
    pub keys: Option<Keys>,
    /// How far from the database's time a notice may have been signed.
    pub replay_window: Duration,
    /// How long a payment waits for its order before it is due for refund.
    pub park_for: Duration,
    /// Who is asked to close orders that were not paid in time; `None`: they are never closed by themselves.
    pub centre: Option<Target>,
    /// How long it may take to answer.
    pub ask_timeout: Duration,
    /// Orders in one question.
    pub ask_orders_max: u32,
    /// Questions at once.
    pub asks_in_flight: usize,
    /// The longest time between two questions about one order.
    pub retry_max: Duration,
    /// How long an order may be overdue, and the payment centre know nothing of it, before somebody is called.
    pub alarm_after: Duration,
}

impl Default for PaymentSettings {
    fn default() -> Self {
        Self {
            keys: None,
            replay_window: Duration::from_secs(300),
            park_for: Duration::from_secs(3600),
            centre: None,
            ask_timeout: Duration::from_secs(5),
            ask_orders_max: 500,
            asks_in_flight: 4,
            retry_max: Duration::from_secs(60),
            alarm_after: Duration::from_secs(300),
        }
    }
}
