//! Rates that change while somebody counts on them: no burst, nobody locked out.

use super::*;
use crate::protocol::ActivityId;

impl Limits {
    fn set(&mut self, now_ns: u64, switches: RateSwitches) {
        self.rates = self.rates.switched(now_ns, switches);
    }

    fn set_user(&mut self, now_ns: u64, rate: Rate) {
        self.set(now_ns, RateSwitches { per_user: Some(rate), ..RateSwitches::default() });
    }

    fn share(&mut self, now_ns: u64, gateways: u32) {
        self.rates = self.rates.shared(now_ns, Share { gateways });
    }
}

#[test]
fn what_was_used_up_stays_used_up_and_what_was_full_stays_full() {
    for (rate_per_s, burst) in [(1, 1), (1, 40), (7, 500), (1_000, 40), (10_000_000, 100_000_000)] {
        let mut limits = Limits::new(&LimitsSettings { per_user: rate(20, 40), ..off() });
        assert_eq!(passed(&limits, S, ANYWHERE, user(1), 100), 40);
        assert_eq!(passed(&limits, S, ANYWHERE, user(2), 30), 30);
        let to = rate(rate_per_s, burst);
        limits.set_user(S, to);
        assert_eq!(passed(&limits, S, ANYWHERE, user(1), 1_000), 0, "{to:?}");
        assert_eq!(passed(&limits, S, ANYWHERE, user(2), 1_000), 10.min(burst as usize), "{to:?}");
        assert_eq!(passed(&limits, S, ANYWHERE, user(3), 1_000), 1_000.min(burst as usize), "{to:?}");
        // From there on as often as it says.
        let next = S + S.div_ceil(u64::from(rate_per_s));
        assert!((1..=2).contains(&passed(&limits, next, ANYWHERE, user(1), 2)), "{to:?}");
    }
}

#[test]
fn back_and_forth_leaves_everything_where_it_was() {
    let mut limits = Limits::new(&LimitsSettings { per_user: rate(20, 40), per_ip: rate(50, 60), ..off() });
    let held = Held::new();
    let ask = |limits: &Limits| limits.check_held(S, &held, ANYWHERE, user(1));
    for _ in 0..25 {
        assert!(ask(&limits).is_ok());
    }
    for turn in 0..1_000 {
        let odd = rate(1 + turn, 1 + (turn * 7_919) % 100_000);
        limits.set(S, RateSwitches { per_user: Some(odd), per_ip: Some(odd), ..RateSwitches::default() });
        limits.set(S, RateSwitches { per_ip: Some(Rate::OFF), ..RateSwitches::default() });
        limits.set(S, RateSwitches::default());
    }
    assert_eq!((0..16).filter(|_| ask(&limits).is_ok()).count(), 15, "of the user's 40");
    let by_address = (2..100).filter(|id| limits.check(S, ANYWHERE, user(*id)).is_ok()).count();
    assert_eq!(by_address, 60 - 25 - 16, "of the address's 60");
}

#[test]
fn flipped_ten_times_a_second_nobody_gets_more_than_the_rates_and_a_burst_and_nobody_waits_longer() {
    for flips in [
        &[rate(20, 40), rate(200, 400)][..],
        &[rate(20, 40), rate(20, 1)],
        &[rate(1, 1), rate(10_000_000, 1)],
        &[rate(1, 100), rate(50, 1), rate(7, 30)],
        &[rate(u32::MAX, 1), rate(1, u32::MAX), rate(0, 0), rate(1, 1)],
    ] {
        let mut limits = Limits::new(&LimitsSettings { per_user: flips[0], ..off() });
        let held = Held::new();
        let (mut count, mut allowed, mut unlimited) = (0_u64, 0_u64, false);
        for (turn, flip) in flips.iter().cycle().take(300).enumerate() {
            let began = turn as u64 * 100 * MS;
            limits.set_user(began, *flip);
            unlimited |= flip.rate_per_s == 0;
            allowed += u64::from(flip.rate_per_s.min(Rate::PER_S_MAX));
            // Asked a thousand times a flip, held and by key.
            for step in 0..1_000 {
                let now_ns = began + step * 100_000;
                let passes = if step % 2 == 0 {
                    limits.check_held(now_ns, &held, None, user(1)).is_ok()
                } else {
                    limits.check(now_ns, None, user(1)).is_ok()
                };
                count += u64::from(passes);
            }
            limits.retain(began + 99 * MS);
        }
        let burst = flips.iter().map(|flip| flip.burst.min(Rate::BURST_MAX)).max().unwrap();
        assert!(unlimited || count <= allowed / 10 + u64::from(burst) + 1, "{flips:?}: {count}");
        // Nobody is locked out: at the slowest of them he passes after its interval.
        let slowest = flips.iter().map(|flip| flip.rate_per_s).filter(|per_s| *per_s > 0).min().unwrap();
        let end = 300 * 100 * MS;
        limits.set_user(end, rate(slowest, 1));
        let refused = limits.check(end, None, user(1)).map_err(|limited| limited.retry_after_ms);
        assert!(refused.err().unwrap_or(1) <= 1_000_u32.div_ceil(slowest) + 1, "{flips:?}: {refused:?}");
        assert!(limits.check(end + S / u64::from(slowest) + MS, None, user(1)).is_ok(), "{flips:?}");
    }
}

