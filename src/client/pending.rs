//! A request that was queued, for whoever waits for its answer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Answer, ClientError, EndReason};

/// A request queued for writing; resolves to its answer, or to why its outcome is unknown. Dropping it does not
/// take the request back.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<Answer, ClientError>>);

impl Pending {
    pub(super) const fn new(receiver: oneshot::Receiver<Result<Answer, ClientError>>) -> Self {
        Self(receiver)
    }
}

impl Future for Pending {
    type Output = Result<Answer, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|received| received.unwrap_or(Err(ClientError::Lost(EndReason::ClosedHere))))
    }
}
