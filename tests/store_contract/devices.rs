//! What every store of devices counts.

use std::time::{Duration, Instant};

use rushgate::protocol::UserId;
use rushgate::store::devices::{CountBounds, DeviceCounts, DeviceStore, SIGHTINGS_MAX, Sighting};

pub const BOUNDS: CountBounds =
    CountBounds { users_max: 5, devices_max: 3, window: Duration::from_secs(3600) };

/// What a client may call itself: 1 to 64 bytes of UTF-8, whatever they mean to others.
pub const HOSTILE: [&str; 9] = [
    "{07}:meta",
    "{00}:switches",
    "new\r\nline",
    "nul\0byte",
    "*?[a-z]\\",
    "'; DROP TABLE orders; --",
    "\u{202E}desrever",
    "seen:user:1",
    "2147483647:feed",
];

pub fn seen(device: &str, user: u64) -> Sighting {
    Sighting { device: device.into(), user: UserId::new(user).unwrap() }
}

pub async fn count<S: DeviceStore>(store: &S, device: &str, user: u64) -> (u32, u32) {
    let counts = store.devices_seen(&[seen(device, user)], &BOUNDS).await.unwrap();
    assert_eq!(counts.len(), 1);
    (counts[0].users, counts[0].devices)
}

/// On an empty store; `other` is another process's view of it.
pub async fn devices_and_users_are_counted<S: DeviceStore, O: DeviceStore>(store: &S, other: &O) {
    assert_eq!(count(store, "phone", 1).await, (1, 1));
    assert_eq!(count(other, "phone", 1).await, (1, 1), "the same again");
    assert_eq!(count(other, "phone", 2).await, (2, 1));
    assert_eq!(count(store, "tablet", 1).await, (1, 2));
    assert_eq!(count(store, "phone", 1).await, (2, 2), "whoever comes back counts once");

    // A thousand accounts on one device, many at a time: counted up to one more than may be.
    let farm: Vec<Sighting> = (1001..=2000).map(|user| seen("farm", user)).collect();
    for (step, some) in farm.chunks(SIGHTINGS_MAX).enumerate() {
        let counts = store.devices_seen(some, &BOUNDS).await.unwrap();
        for (at, DeviceCounts { users, devices }) in counts.into_iter().enumerate() {
            let before = step * SIGHTINGS_MAX + at;
            assert_eq!((users as usize, devices), ((before + 1).min(6), 1), "account {before}");
        }
    }
    // And one user with a hundred devices.
    for number in 0..100_u32 {
        let (_, devices) = count(store, &format!("device {number}"), 77).await;
        assert_eq!(devices, (number + 1).min(4));
    }

    // Names are bytes to it, each another one.
    for (at, name) in HOSTILE.iter().enumerate() {
        for user in 1..=2 {
            assert_eq!(count(store, name, 5000 + 10 * at as u64 + user).await, (user as u32, 1), "{name:?}");
        }
    }

    // What is not asked is not counted, and nothing is asked of nobody.
    let users_only = CountBounds { devices_max: 0, ..BOUNDS };
    let counts = store.devices_seen(&[seen("phone", 3)], &users_only).await.unwrap();
    assert_eq!(counts, [DeviceCounts { users: 3, devices: 0 }]);
    assert!(store.devices_seen(&[], &BOUNDS).await.unwrap().is_empty());
}

/// Whoever was seen before the window began does not count.
pub async fn a_sighting_counts_for_its_window<S: DeviceStore>(store: &S) {
    let bounds = CountBounds { users_max: 1, devices_max: 1, window: Duration::from_millis(400) };
    let users =
        async |device: &str, user| store.devices_seen(&[seen(device, user)], &bounds).await.unwrap()[0].users;
    let begun = Instant::now();
    for attempt in 1.. {
        assert!(begun.elapsed() < Duration::from_secs(30), "two sightings are never within one window");
        let (device, seen_at) = (format!("d{attempt}"), Instant::now());
        users(&device, 1).await;
        let together = users(&device, 2).await;
        if seen_at.elapsed() >= bounds.window {
            continue;
        }
        assert_eq!(together, 2);
        break;
    }
    // Each attempt is somebody new: alone once the others' time has passed.
    for user in 3.. {
        tokio::time::sleep(bounds.window + Duration::from_millis(50)).await;
        if users("d1", user).await == 1 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "they never stop counting");
    }
}
