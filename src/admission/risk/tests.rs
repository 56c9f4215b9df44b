//! The texts by example, the lists against a plain map, the rung by its clocks.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::unnecessary_wraps,
    reason = "tests"
)]

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::{Effect, HeldVerdict, Lists, Refused, Risk, RiskTime, Subject, SubjectKind, Who};
use crate::protocol::UserId;

const NOW_MS: u64 = 1_000_000;
const INTERVAL_MS: u64 = 5_000;

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

fn lists(entries: &[(&str, Effect, u64)]) -> Lists {
    let changes = entries.iter().map(|(text, effect, until_ms)| (subject(text), Some((*effect, *until_ms))));
    Lists::default().with(changes.collect(), NOW_MS)
}

fn who(user: u64, ip: Option<IpAddr>, device: Option<&str>) -> Who<'_> {
    Who { user: UserId(user), ip, device }
}

const fn at(ms: u64) -> RiskTime {
    RiskTime { mono_ms: ms, sale_ms: NOW_MS + ms }
}

fn in_force(lists: Lists) -> Risk {
    let risk = Risk::new(INTERVAL_MS);
    drop(risk.publish(lists));
    risk
}

fn check(risk: &Risk, now: RiskTime, who: &Who<'_>) -> Result<(), Refused> {
    let lists = risk.lists();
    risk.check(now, || &lists, who)
}

#[test]
fn a_subject_comes_back_as_it_was_written() {
    for text in [
        "user:1",
        "user:9223372036854775807",
        "ip:10.0.0.0/8",
        "ip:10.1.2.3/32",
        "ip:2001:db8::/32",
        "ip:::1/128",
        "device:ios-7f3a",
        "device:a:b c",
        "device:误操作",
    ] {
        assert_eq!(subject(text).to_string(), text);
    }
    assert_eq!(subject("ip:10.1.2.3"), subject("ip:10.1.2.3/32"));
    for effect in [Effect::Block, Effect::Slow] {
        assert_eq!(effect.name().parse::<Effect>(), Ok(effect));
    }
}

