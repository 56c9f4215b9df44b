//! Users who ask too much: counted over all their connections, flagged, and whoever else asks is not.

use std::time::{Duration, Instant};

use rushgate::admission::behaviour::BehaviourRules;
use rushgate::gateway::Settings;
use rushgate::protocol::{ActivityId, Request, Status};
use rushgate::store::risk::{Entry, RiskStore};
use rushgate::store::sql::RiskFolder;

use super::house::{House, Plan, SALE, SKU, now_ms, sale};
use super::wire::{Client, PATIENCE, buy, eventually, result};

fn rules() -> BehaviourRules {
    BehaviourRules {
        per_minute: 1,
        burst: 10,
        slow_for: Duration::from_secs(60),
        block_after: 10,
        block_for: Duration::from_secs(600),
    }
}

fn house(rules: BehaviourRules) -> House {
    Plan::new(100).settings(|settings| settings.behaviour = rules).open()
}

fn listed(house: &House, user: u64) -> Option<Entry> {
    house.operate(async {
        let lists = RiskFolder::open(&house.dir.path().join("data")).await.unwrap();
        lists.risk_find(&[format!("user:{user}")]).await.unwrap().pop()
    })
}

/// What a user may ask, one of each kind after the other.
fn asks(client: &mut Client, count: usize) {
    let activity = Request::Activity { activity: ActivityId(SALE) };
    for what in [buy(SALE, SKU, 1), result(SALE), activity].iter().cycle().take(count) {
        client.ask(what);
    }
}

#[test]
fn who_asks_too_much_is_to_be_slowed_and_who_goes_on_is_to_be_blocked() {
    let house = house(rules());
    let (mut eager, mut calm) = (house.app(1), house.app(2));
    asks(&mut eager, 10);
    asks(&mut calm, 10);
    // Neither PING nor what there is nothing to say about counts.
    for _ in 0..20 {
        calm.ping();
        calm.ask(&Request::Challenge { activity: ActivityId(SALE) });
    }
    assert_eq!(house.count("flagged"), 0);
    asks(&mut eager, 1);
    eventually("he is listed", || listed(&house, 1).is_some());
    let entry = listed(&house, 1).unwrap();
    assert_eq!((entry.effect.as_str(), entry.why.as_str()), ("slow", "more than 1 requests a minute"));
    assert_eq!(entry.who, format!("gateway {}", house.gateway.process().0));
    assert!((now_ms() + 30_000..=now_ms() + 60_000).contains(&entry.until_ms), "{entry:?}");
    asks(&mut eager, 10);
    eventually("it got worse", || listed(&house, 1).is_some_and(|entry| entry.effect == "block"));
    assert!(listed(&house, 1).unwrap().until_ms > now_ms() + 500_000);
    assert!(listed(&house, 2).is_none());
    assert_eq!(house.count("flagged"), 2);
}

#[test]
fn a_user_of_many_connections_of_either_kind_is_one_user() {
    let house = house(rules());
    for _ in 0..5 {
        asks(&mut house.app(1), 2);
    }
    assert!(listed(&house, 1).is_none());
    let mut back_end = house.service();
    // In one write, so that they are prepared for together.
    let asked: Vec<u32> = (1..=20).map(|user| back_end.send_for(user, &result(SALE))).collect();
    for id in asked {
        back_end.answer_to(id);
    }
    eventually("he is listed", || listed(&house, 1).is_some());
    assert!((2..=20).all(|user| listed(&house, user).is_none()), "each has asked once");
}

/// Asks now and then, far below the rate, until he is told this.
#[track_caller]
fn calmly(client: &mut Client, due: Status) {
    let began = Instant::now();
    while client.ask(&buy(SALE, SKU, 1)).status != due {
        assert!(began.elapsed() < PATIENCE, "never {due:?}");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

#[test]
fn who_is_flagged_is_slowed_then_blocked_and_free_when_his_time_has_passed() {
    let rules = BehaviourRules {
        per_minute: 1200,
        burst: 20,
        block_after: 40,
        block_for: Duration::from_millis(1500),
        ..rules()
    };
    let settings = |settings: &mut Settings| {
        settings.behaviour = rules;
        settings.risk.slow_interval = Duration::from_secs(600);
    };
    let house = Plan::with(vec![sale(SALE, &[(SKU, 1)], 1)]).settings(settings).open();
    let mut winner = house.app(1);
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let mut eager = house.app(2);
    calmly(&mut eager, Status::SoldOut);
    asks(&mut eager, 25);
    calmly(&mut eager, Status::RateLimited);
    assert!(house.count("rung risk_slowed") > 0);
    eventually("he goes on, and is blocked", || eager.ask(&buy(SALE, SKU, 1)).status == Status::Blocked);
    calmly(&mut eager, Status::SoldOut);
    // Who has won is told so however often he asks.
    asks(&mut winner, 100);
    eventually("he is blocked", || listed(&house, 1).is_some_and(|entry| entry.effect == "block"));
    for _ in 0..100 {
        assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    }
    assert_eq!(winner.ask(&result(SALE)).status, Status::Ok);
}

#[test]
fn by_default_nobody_asks_too_much() {
    let house = Plan::new(100).open();
    asks(&mut house.app(1), 500);
    assert_eq!(house.count("flagged"), 0);
    assert!(listed(&house, 1).is_none());
}
