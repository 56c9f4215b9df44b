//! Users who share a device, and devices of one user: what too many of them earn, and whom nothing happens to.

use std::time::Duration;

use rushgate::admission::devices::DeviceRules;
use rushgate::admission::risk::Effect;
use rushgate::protocol::{ClientVersion, Head, Opcode, Request, Status, tlv};
use rushgate::store::risk::{Entry, NewEntry, RiskStore};
use rushgate::store::sql::RiskFolder;

use super::house::{House, Plan, SALE, SKU, now_ms, rate};
use super::wire::{Client, buy, eventually, frame};

fn rules() -> DeviceRules {
    DeviceRules {
        users_max: 3,
        per_user_max: 2,
        flag_for: Duration::from_secs(600),
        ..DeviceRules::default()
    }
}

fn house(rules: DeviceRules) -> House {
    Plan::new(100).settings(|settings| settings.devices = rules).open()
}

/// An app on a device.
#[track_caller]
fn login(house: &House, device: &str, user: u64) -> Client {
    let mut client = Client::connect(house.addr());
    let hello = Request::Hello { version: ClientVersion { platform: 2, app: [1, 2, 3] }, device };
    assert_eq!(client.ask(&hello).status, Status::Ok);
    assert_eq!(client.auth(&house.token(user)).status, Status::Ok);
    client
}

fn lists(house: &House) -> RiskFolder {
    house.operate(RiskFolder::open(&house.dir.path().join("data"))).unwrap()
}

/// What stands in the lists of these.
fn listed(house: &House, subjects: &[&str]) -> Vec<Entry> {
    let subjects: Vec<String> = subjects.iter().map(|subject| (*subject).to_owned()).collect();
    let lists = lists(house);
    house.operate(lists.risk_find(&subjects)).unwrap()
}

#[test]
fn one_device_with_many_accounts_is_flagged_once_and_says_why() {
    let house = house(rules());
    let mut clients: Vec<Client> = (1..=3).map(|user| login(&house, "farm", user)).collect();
    eventually("they are counted", || house.count("device_counted") == 3);
    assert!(listed(&house, &["device:farm"]).is_empty(), "as many as may be");
    clients.extend((4..=60).map(|user| login(&house, "farm", user)));
    eventually("all are counted", || house.count("device_counted") == 60);
    eventually("the device is listed", || house.count("flagged") == 1);
    let entry = listed(&house, &["device:farm"]).remove(0);
    assert_eq!(
        (entry.effect.as_str(), entry.why.as_str()),
        ("slow", "more than 3 users on this device within 86400 s")
    );
    assert_eq!(entry.who, format!("gateway {}", house.gateway.process().0));
    assert!((now_ms() + 540_000..=now_ms() + 600_000).contains(&entry.until_ms), "{entry:?}");
    let users: Vec<String> = (1..=60).map(|user| format!("user:{user}")).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    assert!(listed(&house, &users).is_empty(), "the device, not its users");
    // Whoever comes later finds it listed: nothing is written again.
    login(&house, "farm", 61);
    eventually("he is counted", || house.count("device_counted") == 61);
    assert_eq!(house.count("flagged"), 1);
}

#[test]
fn one_user_with_many_devices_is_flagged_himself() {
    let house = house(DeviceRules { effect: Effect::Block, ..rules() });
    for device in ["phone", "tablet", "phone", "phone"] {
        login(&house, device, 7);
    }
    eventually("they are counted", || house.count("device_counted") == 2);
    assert_eq!(house.count("flagged"), 0, "the same phone again is one device, and counted once");
    login(&house, "another phone", 7);
    eventually("he is listed", || house.count("flagged") == 1);
    let entry = listed(&house, &["user:7"]).remove(0);
    assert_eq!(
        (entry.effect.as_str(), entry.why.as_str()),
        ("block", "more than 2 devices of this user within 86400 s")
    );
    assert!(listed(&house, &["device:phone", "device:tablet", "device:another phone"]).is_empty());
}

#[test]
fn of_a_device_with_a_hostile_name_the_users_are_flagged() {
    let house = house(rules());
    for hostile in ["two\nlines", "nul\0", "{07}:meta", "'; DROP TABLE risk; --"] {
        login(&house, hostile, 1);
    }
    let plain = DeviceRules { per_user_max: 0, ..rules() };
    let house = self::house(plain);
    for user in 1..=4 {
        login(&house, "two\nlines", user);
        login(&house, "{07}:meta", 10 + user);
    }
    eventually("both are noticed", || house.count("flagged") == 2);
    let found = listed(&house, &["user:1", "user:2", "user:3", "user:4", "device:{07}:meta"]);
    let mut found: Vec<&str> = found.iter().map(|entry| entry.subject.as_str()).collect();
    found.sort_unstable();
    // Which of the four came last is up to the order in which they were counted.
    assert_eq!((found.len(), found[0]), (2, "device:{07}:meta"), "{found:?}");
}

