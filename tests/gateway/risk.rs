//! Risk lists as clients meet them on the embedded store: who is listed is turned away or slowed down from memory, but
//! for winners, until his time has passed or somebody takes him off.

use std::time::{Duration, Instant};

use rushgate::admission::risk::{Effect, Subject};
use rushgate::gateway::Rung;
use rushgate::protocol::{ActivityId, Head, Opcode, Reply, Request, Status, tlv};
use rushgate::store::risk::{NewEntry, RiskStore};
use rushgate::store::sql::RiskFolder;

use super::house::{House, Plan, SALE, SKU, now_ms, sale};
use super::wire::{Client, buy, eventually, frame, result, user};

const OTHER: u32 = 2002;
/// What HELLO calls every client's device here.
const DEVICE: &str = "device:a device";

fn changed(house: &House, change: impl AsyncFnOnce(&RiskFolder) -> u64) {
    let data_dir = house.dir.path().join("data");
    let version = house.operate(async { change(&RiskFolder::open(&data_dir).await.unwrap()).await });
    eventually("it is in force", || house.gateway.risk_status().version >= version);
}

/// Lists them as a command beside the gateway does; returns when it is in force.
pub(crate) fn in_force(house: &House, subjects: &[&str], effect: &str, until_ms: u64) {
    let text = |text: &str| text.to_owned();
    let entries: Vec<NewEntry> = subjects
        .iter()
        .map(|subject| {
            let (subject, effect) = (text(subject), text(effect));
            NewEntry { subject, effect, until_ms, who: text("mia"), why: text("a test") }
        })
        .collect();
    changed(house, async |folder| folder.risk_add(&entries).await.unwrap());
}

fn taken_off(house: &House, subject: &str) {
    changed(house, async |folder| folder.risk_remove(&[subject.to_owned()]).await.unwrap().version);
}

/// One unit, that is gone: whoever passes is told that nothing is left.
fn sold_out() -> Plan {
    Plan::with(vec![sale(SALE, &[(SKU, 1)], 1), sale(OTHER, &[(SKU, 160)], 1)]).settings(|settings| {
        settings.risk.slow_interval = Duration::from_secs(600);
    })
}

fn open(plan: Plan) -> (House, Client) {
    let house = plan.open();
    let mut winner = house.app(1);
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let mut other = house.app(2);
    eventually("it is gone", || other.ask(&buy(SALE, SKU, 1)).status == Status::SoldOut);
    (house, winner)
}

fn told(client: &mut Client) -> Status {
    client.ask(&buy(SALE, SKU, 1)).status
}

/// What a service connection is told that names these.
fn told_of(client: &mut Client, user: u64, ip: Option<[u8; 4]>, device: Option<&str>) -> Status {
    let id = client.next_id();
    let (user, ip_bytes) = (user.to_be_bytes(), ip.unwrap_or_default());
    let mut tlvs: Vec<(u16, &[u8])> = vec![(tlv::USER, &user)];
    if ip.is_some() {
        tlvs.push((tlv::CLIENT_ADDR, &ip_bytes));
    }
    tlvs.extend(device.map(|device| (tlv::DEVICE, device.as_bytes())));
    let body = [&SALE.to_be_bytes()[..], &SKU.to_be_bytes(), &1_u16.to_be_bytes()].concat();
    client.write(&frame(Head::request(Opcode::Buy, id), &tlvs, &body));
    client.answer_to(id).status
}

#[test]
fn who_is_listed_by_user_address_or_device_is_blocked_from_memory_and_free_when_taken_off() {
    let (house, _) = open(sold_out());
    let mut client = house.app(7);
    let arrived = house.gate.arrived();
    for subject in ["user:7", "ip:127.0.0.0/8", DEVICE] {
        assert_eq!(told(&mut client), Status::SoldOut, "{subject}");
        in_force(&house, &[subject], "block", 0);
        assert_eq!([told(&mut client), told(&mut client)], [Status::Blocked; 2], "{subject}");
        let others = if subject == "user:7" { Status::SoldOut } else { Status::Blocked };
        assert_eq!(told(&mut house.app(8)), others, "{subject}");
        taken_off(&house, subject);
        assert_eq!(told(&mut client), Status::SoldOut, "{subject}");
    }
    assert_eq!((house.count("rung risk"), house.count("BLOCKED")), (8, 8));
    assert_eq!(house.gate.arrived(), arrived, "the store was not asked");
}

