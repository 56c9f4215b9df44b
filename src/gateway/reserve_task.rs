//! Selling the reserve (rule 19 of the stock protocol): a second stock task, over the units that are in the database and in
//! no shard of Redis.
//!
//! Runs in every gateway whose store has a reserve, from the start on, so that each knows who has bought from it; while
//! nobody sells it, it looks for news once a second. The store's gate says which BUYs come here. Nothing goes from one
//! task to the other: what was ever sent to Redis is never sold here under its number, and the numbers given here are
//! others. Two orders of one user in both worlds are settled by the database, which takes the first.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Core;
use super::desk::{Desk, Sells};
use super::door::Ticket;
use super::reserve::Reserve;
use super::stock_task::{StockState, StockTask};
use super::tasks::Tasks;
use crate::stock::Stock;
use crate::store::ReservationStore;

/// Begins to follow the reserve, and to sell it when the gate says so.
pub(super) fn start<R: ReservationStore>(
    core: &Arc<Core>,
    reserve: &Reserve,
    store: Arc<R>,
    stock: Stock<Ticket>,
    tasks: &mut Tasks,
) -> watch::Receiver<StockState> {
    let (door, board) = (Arc::clone(&reserve.door), Arc::clone(&reserve.board));
    let desk = Desk { door, board, gate: Arc::clone(&core.funnel.gate), sells: Sells::Reserve };
    let state = watch::Sender::new(StockState::default());
    let told = state.subscribe();
    tasks.spawn(
        "the stock task of the reserve",
        StockTask::new(Arc::clone(core), desk, store, stock, state).run(),
    );
    told
}

/// Waits until either task's state is another; false when one of them has ended.
pub(super) async fn changed(
    store: &mut watch::Receiver<StockState>,
    reserve: Option<&mut watch::Receiver<StockState>>,
) -> bool {
    let Some(reserve) = reserve else { return store.changed().await.is_ok() };
    tokio::select! {
        changed = store.changed() => changed.is_ok(),
        changed = reserve.changed() => changed.is_ok(),
    }
}

/// Why the reserve cannot be sold; empty when it can.
pub(super) fn not_ready(state: StockState, now_ms: u64, patience: Duration) -> Vec<&'static str> {
    let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    let is_late = |sent_ms: u64| sent_ms.saturating_add(patience_ms) < now_ms;
    let reasons = [
        (!state.is_known, "a shard of the reserve is not known yet"),
        (state.is_fenced, "another process uses this one's number; restart this one"),
        (state.oldest_call_ms.is_some_and(is_late), "the database does not answer calls"),
    ];
    reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_ready_when_it_is_known_and_answers() {
        let patience = Duration::from_secs(3);
        let known = StockState { is_known: true, ..StockState::default() };
        assert!(not_ready(known, 10_000, patience).is_empty());
        assert_eq!(not_ready(StockState::default(), 10_000, patience).len(), 1);
        let waits = |sent_ms| StockState { oldest_call_ms: Some(sent_ms), ..known };
        assert!(not_ready(waits(8_000), 10_000, patience).is_empty());
        assert_eq!(not_ready(waits(6_000), 10_000, patience), ["the database does not answer calls"]);
    }
}
