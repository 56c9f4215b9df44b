//! Rate limits through the socket: whose limit it was, when to come again, and whom it does not touch.

use std::collections::BTreeSet;
use std::time::Duration;

use rushgate::admission::limits::{IpOverride, Rate};
use rushgate::protocol::{ActivityId, Reply, Request, Status, tlv};

use super::house::{Plan, SALE, SKU, rate, sale};
use super::wire::{Answer, buy, frame, result};

/// One at once, then one each 10 s.
const TIGHT: Rate = Rate { rate_per_s: 1, burst: 2 };
const OTHER: u32 = SALE + 1;
const UPCOMING: u32 = SALE + 2;

fn is_limited(answer: &Answer) -> bool {
    assert_eq!(
        answer.reply,
        if answer.status == Status::RateLimited { Reply::Empty } else { answer.reply.clone() }
    );
    if answer.status == Status::RateLimited {
        // Up to a second until it would pass, and as much again of jitter.
        assert!((1..=2000).contains(&answer.hint_ms), "{answer:?}");
    }
    answer.status == Status::RateLimited
}

#[test]
fn per_user_limits_are_each_users_own_and_follow_him_over_connections() {
    let house = Plan::new(5).limits(|limits| limits.per_user = TIGHT).open();
    let (mut one, mut two) = (house.app(1), house.app(2));
    let unknown = buy(SALE + 1, SKU, 1);
    assert!(!is_limited(&one.ask(&unknown)) && !is_limited(&one.ask(&unknown)));
    assert!(is_limited(&one.ask(&unknown)));
    assert!(is_limited(&house.app(1).ask(&unknown)), "another connection of his");
    assert!(!is_limited(&two.ask(&unknown)));
    // Neither RESULT nor ACTIVITY counts.
    assert_eq!(one.ask(&result(SALE)).status, Status::NoOrder);
    assert_eq!((house.count("rung rate_user"), house.count("RATE_LIMITED")), (2, 2));
}

#[test]
fn the_hint_is_when_it_passes_and_has_jitter() {
    let house = Plan::new(5).limits(|limits| limits.per_user = TIGHT).open();
    let mut hints = BTreeSet::new();
    for id in 1..=12 {
        let mut client = house.app(id);
        client.ask(&buy(SALE + 1, SKU, 1));
        client.ask(&buy(SALE + 1, SKU, 1));
        let refused = client.ask(&buy(SALE + 1, SKU, 1));
        assert!(is_limited(&refused));
        hints.insert(refused.hint_ms / 20);
    }
    assert!(hints.len() > 4, "those refused together come back together: {hints:?}");
    let mut client = house.app(99);
    client.ask(&buy(SALE + 1, SKU, 1));
    client.ask(&buy(SALE + 1, SKU, 1));
    let refused = client.ask(&buy(SALE + 1, SKU, 1));
    let waited = std::time::Instant::now();
    super::wire::eventually("the hint passes", || {
        waited.elapsed() >= Duration::from_millis(u64::from(refused.hint_ms))
    });
    assert!(!is_limited(&client.ask(&buy(SALE + 1, SKU, 1))));
}

#[test]
fn the_address_limit_counts_all_users_behind_it_and_an_override_lifts_it() {
    let plan = |cidr: &str, exception: Rate| {
        Plan::new(5)
            .limits(|limits| {
                limits.per_ip = TIGHT;
                limits.per_ip_overrides = vec![IpOverride { cidr: cidr.parse().unwrap(), rate: exception }];
            })
            .open()
    };
    let house = plan("10.0.0.0/8", Rate::OFF);
    let limited: Vec<bool> =
        (1..=4).map(|user| is_limited(&house.app(user).ask(&buy(SALE + 1, SKU, 1)))).collect();
    assert_eq!(limited, [false, false, true, true]);
    assert_eq!(house.count("rung rate_ip"), 2);

    let house = plan("127.0.0.0/8", Rate::OFF);
    assert!((1..=20).all(|user| !is_limited(&house.app(user).ask(&buy(SALE + 1, SKU, 1)))));
    let house = plan("127.0.0.1", rate(1, 3));
    let limited: Vec<bool> =
        (1..=4).map(|user| is_limited(&house.app(user).ask(&buy(SALE + 1, SKU, 1)))).collect();
    assert_eq!(limited, [false, false, false, true]);
}

#[test]
fn the_global_limit_counts_everybody() {
    let house = Plan::new(5).limits(|limits| limits.global = rate(1, 3)).open();
    let limited: Vec<bool> =
        (1..=5).map(|user| is_limited(&house.app(user).ask(&buy(SALE + 1, SKU, 1)))).collect();
    assert_eq!(limited, [false, false, false, true, true]);
    assert_eq!(house.count("rung rate_global"), 2);
}

