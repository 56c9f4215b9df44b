//! The gateway: connections, the funnel that every BUY climbs, and the task that sells.
//!
//! Tasks: one listener, one per connection, one stock task, one that follows the catalogue, one that forgets
//! idle limiter keys. [`Gateway::start`] binds and opens only when every shard is known; [`Gateway::drain`] ends
//! it without losing an answer. The gateway is stateless: kill it any time, what it said QUEUED to stands in the
//! store.

mod clock;
mod connection;
mod counters;
mod door;
mod funnel;
mod linger;
mod listener;
mod on_sale;
mod peer;
mod session;
mod settings;
mod start;
mod stock_task;
mod subscribers;
mod trouble;

use std::sync::atomic::AtomicUsize;

use tokio::sync::{Notify, watch};

pub use counters::{Counters, Ending, Rung};
pub use settings::Settings;
pub use start::{Gateway, StartError};

use crate::admission::identity::{IdentityError, Verifier};
use crate::protocol::Status;

/// What all tasks of a gateway share.
#[derive(Debug)]
struct Core {
    settings: Settings,
    clock: clock::Clock,
    verifier: Verifier,
    funnel: funnel::Funnel,
    subscribers: subscribers::Subscribers,
    counters: Counters,
    /// Connections open.
    connections: AtomicUsize,
    connection_closed: Notify,
    /// True once nothing new is taken.
    draining: watch::Sender<bool>,
}

/// What AUTH answers to a token that was refused.
const fn token_status(error: IdentityError) -> Status {
    match error {
        IdentityError::Expired => Status::TokenExpired,
        _ => Status::BadToken,
    }
}
