//! HELLO and AUTH: what may come when, and which tokens are believed.

use std::time::Duration;

use rushgate::admission::identity::IdentityKind;
use rushgate::protocol::{ConnectionKind, Head, Opcode, Reply, Request, Status, UserId};

use super::house::{House, Plan, SALE, SECRET, SKU, now_ms};
use super::wire::{Client, buy, eventually, frame, hello, request, result, user};

fn greeted(house: &House) -> Client {
    let mut client = Client::connect(house.addr());
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    client
}

#[test]
fn the_replies_tell_clock_limits_and_identity() {
    let house = Plan::new(1)
        .settings(|settings| {
            settings.in_flight_max = 7;
            settings.service_in_flight_max = 70;
            settings.keepalive = Duration::from_secs(33);
        })
        .open();
    let mut client = Client::connect(house.addr());
    let before_ms = now_ms();
    let Reply::Hello { server_time_ms, connection_id, keepalive_ms, frame_bytes_max, in_flight_max } =
        client.ask(&hello()).reply
    else {
        panic!("no HELLO reply")
    };
    assert!((before_ms..=now_ms()).contains(&server_time_ms));
    assert_eq!((keepalive_ms, frame_bytes_max, in_flight_max), (33_000, 4096, 7));
    let Reply::Hello { connection_id: other_id, .. } = greeted_reply(&house) else {
        panic!("no HELLO reply")
    };
    assert_ne!(connection_id, other_id);

    let exp = now_ms() / 1000 + 3600;
    let Reply::Auth { user, expires_at_ms, kind, in_flight_max } = client.auth(&house.token(42)).reply else {
        panic!("no AUTH reply")
    };
    assert_eq!((user, kind, in_flight_max), (UserId::new(42), ConnectionKind::App, 7));
    assert!((exp * 1000..=exp * 1000 + 1000).contains(&expires_at_ms));

    let token = house.mint(IdentityKind::Service, 3600);
    let Reply::Auth { user, kind, in_flight_max, .. } = greeted(&house).auth(&token).reply else {
        panic!("no AUTH reply")
    };
    assert_eq!((user, kind, in_flight_max), (None, ConnectionKind::Service, 70));
}

fn greeted_reply(house: &House) -> Reply {
    Client::connect(house.addr()).ask(&hello()).reply
}

#[test]
fn messages_out_of_their_place_are_told_so_and_the_connection_stays_as_it_was() {
    let house = Plan::new(5).open();
    let token = house.token(1);
    let mut client = Client::connect(house.addr());
    let in_need_of_auth = [
        buy(SALE, SKU, 1),
        result(SALE),
        Request::Activity { activity: rushgate::protocol::ActivityId(SALE) },
        Request::Challenge { activity: rushgate::protocol::ActivityId(SALE) },
    ];
    assert_eq!(client.ask(&Request::Ping { client_time: 1 }).status, Status::Unexpected);
    assert_eq!(client.auth(&token).status, Status::Unexpected, "AUTH before HELLO");
    for early in &in_need_of_auth {
        assert_eq!(client.ask(early).status, Status::NotAuthenticated);
    }
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    assert_eq!(client.ask(&hello()).status, Status::Unexpected, "HELLO twice");
    for early in &in_need_of_auth {
        assert_eq!(client.ask(early).status, Status::NotAuthenticated);
    }
    assert_eq!(client.auth(&token).status, Status::Ok);
    assert_eq!(client.ask(&hello()).status, Status::Unexpected, "HELLO after AUTH");
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}

#[test]
fn a_hello_with_a_malformed_tlv_has_not_happened() {
    let house = Plan::new(5).open();
    let mut client = Client::connect(house.addr());
    let body = [2, 0, 0, 1, 0, 2, 0, 3, 0];
    client.write(&frame(Head::request(Opcode::Hello, 1), &[(1, &[0; 7])], &body));
    assert_eq!(client.answer_to(1).status, Status::BadBody);
    client.write(&frame(Head::request(Opcode::Hello, 2), &[(3, &[])], &body));
    assert_eq!(client.answer_to(2).status, Status::BadBody);
    client.write(&frame(Head::request(Opcode::Hello, 3), &[(1, &[0; 8])], &body));
    assert_eq!(client.answer_to(3).status, Status::Ok, "a well-formed one is ignored");
    client.write(&frame(Head::request(Opcode::Ping, 4), &[(2, &[0; 5])], &[0; 8]));
    assert_eq!(client.answer_to(4).status, Status::BadBody);
    let token = house.token(1);
    let auth = [&u16::try_from(token.len()).unwrap().to_be_bytes()[..], token.as_bytes()].concat();
    client.write(&frame(Head::request(Opcode::Auth, 5), &[(3, &[0xFF])], &auth));
    assert_eq!(client.answer_to(5).status, Status::BadBody);
    assert_eq!(client.auth(&token).status, Status::Ok);
}