#[test]
fn what_a_service_connection_names_goes_through_the_same_lists() {
    let (house, _) = open(sold_out());
    let mut back_end = house.service();
    in_force(&house, &["user:7", "ip:10.0.0.0/8", "device:bad"], "block", 0);
    for (user, ip, device, due) in [
        (7, None, None, Status::Blocked),
        (8, None, None, Status::SoldOut),
        (8, Some([10, 1, 2, 3]), None, Status::Blocked),
        (8, Some([11, 1, 2, 3]), Some("good"), Status::SoldOut),
        (8, Some([11, 1, 2, 3]), Some("bad"), Status::Blocked),
        // Its own address is not its users'.
        (9, Some([127, 0, 0, 1]), None, Status::SoldOut),
        // Names that cannot be listed, and some that look like others.
        (9, None, Some("bad\n"), Status::SoldOut),
        (9, None, Some("user:7"), Status::SoldOut),
        (9, None, Some("\u{202e}dab"), Status::SoldOut),
        (9, None, Some("%s'; DROP TABLE risk_entries; --"), Status::SoldOut),
    ] {
        assert_eq!(told_of(&mut back_end, user, ip, device), due, "{user} {ip:?} {device:?}");
    }
}

#[test]
fn a_winner_is_never_turned_away_by_a_blacklist() {
    let (house, mut winner) = open(sold_out());
    let order = winner.ask(&result(SALE)).order().number;
    house.gate.shut();
    // One whose outcome is not known.
    let mut waiting = house.app(3);
    let waits = waiting.send(&buy(OTHER, SKU, 1));
    eventually("it is at the store", || house.gateway.unfinished() > 0);
    in_force(&house, &["user:1", "user:3", "ip:127.0.0.0/8", DEVICE], "block", 0);
    for _ in 0..3 {
        let told = winner.ask(&buy(SALE, SKU, 1));
        assert_eq!((told.status, told.order().number), (Status::Already, order));
        assert_eq!(winner.ask(&result(SALE)).order().number, order);
        let again = house.app(1).ask(&buy(SALE, SKU, 1));
        assert_eq!((again.status, again.order().number), (Status::Already, order));
    }
    let asked = winner.ask(&Request::Activity { activity: ActivityId(SALE) });
    assert!(matches!(asked.reply, Reply::Activity { .. }), "{asked:?}");
    house.gate.open();
    assert_eq!(waiting.answer_to(waits).status, Status::Queued, "what was accepted before is sold");
    assert_eq!(waiting.ask(&buy(OTHER, SKU, 1)).status, Status::Already);
    assert_eq!(told(&mut waiting), Status::Blocked, "elsewhere he has won nothing");
    // Who has none is told so, listed or not.
    assert_eq!(house.app(4).ask(&result(SALE)).status, Status::NoOrder);
}

#[test]
fn who_is_slowed_passes_once_in_an_interval_on_all_connections_together() {
    let (house, mut winner) = open(sold_out());
    in_force(&house, &["user:1", "user:7"], "slow", 0);
    let (mut one, mut other) = (house.app(7), house.app(7));
    assert_eq!(told(&mut one), Status::SoldOut);
    for client in [&mut one, &mut other] {
        let refused = client.ask(&buy(SALE, SKU, 1));
        assert_eq!(refused.status, Status::RateLimited);
        assert!((590_000..=601_000).contains(&refused.hint_ms), "{}", refused.hint_ms);
    }
    assert_eq!(told_of(&mut house.service(), 7, None, None), Status::RateLimited);
    assert_eq!(house.count("rung risk_slowed"), 3);
    assert_eq!(told(&mut house.app(8)), Status::SoldOut);
    assert_eq!([told(&mut winner), told(&mut winner)], [Status::Already; 2]);
    // From slowed to blocked, as behaviour that goes on is.
    in_force(&house, &["user:7"], "block", 0);
    assert_eq!(told(&mut one), Status::Blocked);
}

