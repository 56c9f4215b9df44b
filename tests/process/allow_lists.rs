//! Whom activities are for, as operators say it by commands: on the embedded store, and with two gateways on one Redis.

use std::fs;
use std::time::{Duration, Instant};

use rushgate::protocol::{ActivityId, Reply, Request, Status, activity_flags};
use rushgate::stock::calls::ShardId;
use rushgate_servers::{Persistence, RedisSettings};
use serde_json::Value;

use super::house::{House, SALE, SKU, Serving};
use super::shop::{Shop, background, own_redis};
use super::wire::{Client, buy, eventually};

/// No limit that a client that asks without a pause would meet.
const UNLIMITED: &[&str] = &["limits.result_per_user.rate_per_s=0", "limits.per_user.rate_per_s=0"];
const SOON: Duration = Duration::from_secs(1);

fn is_eligible(client: &mut Client) -> bool {
    match client.ask(&Request::Activity { activity: ActivityId(SALE) }).reply {
        Reply::Activity { info, .. } => info.flags & activity_flags::ELIGIBLE != 0,
        other => panic!("{other:?}"),
    }
}

/// What a command says that ran and did not do it.
fn rejected(house: &House, args: &[&str]) -> String {
    let output = house.run(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Two gateways of a shop with an activity for members, which opens in an hour, and a client of each.
fn members_only(shop: &Shop) -> ([Serving; 2], [Client; 2]) {
    shop.create(16, &["--opens", "+1h", "--closes", "+2h", "--allow-list"]);
    let gateways = [shop.house.serve(UNLIMITED), shop.house.serve(UNLIMITED)];
    let clients = gateways.each_ref().map(|gateway| shop.app(gateway, 42));
    (gateways, clients)
}

#[track_caller]
fn all_come_to(clients: &mut [Client; 2], due: bool) {
    for client in clients {
        eventually("the list is in force", || is_eligible(client) == due);
    }
}

#[test]
fn a_command_lets_users_in_and_takes_them_out_within_a_second_on_all_gateways() {
    let shop = Shop::new();
    let (gateways, mut clients) = members_only(&shop);
    assert_eq!(clients.each_mut().map(is_eligible), [false; 2]);
    let said = shop.house.done(&["activity", "allow", "add", "7", "42", "43", "42"]);
    let since = Instant::now();
    all_come_to(&mut clients, true);
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert!(said.starts_with("activity 7: 2 of 3 users added; 2 are on its list"), "{said}");
    assert_eq!(shop.house.done(&["activity", "allow", "list", "7"]).trim(), "42\n43");
    // Applied as a change, not read again.
    let read = gateways.each_ref().map(|one| one.metric("rushgate_allow_lists_read_total"));
    shop.house.done(&["activity", "allow", "remove", "7", "42"]);
    let since = Instant::now();
    all_come_to(&mut clients, false);
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert_eq!(gateways.each_ref().map(|one| one.metric("rushgate_allow_lists_read_total")), read);
    // By hand, as whoever runs the shop may.
    let set = shop.key(ShardId::ALL[0], "7:allowed");
    shop.redis(&["SADD", &set, "42", "bob"]);
    all_come_to(&mut clients, true);
    eventually("it is told", || gateways[0].log().contains("members of the allow-list are no user ids"));
    shop.redis(&["SREM", &set, "42"]);
    all_come_to(&mut clients, false);
    // And by the command again, on top of that.
    shop.house.done(&["activity", "allow", "add", "7", "42"]);
    all_come_to(&mut clients, true);
    shop.house.done(&["activity", "allow", "clear", "7"]);
    all_come_to(&mut clients, false);
}

#[test]
fn a_file_of_100_000_users_is_imported_while_two_gateways_serve() {
    let shop = Shop::new();
    let (gateways, mut clients) = members_only(&shop);
    let file = shop.house.dir.path().join("members");
    let lines: Vec<String> = (1..=100_000).map(|user| user.to_string()).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    let file = file.to_str().unwrap();
    let said = shop.house.done(&["activity", "allow", "import", "7", file, "--json"]);
    let since = Instant::now();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((said["changed"].as_u64(), said["users"].as_u64()), (Some(100_000), Some(100_000)));
    all_come_to(&mut clients, true);
    // All of it at once, read by a binary that is not optimised, beside other tests.
    assert!(since.elapsed() < 5 * SOON, "{:?}", since.elapsed());
    for gateway in &gateways {
        let read = gateway.metric("rushgate_allow_lists_read_total");
        assert_eq!(read, 1, "nobody has taken a part of it for the whole");
        assert!(!is_eligible(&mut shop.app(gateway, 100_001)));
        eventually("all are in", || is_eligible(&mut shop.app(gateway, 100_000)));
    }
    // Once more changes nothing.
    let again = shop.house.done(&["activity", "allow", "import", "7", file]);
    assert!(again.contains("0 of 100000 users added; 100000 are on its list"), "{again}");
    let fresh = shop.house.serve(UNLIMITED);
    assert!(is_eligible(&mut shop.app(&fresh, 100_000)), "before anything else");
}

#[test]
fn a_list_is_in_force_while_redis_is_away_and_given_back_when_redis_comes_back_empty() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::Off)));
    let shop = Shop::on(options);
    let (gateways, mut clients) = members_only(&shop);
    shop.house.done(&["activity", "allow", "add", "7", "42"]);
    all_come_to(&mut clients, true);
    let mut others = gateways.each_ref().map(|gateway| shop.app(gateway, 43));
    runtime.block_on(redis.kill9()).unwrap();
    eventually("it is noticed", || gateways[0].log().contains("allow-lists cannot be read"));
    let judged = |clients: &mut [Client; 2]| clients.each_mut().map(is_eligible);
    assert_eq!((judged(&mut clients), judged(&mut others)), ([true; 2], [false; 2]));
    let refused = shop.house.refused(&["activity", "allow", "add", "7", "43"]);
    assert!(refused.contains("does not answer") || refused.contains("cannot be reached"), "{refused}");

    runtime.block_on(redis.restart()).unwrap();
    eventually("it is put back", || {
        assert_eq!(judged(&mut clients), [true; 2]);
        let restored = |one: &Serving| one.metric("rushgate_allow_lists_restored_total");
        gateways.iter().map(restored).sum::<u64>() >= 1
    });
    assert_eq!(shop.house.done(&["activity", "allow", "list", "7"]).trim(), "42");
    // And is changed as before.
    shop.house.done(&["activity", "allow", "add", "7", "43"]);
    all_come_to(&mut others, true);
    shop.house.done(&["activity", "allow", "remove", "7", "42"]);
    all_come_to(&mut clients, false);
}

