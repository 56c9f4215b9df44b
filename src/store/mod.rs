//! What a reservation store does for a gateway, and the stores that do it.
//!
//! [`ReservationStore`] is the boundary: the gateway's tasks call it, the stock module never does. A store
//! executes each call atomically on one shard and answers a repeated number with the stored reply, so that a
//! caller that lost a reply just calls again.

pub mod allow_lists;
pub mod breaker;
pub mod cancels;
pub mod catalog;
pub mod crash_point;
pub mod devices;
pub mod failures;
pub mod gate;
pub mod modes;
pub mod orders_modes;
pub mod payments;
pub mod redis;
pub mod risk;
pub mod sessions;
pub mod shared;
pub mod slices;
pub mod sql;
pub mod switches;
pub mod watched;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::UserId;
use crate::stock::calls::{
    Call, Event, Gen, Mark, ProcessNumber, RecoveryCall, Reply, SHARDS, ShardId, Snapshot,
};

/// Why a store did not answer. The outcome of a call that ended so is unknown: call again with the same number.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or did not answer in time.
    #[error("store unavailable: {0}; the call is repeated under its number")]
    Unavailable(String),
    /// The store holds something this version cannot read.
    #[error("store data is wrong: {0}; run a newer rushgate or restore the data folder")]
    Corrupt(String),
}

/// What a process gets when it registers, before its first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its durable number.
    pub process: ProcessNumber,
    /// The installation's generation.
    pub generation: Gen,
}

/// What reading one shard's feed brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedRead {
    /// Events after the position asked for, without a gap; empty means current.
    Events(Vec<Event>),
    /// The position is no longer in the feed, or of another generation: take a snapshot.
    Gap,
    /// The shard did not answer: there may be events after the position, or none. Others were read.
    Unread,
}

/// What became of a hand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandIn {
    /// The recovery takes the marks into account: they were there before its leader read what was handed in.
    InTime,
    /// The recovery went on without this process, or another has replaced it. Nothing of it counts.
    TooLate,
}

/// A read that brings so many events of a shard, or more, may have left others: the feed is not read to its end.
pub const FEED_PAGE_EVENTS: usize = 256;

/// Positions in the 16 feeds: the (generation, seq) already applied.
pub type FeedPositions = [(Gen, u64); SHARDS];

