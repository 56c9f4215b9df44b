//! What connections hold, against what is asked by key.

use super::*;

/// How many of `tries` at this instant pass over a connection of that user.
fn passed_held(limits: &Limits, now_ns: u64, held: &Held, from: IpAddr, who: UserId, tries: usize) -> usize {
    (0..tries).filter(|_| limits.check_held(now_ns, held, from, who).is_ok()).count()
}

#[test]
fn an_idle_connection_keeps_four_words_and_no_key() {
    assert_eq!(size_of::<Held>(), 32);
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 1), per_ip: rate(1, 1), ..off() });
    let connections: Vec<_> = (0..10_000).map(|_| Held::new()).collect();
    assert_eq!(limits.key_counts(), KeyCounts::default());
    drop(connections);
}

#[test]
fn connections_and_service_requests_of_one_user_share_one_bucket() {
    let settings = LimitsSettings { per_user: rate(1, 10), result_per_user: rate(1, 6), ..off() };
    for asked_first in [false, true] {
        let limits = Limits::new(&settings);
        let (phone, laptop) = (Held::new(), Held::new());
        let before = if asked_first { passed(&limits, S, ANYWHERE, user(1), 3) } else { 0 };
        assert_eq!(passed_held(&limits, S, &phone, ANYWHERE, user(1), 4), 4);
        assert_eq!(passed_held(&limits, S, &laptop, ANYWHERE, user(1), 2), 2);
        assert_eq!(passed(&limits, S, ANYWHERE, user(1), 100), 4 - before);
        assert_eq!(passed_held(&limits, S, &phone, ANYWHERE, user(1), 100), 0);
        assert_eq!(passed_held(&limits, S, &laptop, ANYWHERE, user(1), 100), 0);
        // A second later one more, for whoever asks first.
        assert_eq!(passed_held(&limits, 2 * S, &laptop, ANYWHERE, user(1), 100), 1);
        assert_eq!(passed(&limits, 2 * S, ANYWHERE, user(1), 100), 0);

        let results = (0..2).filter(|_| limits.check_result_held(S, &phone, user(1)).is_ok()).count()
            + (0..2).filter(|_| limits.check_result_held(S, &laptop, user(1)).is_ok()).count()
            + (0..100).filter(|_| limits.check_result(S, user(1)).is_ok()).count();
        assert_eq!(results, 6);
        assert!(limits.check_result_held(S, &phone, user(1)).is_err());
        assert_eq!(limits.key_counts(), KeyCounts { ips: 0, users: 1, result_users: 1, overflowed: 0 });
        assert_eq!((limits.users.table.cells(), limits.result_users.table.cells()), (1, 1));
    }
}

#[test]
fn connections_of_one_address_share_its_bucket() {
    let limits = Limits::new(&LimitsSettings { per_ip: rate(1, 10), ..off() });
    let connections: Vec<_> = (0..20).map(|_| Held::new()).collect();
    let passed: usize = (1..)
        .zip(&connections)
        .map(|(id, held)| passed_held(&limits, S, held, ip(&format!("2001:db8::{id}")), user(id), 1))
        .sum();
    assert_eq!(passed, 10, "one /64");
    let refusal = limits.check(S, ip("2001:db8::ffff:1"), user(1)).unwrap_err();
    assert_eq!(refusal, Limited { by: LimitedBy::Ip, retry_after_ms: 1_000 });
    assert_eq!(
        passed_held(&limits, S, &Held::new(), ip("2001:db8:0:1::1"), user(1), 100),
        10,
        "the next /64"
    );
    assert_eq!(passed_held(&limits, S, &Held::new(), ip("198.51.100.1"), user(1), 7), 7);
    assert_eq!(passed_held(&limits, S, &Held::new(), ip("::ffff:198.51.100.1"), user(1), 100), 3);
    assert_eq!(limits.key_counts().ips, 3);
}

#[test]
fn a_connection_has_the_rate_of_its_override() {
    let exception = |cidr: &str, rate| IpOverride { cidr: cidr.parse().unwrap(), rate };
    let limits = Limits::new(&LimitsSettings {
        per_ip: rate(1, 1),
        per_ip_overrides: vec![
            exception("10.0.0.0/8", rate(1, 5)),
            exception("10.1.0.0/16", Rate::OFF),
            exception("2001:db8::2", rate(1, 3)),
        ],
        ..off()
    });
    let burst = |text| passed_held(&limits, 0, &Held::new(), ip(text), user(1), 50);
    assert_eq!(burst("192.0.2.1"), 1);
    assert_eq!(burst("10.2.0.1"), 5);
    assert_eq!(burst("::ffff:10.2.0.2"), 5);
    assert_eq!(burst("10.1.0.1"), 50);
    assert_eq!(burst("2001:db8::1"), 1);
    assert_eq!(burst("2001:db8::2"), 3, "though the /64 is used up");
    assert_eq!(passed(&limits, 0, ip("10.2.0.1"), user(1), 50), 0);
    assert_eq!(limits.key_counts().ips, 5, "an exempt address is not remembered");
}

