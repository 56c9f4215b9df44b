//! What comes back to the stock task from the tasks that ask the store for it.

use crate::protocol::UserId;
use crate::stock::calls::{Call, Gen, Mark, Reply as CallReply, ShardId, Snapshot};
use crate::store::{FeedRead, HandIn, StoreError};

/// What comes back from the store.
pub(super) enum Arrival {
    Answered { call: Call, reply: Result<CallReply, StoreError> },
    Feeds { began_ms: u64, reads: Result<Vec<(ShardId, FeedRead)>, StoreError> },
    Snapshot { shard: ShardId, snapshot: Result<Snapshot, StoreError> },
    Recovery(Told),
}

/// What became of a write.
pub(super) enum Told {
    HandedIn { generation: Gen, answer: HandIn },
    Failed { user: UserId, mark: Mark },
    NotYet(StoreError),
}
