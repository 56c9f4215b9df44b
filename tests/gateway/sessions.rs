//! Tokens that stand for sessions: looked up while nobody else waits, judged like a JWT's claims, and BUSY while the
//! store is away.

use std::time::{Duration, Instant};

use rushgate::admission::identity::{ClaimNames, IdentityError, session_digest};
use rushgate::gateway::Event;
use rushgate::protocol::{ActivityId, Opcode, Reply, Request, Status, activity_flags};
use rushgate::store::catalog::ActivityChange;
use rushgate::store::sessions::{SessionEditor, SessionKey, StoredSession};
use rushgate::store::sql::SessionFolder;

use super::bystander::Bystander;
use super::house::{House, Plan, SALE, SKU, now_ms, rate};
use super::wire::{Client, buy, eventually, hello, request, result};

fn house() -> House {
    let kept = ClaimNames::new(&["level".to_owned()]).unwrap();
    let plan = Plan::new(50).identity(|identity| {
        identity.sessions = true;
        identity.claims = kept;
        identity.service_from = vec!["10.0.0.0/8".parse().unwrap()];
    });
    plan.open()
}

fn token(name: &str) -> String {
    format!("a session's token of {name}")
}

fn key(name: &str) -> SessionKey {
    SessionKey(session_digest(token(name).as_bytes()).unwrap())
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn of_user(user: &str, ends_in_s: u64) -> StoredSession {
    let exp = (now_ms() / 1000 + ends_in_s).to_string();
    StoredSession { user: text(user), exp, scope: text("app"), claims: text("{\"level\":3}") }
}

/// As the login service does.
fn keep(house: &House, name: &str, session: &StoredSession) {
    let data_dir = house.dir.path().join("data");
    house.operate(async {
        let folder = SessionFolder::open(&data_dir).await.unwrap();
        folder.put_session(&key(name), session, now_ms() / 1000 + 3600).await.unwrap();
    });
}

fn remove(house: &House, name: &str) -> bool {
    let data_dir = house.dir.path().join("data");
    house.operate(async {
        let folder = SessionFolder::open(&data_dir).await.unwrap();
        folder.remove_session(&key(name)).await.unwrap()
    })
}

fn greeted(house: &House) -> Client {
    let mut client = Client::connect(house.addr());
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    client
}

fn auth(house: &House, name: &str) -> Status {
    let mut client = greeted(house);
    let status = client.auth(&token(name)).status;
    if status != Status::Ok {
        client.closed();
    }
    status
}

/// What ACTIVITY says of it.
fn flags(client: &mut Client) -> u8 {
    match client.ask(&Request::Activity { activity: ActivityId(SALE) }).reply {
        Reply::Activity { info, .. } => info.flags,
        other => panic!("{other:?}"),
    }
}

fn refused(house: &House, why: IdentityError) -> u64 {
    house.gateway.counters().token_refusal_count(why)
}

#[test]
fn a_session_is_its_users_and_what_comes_behind_auth_is_answered_behind_it() {
    let house = house();
    keep(&house, "one", &of_user("42", 60));
    let change = ActivityChange { rule: Some("level == 3"), ..ActivityChange::default() };
    house.operate(house.admin.change(u64::from(SALE), &change)).unwrap();
    let mut other = house.app(7);
    eventually("the rule is in force", || flags(&mut other) & activity_flags::ELIGIBLE == 0);
    let mut client = Client::connect(house.addr());
    let session = token("one");
    let asked = [hello(), Request::Auth { token: session.as_bytes() }, buy(SALE, SKU, 1), result(SALE)];
    let bytes: Vec<u8> = (1..).zip(&asked).flat_map(|(id, what)| request(id, None, what)).collect();
    client.write(&bytes);
    let answers: Vec<_> = (0..2).map(|_| client.read().unwrap()).collect();
    assert_eq!([answers[0].opcode, answers[1].opcode], [Opcode::Hello, Opcode::Auth]);
    let Reply::Auth { user, expires_at_ms, .. } = answers[1].reply else { panic!("{:?}", answers[1]) };
    assert_eq!(user.unwrap().0, 42);
    assert!(expires_at_ms.abs_diff(now_ms() + 60_000) < 30_000);
    assert_eq!(client.answer_to(3).status, Status::Queued);
    assert!(matches!(client.answer_to(4).status, Status::Ok | Status::NoOrder));
    // A fresh one says other things, and one that does not fit here changes nothing.
    keep(&house, "two", &StoredSession { claims: text("{}"), ..of_user("42", 90) });
    keep(&house, "other", &of_user("43", 60));
    assert_eq!(client.auth(&token("other")).status, Status::Unexpected);
    assert_eq!(client.auth(&token("two")).status, Status::Ok);
    assert_eq!(flags(&mut client), activity_flags::HOLDS_ORDER);
    // A JWT is one here as well.
    assert_eq!(client.auth(&house.token(42)).status, Status::Ok);
}

#[test]
fn what_is_kept_of_a_session_decides_and_why_it_is_refused_is_counted() {
    let house = house();
    let good = of_user("42", 60);
    let cases = [
        (
            "unreadable end",
            StoredSession { exp: text("tomorrow"), ..good.clone() },
            IdentityError::BadSession,
        ),
        ("no end", StoredSession { exp: text(""), ..good.clone() }, IdentityError::BadSession),
        (
            "claims that are none",
            StoredSession { claims: text("[3]"), ..good.clone() },
            IdentityError::BadSession,
        ),
        ("another scope", StoredSession { scope: text("admin"), ..good.clone() }, IdentityError::BadScope),
        ("no user", StoredSession { user: text(""), ..good.clone() }, IdentityError::BadSubject),
        ("a user of old", StoredSession { user: text("042"), ..good.clone() }, IdentityError::BadSubject),
        (
            "a back end from elsewhere",
            StoredSession { scope: text("service"), ..good.clone() },
            IdentityError::UntrustedSource,
        ),
    ];
    for (name, session, why) in cases {
        keep(&house, name, &session);
        let before = refused(&house, why);
        assert_eq!(auth(&house, name), Status::BadToken, "{name}");
        assert_eq!(refused(&house, why), before + 1, "{name}");
    }
    keep(&house, "yesterday's", &StoredSession { exp: text("1000000000"), ..good.clone() });
    assert_eq!(auth(&house, "yesterday's"), Status::TokenExpired);
    assert_eq!(auth(&house, "nobody"), Status::BadToken);
    assert_eq!(refused(&house, IdentityError::UnknownSession), 1);
    // Neither a JWT nor of a session's length: not looked up.
    let asked = house.gateway.counters().event_count(Event::SessionLookedUp);
    for form in ["too short", &"x".repeat(513), "aaaaaaaaaa.bbbbbbbbbb.cccccccccc", ""] {
        assert_eq!(greeted(&house).auth(form).status, Status::BadToken, "{form}");
    }
    assert_eq!(house.gateway.counters().event_count(Event::SessionLookedUp), asked);
}

#[test]
fn a_session_that_was_removed_opens_nothing_more_and_ends_where_it_is_open_by_its_time() {
    let house = house();
    keep(&house, "one", &of_user("42", 3));
    let mut client = Client::login(house.addr(), &token("one"));
    assert!(remove(&house, "one") && !remove(&house, "one"));
    assert_eq!(auth(&house, "one"), Status::BadToken);
    assert_eq!(client.ask(&result(SALE)).status, Status::NoOrder);
    eventually("its time has passed", || client.ask(&result(SALE)).status == Status::TokenExpired);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::TokenExpired);
    client.ping();
    keep(&house, "fresh", &of_user("42", 60));
    assert_eq!(client.auth(&token("fresh")).status, Status::Ok);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}

