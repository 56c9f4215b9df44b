//! Sightings of the embedded store: in the memory of the process that serves, and gone with it. What came of them stands
//! in the risk lists, which are kept.
//!
//! Bounded: where too many devices or users would have to be remembered, those whose sightings are all too old go first,
//! and if that is not enough, all of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::writer::now_ms;
use crate::protocol::UserId;
use crate::store::devices::{CountBounds, DeviceCounts, Sighting};

/// Devices, and users, that are remembered.
const KEYS_MAX: usize = 500_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sightings(Mutex<Both>);

impl Sightings {
    /// How many there are of each now, these included.
    pub(super) fn seen(&self, sightings: &[Sighting], bounds: &CountBounds) -> Vec<DeviceCounts> {
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = now_ms();
        sightings.iter().map(|sighting| both.seen(now_ms, sighting, bounds)).collect()
    }
}

#[derive(Debug, Default)]
struct Both {
    users: Windows<Box<str>, UserId>,
    devices: Windows<UserId, Box<str>>,
}

/// The members of each key, with when they were seen last.
#[derive(Debug)]
struct Windows<K, M>(HashMap<K, Vec<(M, u64)>>);

impl<K, M> Default for Windows<K, M> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone, M: PartialEq + Clone> Windows<K, M> {
    /// How many members the key has now: at most one more than may be, the newest.
    fn seen(&mut self, now_ms: u64, key: &K, member: &M, max: u32, window: Duration) -> u32 {
        if max == 0 {
            return 0;
        }
        let oldest_ms = now_ms.saturating_sub(u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
        if self.0.len() >= KEYS_MAX && !self.0.contains_key(key) {
            self.make_room(oldest_ms);
        }
        let members = self.0.entry(key.clone()).or_default();
        members.retain(|(known, seen_ms)| *seen_ms >= oldest_ms && known != member);
        members.push((member.clone(), now_ms));
        let kept = usize::try_from(max).unwrap_or(usize::MAX).saturating_add(1);
        let surplus = members.len().saturating_sub(kept);
        // In the order in which they were seen last.
        members.drain(..surplus);
        u32::try_from(members.len()).unwrap_or(u32::MAX)
    }

    fn make_room(&mut self, oldest_ms: u64) {
        self.0.retain(|_, members| members.last().is_some_and(|(_, seen_ms)| *seen_ms >= oldest_ms));
        if self.0.len() >= KEYS_MAX {
            self.0.clear();
        }
    }
}

impl Both {
    fn seen(
        &mut self,
        now_ms: u64,
        Sighting { device, user }: &Sighting,
        bounds: &CountBounds,
    ) -> DeviceCounts {
        let CountBounds { users_max, devices_max, window } = *bounds;
        let bound = bounds.devices_bound();
        let devices = self.devices.seen(now_ms, user, device, bound, window);
        // One user with ever new names would make a set of each.
        let users =
            if devices > bound { 0 } else { self.users.seen(now_ms, device, user, users_max, window) };
        DeviceCounts { users, devices: if devices_max > 0 { devices } else { 0 } }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const BOUNDS: CountBounds = CountBounds { users_max: 3, devices_max: 2, window: Duration::from_secs(1) };

    fn seen(both: &mut Both, now_ms: u64, device: &str, user: u64) -> (u32, u32) {
        let sighting = Sighting { device: device.into(), user: UserId::new(user).unwrap() };
        let DeviceCounts { users, devices } = both.seen(now_ms, &sighting, &BOUNDS);
        (users, devices)
    }

    #[test]
    fn members_count_once_and_for_a_window_after_they_were_seen_last() {
        let both = &mut Both::default();
        assert_eq!(seen(both, 0, "a", 1), (1, 1));
        assert_eq!(seen(both, 10, "a", 1), (1, 1), "the same again");
        assert_eq!(seen(both, 20, "a", 2), (2, 1));
        assert_eq!(seen(both, 30, "b", 2), (1, 2));
        assert_eq!(seen(both, 1011, "a", 3), (2, 1), "user 1 was seen at 10");
        assert_eq!(seen(both, 1012, "a", 2), (2, 2), "user 2 was renewed in time, and b too");
        assert_eq!(seen(both, 9000, "a", 1), (1, 1));
    }

    #[test]
    fn one_device_with_a_thousand_accounts_costs_one_more_than_may_be() {
        let both = &mut Both::default();
        for user in 1..=1000 {
            let counted = u32::try_from(user.min(4)).unwrap();
            assert_eq!(seen(both, user, "farm", user), (counted, 1));
        }
        assert_eq!(both.users.0.values().map(Vec::len).sum::<usize>(), 4);
        for number in 1..=1000_u64 {
            seen(both, 2000, &number.to_string(), 7);
        }
        assert_eq!(both.devices.0.get(&UserId::new(7).unwrap()).unwrap().len(), 3);
        assert_eq!(both.users.0.len(), 3, "the farm, and as many of his as may be");
    }

    #[test]
    fn what_is_not_asked_is_not_kept() {
        let both = &mut Both::default();
        let bounds = CountBounds { users_max: 0, ..BOUNDS };
        let sighting = Sighting { device: "a".into(), user: UserId::new(1).unwrap() };
        assert_eq!(both.seen(0, &sighting, &bounds), DeviceCounts { users: 0, devices: 1 });
        assert!(both.users.0.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_what_is_too_old_goes_first() {
        let mut windows: Windows<u64, u64> = Windows::default();
        let window = Duration::from_secs(1);
        for key in 0..u64::try_from(KEYS_MAX).unwrap() {
            windows.seen(if key < 10 { 5000 } else { 0 }, &key, &1, 3, window);
        }
        assert_eq!(windows.seen(5000, &u64::MAX, &1, 3, window), 1);
        assert_eq!(windows.0.len(), 11, "those that were seen of late, and the new one");
        for key in 0..u64::try_from(KEYS_MAX).unwrap() {
            windows.seen(6000, &key, &1, 3, window);
            assert!(windows.0.len() <= KEYS_MAX);
        }
    }
}
