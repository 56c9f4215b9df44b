//! Whom an activity is for: rules on claims of tokens and of back ends, allow-lists, and that neither touches who has
//! an order.

use std::time::Duration;

use rushgate::admission::identity::{ClaimNames, IdentityKind};
use rushgate::gateway::Event;
use rushgate::protocol::{ActivityId, Head, Opcode, Reply, Request, Status, UserId, activity_flags, tlv};
use rushgate::store::allow_lists::AllowListEditor;
use rushgate::store::catalog::{ActivityChange, Eligibility};
use rushgate::store::sql::{AllowListFolder, IfMissing, SqliteStore};
use serde_json::{Value, json};

use super::bystander::Bystander;
use super::house::{House, Plan, SALE, SECRET, SKU, now_ms, sale};
use super::wire::{Client, buy, eventually, frame, result, user};

/// A gateway that keeps two claims, and a sale under this rule or list.
fn house(rule: &str, allow_list: bool, stock: u64) -> House {
    let mut sale = sale(SALE, &[(SKU, stock)], 1);
    sale.eligibility = Eligibility { rule: rule.to_owned(), allow_list };
    let kept = ClaimNames::new(&["level".to_owned(), "vip".to_owned()]).unwrap();
    Plan::with(vec![sale]).identity(|identity| identity.claims = kept).open()
}

fn token(house: &House, id: u64, claims: Value) -> String {
    let Value::Object(claims) = claims else { panic!("{claims}") };
    let minter = house.minter(SECRET, "rushgate").with_claims(claims);
    minter.mint(IdentityKind::App(user(id)), now_ms() / 1000, Duration::from_secs(3600)).unwrap()
}

fn app(house: &House, id: u64, claims: Value) -> Client {
    Client::login(house.addr(), &token(house, id, claims))
}

/// What ACTIVITY says of it.
fn is_eligible(client: &mut Client) -> bool {
    match client.ask(&Request::Activity { activity: ActivityId(SALE) }).reply {
        Reply::Activity { info, .. } => info.flags & activity_flags::ELIGIBLE != 0,
        other => panic!("{other:?}"),
    }
}

/// A back end's request for a user with these claims.
fn asserting(client: &mut Client, id: u64, claims: Option<&str>, what: &Request<'_>) -> super::wire::Answer {
    let mut body = bytes::BytesMut::new();
    what.write(&mut body);
    let user = id.to_be_bytes();
    let mut tlvs: Vec<(u16, &[u8])> = vec![(tlv::USER, &user)];
    tlvs.extend(claims.map(|claims| (tlv::CLAIMS, claims.as_bytes())));
    let id = client.next_id();
    client.write(&frame(Head::request(what.opcode(), id), &tlvs, &body));
    client.answer_to(id)
}

#[test]
fn a_rule_lets_in_whose_token_fits_and_activity_tells_the_same() {
    let house = house("level >= 2 and not vip", false, 50);
    let arrived = house.gate.arrived();
    let left_out = [
        json!({}),
        json!({"level": 1}),
        json!({"level": 3, "vip": true}),
        // Of another type, and what a connection does not keep.
        json!({"level": "3"}),
        json!({"level": [3]}),
        json!({"level": {"level": 3}}),
        json!({"level": null}),
        json!({"level": true}),
        json!({"level": "x".repeat(100)}),
        json!({"Level": 3}),
    ];
    for (id, claims) in (1..).zip(left_out.clone()) {
        let mut client = app(&house, id, claims.clone());
        assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::NotEligible, "{claims}");
        assert!(!is_eligible(&mut client), "{claims}");
        assert_eq!(client.ask(&result(SALE)).status, Status::NoOrder);
    }
    assert_eq!(house.count("rung eligibility"), left_out.len() as u64);
    assert_eq!(house.gate.arrived(), arrived, "the store was not asked");
    for (id, claims) in (100..).zip([
        json!({"level": 2}),
        json!({"level": 2.5, "vip": false}),
        json!({"level": 9_007_199_254_740_991_u64, "other": {"a": [1]}}),
        json!({"level": 3, "vip": "true"}),
    ]) {
        let mut client = app(&house, id, claims.clone());
        assert!(is_eligible(&mut client), "{claims}");
        assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued, "{claims}");
    }
}