/// `head.claims.` with the claims of a good token: its header is `{"alg":"none"}`.
fn without_signature(good: &str) -> String {
    let claims = good.split('.').nth(1).unwrap();
    format!("eyJhbGciOiJub25lIn0.{claims}.")
}

#[test]
fn tokens_that_are_not_believed_close_the_connection() {
    let house = Plan::new(5).open();
    let good = house.token(42);
    let app = IdentityKind::App(user(42));
    let (now_s, hour) = (now_ms() / 1000, Duration::from_secs(3600));
    let forged = house.minter(b"another secret of thirty-two bytes", "rushgate");
    let abroad = house.minter(SECRET, "another-shop");
    let signed = house.minter(SECRET, "rushgate");
    let mut changed = good.clone();
    let last = changed.pop().unwrap();
    changed.push(if last == 'A' { 'B' } else { 'A' });
    let refused = [
        ("forged", forged.mint(app, now_s, hour).unwrap(), Status::BadToken),
        ("alg none", without_signature(&good), Status::BadToken),
        (
            "alg none, signed",
            format!("{}{}", without_signature(&good), good.split('.').nth(2).unwrap()),
            Status::BadToken,
        ),
        ("wrong audience", abroad.mint(app, now_s, hour).unwrap(), Status::BadToken),
        ("expired", signed.mint(app, now_s - 7200, hour).unwrap(), Status::TokenExpired),
        ("expired and for others", abroad.mint(app, now_s - 7200, hour).unwrap(), Status::BadToken),
        ("no signature", good.rsplit_once('.').unwrap().0.to_owned(), Status::BadToken),
        ("not a token", "let me in".to_owned(), Status::BadToken),
        ("empty", String::new(), Status::BadToken),
    ];
    for (name, token, status) in &refused {
        let mut client = greeted(&house);
        // In one write with a BUY, for which nothing may be done.
        client.write(
            &[
                request(8, None, &Request::Auth { token: token.as_bytes() }),
                request(9, None, &buy(SALE, SKU, 1)),
            ]
            .concat(),
        );
        let answer = client.read().unwrap();
        assert_eq!((answer.id, answer.opcode, answer.status), (8, Opcode::Auth, *status), "{name}");
        client.closed();
    }
    assert_eq!(house.count("ending bad_token"), refused.len() as u64);
    assert_eq!((house.count("BAD_TOKEN"), house.count("TOKEN_EXPIRED")), (8, 1));
    assert_eq!((house.count("rung passed"), house.sold()), (0, (0, 0)));
}

#[test]
fn auth_as_somebody_else_is_unexpected_and_the_connection_keeps_its_user() {
    let house = Plan::new(5).open();
    let mut client = house.app(1);
    assert_eq!(client.auth(&house.token(2)).status, Status::Unexpected, "another user");
    let service = house.mint(IdentityKind::Service, 3600);
    assert_eq!(client.auth(&service).status, Status::Unexpected, "another kind");
    assert_eq!(client.auth(&house.token(1)).status, Status::Ok, "the same user again");
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(house.app(1).ask(&result(SALE)).status, Status::Ok);
    assert_eq!(house.app(2).ask(&result(SALE)).status, Status::NoOrder);

    let mut back_end = house.service();
    assert_eq!(back_end.auth(&house.token(1)).status, Status::Unexpected);
    assert_eq!(back_end.auth(&service).status, Status::Ok);
    assert_eq!(back_end.ask_for(1, &result(SALE)).status, Status::Ok);
}

#[test]
fn a_bad_token_on_a_live_connection_closes_it() {
    let house = Plan::new(5).open();
    let mut client = house.app(1);
    assert_eq!(client.auth("nonsense").status, Status::BadToken);
    client.closed();
}

#[test]
fn a_token_that_expires_while_connected_stops_requests_until_a_fresh_one() {
    let house = Plan::new(5).open();
    let short = house.mint(IdentityKind::App(user(1)), 2);
    let mut client = Client::login(house.addr(), &short);
    assert_eq!(client.ask(&result(SALE)).status, Status::NoOrder);
    eventually("the token expires", || client.ask(&result(SALE)).status == Status::TokenExpired);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::TokenExpired);
    assert_eq!(client.ask(&buy(SALE, SKU, 0)).status, Status::BadQuantity, "quantity is judged first");
    client.ping();
    assert_eq!(client.auth(&house.token(2)).status, Status::Unexpected, "still nobody else");
    assert_eq!(client.auth(&house.token(1)).status, Status::Ok);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(house.count("rung connection"), 1);
}
