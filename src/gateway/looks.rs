//! Answers to operators who are about to take an activity over (rule 20 of the stock protocol): what this gateway knows
//! that nobody has settled yet.
//!
//! One task. It reads what connections read, decides nothing and changes nothing; an answer that cannot be written is
//! given up when the next question comes.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::store::ReservationStore;

/// After an answer that was not taken.
const BACK_OFF: Duration = Duration::from_millis(200);
/// How often one answer is tried.
const TRIES_MAX: u32 = 10;

pub(super) async fn answer<S: ReservationStore>(core: Arc<Core>, store: Arc<S>) {
    let mut answered = 0;
    loop {
        answered = store.next_look(answered).await;
        let marks = core.funnel.buyers.unsettled();
        for _ in 0..TRIES_MAX {
            match store.answer_look(answered, &marks).await {
                Ok(()) => break,
                Err(error) => tracing::debug!(%error, look = answered, "a look could not be answered yet"),
            }
            tokio::time::sleep(BACK_OFF).await;
        }
    }
}
