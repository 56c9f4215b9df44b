//! Sightings in Redis: one function counts many at once.
//!
//! The sets of a device lie in the slot of a shard that its name chooses, those of a user in his shard's: a crowd that
//! logs in is spread over a cluster. A step is one call for each shard that it touches, one after the other; a call whose
//! answer is lost is sent again, with the same outcome; a step that fails on its way is repeated as a whole.
//!
//! Users' sets come first: whoever has too many devices touches no further device's set, or one account with ever new names
//! would fill Redis with sets of one member.

use redis::Value;

use super::answers::{list, malformed, number};
use super::library;
use super::shards::RedisShards;
use crate::stock::calls::ShardId;
use crate::store::StoreError;
use crate::store::devices::{CountBounds, DeviceCounts, DeviceStore, Sighting};

/// Sets that one call touches: it holds Redis for some 200 µs.
const SETS_MAX: usize = 64;

/// Where a count goes.
#[derive(Clone, Copy, Debug)]
enum Of {
    Device(usize),
    User(usize),
}

/// A set, how many members it may have, and the one that was seen.
struct Seen {
    of: Of,
    key: String,
    max: u32,
    member: Vec<u8>,
}

impl DeviceStore for RedisShards {
    async fn devices_seen(
        &self,
        sightings: &[Sighting],
        bounds: &CountBounds,
    ) -> Result<Vec<DeviceCounts>, StoreError> {
        let mut counts = vec![DeviceCounts::default(); sightings.len()];
        self.count(self.of_users(sightings, bounds), bounds, &mut counts).await?;
        self.count(self.of_devices(sightings, bounds, &counts), bounds, &mut counts).await?;
        if bounds.devices_max == 0 {
            for at in &mut counts {
                at.devices = 0;
            }
        }
        Ok(counts)
    }
}

impl RedisShards {
    async fn count(
        &self,
        by_shard: [Vec<Seen>; 16],
        bounds: &CountBounds,
        counts: &mut [DeviceCounts],
    ) -> Result<(), StoreError> {
        for (shard, seen) in ShardId::all().zip(by_shard) {
            for some in seen.chunks(SETS_MAX) {
                for (seen, count) in some.iter().zip(self.seen(shard, some, bounds).await?) {
                    match seen.of {
                        Of::Device(index) => {
                            counts.get_mut(index).into_iter().for_each(|at| at.users = count);
                        }
                        Of::User(index) => {
                            counts.get_mut(index).into_iter().for_each(|at| at.devices = count);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn of_users(&self, sightings: &[Sighting], bounds: &CountBounds) -> [Vec<Seen>; 16] {
        let max = bounds.devices_bound();
        let asked = sightings.iter().enumerate().filter(|_| max > 0);
        by_shard(asked.map(|(index, Sighting { device, user })| {
            let (shard, member) = (ShardId::of(*user), device.as_bytes().to_vec());
            let key = self.inner.keys.devices_of_user(shard, *user);
            (shard, Seen { of: Of::User(index), key, max, member })
        }))
    }

    fn of_devices(
        &self,
        sightings: &[Sighting],
        bounds: &CountBounds,
        counts: &[DeviceCounts],
    ) -> [Vec<Seen>; 16] {
        let (max, devices_bound) = (bounds.users_max, bounds.devices_bound());
        let counting = sightings.iter().zip(counts).enumerate();
        let asked = counting.filter(|(_, (_, known))| max > 0 && known.devices <= devices_bound);
        by_shard(asked.map(|(index, (Sighting { device, user }, _))| {
            let (shard, member) = (shard_of(device), user.0.to_string().into_bytes());
            let key = self.inner.keys.users_of_device(shard, device);
            (shard, Seen { of: Of::Device(index), key, max, member })
        }))
    }

    async fn seen(
        &self,
        shard: ShardId,
        seen: &[Seen],
        bounds: &CountBounds,
    ) -> Result<Vec<u32>, StoreError> {
        let what = "counting devices";
        let keys = seen.iter().map(|seen| seen.key.clone()).collect();
        let answer = self.function(shard, what, library::SEEN, keys, |command| {
            command.arg(u64::try_from(bounds.window.as_millis()).unwrap_or(u64::MAX).max(1));
            for Seen { max, member, .. } in seen {
                command.arg(*max).arg(member);
            }
        });
        let counts: Option<Vec<u32>> =
            list(answer.await?).and_then(|counts| counts.into_iter().map(count).collect());
        counts
            .filter(|counts| counts.len() == seen.len())
            .ok_or_else(|| malformed(what, shard, "no list of numbers"))
    }
}

fn by_shard(all: impl Iterator<Item = (ShardId, Seen)>) -> [Vec<Seen>; 16] {
    let mut by_shard: [Vec<Seen>; 16] = std::array::from_fn(|_| Vec::new());
    for (shard, seen) in all {
        if let Some(of_shard) = by_shard.get_mut(shard.index()) {
            of_shard.push(seen);
        }
    }
    by_shard
}

/// Any that all gateways agree on.
fn shard_of(device: &str) -> ShardId {
    let [.., low] = crc32c::crc32c(device.as_bytes()).to_be_bytes();
    ShardId::new(low & 0x0F).unwrap_or(ShardId::ALL[0])
}

fn count(value: Value) -> Option<u32> {
    number(value).and_then(|count| u32::try_from(count).ok())
}
