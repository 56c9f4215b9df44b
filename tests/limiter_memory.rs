//! Memory of the rate limits: two million users and as many addresses come by, and it stops at the cap.
//!
//! The allocator counts what the whole process does, so this binary has one test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "tests"
)]

use std::net::{IpAddr, Ipv6Addr};

use rushgate::admission::limits::{Limits, LimitsSettings, Rate, RateSwitches};
use rushgate::protocol::UserId;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const KEYS_MAX: usize = 100_000;
const COMERS: u64 = 2_000_000;
/// What rushgate.example.toml says of a user and of an address.
const KEY_BYTES: usize = 50;
/// The buckets that are shared above the cap, of three limits, and the lock shards.
const FIXED_BYTES: usize = 1 << 20;

/// Each a network of its own.
fn address(number: u64) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | (u128::from(number) << 64)))
}

#[test]
fn two_million_users_and_addresses_take_no_more_memory_than_the_cap() {
    let profiler = dhat::Profiler::builder().testing().build();
    let rate = Rate { rate_per_s: 1, burst: 2 };
    let limits = Limits::new(&LimitsSettings {
        per_ip: rate,
        per_user: rate,
        result_per_user: rate,
        keys_max: KEYS_MAX,
        ..LimitsSettings::default()
    });
    let mut rates = limits.rates();
    let mut refused = 0_u64;
    for number in 1..=COMERS {
        // All within two seconds: nobody is forgotten. And the rates change all the time.
        let now_ns = number * 1_000;
        if number % 100_000 == 0 {
            let other = Rate { rate_per_s: 1 + u32::try_from(number % 7).unwrap(), burst: 3 };
            let switches = RateSwitches { per_user: Some(other), ..RateSwitches::default() };
            rates = rates.switched(now_ns, switches);
        }
        let user = UserId::new(number).unwrap();
        refused += u64::from(limits.check(&rates, now_ns, address(number), user).is_err());
        if number % 4 == 0 {
            refused += u64::from(limits.check_result(&rates, now_ns, user).is_err());
        }
        if number % 500_000 == 0 {
            limits.retain(&rates, now_ns);
        }
    }
    let counts = limits.key_counts();
    assert_eq!((counts.ips, counts.users, counts.result_users), (KEYS_MAX, KEYS_MAX, KEYS_MAX));
    assert!(refused > COMERS / 2, "those above the cap share limits: {refused}");
    let stats = dhat::HeapStats::get();
    let bound = 3 * KEYS_MAX * KEY_BYTES + FIXED_BYTES;
    assert!(stats.max_bytes <= bound, "{} bytes at most, {bound} allowed", stats.max_bytes);
    // Everybody has rested: all of it comes back.
    limits.retain(&rates, 3_600_000_000_000);
    assert_eq!(limits.key_counts().users + limits.key_counts().ips, 0);
    let left = dhat::HeapStats::get().curr_bytes;
    assert!(left <= FIXED_BYTES, "{left} bytes left");
    drop(profiler);
}
