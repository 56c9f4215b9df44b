#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests"
)]

mod held;
mod live;

use std::ops::Deref;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn off() -> LimitsSettings {
    LimitsSettings { keys_max: 1_000, ..LimitsSettings::default() }
}

/// Limits at the rates that are configured, and at what becomes of them.
struct Limits {
    states: super::Limits,
    rates: Rates,
}

impl Limits {
    fn new(settings: &LimitsSettings) -> Self {
        let states = super::Limits::new(settings);
        Self { rates: states.rates(), states }
    }

    fn check(&self, now_ns: u64, ip: impl Into<Option<IpAddr>>, user: UserId) -> Result<(), Limited> {
        self.states.check(&self.rates, now_ns, ip, user)
    }

    fn check_held(
        &self,
        now_ns: u64,
        held: &Held,
        ip: impl Into<Option<IpAddr>>,
        user: UserId,
    ) -> Result<(), Limited> {
        self.states.check_held(&self.rates, now_ns, held, ip, user)
    }

    fn check_result(&self, now_ns: u64, user: UserId) -> Result<(), Limited> {
        self.states.check_result(&self.rates, now_ns, user)
    }

    fn check_result_held(&self, now_ns: u64, held: &Held, user: UserId) -> Result<(), Limited> {
        self.states.check_result_held(&self.rates, now_ns, held, user)
    }

    fn retain(&self, now_ns: u64) {
        self.states.retain(&self.rates, now_ns);
    }
}

impl Deref for Limits {
    type Target = super::Limits;

    fn deref(&self) -> &super::Limits {
        &self.states
    }
}

fn rate(rate_per_s: u32, burst: u32) -> Rate {
    Rate { rate_per_s, burst }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}

const ANYWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// How many of `tries` at this instant pass.
fn passed(limits: &Limits, now_ns: u64, from: IpAddr, who: UserId, tries: usize) -> usize {
    (0..tries).filter(|_| limits.check(now_ns, from, who).is_ok()).count()
}

#[test]
fn everything_off_lets_everything_pass_and_remembers_nothing() {
    let limits = Limits::new(&off());
    assert_eq!(passed(&limits, 0, ANYWHERE, user(1), 100_000), 100_000);
    assert!((0..1_000).all(|_| limits.check_result(0, user(1)).is_ok()));
    assert_eq!(limits.key_counts(), KeyCounts::default());
}

#[test]
fn a_burst_passes_then_exactly_the_rate() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(20, 40), ..off() });
    for start in [0, 1, 1_753_000_000 * S] {
        let who = user(start + 1);
        assert_eq!(passed(&limits, start, ANYWHERE, who, 100), 40, "burst");
        // One more each 50 ms, and not the four-thousandth part of one earlier.
        for step in 1..=100 {
            let due = start + step * 50 * MS;
            assert_eq!(passed(&limits, due - 50 * MS / 4096 - 1, ANYWHERE, who, 3), 0);
            assert_eq!(passed(&limits, due, ANYWHERE, who, 3), 1);
        }
        // After a rest the burst is full again, never more.
        assert_eq!(passed(&limits, start + 3_600 * S, ANYWHERE, who, 100), 40);
    }
}

#[test]
fn an_hour_under_load_passes_rate_times_time_plus_burst() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(7, 3), ..off() });
    let total: usize =
        (0..3_600_000_u64).step_by(20).filter(|ms| limits.check(ms * MS, ANYWHERE, user(1)).is_ok()).count();
    // 7/s does not divide a second into whole nanoseconds; the rate is never above it.
    assert!((25_200..=25_203).contains(&total), "{total}");
}

#[test]
fn waiting_as_long_as_told_is_enough_and_no_less_is() {
    for (per_s, burst) in [(1, 1), (3, 2), (20, 40), (1_000, 1), (7_777, 5)] {
        let limits = Limits::new(&LimitsSettings { per_user: rate(per_s, burst), ..off() });
        let mut now_ns = 5 * S;
        assert_eq!(passed(&limits, now_ns, ANYWHERE, user(1), 100), burst as usize);
        for _ in 0..100 {
            let refusal = limits.check(now_ns, ANYWHERE, user(1)).unwrap_err();
            assert_eq!(refusal.by, LimitedBy::User);
            let wait_ms = u64::from(refusal.retry_after_ms);
            assert!(wait_ms >= 1);
            if wait_ms > 1 {
                // But for the four-thousandth part of one that times are rounded to.
                let early_ns = now_ns + (wait_ms - 1) * MS - S / u64::from(per_s) / 4096 - 1;
                assert!(limits.check(early_ns, ANYWHERE, user(1)).is_err());
            }
            now_ns += wait_ms * MS;
            assert!(limits.check(now_ns, ANYWHERE, user(1)).is_ok());
            while limits.check(now_ns, ANYWHERE, user(1)).is_ok() {}
        }
    }
}

