//! What a gateway asks of its store when a user cancels an order of his that is not paid.

use std::future::Future;

use super::StoreError;
use crate::protocol::UserId;
use crate::stock::calls::Mark;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It is kept, durably, and applied once the order is settled. Not final: a payment that comes first wins.
    Kept,
    /// The order as it stands now, and stays but for a payment that comes after its close.
    Stands(Mark),
    /// There is no such order of this user.
    NoOrder,
}

/// Cancels. May be repeated: a second time changes nothing.
pub trait CancelStore {
    /// Cancels an order of this user that the caller believes to be unpaid.
    fn cancel(&self, user: UserId, mark: &Mark)
    -> impl Future<Output = Result<Cancelled, StoreError>> + Send;
}