#[test]
fn rates_that_are_off_hold_nothing() {
    let limits = Limits::new(&off());
    let held = Held::new();
    assert_eq!(passed_held(&limits, 0, &held, ANYWHERE, user(1), 1_000), 1_000);
    assert!((0..1_000).all(|_| limits.check_result_held(0, &held, user(1)).is_ok()));
    assert!(held.ip.get().is_none() && held.user.get().is_none() && held.result_user.get().is_none());
    assert_eq!(limits.key_counts(), KeyCounts::default());
}

#[test]
fn the_order_is_the_same_as_by_key() {
    let settings = LimitsSettings { global: rate(1, 5), per_ip: rate(1, 4), per_user: rate(1, 1), ..off() };
    let limits = Limits::new(&settings);
    let held: Vec<_> = (0..4).map(|_| Held::new()).collect();
    let by = |who: u64| {
        limits.check_held(S, &held[who as usize], ANYWHERE, user(who)).map_err(|refusal| refusal.by)
    };
    assert_eq!(by(1), Ok(()));
    assert_eq!(by(1), Err(LimitedBy::User));
    assert_eq!(by(2), Ok(()));
    assert_eq!(by(2), Err(LimitedBy::User));
    assert_eq!(by(3), Err(LimitedBy::Ip));
    assert_eq!(by(3), Err(LimitedBy::Global));
    assert_eq!(limits.check_held(2 * S, &held[3], None, user(3)), Ok(()));
}

#[test]
fn retain_forgets_no_key_that_is_held() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 2), per_ip: rate(1, 100), ..off() });
    let first = Held::new();
    assert_eq!(passed_held(&limits, 0, &first, ANYWHERE, user(1), 100), 2);
    limits.retain(3_600 * S);
    assert_eq!((limits.key_counts().users, limits.key_counts().ips), (1, 1));
    let second = Held::new();
    assert_eq!(passed_held(&limits, 3_600 * S, &second, ANYWHERE, user(1), 1), 1);
    assert_eq!(passed_held(&limits, 3_600 * S, &first, ANYWHERE, user(1), 100), 1, "one bucket");
    drop(first);
    limits.retain(7_200 * S);
    assert_eq!(limits.users.table.cells(), 1, "the other one holds it");
    drop(second);
    limits.retain(7_200 * S);
    assert_eq!(limits.key_counts(), KeyCounts::default());
    assert_eq!((limits.users.table.cells(), limits.ips.table.cells()), (0, 0));
}

#[test]
fn what_nobody_holds_any_more_is_remembered_until_its_burst_is_full() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 5), ..off() });
    let held = Held::new();
    assert_eq!(passed_held(&limits, 0, &held, ANYWHERE, user(1), 100), 5);
    drop(held);
    limits.retain(3 * S);
    assert_eq!((limits.key_counts().users, limits.users.table.cells()), (1, 0), "without a cell");
    assert_eq!(passed_held(&limits, 3 * S, &Held::new(), ANYWHERE, user(1), 100), 3);
    limits.retain(7 * S);
    assert_eq!(limits.key_counts().users, 1);
    limits.retain(8 * S);
    assert_eq!((limits.key_counts().users, limits.users.table.true_len()), (0, 0));
}

#[test]
fn closed_connections_give_their_memory_back() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 1), keys_max: 200_000, ..off() });
    let connections: Vec<_> = (0..200_000).map(|_| Held::new()).collect();
    for (id, held) in (1..).zip(&connections) {
        assert!(limits.check_held(0, held, ANYWHERE, user(id)).is_ok());
    }
    limits.retain(S);
    assert_eq!(limits.key_counts().users, 200_000);
    drop(connections);
    limits.retain(S);
    assert_eq!((limits.key_counts().users, limits.users.table.cells(), limits.users.table.room()), (0, 0, 0));
}