#[test]
fn under_steady_load_a_change_shows_at_once_and_exactly() {
    let mut limits = Limits::new(&LimitsSettings { global: rate(100, 10), ..off() });
    let mut from = 0;
    let mut passed_in_a_second = |limits: &Limits| {
        from += S;
        (0..10_000).filter(|step| limits.check(from + step * 100_000, None, user(1)).is_ok()).count()
    };
    assert_eq!(passed_in_a_second(&limits), 109);
    assert_eq!(passed_in_a_second(&limits), 100);
    limits.set(3 * S, RateSwitches { global: Some(rate(1_000, 10)), ..RateSwitches::default() });
    assert!((999..=1_001).contains(&passed_in_a_second(&limits)));
    limits.set(4 * S, RateSwitches { global: Some(rate(3, 10)), ..RateSwitches::default() });
    assert!((2..=4).contains(&passed_in_a_second(&limits)));
    limits.set(5 * S, RateSwitches { global: Some(Rate::OFF), ..RateSwitches::default() });
    assert_eq!(passed_in_a_second(&limits), 10_000);
    limits.set(6 * S, RateSwitches::default());
    assert!((100..=105).contains(&passed_in_a_second(&limits)), "what filled up at 3/s, and the rate");
}

#[test]
fn a_state_from_a_thread_that_had_not_seen_the_change_locks_nobody_out() {
    let fast = Limits::new(&LimitsSettings { global: rate(10_000_000, 10), ..off() });
    let mut slow = Limits::new(&LimitsSettings { global: rate(10_000_000, 10), ..off() });
    slow.set(S, RateSwitches { global: Some(rate(1, 10)), ..RateSwitches::default() });
    // A tenth of a second by the old clock: a million tokens, eleven days by the new one.
    assert!(slow.states.check(&fast.rates, S + 100 * MS, None, user(1)).is_ok());
    let refused = slow.check(S + 100 * MS, None, user(1)).unwrap_err();
    assert!(refused.retry_after_ms <= 1_001, "{refused:?}");
    assert!(slow.check(S + 1_101 * MS, None, user(1)).is_ok());
    assert!(slow.check(S + 1_101 * MS, None, user(1)).is_err(), "and no burst");
}

#[test]
fn what_is_off_is_on_for_connections_that_live_already() {
    let mut limits = Limits::new(&LimitsSettings {
        per_ip_overrides: vec![IpOverride { cidr: "10.0.0.0/8".parse().unwrap(), rate: Rate::OFF }],
        ..off()
    });
    let (held, exempt) = (Held::new(), Held::new());
    let count = |limits: &Limits, held: &Held, from: &str, who| {
        (0..100).filter(|_| limits.check_held(S, held, ip(from), user(who)).is_ok()).count()
    };
    assert_eq!(count(&limits, &held, "192.0.2.1", 1), 100);
    assert_eq!(count(&limits, &exempt, "10.0.0.1", 2), 100);
    limits.set(S, RateSwitches { per_ip: Some(rate(1, 30)), ..RateSwitches::default() });
    assert_eq!(count(&limits, &held, "192.0.2.1", 1), 30);
    assert_eq!(count(&limits, &exempt, "10.0.0.1", 2), 100, "an override stays");
    limits.set(S, RateSwitches { per_connection: Some(rate(1, 20)), ..RateSwitches::default() });
    assert_eq!(count(&limits, &held, "192.0.2.1", 1), 20);
    assert_eq!(count(&limits, &exempt, "10.0.0.1", 2), 20);
    let refused = limits.check_held(S, &held, ip("192.0.2.1"), user(1)).unwrap_err();
    assert_eq!(refused, Limited { by: LimitedBy::Connection, retry_after_ms: 1_000 });
    assert_eq!(count(&limits, &Held::new(), "192.0.2.1", 1), 20, "each connection its own");
    assert!(limits.check(S, ip("192.0.2.1"), user(1)).is_ok(), "a service connection has none");
    limits.set(S, RateSwitches { per_user: Some(rate(1, 5)), ..RateSwitches::default() });
    assert_eq!(count(&limits, &held, "192.0.2.1", 1), 5);
    limits.set(S, RateSwitches::default());
    assert_eq!(count(&limits, &held, "192.0.2.1", 1), 100);
}