#[test]
fn what_is_no_subject_is_refused_with_what_to_write() {
    let long = format!("device:{}", "x".repeat(65));
    for (text, says) in [
        ("", "is no subject; write user:42, ip:10.0.0.0/8 or device:NAME"),
        ("42", "is no subject"),
        ("users:42", "is no subject"),
        ("User:42", "is no subject"),
        ("user:", "is no user"),
        ("user:0", "from 1 to 9223372036854775807"),
        ("user:042", "without leading zeros"),
        ("user:+42", "is no user"),
        ("user:9223372036854775808", "is no user"),
        ("ip:10.0.0.1/8", "write 10.0.0.0/8"),
        ("ip:localhost", "is not an IP address"),
        ("ip:::ffff:10.0.0.1", "IPv4 form"),
        ("device:", "1 to 64 bytes"),
        ("device:a\nb", "without control characters"),
        (&long, "1 to 64 bytes"),
    ] {
        let error = text.parse::<Subject>().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    assert!("blocked".parse::<Effect>().unwrap_err().to_string().contains("it is block or slow"));
}

#[test]
fn who_is_listed_by_any_of_his_names_is_blocked_and_nobody_else() {
    let risk = in_force(lists(&[
        ("user:7", Effect::Block, 0),
        ("ip:10.0.0.0/8", Effect::Block, 0),
        ("ip:192.168.1.1", Effect::Block, 0),
        ("ip:2001:db8::/32", Effect::Block, 0),
        ("ip:2002::1", Effect::Block, 0),
        ("device:bad", Effect::Block, 0),
    ]));
    for (who, is_blocked) in [
        (who(7, None, None), true),
        (who(8, None, None), false),
        (who(8, ip("10.255.0.1"), None), true),
        (who(8, ip("::ffff:10.255.0.1"), None), true),
        (who(8, ip("11.0.0.1"), None), false),
        (who(8, ip("192.168.1.1"), None), true),
        (who(8, ip("192.168.1.2"), None), false),
        (who(8, ip("2001:db8:1::1"), None), true),
        (who(8, ip("2001:db9::1"), None), false),
        (who(8, ip("2002::1"), None), true),
        (who(8, ip("2002::2"), None), false),
        (who(8, None, Some("bad")), true),
        (who(8, None, Some("bad ")), false),
        (who(8, ip("11.0.0.1"), Some("good")), false),
    ] {
        let due = if is_blocked { Err(Refused::Blocked) } else { Ok(()) };
        assert_eq!(check(&risk, at(0), &who), due, "{who:?}");
        assert_eq!(risk.check_held(at(0), &HeldVerdict::new(), &who), due, "{who:?}");
    }
}

#[test]
fn every_length_of_both_families_covers_exactly_its_addresses() {
    for (address, bits) in [("203.0.113.200", 32_u8), ("2001:db8:1:2:3:4:5:6", 128)] {
        let address: IpAddr = address.parse().unwrap();
        for length in 0..=bits {
            let block = crate::admission::Cidr::new(address, length).unwrap();
            let risk = in_force(lists(&[(&format!("ip:{block}"), Effect::Block, 0)]));
            assert_eq!(check(&risk, at(0), &who(1, Some(address), None)), Err(Refused::Blocked), "{block}");
            // The last bit that counts, the other way round.
            let other: Option<IpAddr> = match address {
                IpAddr::V4(v4) if length > 0 => Some(IpAddr::V4((v4.to_bits() ^ 1 << (32 - length)).into())),
                IpAddr::V6(v6) if length > 0 => Some(IpAddr::V6((v6.to_bits() ^ 1 << (128 - length)).into())),
                _ => None,
            };
            assert!(
                other.is_none() || check(&risk, at(0), &who(1, other, None)).is_ok(),
                "{block} {other:?}"
            );
        }
    }
}

#[test]
fn an_entry_holds_until_its_time_by_the_sale_clock_and_a_held_verdict_no_longer() {
    let risk = in_force(lists(&[("user:7", Effect::Block, NOW_MS + 100), ("user:8", Effect::Block, NOW_MS)]));
    let held = HeldVerdict::new();
    for (ms, due) in [(0, Err(Refused::Blocked)), (99, Err(Refused::Blocked)), (100, Ok(())), (101, Ok(()))] {
        assert_eq!(check(&risk, at(ms), &who(7, None, None)), due, "{ms}");
        assert_eq!(risk.check_held(at(ms), &held, &who(7, None, None)), due, "{ms}");
    }
    assert_eq!(check(&risk, at(0), &who(8, None, None)), Ok(()), "passed when it came");
}

#[test]
fn a_held_verdict_follows_the_lists() {
    let risk = Risk::new(INTERVAL_MS);
    let (held, who) = (HeldVerdict::new(), who(7, ip("10.1.2.3"), Some("d")));
    for (entries, due) in [
        (vec![], Ok(())),
        (vec![("user:7", Effect::Block, 0)], Err(Refused::Blocked)),
        (vec![("user:8", Effect::Block, 0)], Ok(())),
        (vec![("ip:10.0.0.0/8", Effect::Block, 0)], Err(Refused::Blocked)),
        (vec![], Ok(())),
        (vec![("device:d", Effect::Block, 0)], Err(Refused::Blocked)),
    ] {
        drop(risk.publish(lists(&entries)));
        for _ in 0..3 {
            assert_eq!(risk.check_held(at(0), &held, &who), due, "{entries:?}");
        }
    }
}

#[test]
fn a_slowed_subject_passes_once_in_an_interval_wherever_it_asks() {
    let risk = in_force(lists(&[("user:7", Effect::Slow, 0)]));
    let (one, other) = (HeldVerdict::new(), HeldVerdict::new());
    let who = who(7, None, None);
    assert_eq!(risk.check_held(at(10), &one, &who), Ok(()));
    let refused = |ms| Err(Refused::Slowed { retry_after_ms: (INTERVAL_MS + 10 - ms) as u32 });
    assert_eq!(risk.check_held(at(10), &one, &who), refused(10));
    assert_eq!(risk.check_held(at(11), &other, &who), refused(11));
    assert_eq!(check(&risk, at(5_009), &who), refused(5_009));
    assert_eq!(check(&risk, at(5_010), &who), Ok(()));
    assert!(risk.check_held(at(5_010), &one, &who).is_err());
    // Also where all of it is read anew.
    let emptied = risk.lists().emptied();
    assert!(emptied.is_empty());
    drop(risk.publish(emptied.with(vec![(subject("user:7"), Some((Effect::Slow, 0)))], NOW_MS)));
    assert!(check(&risk, at(5_020), &who).is_err());
}

#[test]
fn a_thousand_users_of_a_slowed_device_are_one() {
    let risk = in_force(lists(&[("device:farm", Effect::Slow, 0), ("user:3", Effect::Slow, 0)]));
    let passes = (1..=1000).filter(|user| check(&risk, at(0), &who(*user, None, Some("farm"))).is_ok());
    assert_eq!(passes.count(), 1);
}

#[test]
fn the_narrowest_block_slows_and_a_block_outweighs_it() {
    let entries = [("ip:10.0.0.0/8", Effect::Slow, 0), ("ip:10.1.0.0/16", Effect::Slow, 0)];
    let risk = in_force(lists(&entries));
    let passes = |address: &str| check(&risk, at(0), &who(1, ip(address), None)).is_ok();
    assert!(passes("10.1.0.1") && !passes("10.1.0.2"));
    assert!(passes("10.2.0.1") && !passes("10.3.0.2"));
    let risk = in_force(lists(&[("ip:10.0.0.0/8", Effect::Slow, 0), ("user:1", Effect::Block, 0)]));
    assert_eq!(check(&risk, at(0), &who(1, ip("10.1.0.1"), None)), Err(Refused::Blocked));
    assert_eq!(
        check(&risk, at(0), &who(2, ip("10.1.0.1"), None)),
        Ok(()),
        "the blocked one took nobody's turn"
    );
}

#[test]
fn as_many_are_slowed_as_there_are_and_nobody_gets_two_turns() {
    let users: Vec<_> =
        (1..=20_000_u64).map(|user| (Subject::User(UserId(user)), Some((Effect::Slow, 0)))).collect();
    let risk = in_force(Lists::default().with(users, NOW_MS));
    let passes = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let passed = (1..=20_000).filter(|user| check(&risk, at(0), &who(*user, None, None)).is_ok());
                passes.fetch_add(passed.count(), Ordering::Relaxed);
            });
        }
    });
    let passes = passes.load(Ordering::Relaxed);
    // A few find no slot beside eight others; nobody finds two.
    assert!((19_500..=20_000).contains(&passes), "{passes}");
}