#[test]
fn a_fresh_token_replaces_what_the_old_one_said() {
    let house = house("level >= 2", false, 5);
    let mut client = app(&house, 1, json!({"level": 1, "vip": true}));
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::NotEligible);
    assert_eq!(client.auth(&token(&house, 1, json!({"level": 2}))).status, Status::Ok);
    assert!(is_eligible(&mut client));
    assert_eq!(client.auth(&token(&house, 1, json!({"vip": true}))).status, Status::Ok);
    assert!(!is_eligible(&mut client), "nothing is left of the old one");
    // One that is not for this connection changes nothing.
    assert_eq!(client.auth(&token(&house, 2, json!({"level": 9}))).status, Status::Unexpected);
    assert!(!is_eligible(&mut client));
}

#[test]
fn a_back_end_asserts_claims_and_an_app_does_not() {
    let house = house("level >= 2 and (vip or city == \"Wuhan\")", false, 50);
    // `city` is not kept of tokens: nobody fits by his token, and the rule cannot be used at all.
    let mut client = app(&house, 1, json!({"level": 3, "vip": true}));
    assert!(!is_eligible(&mut client));
    set(&house, "level >= 2 and vip");
    eventually("the rule is in force", || is_eligible(&mut client));

    let mut back_end = house.service();
    for claims in [
        None,
        Some("level=3"),
        Some("level=1;vip=true"),
        Some("level=3;vip"),
        Some("level=x;vip=true"),
        Some(";;;"),
    ] {
        let told = asserting(&mut back_end, 2, claims, &buy(SALE, SKU, 1)).status;
        assert_eq!(told, Status::NotEligible, "{claims:?}");
    }
    let fits = Some("vip=true; level=2");
    let asked = asserting(&mut back_end, 2, fits, &Request::Activity { activity: ActivityId(SALE) });
    assert!(matches!(asked.reply, Reply::Activity { info, .. } if info.flags == activity_flags::ELIGIBLE));
    assert_eq!(asserting(&mut back_end, 2, fits, &buy(SALE, SKU, 1)).status, Status::Queued);
    // Whatever is said of him later.
    assert_eq!(asserting(&mut back_end, 2, None, &buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(asserting(&mut back_end, 2, None, &result(SALE)).status, Status::Ok);

    let mut liar = app(&house, 3, json!({"level": 1}));
    assert_eq!(asserting(&mut liar, 3, fits, &buy(SALE, SKU, 1)).status, Status::NotEligible);
}

fn rule_of(rule: &str) -> ActivityChange<'_> {
    ActivityChange { rule: Some(rule), ..ActivityChange::default() }
}

fn set(house: &House, rule: &str) {
    house.operate(house.admin.change(u64::from(SALE), &rule_of(rule))).unwrap();
}

#[test]
fn neither_rule_nor_list_turns_a_winner_away_and_neither_hides_the_window() {
    let house = house("", false, 1);
    let mut winner = house.app(1);
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let mut loser = house.app(2);
    eventually("nothing is left", || loser.ask(&buy(SALE, SKU, 1)).status == Status::SoldOut);
    set(&house, "vip");
    // Before the stock, behind the order he holds and behind what the activity sells at all.
    eventually("the rule is in force", || loser.ask(&buy(SALE, SKU, 1)).status == Status::NotEligible);
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(winner.ask(&result(SALE)).status, Status::Ok);
    assert_eq!(loser.ask(&buy(SALE, SKU, 9)).status, Status::OverLimit);
    assert_eq!(loser.ask(&buy(SALE, SKU + 1, 1)).status, Status::UnknownSku);
    house.operate(house.admin.close(u64::from(SALE))).unwrap();
    eventually("the entry is closed", || loser.ask(&buy(SALE, SKU, 1)).status == Status::Ended);
}

#[test]
fn a_rule_that_cannot_be_used_lets_nobody_in_until_it_is_mended() {
    let house = house("", false, 5);
    let refused = house.operate(house.admin.change(u64::from(SALE), &rule_of("level => 2")));
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("\"level => 2\", at character 7: expected and, or, =="), "{told}");
    let mut client = app(&house, 1, json!({"level": 3}));
    assert!(is_eligible(&mut client), "nothing was changed");

    // Written by another version, or by hand.
    let data_dir = house.dir.path().join("data");
    for rule in ["level => 2", "level >= 2 and club"] {
        house.operate(async {
            let mut folder = SqliteStore::open_for_operator(&data_dir, IfMissing::Refuse).await.unwrap();
            folder.change_activity(ActivityId(SALE), rule_of(rule)).await.unwrap();
            folder.close().await;
        });
        eventually("nobody is let in", || !is_eligible(&mut client));
        assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::NotEligible, "{rule}");
        set(&house, "level >= 2");
        eventually("it is mended", || is_eligible(&mut client));
    }
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}

