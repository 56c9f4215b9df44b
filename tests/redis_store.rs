//! The Redis store: the contract that every reservation store keeps, the rules of the stock protocol one by one,
//! and what Redis, its network and its cluster do to them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests; parts of the contract's vocabulary are for other stores"
)]

#[macro_use]
#[path = "store_contract/contract.rs"]
mod contract;
#[path = "store_contract/allow_lists.rs"]
mod allow_lists;
#[path = "redis_store/allow_lists.rs"]
mod allow_lists_in_redis;
#[path = "redis_store/attempts.rs"]
mod attempts;
#[path = "redis_store/cluster.rs"]
mod cluster;
#[path = "store_contract/devices.rs"]
mod devices;
#[path = "redis_store/devices.rs"]
mod devices_in_redis;
#[path = "redis_store/group.rs"]
mod group;
#[path = "store_contract/installation.rs"]
mod installation;
#[path = "redis_store/pieces.rs"]
mod pieces;
#[path = "store_contract/random.rs"]
mod random;
#[path = "redis_store/reconcile.rs"]
mod reconcile;
#[path = "redis_store/recovery.rs"]
mod recovery;
#[path = "redis_store/redis_installation.rs"]
mod redis_installation;
#[path = "redis_store/repetition.rs"]
mod repetition;
#[path = "store_contract/replay.rs"]
mod replay;
#[path = "store_contract/risk.rs"]
mod risk;
#[path = "redis_store/risk.rs"]
mod risk_in_redis;
#[path = "redis_store/rules.rs"]
mod rules;
#[path = "redis_store/slices.rs"]
mod slices;
#[path = "store_contract/suite.rs"]
mod suite;
#[path = "store_contract/switches.rs"]
mod switches;
#[path = "redis_store/switches.rs"]
mod switches_in_redis;
#[path = "redis_store/together.rs"]
mod together;
#[path = "redis_store/trouble.rs"]
mod trouble;

/// All of it but two: a shard cannot look at another's counters, so that an excess announcement is not noticed (a
/// caller announces only what it has seen under its own generation), and the feed is trimmed by writers, not by
/// length (`group` has the gaps).
mod on_redis {
    use super::redis_installation::RedisInstallation;

    contract_of_every_store!(RedisInstallation);
}
