//! What the consumer group's reads leave behind between two calls, by consumer: connections, and reads that still block.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::link::Link;
use super::types::Delivered;
use crate::stock::calls::ShardId;
use crate::store::StoreError;

#[derive(Debug, Default)]
pub(super) struct GroupReaders {
    pub(super) by_consumer: std::sync::Mutex<HashMap<String, Arc<Mutex<Reader>>>>,
}

/// The reads of one consumer: one over all shards, or in a cluster one per shard.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) running: JoinSet<(usize, Result<Vec<Delivered>, StoreError>)>,
    pub(super) lanes: Vec<Lane>,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) shards: Vec<ShardId>,
    pub(super) link: Arc<Link>,
    pub(super) is_running: bool,
}