#[test]
fn a_million_entries_take_bounded_memory_and_one_change_copies_few_of_them() {
    const ENTRIES: u64 = 1_000_000;
    let users =
        |from: u64| (from..from + 50_000).map(|user| (Subject::User(UserId(user)), Some((Effect::Block, 0))));
    let mut all = Lists::default();
    for from in (1..=ENTRIES).step_by(50_000) {
        all = all.with(users(from).collect(), NOW_MS);
    }
    assert_eq!(all.len(SubjectKind::User) as u64, ENTRIES);
    let per_entry = all.slot_bytes() as u64 / ENTRIES;
    assert!(per_entry < 24, "{per_entry} bytes");
    // Removing one shares every page but one.
    let less = all.with(vec![(subject("user:5"), None::<super::Listing>)], NOW_MS);
    assert_eq!(less.len(SubjectKind::User) as u64, ENTRIES - 1);
    let (mine, theirs) = (in_force(less), in_force(all));
    assert_eq!(check(&mine, at(0), &who(5, None, None)), Ok(()));
    assert_eq!(check(&theirs, at(0), &who(5, None, None)), Err(Refused::Blocked));
    assert_eq!(check(&mine, at(0), &who(6, None, None)), Err(Refused::Blocked));
}

#[test]
fn what_is_listed_for_a_time_does_not_pile_up() {
    let mut lists = Lists::default();
    for round in 0..20_u64 {
        let now_ms = NOW_MS + round * 1_000;
        let users = (0..10_000).map(|nth| {
            (Subject::User(UserId(1 + round * 10_000 + nth)), Some((Effect::Block, now_ms + 500)))
        });
        lists = lists.with(users.collect(), now_ms);
    }
    // A page that none of the last ones came to may have some of those before.
    assert!((10_000..10_500).contains(&lists.len(SubjectKind::User)), "{}", lists.len(SubjectKind::User));
}