/// Everything of the lists is gone at once.
fn lose(shop: &Shop) {
    let keys = ["allow", "allow:log", "7:allowed"].map(|rest| shop.key(ShardId::ALL[0], rest));
    shop.redis(&["DEL", &keys[0], &keys[1], &keys[2]]);
}

/// How many are on the list in Redis.
fn listed(shop: &Shop) -> String {
    shop.redis(&["SCARD", &shop.key(ShardId::ALL[0], "7:allowed")])
}

#[test]
fn a_list_that_redis_has_lost_is_never_taken_for_less_than_it_was() {
    let shop = Shop::new();
    let (gateways, _) = members_only(&shop);
    let file = shop.house.dir.path().join("members");
    let lines: Vec<String> = (1..=60_000).map(|user| user.to_string()).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    shop.house.done(&["activity", "allow", "import", "7", file.to_str().unwrap()]);
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 60_000));
    all_come_to(&mut clients, true);
    for round in 1..=3 {
        lose(&shop);
        eventually("it is put back", || {
            assert_eq!(clients.each_mut().map(is_eligible), [true; 2], "round {round}");
            let listed = listed(&shop);
            assert!(["0", "60000"].contains(&listed.as_str()), "{listed} are there");
            listed == "60000"
        });
    }
    let restored = gateways.each_ref().map(|one| one.metric("rushgate_allow_lists_restored_total"));
    // By one of them each time; by the other once more where that one had not heard of the last time yet.
    assert!((3..=6).contains(&restored.iter().sum::<u64>()), "{restored:?}");
    // What an operator changes before it is put back is no reason to forget the others.
    lose(&shop);
    shop.house.done(&["activity", "allow", "add", "7", "60001"]);
    let mut newcomers = gateways.each_ref().map(|gateway| shop.app(gateway, 60_001));
    eventually("it is put back with what was changed", || {
        assert_eq!(clients.each_mut().map(is_eligible), [true; 2]);
        listed(&shop) == "60001" && newcomers.each_mut().map(is_eligible) == [true; 2]
    });
}