#[test]
fn a_burst_that_grows_again_is_not_given_to_those_who_were_forgotten_meanwhile() {
    let mut limits = Limits::new(&LimitsSettings { per_user: rate(10, 100), ..off() });
    assert_eq!(passed(&limits, S, ANYWHERE, user(1), 1_000), 100);
    limits.set_user(S, rate(10, 1));
    limits.retain(2 * S);
    limits.set_user(2 * S, rate(10, 100));
    assert_eq!(passed(&limits, 2 * S, ANYWHERE, user(1), 1_000), 10, "what a second brought");
    // Somebody at rest is forgotten when nothing has changed for a while.
    limits.retain(20 * S);
    assert_eq!(limits.key_counts().users, 1);
    limits.retain(33 * S);
    assert_eq!(limits.key_counts().users, 0);
}

#[test]
fn keys_of_a_limit_that_was_switched_off_are_forgotten_too() {
    let mut limits = Limits::new(&LimitsSettings { per_user: rate(10, 10), ..off() });
    assert_eq!(passed(&limits, S, ANYWHERE, user(1), 100), 10);
    limits.set_user(S, Rate::OFF);
    limits.retain(S);
    assert_eq!(limits.key_counts().users, 1);
    limits.retain(3 * S);
    assert_eq!(limits.key_counts().users, 0);
}

#[test]
fn what_is_for_all_gateways_is_divided_and_what_is_a_users_is_not() {
    let mut limits = Limits::new(&LimitsSettings {
        global: rate(10, 9),
        per_ip: rate(10, 6),
        per_ip_overrides: vec![IpOverride { cidr: "10.0.0.0/8".parse().unwrap(), rate: rate(10, 3) }],
        per_user: rate(10, 50),
        ..off()
    });
    limits.share(0, 3);
    assert_eq!(
        (limits.rates.global(), limits.rates.share().gateways),
        (rate(10, 9), 3),
        "what is told is the whole"
    );
    let blamed = |limits: &Limits, now_ns, ip: Option<IpAddr>| {
        limits.check(now_ns, ip, user(1)).map_err(|refused| (refused.by, refused.retry_after_ms))
    };
    assert_eq!(blamed(&limits, 0, Some(ip("10.0.0.1"))), Ok(()));
    assert_eq!(blamed(&limits, 0, Some(ip("10.0.0.1"))), Err((LimitedBy::Ip, 300)));
    assert_eq!(blamed(&limits, 0, None), Ok(()));
    assert_eq!(blamed(&limits, 0, None), Err((LimitedBy::Global, 300)));
    // A third of the rate each, a token each 300 ms.
    let count = (0..30_000_u64).filter(|ms| limits.check(ms * MS, None, user(1)).is_ok()).count();
    assert!((98..=100).contains(&count), "{count}");
    limits.share(30 * S, 1);
    let count = (30_000..60_000_u64).filter(|ms| limits.check(ms * MS, None, user(1)).is_ok()).count();
    assert!((299..=301).contains(&count), "{count}");
    while limits.check(60 * S, None, user(1)).is_ok() {}
    limits.share(60 * S, 1_000_000);
    assert!(limits.check(60 * S, None, user(1)).is_err(), "no burst, and a rate that is nearly none");
    assert!(limits.check(60 * S + 100_001 * S, None, user(1)).is_ok());
}