#[test]
fn an_entry_is_told_as_it_was_listed() {
    for until_ms in [0, 1, NOW_MS, NOW_MS + 1, u64::MAX >> 2] {
        for (effect, is_flag) in [(Effect::Slow, false), (Effect::Slow, true), (Effect::Block, true)] {
            let listing = super::Listing { effect, until_ms, is_flag };
            let lists = Lists::default().with(vec![(subject("user:7"), Some(listing))], 0);
            // The greatest time there is is the one for good.
            let due =
                super::Listing { until_ms: if until_ms == u64::MAX >> 2 { 0 } else { until_ms }, ..listing };
            assert_eq!(lists.listing(&subject("user:7")), Some(due));
            assert_eq!(lists.iter(0).map(|one| one.listing()).collect::<Vec<_>>(), [due]);
        }
    }
}

#[test]
fn what_is_listed_of_somebody_is_told() {
    let lists = lists(&[
        ("user:7", Effect::Slow, NOW_MS + 5),
        ("ip:10.0.0.0/8", Effect::Block, 0),
        ("ip:10.1.0.0/16", Effect::Slow, NOW_MS + 50),
        ("device:d", Effect::Block, 0),
        ("user:8", Effect::Block, 0),
    ]);
    let told = |now_ms| {
        let of = lists.of(Some(UserId(7)), ip("10.1.2.3"), Some("d"), now_ms).into_iter();
        of.map(|one| format!("{} {} {}", one.subject, one.effect, one.until_ms)).collect::<Vec<_>>()
    };
    assert_eq!(
        told(NOW_MS),
        [
            format!("user:7 slow {}", NOW_MS + 5),
            format!("ip:10.1.0.0/16 slow {}", NOW_MS + 50),
            "ip:10.0.0.0/8 block 0".to_owned(),
            "device:d block 0".to_owned()
        ]
    );
    assert_eq!(told(NOW_MS + 50), ["ip:10.0.0.0/8 block 0", "device:d block 0"]);
    assert_eq!(lists.iter(NOW_MS + 50).count(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_lists_are_a_map(
        steps in prop::collection::vec(prop::collection::vec((0..40_u64, 0..4_u64), 1..20), 1..30),
    ) {
        let (mut lists, mut map) = (Lists::default(), HashMap::new());
        for (nth, step) in steps.into_iter().enumerate() {
            let now_ms = NOW_MS + nth as u64;
            let change = |(key, act): (u64, u64)| {
                let subject = match key % 3 {
                    0 => Subject::User(UserId(1 + key)),
                    1 => subject(&format!("ip:10.0.0.{key}")),
                    _ => subject(&format!("device:{key}")),
                };
                let listed = (act > 0).then(|| {
                    let effect = if act == 1 { Effect::Slow } else { Effect::Block };
                    (effect, if act == 3 { 0 } else { now_ms + key % 4 })
                });
                (subject, listed)
            };
            let changes: Vec<_> = step.into_iter().map(change).collect();
            for (subject, listed) in changes.clone() {
                match listed {
                    Some(listed) => map.insert(subject, listed),
                    None => map.remove(&subject),
                };
            }
            lists = lists.with(changes, now_ms);
            map.retain(|_, (_, until_ms)| *until_ms == 0 || *until_ms > now_ms);
            let mut told: Vec<_> = lists.iter(now_ms).map(|one| (one.subject.to_string(), one.effect, one.until_ms)).collect();
            let mut due: Vec<_> = map.iter().map(|(subject, (effect, until_ms))| (subject.to_string(), *effect, *until_ms)).collect();
            told.sort();
            due.sort();
            prop_assert_eq!(told, due);
            let found = map.keys().all(|subject| lists.listing(subject).is_some());
            prop_assert!(found);
        }
    }
}