#[test]
fn a_redis_that_has_forgotten_the_last_changes_is_told_them() {
    let shop = Shop::new();
    let (gateways, mut clients) = members_only(&shop);
    let mut others = gateways.each_ref().map(|gateway| shop.app(gateway, 43));
    let [hash, log, set] = ["allow", "allow:log", "7:allowed"].map(|rest| shop.key(ShardId::ALL[0], rest));
    let add = |user| shop.house.done(&["activity", "allow", "add", "7", user]);
    add("42");
    let kept = shop.redis(&["HGET", &hash, "7"]);
    add("43");
    let forgotten = shop.redis(&["HGET", &hash, "7"]);
    shop.house.done(&["activity", "allow", "remove", "7", "42"]);
    let last = shop.redis(&["HGET", &hash, "7"]);
    all_come_to(&mut others, true);
    all_come_to(&mut clients, false);
    // As a server that comes back with what its disk has.
    let script = "redis.call('HSET', KEYS[1], 'version', ARGV[1], '7', ARGV[1]) \
                  redis.call('XDEL', KEYS[2], ARGV[2] .. '-0', ARGV[3] .. '-0') \
                  redis.call('DEL', KEYS[3]) redis.call('SADD', KEYS[3], 42)";
    shop.redis(&["EVAL", script, "3", &hash, &log, &set, &kept, &forgotten, &last]);
    eventually("it is put back", || {
        assert_eq!(
            (others.each_mut().map(is_eligible), clients.each_mut().map(is_eligible)),
            ([true; 2], [false; 2])
        );
        shop.redis(&["SMEMBERS", &set]) == "43"
    });
}

#[test]
fn nobody_is_left_out_for_good_because_a_list_is_not_there_or_cannot_be_read() {
    let shop = Shop::new();
    shop.create(16, &["--opens", "+3s", "--allow-list"]);
    let other = ["activity", "create", "--id", "8", "--name", "another", "--sku", "1:16:999", "--allow-list"];
    shop.house.done(&[&other[..], &["--opens", "+1h", "--closes", "+2h"]].concat());
    let set = shop.key(ShardId::ALL[0], "7:allowed");
    shop.redis(&["SET", &set, "somebody's"]);
    shop.house.done(&["activity", "allow", "add", "8", "42"]);
    // It starts, and goes by the other one, which is read behind the one that cannot be.
    let gateway = shop.house.serve(UNLIMITED);
    let mut client = shop.app(&gateway, 42);
    let mut is_on_other = || match client.ask(&Request::Activity { activity: ActivityId(8) }).reply {
        Reply::Activity { info, .. } => info.flags & activity_flags::ELIGIBLE != 0,
        other => panic!("{other:?}"),
    };
    assert!(is_on_other());
    shop.house.done(&["activity", "allow", "remove", "8", "42"]);
    eventually("it is followed", || !is_on_other());
    eventually("it is told", || gateway.log().contains("7:allowed is a string"));
    let told = |client: &mut Client| client.ask(&buy(SALE, SKU, 1)).status;
    let mut client = shop.app(&gateway, 42);
    eventually("it is open", || told(&mut client) != Status::NotStarted);
    assert_eq!(told(&mut client), Status::Busy, "not NOT_ELIGIBLE, which is final");
    shop.redis(&["DEL", &set]);
    eventually("it is told", || gateway.log().contains("the store holds no allow-list of this activity"));
    assert_eq!(told(&mut client), Status::Busy, "it may have been lost");
    // A file that was imported into nothing is there as a whole.
    let file = shop.house.dir.path().join("members");
    fs::write(&file, "43\n44\n").unwrap();
    shop.house.done(&["activity", "allow", "import", "7", file.to_str().unwrap()]);
    eventually("it is in force", || told(&mut client) == Status::NotEligible);
    // And stays in force when its key is somebody else's again.
    shop.redis(&["SET", &set, "somebody's"]);
    shop.house.done(&["activity", "allow", "add", "8", "42"]);
    eventually("it has looked", &mut is_on_other);
    assert_eq!(told(&mut client), Status::NotEligible);
    assert!(is_eligible(&mut shop.app(&gateway, 43)));
}

