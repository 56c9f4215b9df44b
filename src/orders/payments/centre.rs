//! The payment centre as it is asked: one signed question about many orders.

use std::future::Future;
use std::time::Duration;

use crate::payment::http::{PostError, Target, post};
use crate::payment::{Asked, AskedError, Keys, ask_body, read_asked};
use crate::protocol::OrderNumber;

/// Why nothing is known of the orders of a question.
#[derive(Debug, thiserror::Error)]
pub(in crate::orders) enum AskError {
    #[error("{0}")]
    Post(#[from] PostError),
    #[error("{0}")]
    Answer(#[from] AskedError),
    #[error("the payment centre answers with status {0}")]
    Status(u16),
}

/// Who is asked to close orders; what it says of each. It is asked again where no answer came: closing twice is closing once.
pub(in crate::orders) trait AskToClose: Send + Sync + 'static {
    /// Asks once, about many orders.
    fn ask_to_close(
        &self,
        orders: &[OrderNumber],
        now_ms: u64,
    ) -> impl Future<Output = Result<Vec<(OrderNumber, Asked)>, AskError>> + Send;
}

/// Where it is, and how it is asked.
#[derive(Clone, Debug)]
pub(in crate::orders) struct Centre {
    pub(super) target: Target,
    pub(super) keys: Keys,
    pub(super) patience: Duration,
}

impl AskToClose for Centre {
    async fn ask_to_close(
        &self,
        orders: &[OrderNumber],
        now_ms: u64,
    ) -> Result<Vec<(OrderNumber, Asked)>, AskError> {
        let body = ask_body(orders);
        let (status, answer) = post(&self.target, "/close", &self.keys, now_ms, body, self.patience).await?;
        if status != 200 {
            return Err(AskError::Status(status));
        }
        Ok(read_asked(orders, &answer)?)
    }
}