/// A store of stock, marks and feeds. Every method may be called from any task; a future that is dropped
/// leaves a call's outcome unknown, never half done.
pub trait ReservationStore: Send + Sync + 'static {
    /// Registers this process start and learns the generation.
    fn register(&self) -> impl Future<Output = Result<Registration, StoreError>> + Send;

    /// Executes one numbered call, or gives the stored reply if this number was executed before.
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Splits calls of different shards that are ready at the same time into those that are best asked for
    /// [together](Self::call_together): by default each by itself.
    fn together(&self, calls: Vec<Call>) -> Vec<Vec<Call>> {
        calls.into_iter().map(|call| vec![call]).collect()
    }

    /// Executes calls that [`together`](Self::together) has put into one list, each as [`call`](Self::call) does and none
    /// depending on another; what they came to, in their order.
    fn call_together(&self, calls: &[Call]) -> impl Future<Output = Vec<Result<Reply, StoreError>>> + Send {
        async move {
            let mut outcomes = Vec::with_capacity(calls.len());
            for call in calls {
                outcomes.push(self.call(call).await);
            }
            outcomes
        }
    }

    /// Everything one shard holds, consistent at one (gen, seq).
    fn snapshot(&self, shard: ShardId) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Events after `after`, for all shards; waits up to `wait` when there are none. A result names only shards
    /// that have something to say; shards not named are current.
    fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<(ShardId, FeedRead)>, StoreError>> + Send;

    /// Events after `after` that are at hand without asking anybody: those of a store whose feeds are in this process,
    /// where what a call did is published before it is answered. Other stores bring events by
    /// [`read_feeds`](Self::read_feeds) alone.
    fn events_at_hand(&self, after: &FeedPositions) -> Vec<(ShardId, Vec<Event>)> {
        let _ = after;
        Vec::new()
    }

    /// The time since the Unix epoch by the clock that all gateways of this store open and close by. `None`: only one
    /// gateway can use it, and its wall clock is that clock.
    fn sale_time(&self) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send {
        std::future::ready(Ok(None))
    }

    /// Waits until a recovery under a generation above `after` asks this process for its marks; `after` is that of
    /// the last one it has begun to answer, `Gen(0)` before the first. One that is under way already is given at
    /// once, also to a process that registered under its generation. Dropping the future loses nothing.
    ///
    /// A store that has no recoveries waits for ever.
    fn next_recovery(&self, after: Gen) -> impl Future<Output = RecoveryCall> + Send {
        let _ = after;
        std::future::pending()
    }

    /// Hands in this process's marks for the recovery of that generation: all of them at once, an empty list
    /// included. To be repeated until it goes well; once more under the same generation replaces what was handed in.
    /// Whether it was in time is decided once, together with the leader's reading, and told the same ever after, also
    /// when another recovery has begun: a process that is told so wrongly hands in what was written off, or nothing,
    /// at the next one. [`next_recovery`](Self::next_recovery) is not asked again before this has answered.
    fn hand_in(
        &self,
        generation: Gen,
        marks: &[(UserId, Mark)],
    ) -> impl Future<Output = Result<HandIn, StoreError>> + Send {
        let _ = (generation, marks);
        std::future::ready(Ok(HandIn::TooLate))
    }

    /// Waits for a question what this process knows that is not settled, after that of the number `after` (0: the first);
    /// its number. Dropping the future loses nothing. Nothing is decided by the answer.
    ///
    /// A store that nothing is taken over from waits for ever.
    fn next_look(&self, after: u64) -> impl Future<Output = u64> + Send {
        let _ = after;
        std::future::pending()
    }

    /// Answers such a question.
    fn answer_look(
        &self,
        look: u64,
        marks: &[(UserId, Mark)],
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = (look, marks);
        std::future::ready(Ok(()))
    }

    /// Ends a promise that a recovery has lost and that could not be put back in its FAILED order: an explicit one,
    /// never over an order that was settled after all. One of an activity that was taken over is offered to the database
    /// first (rule 20). Gives the mark as it stands then, finally: FAILED, or what was
    /// settled. To be repeated until it goes well; repeating changes nothing.
    ///
    /// A store that has no recoveries loses no promise: being asked to means that its data is wrong.
    fn fail(&self, user: UserId, mark: &Mark) -> impl Future<Output = Result<Mark, StoreError>> + Send {
        let lost = format!("order {} of user {user}, acknowledged by this process, is missing", mark.order);
        std::future::ready(Err(StoreError::Corrupt(lost)))
    }
}

/// A store that may be known not to answer, and what is sold then.
pub trait GatedStore: Send + Sync + 'static {
    /// Where the reserve is sold from.
    type Reserve: ReservationStore;

    /// What the store shuts while it is; one that is never shut where a store is in this process.
    fn gate(&self) -> Arc<gate::Gate> {
        Arc::default()
    }

    /// Units that are apart from those of this store, and sold by the same process while the gate says so (rule 19).
    fn reserve(&self) -> Option<Arc<Self::Reserve>> {
        None
    }
}

/// Everything that a gateway asks of its store.
pub trait GatewayStore:
    ReservationStore
    + GatedStore
    + catalog::Catalogue
    + switches::SwitchStore
    + risk::RiskStore
    + devices::DeviceStore
    + allow_lists::AllowListStore
    + sessions::SessionStore
    + slices::SliceStore
    + cancels::CancelStore
{
}

impl<S> GatewayStore for S where
    S: ReservationStore
        + GatedStore
        + catalog::Catalogue
        + switches::SwitchStore
        + risk::RiskStore
        + devices::DeviceStore
        + allow_lists::AllowListStore
        + sessions::SessionStore
        + slices::SliceStore
        + cancels::CancelStore
{
}