#[test]
fn on_the_embedded_store_rules_and_lists_are_told_by_the_same_commands() {
    let house = House::with_sale(5);
    let serving = house.serve(&[UNLIMITED, &["auth.claims=[\"level\"]"]].concat());
    let mint =
        |level: &str| house.done(&["token", "mint", "--user", "5", "--claim", level]).trim().to_owned();
    let mut fits = Client::login(serving.addr, &mint("level=2"));
    let mut other = Client::login(serving.addr, &mint("level=1"));
    let said = house.done(&["activity", "set", "7", "--eligibility", "level >= 2"]);
    assert!(said.contains("activity 7: for users with level >= 2"), "{said}");
    eventually("the rule is in force", || !is_eligible(&mut other));
    assert_eq!(other.ask(&buy(SALE, SKU, 1)).status, Status::NotEligible);
    assert!(is_eligible(&mut fits));
    let refused = rejected(&house, &["activity", "set", "7", "--eligibility", "level >= two"]);
    assert!(
        refused.contains("at character 10: expected a number, \"text\", true or false after >=; found two")
    );
    assert!(is_eligible(&mut fits), "nothing was changed");

    let added = house.done(&["activity", "allow", "add", "7", "6"]);
    assert!(
        added.contains("it does not ask for the list: rushgate activity set 7 --allow-list on"),
        "{added}"
    );
    house.done(&["activity", "set", "7", "--allow-list", "on"]);
    eventually("the list is in force", || !is_eligible(&mut fits));
    let shown = house.done(&["activity", "show", "7"]);
    assert!(shown.contains("for users on its allow-list with level >= 2"), "{shown}");
    house.done(&["activity", "allow", "add", "7", "5"]);
    eventually("he is let in", || is_eligible(&mut fits));
    assert_eq!(fits.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert!(serving.get("/metrics").1.contains("rung=\"eligibility\"} 1"));

    let file = house.dir.path().join("members");
    fs::write(&file, "8\nbob\n9\n").unwrap();
    let file = file.to_str().unwrap();
    let refused = rejected(&house, &["activity", "allow", "import", "7", file]);
    assert!(refused.contains("line 2: \"bob\" is not a user id"), "{refused}");
    let listed: Value =
        serde_json::from_str(&house.done(&["activity", "allow", "list", "7", "--json"])).unwrap();
    assert_eq!(listed["users"], serde_json::json!([5, 6]));
    for (args, says) in [
        (&["activity", "allow", "add", "9", "5"][..], "there is no activity 9"),
        (&["activity", "set", "9", "--allow-list", "on"], "there is no activity 9"),
        (&["activity", "allow", "import", "7", "/nowhere/members"], "No such file"),
    ] {
        let refused = rejected(&house, args);
        assert!(refused.contains(says), "{refused}");
    }
    for args in [
        &["activity", "allow", "add", "7", "0"][..],
        &["activity", "allow", "add", "7"],
        &["activity", "set", "7"],
        &["activity", "set", "7", "--allow-list", "maybe"],
        &["token", "mint", "--user", "5", "--claim", "sub=6"],
        &["token", "mint", "--user", "5", "--claim", "level"],
    ] {
        house.refused_by_usage(args);
    }
}
