//! Where a connection stands: how far it has come, what it waits for, and whether it goes on.
//!
//! Belongs to the connection's task; the session moves it.

use tokio::sync::oneshot;

use super::counters::Ending;
use super::sessions::Found;
use crate::protocol::UserId;

/// Whether the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Go,
    /// Write what there is, then close.
    Close(Ending),
    /// The client's last frame was read: answer what is in flight, then close.
    Finish,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    New,
    Greeted,
    App { user: UserId, expires_at_ms: u64 },
    Service { expires_at_ms: u64 },
}

/// An AUTH that waits for the store.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) request_id: u32,
    pub(super) found: oneshot::Receiver<Found>,
}
