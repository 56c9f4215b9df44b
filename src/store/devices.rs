//! Where it is kept which users were seen on which device, for a while: who shares a device with many, and who comes from
//! many devices.
//!
//! A store counts, and knows nothing of what comes of it. What it keeps is a help against abuse, not a promise: it may be
//! lost, and what was seen twice counts once. Every method may be called from any task, and may be repeated as it was.

use std::future::Future;
use std::time::Duration;

use super::StoreError;
use crate::protocol::UserId;

/// Sightings that are told in one step; more take several.
pub const SIGHTINGS_MAX: usize = 512;

/// Devices that a user brings into the counts of users within a window, where his own are not asked for: names cost
/// nothing, and each would be one more set.
pub const DEVICES_OF_USER_MAX: u32 = 64;

/// A user was seen on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// The device's name, whatever a client called it: 1 to 64 bytes.
    pub device: Box<str>,
    /// The user.
    pub user: UserId,
}

/// What is counted, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountBounds {
    /// Users of a device are counted up to one more than this; 0 = not at all.
    pub users_max: u32,
    /// Devices of a user are counted up to one more than this; 0 = not at all.
    pub devices_max: u32,
    /// For how long a sighting counts.
    pub window: Duration,
}

impl CountBounds {
    /// Whoever was seen on more devices than this counts on no further one; 0 = nobody's are counted.
    pub const fn devices_bound(&self) -> u32 {
        if self.devices_max == 0 && self.users_max > 0 { DEVICES_OF_USER_MAX } else { self.devices_max }
    }
}

/// What a store counted right after a sighting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Users seen on that device, this one included; 0 where he has more devices than count.
    pub users: u32,
    /// Devices that this user was seen on, this one included.
    pub devices: u32,
}

/// A store of sightings.
pub trait DeviceStore: Send + Sync + 'static {
    /// Remembers them; what was counted with each, in their order.
    fn devices_seen(
        &self,
        sightings: &[Sighting],
        bounds: &CountBounds,
    ) -> impl Future<Output = Result<Vec<DeviceCounts>, StoreError>> + Send;
}