#[test]
fn a_service_connection_is_limited_by_the_addresses_it_names_not_by_its_own() {
    let house = Plan::new(5)
        .limits(|limits| {
            limits.per_ip = TIGHT;
            limits.per_ip_overrides = Vec::new();
        })
        .open();
    let mut back_end = house.service();
    let body = [&(SALE + 1).to_be_bytes()[..], &SKU.to_be_bytes(), &1_u16.to_be_bytes()].concat();
    let mut ask = |user: u64, addr: Option<&[u8]>| {
        let id = back_end.next_id();
        let user = user.to_be_bytes();
        let mut tlvs: Vec<(u16, &[u8])> = vec![(tlv::USER, &user)];
        tlvs.extend(addr.map(|addr| (tlv::CLIENT_ADDR, addr)));
        let head = rushgate::protocol::Head::request(rushgate::protocol::Opcode::Buy, id);
        back_end.write(&frame(head, &tlvs, &body));
        is_limited(&back_end.answer_to(id))
    };
    let v4 = [192, 0, 2, 7];
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 7];
    assert_eq!([ask(1, Some(&v4)), ask(2, Some(&v4)), ask(3, Some(&v4))], [false, false, true]);
    assert!(ask(4, Some(&mapped)), "an IPv4-mapped address is the IPv4 one");
    assert!(!ask(4, Some(&[192, 0, 2, 8])));
    assert!((10..30).all(|user| !ask(user, None)), "no address, no limit by address");
}

#[test]
fn result_and_activity_have_a_limit_of_their_own() {
    let house = Plan::new(5).limits(|limits| limits.result_per_user = TIGHT).open();
    let mut client = house.app(1);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(client.ask(&result(SALE)).status, Status::Ok);
    assert!(!is_limited(&client.ask(&Request::Activity { activity: ActivityId(SALE) })));
    assert!(is_limited(&client.ask(&result(SALE))));
    assert!(is_limited(&client.ask(&Request::Activity { activity: ActivityId(SALE) })));
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Already, "BUY is not limited by it");
    assert_eq!(house.app(2).ask(&result(SALE)).status, Status::NoOrder);
}

#[test]
fn the_connection_limit_is_each_app_connections_own_and_asked_before_all_others() {
    let house = Plan::new(5)
        .limits(|limits| {
            limits.per_connection = TIGHT;
            limits.global = rate(1, 5);
        })
        .open();
    let unknown = buy(SALE + 1, SKU, 1);
    let mut client = house.app(1);
    let limited: Vec<bool> = (0..20).map(|_| is_limited(&client.ask(&unknown))).collect();
    assert_eq!(limited.iter().filter(|limited| !**limited).count(), 2);
    // What it was refused has used up nothing of what is everybody's.
    let limited: Vec<bool> = (0..2).map(|_| is_limited(&house.app(1).ask(&unknown))).collect();
    assert_eq!(limited, [false, false], "each connection its own, also of one user");
    assert_eq!((house.count("rung rate_connection"), house.count("rung rate_global")), (18, 0));
    assert_eq!(client.ask(&result(SALE)).status, Status::NoOrder, "RESULT is not counted");
    // One that speaks for many has none.
    let mut back_end = house.service();
    assert_eq!(back_end.ask_for(7, &unknown).status, Status::UnknownActivity);
    assert_eq!(back_end.ask_for(8, &unknown).status, Status::RateLimited);
    assert_eq!((house.count("rung rate_connection"), house.count("rung rate_global")), (18, 1));
}

#[test]
fn the_activity_limit_stands_behind_the_window_and_before_the_stock_and_never_before_a_holder() {
    let day = 24 * 3_600_000;
    let mut upcoming = sale(UPCOMING, &[(SKU, 5)], 1);
    upcoming.opens_at_ms += day;
    upcoming.closes_at_ms += day;
    let house = Plan::with(vec![sale(SALE, &[(SKU, 160)], 1), sale(OTHER, &[(SKU, 1)], 1), upcoming])
        .limits(|limits| limits.per_activity = TIGHT)
        .open();
    let mut back_end = house.service();
    let mut ask = |user, activity, sku, quantity| back_end.ask_for(user, &buy(activity, sku, quantity));
    // What is turned away before uses nothing up.
    for _ in 0..5 {
        assert_eq!(ask(1, SALE, 9, 1).status, Status::UnknownSku);
        assert_eq!(ask(1, SALE, SKU, 2).status, Status::OverLimit);
        assert_eq!(ask(1, UPCOMING, SKU, 1).status, Status::NotStarted);
    }
    assert_eq!(ask(1, SALE, SKU, 1).status, Status::Queued);
    assert_eq!(ask(2, SALE, SKU, 1).status, Status::Queued);
    assert!(is_limited(&ask(3, SALE, SKU, 1)), "whoever it is");
    assert!(is_limited(&ask(4, SALE, SKU, 1)));
    assert_eq!(ask(1, SALE, SKU, 1).status, Status::Already);
    // Another activity has its own; and a user who is told SOLD_OUT has used some.
    assert_eq!(ask(5, OTHER, SKU, 1).status, Status::Queued);
    assert_eq!(ask(6, OTHER, SKU, 1).status, Status::SoldOut);
    assert!(is_limited(&ask(7, OTHER, SKU, 1)));
    assert_eq!(house.count("rung rate_activity"), 3);
}