#[test]
fn the_order_is_global_ip_user_and_a_later_refusal_has_used_the_earlier() {
    let settings = LimitsSettings { global: rate(1, 5), per_ip: rate(1, 4), per_user: rate(1, 1), ..off() };
    let limits = Limits::new(&settings);
    let by = |who| limits.check(S, ANYWHERE, user(who)).map_err(|refusal| refusal.by);
    assert_eq!(by(1), Ok(()));
    assert_eq!(by(1), Err(LimitedBy::User));
    assert_eq!(by(1), Err(LimitedBy::User));
    assert_eq!(by(2), Ok(()));
    // Four requests of the address are used up, two of them by refusals.
    assert_eq!(by(3), Err(LimitedBy::Ip));
    assert_eq!(by(3), Err(LimitedBy::Global));
    assert_eq!(limits.check(2 * S, ANYWHERE, user(3)), Ok(()));
}

#[test]
fn without_an_address_the_address_limit_is_not_asked() {
    let limits = Limits::new(&LimitsSettings { per_ip: rate(1, 1), per_user: rate(1, 1), ..off() });
    assert!((1..100).all(|id| limits.check(0, None, user(id)).is_ok()));
    assert_eq!(limits.check(0, None, user(1)).unwrap_err().by, LimitedBy::User);
    assert_eq!(limits.key_counts().ips, 0);
}

#[test]
fn result_has_a_limit_of_its_own() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 1), result_per_user: rate(10, 2), ..off() });
    assert!(limits.check(0, ANYWHERE, user(1)).is_ok());
    assert!(limits.check(0, ANYWHERE, user(1)).is_err());
    assert!(limits.check_result(0, user(1)).is_ok());
    assert!(limits.check_result(0, user(1)).is_ok());
    assert_eq!(limits.check_result(0, user(1)), Err(Limited { by: LimitedBy::User, retry_after_ms: 100 }));
}

#[test]
fn an_address_is_an_ipv4_address_or_an_ipv6_64() {
    let limits = Limits::new(&LimitsSettings { per_ip: rate(1, 1), ..off() });
    let mut seen = 0;
    let mut check = |text| {
        seen += 1;
        limits.check(0, ip(text), user(seen)).is_ok()
    };
    assert!(check("2001:db8:0:1::1"));
    assert!(!check("2001:db8:0:1:ffff:ffff:ffff:ffff"), "same /64");
    assert!(check("2001:db8:0:2::1"), "next /64");
    assert!(check("198.51.100.1"));
    assert!(check("198.51.100.2"));
    assert!(!check("::ffff:198.51.100.1"), "IPv4 in IPv6 form is the IPv4 address");
    assert!(check("::198.51.100.1"), "and this is not");
    assert_eq!(limits.key_counts().ips, 5);
}

#[test]
fn an_override_has_its_own_rate_or_none() {
    let exception = |cidr: &str, rate| IpOverride { cidr: cidr.parse().unwrap(), rate };
    let limits = Limits::new(&LimitsSettings {
        per_ip: rate(1, 1),
        per_ip_overrides: vec![
            exception("10.0.0.0/8", rate(1, 5)),
            exception("10.1.0.0/16", Rate::OFF),
            exception("10.1.1.1", rate(1, 2)),
            exception("2001:db8::1", Rate::OFF),
            exception("2001:db8::2", rate(1, 3)),
        ],
        ..off()
    });
    let burst = |text| passed(&limits, 0, ip(text), user(1), 50);
    assert_eq!(burst("192.0.2.1"), 1);
    assert_eq!(burst("10.2.0.1"), 5);
    assert_eq!(burst("10.2.0.2"), 5, "each address of the block has its own");
    assert_eq!(burst("10.1.0.1"), 50, "the longest prefix counts");
    assert_eq!(burst("::ffff:10.1.0.1"), 50);
    assert_eq!(burst("10.1.1.1"), 2);
    assert_eq!(burst("2001:db8::1"), 50);
    assert_eq!(burst("2001:db8::2"), 3);
    assert_eq!(burst("2001:db8::3"), 1, "the rest of the /64 has the ordinary rate");
}

