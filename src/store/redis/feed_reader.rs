//! What the reads of the feeds leave behind between two calls: connections, and reads that still block.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::link::Link;
use super::options::RedisOptions;
use super::streams::RawEntry;
use crate::stock::calls::{Gen, ShardId};
use crate::store::StoreError;
use crate::store::failures::Failures;

/// What one shard's blocking read came to.
pub(super) type Woken = (ShardId, (Gen, u64), Result<Vec<RawEntry>, StoreError>);

/// What one shard's question came to, and in which round it was asked.
pub(super) type Asked = (ShardId, u64, Result<Vec<RawEntry>, StoreError>);

#[derive(Debug)]
pub(super) struct FeedReader {
    pub(super) options: Arc<RedisOptions>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The connection of the one read over all shards, and whether an abandoned read may still block it.
    pub(super) single: Option<Arc<Link>>,
    pub(super) is_blocked: bool,
    /// The cluster's reads: the position that each running one follows.
    pub(super) following: HashMap<ShardId, (Gen, u64)>,
    pub(super) reads: JoinSet<Woken>,
    pub(super) links: HashMap<ShardId, Arc<Link>>,
    /// The cluster's questions before a wait: one round a call, at most one a shard under way.
    pub(super) round: u64,
    pub(super) asking: HashSet<ShardId>,
    pub(super) asked: JoinSet<Asked>,
    /// Shards whose last answer was an error, or is late: nobody waits for them.
    pub(super) away: HashSet<ShardId>,
    pub(super) failures: Failures,
    /// Of the reads that block.
    pub(super) unfollowed: Failures,
}

impl FeedReader {
    pub(super) fn new(options: &Arc<RedisOptions>) -> Self {
        Self { options: Arc::clone(options), state: Mutex::new(State::default()) }
    }
}
