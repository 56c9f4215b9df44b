//! What the Redis store hands out beside the vocabulary of [`crate::stock::calls`]. Pure data.

use std::fmt;

use crate::protocol::{ActivityId, SkuId, UserId};
use crate::stock::calls::{Event, Gen, Mark, ShardId, SkuCounters};

/// The answer of a call that carries a generation (rule 1 of the stock protocol).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarded<T> {
    /// The guard let it pass.
    Done(T),
    /// The caller's generation is not the shard's, which is this one; nothing done.
    Gen(Gen),
    /// The shard waits for its recovery; nothing done.
    Recovering,
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The mark is released and its units are free again.
    Released,
    /// An earlier copy had done it.
    WasReleased,
    /// The user has no mark of this order number (any more, or yet); nothing done.
    NotHis,
}

/// Where an activity stands in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityPhase {
    /// On sale, or to be.
    Live,
    /// Ended: nothing is reserved or moved out any more, releases and settlements still run.
    Ending,
    /// Its keys are deleted, a tombstone stands.
    Archived,
}

/// Where an entry stands in a shard's feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// The generation it was appended under.
    pub generation: Gen,
    /// Its number in that generation; 0 is the generation's beginning.
    pub seq: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation.0, self.seq)
    }
}

/// One entry of a feed, as the consumer group gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub id: EntryId,
    /// When it was appended, by Redis's clock, in Unix milliseconds; 0 where it cannot be read.
    pub at_ms: u64,
    /// What happened; otherwise what is malformed, naming key and entry. A generation's beginning is a
    /// [`Change::Moved`](crate::stock::calls::Change::Moved) without counters.
    pub what: Result<Event, String>,
}

/// Entries of one shard that were delivered to a consumer and wait for [`acknowledge`](super::RedisShards::acknowledge).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The shard.
    pub shard: ShardId,
    /// The shard's generation when they were read (rule 13: they may be settled only under this one).
    pub generation: Gen,
    /// In order.
    pub entries: Vec<Entry>,
}

/// How far a consumer has come in claiming what others left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimCursor(pub(super) String);

impl ClaimCursor {
    /// Where every pass begins.
    pub fn start() -> Self {
        Self("0-0".to_owned())
    }

    /// Whether the pass has come to its end.
    pub fn is_start(&self) -> bool {
        self.0 == "0-0"
    }
}

/// What one step of claiming brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Where the next step goes on; at the start again when the pass is complete.
    pub cursor: ClaimCursor,
    /// What is now this consumer's.
    pub delivered: Delivered,
}

/// What the consumer group has not finished in one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Delivered, not acknowledged.
    pub entries_pending: u64,
    /// Never delivered.
    pub entries_undelivered: u64,
    /// When the oldest of them was appended, by Redis's clock; `None` when there is none.
    pub oldest_at_ms: Option<u64>,
}

/// What a shard says of itself, open or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// The epoch of the Redis that holds it now: its process and its replication id, which changes whenever a replica
    /// is made the master.
    pub own_epoch: String,
    /// The epoch whose data the shard trusts; `None` when it was never opened, or lost.
    pub epoch: Option<String>,
    /// `Gen(0)` when there is none.
    pub generation: Gen,
    /// Whether calls of its generation are served.
    pub is_open: bool,
    /// Events appended in this generation.
    pub seq: u64,
    /// Every activity it knows, ascending.
    pub activities: Vec<(ActivityId, ActivityPhase)>,
}

/// The answer to [`adopt`](super::RedisShards::adopt).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// The open shard is of the new generation; its counters at this moment.
    Adopted(Vec<SkuCounters>),
    /// It is closed, of another epoch, or of a later generation: it joins those to be recovered.
    Refused,
}

/// The answer to [`fence`](super::RedisShards::fence).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// No recovery of an older generation opens the shard any more.
    Fenced,
    /// It is open, of another epoch, or of a later generation: look at all of them again.
    Refused,
}

/// Everything one shard holds of one activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityContent {
    /// The activity.
    pub id: ActivityId,
    /// Archived ones have nothing else.
    pub phase: ActivityPhase,
    /// Of every SKU loaded.
    pub counters: Vec<SkuCounters>,
    /// Every load applied, with what was really added (or taken, below zero) per SKU.
    pub loads: Vec<AppliedLoad>,
    /// Every mark.
    pub marks: Vec<(UserId, Mark)>,
}

/// A load as a shard remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedLoad {
    /// Its id.
    pub id: String,
    /// Units per SKU; below zero for a take.
    pub amounts: Vec<(SkuId, i64)>,
}

/// Everything one shard holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardContent {
    /// The epoch of the Redis it was read from.
    pub epoch: String,
    /// By ascending id.
    pub activities: Vec<ActivityContent>,
}

/// The answer to [`rebuild`](super::RedisShards::rebuild).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebuilt {
    /// The shard is open under the new generation.
    Opened,
    /// It is open already (perhaps by an earlier copy of this very call); nothing done.
    AlreadyOpen(Gen),
    /// The shard's Redis is of another epoch now: another process, or demoted and promoted meanwhile; nothing done.
    OtherEpoch(String),
    /// A later recovery has been here or fenced the shard, or one of this very generation was here (its feed is begun): raise the generation once
    /// more; nothing done.
    LaterGeneration(Gen),
}
