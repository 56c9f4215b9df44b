//! What a reservation store does for a gateway, and the stores that do it.
//!
//! [`ReservationStore`] is the boundary: the gateway's tasks call it, the stock module never does. A store
//! executes each call atomically on one shard and answers a repeated number with the stored reply, so that a
//! caller that lost a reply just calls again.

pub mod catalog;
pub mod failures;
pub mod redis;
pub mod sql;

use std::future::Future;
use std::time::Duration;

use crate::stock::calls::{Call, Event, Gen, ProcessNumber, Reply, SHARDS, ShardId, Snapshot};

/// Why a store did not answer. The outcome of a call that ended so is unknown: call again with the same number.
#[derive(Debug, thiserror::Error)]
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
}

/// Positions in the 16 feeds: the (generation, seq) already applied.
pub type FeedPositions = [(Gen, u64); SHARDS];

/// A store of stock, marks and feeds. Every method may be called from any task; a future that is dropped
/// leaves a call's outcome unknown, never half done.
pub trait ReservationStore: Send + Sync + 'static {
    /// Registers this process start and learns the generation.
    fn register(&self) -> impl Future<Output = Result<Registration, StoreError>> + Send;

    /// Executes one numbered call, or gives the stored reply if this number was executed before.
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Everything one shard holds, consistent at one (gen, seq).
    fn snapshot(&self, shard: ShardId) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Events after `after`, for all shards; waits up to `wait` when there are none. A result names only shards
    /// that have something to say; shards not named are current.
    fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<(ShardId, FeedRead)>, StoreError>> + Send;
}