#[test]
fn memory_stops_at_the_cap_and_the_keys_above_it_are_still_limited() {
    let keys_max = 1_000;
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 2), keys_max, ..off() });
    for id in 1..=3 * keys_max as u64 {
        let _ = limits.check(0, ANYWHERE, user(id));
        assert!(limits.key_counts().users <= keys_max);
    }
    assert_eq!(limits.key_counts().users, keys_max);
    assert_eq!(limits.key_counts().overflowed, 2 * keys_max as u64);
    // A known key is not bothered by the others.
    assert!(limits.check(0, ANYWHERE, user(1)).is_ok());
    assert!(limits.check(0, ANYWHERE, user(1)).is_err());
    // A key without memory has at most the same burst, and the same rate.
    let homeless = user(1_000_000);
    assert!(passed(&limits, 0, ANYWHERE, homeless, 100) <= 2);
    assert!(limits.check(0, ANYWHERE, homeless).is_err());
    assert_eq!(passed(&limits, S, ANYWHERE, homeless, 100), 1);
    // All of them together: no more than one burst per shared bucket.
    let all: usize = (2_000_000..2_100_000).filter(|id| limits.check(S, ANYWHERE, user(*id)).is_ok()).count();
    assert!(all <= 2 * 16_384, "{all}");
}

#[test]
fn a_key_that_gets_memory_later_gets_no_second_burst() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 5), keys_max: 1, ..off() });
    assert!(limits.check(0, ANYWHERE, user(1)).is_ok());
    assert_eq!(passed(&limits, 0, ANYWHERE, user(2), 100), 5, "in a shared bucket");
    limits.retain(S);
    assert_eq!(limits.key_counts().users, 0);
    assert_eq!(passed(&limits, S, ANYWHERE, user(2), 100), 1, "in its own, a second later");
    assert_eq!(limits.key_counts().users, 1);
}

#[test]
fn retain_drops_the_keys_at_rest_and_no_other() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(10, 10), per_ip: rate(10, 10), ..off() });
    assert!(limits.check(0, ip("192.0.2.1"), user(1)).is_ok());
    assert_eq!(passed(&limits, 0, ip("192.0.2.2"), user(2), 10), 10);
    limits.retain(100 * MS - 1);
    assert_eq!((limits.key_counts().ips, limits.key_counts().users), (2, 2));
    limits.retain(100 * MS);
    assert_eq!((limits.key_counts().ips, limits.key_counts().users), (1, 1));
    // The one kept is still where it was, the one dropped has just its burst.
    assert_eq!(passed(&limits, 100 * MS, ip("192.0.2.2"), user(2), 100), 1);
    assert_eq!(passed(&limits, 100 * MS, ip("192.0.2.1"), user(1), 100), 10);
    limits.retain(10 * S);
    assert_eq!(limits.key_counts(), KeyCounts::default());
}

#[test]
fn a_great_table_gives_its_memory_back() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 1), keys_max: 200_000, ..off() });
    for id in 1..=200_000 {
        assert!(limits.check(0, ANYWHERE, user(id)).is_ok());
    }
    assert!(limits.users.table.room() >= 200_000);
    limits.retain(S);
    assert_eq!((limits.key_counts().users, limits.users.table.room()), (0, 0));
}

#[test]
fn threads_together_pass_exactly_the_burst() {
    let settings = LimitsSettings {
        global: rate(1, 900),
        per_ip: rate(1, 700),
        per_user: rate(1, 500),
        result_per_user: rate(1, 300),
        ..off()
    };
    let limits = Limits::new(&settings);
    let (buys, results) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..100 {
                    buys.fetch_add(
                        usize::from(limits.check(S, ANYWHERE, user(1)).is_ok()),
                        Ordering::Relaxed,
                    );
                    results
                        .fetch_add(usize::from(limits.check_result(S, user(1)).is_ok()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(buys.into_inner(), 500);
    assert_eq!(results.into_inner(), 300);
    assert_eq!(limits.key_counts(), KeyCounts { ips: 1, users: 1, result_users: 1, overflowed: 0 });
}

#[test]
fn threads_racing_with_new_keys_and_retain_never_pass_the_cap() {
    let keys_max = 500;
    let limits = Limits::new(&LimitsSettings { per_user: rate(1_000, 1), keys_max, ..off() });
    let stop = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (limits, stop) = (&limits, &stop);
            scope.spawn(move || {
                for n in 0..50_000_u64 {
                    // Half of the keys are met by two threads at once.
                    let id = 1 + n * 2 + if n % 2 == 0 { thread % 2 } else { thread * 1_000_000 };
                    let _ = limits.check(n * 10_000, ANYWHERE, user(id));
                }
                stop.fetch_add(1, Ordering::Relaxed);
            });
        }
        let (mut scans, mut now_ns) = (0, 0);
        while stop.load(Ordering::Relaxed) < 4 {
            assert!(limits.users.table.true_len() <= keys_max);
            assert!(limits.key_counts().users <= keys_max);
            limits.retain(now_ns);
            now_ns += 5 * MS;
            scans += 1;
        }
        assert!(scans > 0);
    });
    assert_eq!(limits.key_counts().users, limits.users.table.true_len(), "the count is exact at rest");
    limits.retain(3_600 * S);
    assert_eq!((limits.key_counts().users, limits.users.table.true_len()), (0, 0));
}