#[test]
fn a_connection_without_room_shares_a_bucket_until_there_is_some() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 5), keys_max: 1, ..off() });
    let (one, two, again) = (Held::new(), Held::new(), Held::new());
    assert!(limits.check_held(0, &one, ANYWHERE, user(1)).is_ok());
    assert_eq!(passed_held(&limits, 0, &two, ANYWHERE, user(2), 3), 3);
    assert_eq!(passed(&limits, 0, ANYWHERE, user(2), 100), 2, "the same shared bucket");
    assert_eq!(limits.key_counts().overflowed, 103);
    limits.retain(3_600 * S);
    assert_eq!(limits.key_counts().users, 1, "the only room is held");
    assert!(limits.check_held(S, &two, ANYWHERE, user(2)).is_ok());
    drop(one);
    limits.retain(S);
    assert_eq!(passed_held(&limits, 2 * S, &two, ANYWHERE, user(2), 100), 1, "no second burst");
    assert_eq!(passed_held(&limits, 3 * S, &again, ANYWHERE, user(2), 100), 1, "nor a second bucket");
    assert_eq!(passed_held(&limits, 3 * S, &two, ANYWHERE, user(2), 100), 0);
    assert_eq!((limits.key_counts().users, limits.users.table.cells()), (1, 1));
}

/// Threads that hold, ask, let go, ask by key and clean up, all about the same few users at one instant. What
/// passed of each user.
fn race(limits: &Limits, users: u64, keys_max: usize) -> Vec<usize> {
    let passed: Vec<_> = (0..users).map(|_| AtomicUsize::new(0)).collect();
    let (start, running) = (Barrier::new(5), AtomicUsize::new(4));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (passed, start, running) = (&passed, &start, &running);
            scope.spawn(move || {
                start.wait();
                for round in 0..2_000_u64 {
                    let id = (round * 7 + thread) % users;
                    let held = Held::new();
                    for _ in 0..3 {
                        let by_held = limits.check_held(S, &held, ANYWHERE, user(id + 1)).is_ok();
                        let by_key = limits.check(S, ANYWHERE, user(id + 1)).is_ok();
                        passed[id as usize]
                            .fetch_add(usize::from(by_held) + usize::from(by_key), Ordering::Relaxed);
                    }
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        start.wait();
        while running.load(Ordering::Relaxed) > 0 {
            limits.retain(S);
            assert!(limits.users.table.true_len() <= keys_max);
            assert!(limits.key_counts().users <= keys_max);
        }
    });
    limits.retain(S);
    assert_eq!(limits.users.table.cells(), 0, "nobody holds any");
    assert_eq!(limits.key_counts().users, limits.users.table.true_len(), "the count is exact at rest");
    passed.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn threads_that_hold_and_let_go_pass_exactly_the_burst() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 500), ..off() });
    assert_eq!(race(&limits, 8, 8), [500; 8]);
}

#[test]
fn threads_that_race_for_room_never_pass_the_burst_nor_the_cap() {
    let limits = Limits::new(&LimitsSettings { per_user: rate(1, 50), keys_max: 20, ..off() });
    let passed = race(&limits, 60, 20);
    assert_eq!(limits.key_counts().users, 20);
    assert!(passed.iter().all(|passed| *passed <= 50), "{passed:?}");
}

#[derive(Clone, Debug)]
enum Act {
    ByKey(u64),
    ByConnection(usize),
    Reconnect(usize),
    Retain,
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3_u64).prop_map(Act::ByKey),
        6 => (0..6_usize).prop_map(Act::ByConnection),
        2 => (0..6_usize).prop_map(Act::Reconnect),
        1 => Just(Act::Retain),
        2 => (0..400_u64).prop_map(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Three users, two connections each, against one token bucket per user in exact integers.
    #[test]
    fn holding_and_forgetting_change_no_decision(acts in prop::collection::vec(act(), 1..300)) {
        let (interval_ns, burst) = (100 * MS, 4);
        let full = interval_ns * burst;
        let limits = Limits::new(&LimitsSettings { per_user: rate(10, burst as u32), ..off() });
        let mut connections: Vec<_> = (0..6).map(|_| Held::new()).collect();
        let (mut now_ns, mut levels) = (0, [full; 3]);
        for act in acts {
            let (who, passes) = match act {
                Act::Wait(wait_ms) => {
                    now_ns += wait_ms * MS;
                    levels = levels.map(|level| full.min(level + wait_ms * MS));
                    continue;
                }
                Act::Retain => {
                    limits.retain(now_ns);
                    continue;
                }
                Act::Reconnect(number) => {
                    connections[number] = Held::new();
                    continue;
                }
                Act::ByKey(who) => (who, limits.check(now_ns, ANYWHERE, user(who + 1)).is_ok()),
                Act::ByConnection(number) => {
                    let who = number as u64 % 3;
                    (who, limits.check_held(now_ns, &connections[number], ANYWHERE, user(who + 1)).is_ok())
                }
            };
            let level = &mut levels[who as usize];
            prop_assert_eq!(passes, *level >= interval_ns);
            *level -= if passes { interval_ns } else { 0 };
        }
        drop(connections);
        limits.retain(now_ns + full);
        prop_assert_eq!(limits.key_counts(), KeyCounts::default());
        prop_assert_eq!(limits.users.table.true_len(), 0);
    }
}
