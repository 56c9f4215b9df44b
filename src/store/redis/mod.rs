//! The shared store's stock: 16 shards in Redis, changed only by one library of Redis Functions.
//!
//! [`RedisShards`] is what a process holds of it; cheap to clone, every method may be called from any task and
//! is answered by whatever task drives the connection. Nothing here knows SQL, leases or recoveries' leaders;
//! those compose it (`store::shared`). On failure a method answers [`StoreError`](super::StoreError) and its
//! outcome is unknown: every one of them may be repeated as it was.
//!
//! What a gateway does: `call`, `call_together`, `snapshot`, `read_feeds`, `time`, `probe`. What a writer does, each under the
//! generation it knows: `load`, `settled`, `release`, `end`, `archive`; and without one: `read_group`, `claim`,
//! `acknowledge`, `backlog`, `trim`, `forget_processes`. What the leader of a recovery does: `shard_state`, `adopt`,
//! `fence`, `content`, `rebuild`. What a reconciliation does: `books`, `counters`, `unfinished`, `recorded`, `mend_…`. Beside the shards: switches, a [`SwitchStore`](super::switches::SwitchStore), risk lists,
//! a [`RiskStore`](super::risk::RiskStore), counts of devices, a [`DeviceStore`](super::devices::DeviceStore),
//! allow-lists, an [`AllowListStore`](super::allow_lists::AllowListStore), rates, a
//! [`SliceStore`](super::slices::SliceStore), and sessions, a [`SessionStore`](super::sessions::SessionStore).

mod allow_lists;
mod answers;
mod books;
mod call;
mod cluster_feeds;
mod codec;
mod devices;
mod feed_reader;
mod feeds;
mod group;
mod group_readers;
mod keys;
mod library;
mod link;
mod mend;
mod nodes;
mod open;
mod options;
mod recovery;
mod risk;
mod sessions;
mod settle;
mod shards;
mod slices;
mod snapshot;
mod streams;
mod switches;
mod together;
mod trouble;
mod types;

pub use books::{ShardBooks, SkuBooks};
pub use mend::{MendAt, Mended};
pub use options::{AttemptLimit, RedisOpenError, RedisOptions};
pub use shards::RedisShards;
pub use types::{
    ActivityContent, ActivityPhase, Adopted, AppliedLoad, Backlog, ClaimCursor, Claimed, Delivered, Entry,
    EntryId, Fenced, Guarded, Rebuilt, Release, ShardContent, ShardState,
};