#[test]
fn no_settings_and_no_time_make_it_panic() {
    let greatest = rate(u32::MAX, u32::MAX);
    let slowest = rate(1, u32::MAX);
    for extreme in [greatest, slowest, rate(1, 0), rate(u32::MAX, 0)] {
        let limits = Limits::new(&LimitsSettings {
            global: extreme,
            per_ip: extreme,
            per_user: extreme,
            result_per_user: extreme,
            per_connection: extreme,
            per_activity: extreme,
            auth_per_ip: extreme,
            per_ip_overrides: Vec::new(),
            open_unpaid: OpenUnpaidMax::default(),
            keys_max: 0,
        });
        for now_ns in [0, 1, u64::MAX / 2, u64::MAX, 0] {
            let _ = limits.check(now_ns, ANYWHERE, user(UserId::MAX));
            let _ = limits.check_held(now_ns, &Held::new(), ANYWHERE, user(UserId::MAX));
            let _ = limits.check_result(now_ns, user(1));
            let _ = limits.check_auth(now_ns, ANYWHERE);
            limits.retain(now_ns);
        }
        assert_eq!(limits.key_counts().users, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against the definition of a token bucket, in exact integers.
    #[test]
    fn it_is_a_token_bucket(
        per_s in prop::sample::select(vec![1_u32, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100, 1_000]),
        burst in 1_u32..20,
        steps in prop::collection::vec(0_u64..400, 1..200),
    ) {
        let limits = Limits::new(&LimitsSettings { per_user: rate(per_s, burst), ..off() });
        let interval_ns = S / u64::from(per_s);
        let full = interval_ns * u64::from(burst);
        let (mut now_ns, mut level) = (0, full);
        for step_ms in steps {
            now_ns += step_ms * MS;
            level = full.min(level + step_ms * MS);
            let passes = level >= interval_ns;
            if passes {
                level -= interval_ns;
            }
            prop_assert_eq!(limits.check(now_ns, ANYWHERE, user(1)).is_ok(), passes);
        }
    }
}

#[test]
fn auth_has_a_limit_of_its_own_by_address_and_exempt_addresses_have_none() {
    let exempt = IpOverride { cidr: "10.0.0.0/8".parse().unwrap(), rate: Rate::OFF };
    let other = IpOverride { cidr: "192.0.2.0/24".parse().unwrap(), rate: rate(1_000, 1_000) };
    let per_ip_overrides = vec![exempt, other];
    let limits = Limits::new(&LimitsSettings { auth_per_ip: rate(1, 2), per_ip_overrides, ..off() });
    let check = |now_ns: u64, ip: &str| limits.check_auth(now_ns, ip.parse().unwrap()).is_ok();
    assert_eq!([(); 3].map(|()| check(0, "192.0.2.1")), [true, true, false], "no rate of BUY's counts here");
    assert_eq!([(); 3].map(|()| check(0, "2001:db8::1")), [true, true, false]);
    assert!(!check(0, "2001:db8::2") && check(0, "2001:db8:0:1::1"), "by /64");
    assert!((0..100).all(|_| check(0, "10.1.2.3") && check(0, "::ffff:10.1.2.3")));
    assert!(check(1_000_000_000, "192.0.2.1") && !check(1_000_000_000, "192.0.2.1"));
    limits.retain(1_000_000_000);
    assert!(!check(1_000_000_000, "192.0.2.1"), "what is not at rest is remembered");
}