#[test]
fn a_back_ends_session_is_taken_from_where_back_ends_are_and_names_users() {
    let plan = Plan::new(50).identity(|identity| identity.sessions = true);
    let house = plan.open();
    keep(&house, "shop", &StoredSession { user: text(""), scope: text("service"), ..of_user("", 60) });
    let mut back_end = Client::login(house.addr(), &token("shop"));
    assert_eq!(back_end.ask(&buy(SALE, SKU, 1)).status, Status::UserRequired);
    assert_eq!(back_end.ask_for(9, &buy(SALE, SKU, 1)).status, Status::Queued);
    keep(&house, "one", &of_user("42", 60));
    assert_eq!(back_end.auth(&token("one")).status, Status::Unexpected, "of another kind");
    assert_eq!(back_end.ask_for(9, &result(SALE)).status, Status::Ok);
}

#[test]
fn a_store_that_is_away_is_busy_to_auth_alone_and_the_connection_lives() {
    let house = house();
    keep(&house, "one", &of_user("42", 60));
    let mut inside = Client::login(house.addr(), &token("one"));
    let bystander = Bystander::watch(house.app(77), SALE);
    let arrived = house.gate.arrived();
    house.gate.shut();
    let mut client = greeted(&house);
    let session = token("one");
    let began = Instant::now();
    // What was sent behind it waits, and is told that nobody is there.
    let asked =
        [Request::Auth { token: session.as_bytes() }, buy(SALE, SKU, 1), Request::Ping { client_time: 5 }];
    let bytes: Vec<u8> = (11..).zip(&asked).flat_map(|(id, what)| request(id, None, what)).collect();
    client.write(&bytes);
    let first = client.read().unwrap();
    assert_eq!((first.opcode, first.id, first.status), (Opcode::Auth, 11, Status::Busy));
    assert!(first.hint_ms > 0 && began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert_eq!(client.read().unwrap().status, Status::NotAuthenticated);
    assert_eq!(client.read().unwrap().opcode, Opcode::Ping);
    // Who is in stays in with what he had.
    assert_eq!(inside.auth(&session).status, Status::Busy);
    assert_eq!(inside.ask(&result(SALE)).status, Status::NoOrder);
    assert_eq!(house.gate.arrived() - arrived, 2);
    assert_eq!(house.gateway.counters().event_count(Event::SessionUnanswered), 2);
    house.gate.open();
    assert_eq!(client.auth(&session).status, Status::Ok);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    bystander.unharmed();
}

#[test]
fn a_lookup_that_breaks_off_is_busy_to_its_auth_and_holds_nobody_up() {
    let house = house();
    keep(&house, "one", &of_user("42", 60));
    let session = token("one");
    let mut inside = Client::login(house.addr(), &session);
    let mut outside = greeted(&house);
    house.gate.break_lookups(true);
    for client in [&mut outside, &mut inside] {
        let told = client.auth(&session);
        assert!(told.status == Status::Busy && told.hint_ms > 0, "{told:?}");
    }
    eventually("both are counted", || house.gateway.counters().event_count(Event::SessionUnanswered) == 2);
    house.gate.break_lookups(false);
    for client in [&mut outside, &mut inside] {
        assert_eq!(client.auth(&session).status, Status::Ok);
    }
}

#[test]
fn who_leaves_while_he_is_looked_up_is_gone_and_who_waits_when_the_gateway_drains_is_answered() {
    let house = house();
    keep(&house, "one", &of_user("42", 60));
    let arrived = house.gate.arrived();
    house.gate.shut();
    let session = token("one");
    let mut gone = greeted(&house);
    gone.send(&Request::Auth { token: session.as_bytes() });
    let mut client = greeted(&house);
    let id = client.send(&Request::Auth { token: session.as_bytes() });
    eventually("both are looked up", || house.gate.arrived() - arrived == 2);
    gone.reset();
    let gateway = std::sync::Arc::clone(&house.gateway);
    let draining = house.runtime.spawn(async move { gateway.drain().await });
    let goaway = client.read().unwrap();
    assert_eq!(goaway.opcode, Opcode::Goaway);
    house.gate.open();
    assert_eq!(client.answer_to(id).status, Status::Ok);
    client.closed();
    assert!(house.operate(draining).unwrap());
}

#[test]
fn a_gateway_that_takes_no_sessions_looks_none_up() {
    let house = Plan::new(5).open();
    keep(&house, "one", &of_user("42", 60));
    let arrived = house.gate.arrived();
    assert_eq!(auth(&house, "one"), Status::BadToken);
    assert_eq!(refused(&house, IdentityError::Malformed), 1);
    assert_eq!(house.gate.arrived(), arrived);
}

#[test]
fn an_address_over_its_rate_of_auth_is_told_so_before_its_token_is_looked_at() {
    let plan = Plan::new(5).limits(|limits| {
        limits.auth_per_ip = rate(2, 3);
        limits.per_ip_overrides = Vec::new();
    });
    let house = plan.open();
    // Good or bad, each costs.
    let mut client = Client::login(house.addr(), &house.token(1));
    assert_eq!(client.auth(&house.token(1)).status, Status::Ok);
    assert_eq!(greeted(&house).auth("no token").status, Status::BadToken);
    let mut late = greeted(&house);
    let told = late.auth("no token");
    assert_eq!((told.status, house.count("auth_rate_limited")), (Status::RateLimited, 1));
    assert!((1..=1_500).contains(&told.hint_ms), "{}", told.hint_ms);
    // Who is in stays in, and nothing but AUTH is slowed.
    assert_eq!(client.auth(&house.token(1)).status, Status::RateLimited);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    late.ping();
    eventually("its time has come", || late.auth(&house.token(2)).status == Status::Ok);
    assert_eq!(late.ask(&result(SALE)).status, Status::NoOrder);
}