#[test]
fn what_an_operator_has_listed_stays_as_it_is() {
    let house = house(rules());
    let text = |text: &str| text.to_owned();
    let (subject, effect, who, why) = (text("device:farm"), text("block"), text("mia"), text("known"));
    let lists = lists(&house);
    house.operate(lists.risk_add(&[NewEntry { subject, effect, until_ms: 0, who, why }])).unwrap();
    for user in 1..=6 {
        login(&house, "farm", user);
    }
    login(&house, "other farm", 1);
    for user in 2..=6 {
        login(&house, "other farm", user);
    }
    eventually("the other one is listed", || !listed(&house, &["device:other farm"]).is_empty());
    eventually("all are counted", || house.count("device_counted") == 12);
    let entry = listed(&house, &["device:farm"]).remove(0);
    assert_eq!((entry.effect.as_str(), entry.until_ms, entry.who.as_str()), ("block", 0, "mia"));
}

#[test]
fn a_store_that_does_not_answer_holds_nobody_up_and_is_told_later() {
    let house = house(rules());
    house.gate.shut();
    let arrived = house.gate.arrived();
    let mut clients: Vec<Client> = (1..=5).map(|user| login(&house, "farm", user)).collect();
    for client in &mut clients {
        client.ping();
    }
    eventually("it was asked", || house.gate.arrived() > arrived);
    assert_eq!((house.count("device_counted"), house.count("flagged")), (0, 0));
    house.gate.open();
    eventually("they are counted", || house.count("device_counted") == 5);
    eventually("the device is listed", || house.count("flagged") == 1);
}

#[test]
fn who_shares_a_device_with_too_many_is_told_blocked_but_for_who_has_bought() {
    let house = house(DeviceRules { effect: Effect::Block, ..rules() });
    let mut winner = login(&house, "farm", 1);
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let mut bystander = login(&house, "phone", 100);
    let mut last: Vec<Client> = (2..=4).map(|user| login(&house, "farm", user)).collect();
    eventually("it is obeyed", || house.gateway.risk_status().devices == 1);
    for client in &mut last {
        assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Blocked);
    }
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(bystander.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}

#[test]
fn devices_that_a_back_end_names_count_as_well() {
    let house = house(rules());
    let mut back_end = house.service();
    for user in 1..=4_u64 {
        let id = back_end.next_id();
        let user = user.to_be_bytes();
        let tlvs: &[(u16, &[u8])] = &[(tlv::USER, &user), (tlv::DEVICE, b"kiosk")];
        let body = SALE.to_be_bytes();
        back_end.write(&frame(Head::request(Opcode::Result, id), tlvs, &body));
        assert_eq!(back_end.answer_to(id).status, Status::NoOrder);
    }
    eventually("the device is listed", || !listed(&house, &["device:kiosk"]).is_empty());
}

#[test]
fn who_is_refused_by_a_rate_brings_no_device_into_the_counts() {
    let nobody_flagged = DeviceRules { users_max: 1000, per_user_max: 0, ..rules() };
    let plan = Plan::new(100).settings(|settings| settings.devices = nobody_flagged).limits(|limits| {
        (limits.per_user, limits.result_per_user) = (rate(1, 1), rate(1, 1));
    });
    let house = plan.open();
    let mut back_end = house.service();
    let mut ask = |user: u64, device: &str, opcode, body: &[u8]| {
        let id = back_end.next_id();
        let user = user.to_be_bytes();
        let tlvs: &[(u16, &[u8])] = &[(tlv::USER, &user), (tlv::DEVICE, device.as_bytes())];
        back_end.write(&frame(Head::request(opcode, id), tlvs, body));
        back_end.answer_to(id).status
    };
    let activity = SALE.to_be_bytes();
    let one_unit = [&activity[..], &SKU.to_be_bytes(), &1_u16.to_be_bytes()].concat();
    let mut passed = 0;
    for (user, opcode, body) in [(1, Opcode::Buy, &one_unit[..]), (2, Opcode::Result, &activity)] {
        for nth in 0..200 {
            // A limit of one a second: now and then one passes.
            let status = ask(user, &format!("rented {opcode:?} {nth}"), opcode, body);
            passed += u64::from(status != Status::RateLimited);
        }
    }
    assert!((2..100).contains(&passed), "{passed} passed");
    // Told in their order: with the last one all before it are counted.
    for user in [3, 4] {
        ask(user, "kiosk", Opcode::Result, &activity);
        passed += 1;
        eventually("he is counted", || house.count("device_counted") >= passed);
    }
    assert_eq!((house.count("device_counted"), house.count("device_forgotten")), (passed, 0));
}

#[test]
fn by_default_nobody_is_counted() {
    let house = Plan::new(5).open();
    for user in 1..=5 {
        let mut client = login(&house, "farm", user);
        assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    }
    assert_eq!((house.count("device_counted"), house.count("flagged")), (0, 0));
}