#[test]
fn a_slowed_user_passes_again_when_the_interval_is_over() {
    let interval = Duration::from_millis(300);
    let (house, _) = open(sold_out().settings(|settings| settings.risk.slow_interval = interval));
    in_force(&house, &["user:7"], "slow", 0);
    let mut client = house.app(7);
    let began = Instant::now();
    let mut passes = 0;
    eventually("he passes five times", || {
        passes += usize::from(told(&mut client) == Status::SoldOut);
        passes == 5
    });
    let least = Duration::from_millis(1_195);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
}

#[test]
fn an_entry_ends_by_itself_when_its_time_has_passed() {
    let (house, _) = open(sold_out());
    let mut client = house.app(7);
    let until_ms = now_ms() + 1_000;
    in_force(&house, &["user:7"], "block", until_ms);
    eventually("he is free", || {
        let (before_ms, status) = (now_ms(), told(&mut client));
        assert!(status == Status::Blocked || now_ms() >= until_ms, "{status:?} too early");
        assert!(status == Status::SoldOut || before_ms <= until_ms, "{status:?} too late");
        status == Status::SoldOut
    });
    assert!(house.gateway.risk_of(Some(user(7)), None, None).is_empty());
}

#[test]
fn who_is_listed_is_so_after_a_restart_before_the_first_client_comes() {
    let (house, _) = open(sold_out());
    in_force(&house, &["user:7"], "block", 0);
    let (folder, _) = house.stop();
    let house = Plan::with(Vec::new()).open_in(folder);
    assert_eq!([told(&mut house.app(7)), told(&mut house.app(8))], [Status::Blocked, Status::SoldOut]);
}

#[test]
fn what_is_no_entry_is_ignored_and_its_neighbours_are_not() {
    let (house, _) = open(sold_out());
    // As a newer version writes, or somebody's hand: the store takes any text.
    in_force(&house, &["user:7", "card:4711", "user:x", "ip:10.0.0.1/8"], "block", 0);
    in_force(&house, &["user:8"], "ban", 0);
    assert_eq!([told(&mut house.app(7)), told(&mut house.app(8))], [Status::Blocked, Status::SoldOut]);
    let status = house.gateway.risk_status();
    assert_eq!((status.users, status.ips, status.devices), (1, 0, 0));
    assert_eq!(house.gateway.counters().event_count(rushgate::gateway::Event::RiskIgnored), 4);
}

#[test]
fn what_became_of_a_user_is_told_by_rung() {
    let (house, mut winner) = open(sold_out());
    let last = |id: u64| house.gateway.last_buy(user(id)).map(|buy| (buy.rung, buy.status, buy.activity.0));
    assert_eq!(last(7), None);
    let mut client = house.app(7);
    for (ask, due) in [
        (buy(9, SKU, 1), (Rung::Activity, Status::UnknownActivity, 9)),
        (buy(SALE, SKU, 1), (Rung::Stock, Status::SoldOut, SALE)),
    ] {
        client.ask(&ask);
        assert_eq!(last(7), Some(due));
    }
    in_force(&house, &["user:7", "ip:127.0.0.0/8"], "block", 0);
    told(&mut client);
    assert_eq!(last(7), Some((Rung::Risk, Status::Blocked, SALE)));
    let listed = house.gateway.risk_of(Some(user(7)), Some("127.0.0.1".parse().unwrap()), Some("x"));
    let listed: Vec<_> = listed.into_iter().map(|one| (one.subject, one.effect)).collect();
    let block = "ip:127.0.0.0/8".parse::<Subject>().unwrap();
    assert_eq!(listed, [(Subject::User(user(7)), Effect::Block), (block, Effect::Block)]);
    assert_eq!(last(1), Some((Rung::Passed, Status::Ok, SALE)));
    told(&mut winner);
    assert_eq!(last(1), Some((Rung::Duplicate, Status::Already, SALE)));
    // Also of whoever comes over a service connection, each time.
    let mut back_end = house.service();
    told_of(&mut back_end, 9, Some([127, 0, 0, 1]), None);
    assert_eq!(last(9), Some((Rung::Risk, Status::Blocked, SALE)));
    taken_off(&house, "ip:127.0.0.0/8");
    told_of(&mut back_end, 9, None, None);
    assert_eq!(last(9), Some((Rung::Stock, Status::SoldOut, SALE)));
}