#[test]
fn what_is_lent_is_gone_and_half_of_the_burst_stays() {
    let settings = LimitsSettings { global: rate(10, 10), per_ip: rate(10, 8), ..off() };
    let limits = Limits::new(&settings);
    assert_eq!(limits.lend_global(&limits.rates, 0, 3), 3);
    assert_eq!(limits.lend_global(&limits.rates, 0, 100), 2);
    assert_eq!(limits.lend_global(&limits.rates, 0, 100), 0);
    assert_eq!(limits.lend_global(&limits.rates, 200 * MS, 100), 2, "what came since");
    let key = IpKey::new(0, ANYWHERE);
    assert_eq!(limits.lend_ip(&limits.rates, 0, key, 100), 4);
    assert_eq!(passed(&limits, 200 * MS, ANYWHERE, user(1), 100), 5, "the other half of the global burst");
    let free = Limits::new(&off());
    assert_eq!(free.lend_global(&free.rates, 0, 100), 0, "nothing where there is no limit");
    assert_eq!(free.lend_ip(&free.rates, 0, key, 100), 0);
    assert_eq!(free.key_counts().ips, 0);
}

#[test]
fn an_activity_keeps_its_stand_through_every_snapshot() {
    let mut rates = Rates::new(&LimitsSettings { per_activity: rate(10, 5), ..off() });
    assert_eq!(rates.activity(ActivityId(7)), rate(10, 5));
    let limit = ActivityLimit::new(rates.activity(ActivityId(7)), Share::WHOLE);
    assert_eq!((0..3).filter(|_| limit.check(S).is_ok()).count(), 3);
    assert_eq!((0..100).filter(|_| limit.clone().check(S).is_ok()).count(), 2, "one stand");
    assert!(limit.check(S).is_err());
    let activities = vec![(ActivityId(7), rate(1, 50))];
    rates = rates.switched(S, RateSwitches { activities, ..RateSwitches::default() });
    let changed = limit.changed(S, rates.activity(ActivityId(7)), rates.share());
    assert_eq!((changed.rate(), changed.check(S)), (rate(1, 50), Err(1_000)));
    assert_eq!((0..100).filter(|_| changed.check(3 * S).is_ok()).count(), 2);
    assert_eq!(rates.activity(ActivityId(8)), rate(10, 5));
    assert_eq!(ActivityLimit::new(Rate::OFF, Share::WHOLE).check(0), Ok(()));
}

#[derive(Clone, Debug)]
enum Act {
    Ask,
    Wait(u64),
    Set(u32, u32),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Ask),
        3 => (0..400_u64).prop_map(Act::Wait),
        1 => (prop::sample::select(vec![1_u32, 2, 5, 10, 50, 1_000]), 1..20_u32)
            .prop_map(|(rate_per_s, burst)| Act::Set(rate_per_s, burst)),
    ]
}

/// In microtokens; a millisecond at 1/s is a thousand of them.
const TOKEN: u64 = 1_000_000;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a token bucket whose rate changes and whose tokens are cut at the burst in force, in exact integers: never
    /// less than that, and never more than one that is cut at the greatest burst there was.
    #[test]
    fn it_is_a_token_bucket_through_all_changes(acts in prop::collection::vec(act(), 1..300)) {
        let mut limits = Limits::new(&LimitsSettings { per_user: rate(10, 5), ..off() });
        let (mut now_ns, mut now) = (0, rate(10, 5));
        let (mut least, mut most, mut burst_max) = (5 * TOKEN, 5 * TOKEN, 5);
        for act in acts {
            match act {
                Act::Wait(wait_ms) => {
                    now_ns += wait_ms * MS;
                    let came = wait_ms * 1_000 * u64::from(now.rate_per_s);
                    least = (least + came).min(u64::from(now.burst) * TOKEN);
                    most = (most + came).min(u64::from(burst_max) * TOKEN);
                }
                Act::Set(rate_per_s, burst) => {
                    now = rate(rate_per_s, burst);
                    limits.set_user(now_ns, now);
                    // As if the greatest burst had been there from the start.
                    most += u64::from(burst.saturating_sub(burst_max)) * TOKEN;
                    burst_max = burst_max.max(burst);
                    least = least.min(u64::from(burst) * TOKEN);
                }
                Act::Ask => {
                    let passes = limits.check(now_ns, ANYWHERE, user(1)).is_ok();
                    // Both models know what passed; a thousandth of a token is rounding.
                    prop_assert!(passes || least < TOKEN + 1_000, "refused with {least} left");
                    prop_assert!(!passes || most + 1_000 >= TOKEN, "passed with {most} left");
                    if passes {
                        least = least.saturating_sub(TOKEN);
                        most = most.saturating_sub(TOKEN);
                    }
                }
            }
        }
    }
}