/// As a command beside the gateway does.
fn change(house: &House, ids: impl IntoIterator<Item = u64>, is_in: bool) {
    let data_dir = house.dir.path().join("data");
    let users: Vec<UserId> = ids.into_iter().map(UserId).collect();
    house.operate(async {
        let folder = AllowListFolder::open(&data_dir).await.unwrap();
        for some in users.chunks(1000) {
            folder.change_list(ActivityId(SALE), some, is_in).await.unwrap();
        }
    });
}

#[test]
fn a_list_lets_in_who_is_on_it_as_long_as_he_is() {
    let house = house("", true, 5);
    let (mut one, mut other) = (house.app(1), house.app(2));
    assert_eq!([&mut one, &mut other].map(is_eligible), [false; 2], "an empty list is for nobody");
    change(&house, [1], true);
    eventually("he is let in", || is_eligible(&mut one));
    assert_eq!(one.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(other.ask(&buy(SALE, SKU, 1)).status, Status::NotEligible);
    change(&house, [2], true);
    eventually("she is, too", || is_eligible(&mut other));
    change(&house, [1, 2], false);
    eventually("nobody is", || !is_eligible(&mut one) && !is_eligible(&mut other));
    assert_eq!(one.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    // Without the list everybody is; with a rule beside it both have to agree.
    let off = ActivityChange { allow_list: Some(false), ..ActivityChange::default() };
    house.operate(house.admin.change(u64::from(SALE), &off)).unwrap();
    eventually("everybody is", || is_eligible(&mut other));
    let both = ActivityChange { allow_list: Some(true), ..rule_of("vip") };
    house.operate(house.admin.change(u64::from(SALE), &both)).unwrap();
    eventually("nobody is", || !is_eligible(&mut other));
    change(&house, [3], true);
    let mut both = app(&house, 3, json!({"vip": true}));
    eventually("both agree", || is_eligible(&mut both));
    assert!(!is_eligible(&mut house.app(3)), "without the claim");
    assert!(!is_eligible(&mut app(&house, 4, json!({"vip": true}))), "not on the list");
}

#[test]
fn a_list_of_100_000_users_is_loaded_while_the_gateway_serves() {
    let house = house("", true, 5);
    let bystander = Bystander::watch(house.app(77), SALE);
    let (mut first, mut last, mut other) = (house.app(2), house.app(200_000), house.app(200_001));
    change(&house, (1..=100_000).map(|user| user * 2), true);
    eventually("all of them are in", || is_eligible(&mut first) && is_eligible(&mut last));
    assert!(!is_eligible(&mut other));
    assert_eq!(last.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    change(&house, [2, 200_000], false);
    eventually("one is out", || !is_eligible(&mut first));
    assert!(house.gateway.counters().event_count(Event::ListRead) >= 2);
    bystander.unharmed();
}

#[test]
fn claims_are_text_of_1_to_256_bytes_whoever_sends_them() {
    let house = house("", false, 5);
    let user = 9_u64.to_be_bytes();
    for (mut client, tlv_user) in [(house.app(9), false), (house.service(), true)] {
        for (claims, due) in [
            (&b""[..], Status::BadBody),
            (&[b'x'; 257], Status::BadBody),
            (b"\xFF\xFE", Status::BadBody),
            (&[b'x'; 256], Status::NoOrder),
            ("城市=武汉".as_bytes(), Status::NoOrder),
        ] {
            let tlvs: &[(u16, &[u8])] = &[(tlv::CLAIMS, claims), (tlv::USER, &user)];
            let id = client.next_id();
            let tlvs = if tlv_user { tlvs } else { &tlvs[..1] };
            client.write(&frame(Head::request(Opcode::Result, id), tlvs, &SALE.to_be_bytes()));
            assert_eq!(client.answer_to(id).status, due, "{claims:?}");
        }
    }
}
