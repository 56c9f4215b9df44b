//! One value for each of the 16 shards, indexed by [`ShardId`].

use std::ops::{Index, IndexMut};

use super::calls::{SHARDS, ShardId};

/// An array that only a [`ShardId`] can index, so that no index is ever out of bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerShard<V>([V; SHARDS]);

impl<V> PerShard<V> {
    /// One value per shard, made from its number.
    pub fn new(mut make: impl FnMut(ShardId) -> V) -> Self {
        Self(ShardId::ALL.map(&mut make))
    }

    /// Shard and value, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, &V)> {
        ShardId::all().zip(self.0.iter())
    }

    /// Shard and value, ascending.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ShardId, &mut V)> {
        ShardId::all().zip(self.0.iter_mut())
    }
}

#[allow(clippy::indexing_slicing, reason = "a ShardId is below SHARDS by construction")]
impl<V> Index<ShardId> for PerShard<V> {
    type Output = V;

    fn index(&self, shard: ShardId) -> &V {
        &self.0[shard.index()]
    }
}

#[allow(clippy::indexing_slicing, reason = "a ShardId is below SHARDS by construction")]
impl<V> IndexMut<ShardId> for PerShard<V> {
    fn index_mut(&mut self, shard: ShardId) -> &mut V {
        &mut self.0[shard.index()]
    }
}
