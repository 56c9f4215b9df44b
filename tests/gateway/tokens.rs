//! Whose tokens a running gateway takes: keys that change under way, sources that are trusted or not, tokens made to
//! be let in, and the end of a token's time on a live connection.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rushgate::admission::identity::{IdentityError, IdentityKind, MintKey, MintSettings, Minter};
use rushgate::gateway::Event;
use rushgate::protocol::{Opcode, Request, Status};
use tempfile::TempDir;

use super::house::{House, Plan, SALE, SKU, now_ms};
use super::wire::{Client, buy, eventually, hello, result, user};

/// HS256 secrets, each with the `k` of its JWK.
const FIRST: (&str, &str) =
    ("the first secret, 32 bytes or more", "dGhlIGZpcnN0IHNlY3JldCwgMzIgYnl0ZXMgb3IgbW9yZQ");
const SECOND: (&str, &str) =
    ("the second secret, 32 bytes or more", "dGhlIHNlY29uZCBzZWNyZXQsIDMyIGJ5dGVzIG9yIG1vcmU");

fn jwks(keys: &[(&str, &str)]) -> String {
    let key = |(kid, k): &(&str, &str)| format!(r#"{{"kty":"oct","kid":"{kid}","k":"{k}"}}"#);
    format!(r#"{{"keys":[{}]}}"#, keys.iter().map(key).collect::<Vec<_>>().join(","))
}

/// A gateway whose keys are those of this file alone.
struct Rotating {
    house: House,
    file: PathBuf,
    _dir: TempDir,
}

impl Rotating {
    fn new(keys: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("jwks.json");
        fs::write(&file, jwks(keys)).unwrap();
        let path = file.clone();
        let plan = Plan::new(5).identity(|identity| {
            identity.key = None;
            identity.jwks_file = Some(path);
        });
        Self { house: plan.open(), file, _dir: dir }
    }

    /// As careful operators do it: another file takes the name.
    fn replace(&self, content: &str) {
        let new = self.file.with_extension("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    fn token(&self, secret: &str, kid: Option<&str>, id: u64) -> String {
        let minter = self.house.minter(secret.as_bytes(), "rushgate").with_kid(kid.map(str::to_owned));
        minter.mint(IdentityKind::App(user(id)), now_ms() / 1000, Duration::from_secs(3600)).unwrap()
    }

    fn auth(&self, secret: &str, kid: Option<&str>) -> Status {
        auth(&self.house, &self.token(secret, kid, 1))
    }

    fn refused(&self, why: IdentityError) -> u64 {
        self.house.gateway.counters().token_refusal_count(why)
    }

    fn events(&self, event: Event) -> u64 {
        self.house.gateway.counters().event_count(event)
    }
}

/// What a fresh connection is told.
fn auth(house: &House, token: &str) -> Status {
    let mut client = Client::connect(house.addr());
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    let status = client.auth(token).status;
    if status != Status::Ok {
        client.closed();
    }
    status
}

#[test]
fn keys_come_and_go_without_a_restart() {
    let keys = Rotating::new(&[("1", FIRST.1)]);
    let mut early = Client::login(keys.house.addr(), &keys.token(FIRST.0, Some("1"), 7));
    assert_eq!(keys.auth(SECOND.0, Some("2")), Status::BadToken);
    assert_eq!(keys.refused(IdentityError::UnknownKey), 1);

    keys.replace(&jwks(&[("1", FIRST.1), ("2", SECOND.1)]));
    eventually("the new key is in force", || keys.house.gateway.token_keys() == 2);
    assert_eq!(keys.auth(SECOND.0, Some("2")), Status::Ok);
    assert_eq!(keys.auth(FIRST.0, Some("1")), Status::Ok);
    assert_eq!(keys.auth(FIRST.0, None), Status::BadToken, "which of the two?");
    assert_eq!(keys.refused(IdentityError::AmbiguousKey), 1);

    // In place, as an editor writes.
    fs::write(&keys.file, jwks(&[("2", SECOND.1)])).unwrap();
    eventually("the old key is retired", || keys.house.gateway.token_keys() == 1);
    assert_eq!(keys.auth(FIRST.0, Some("1")), Status::BadToken);
    assert_eq!(keys.auth(SECOND.0, None), Status::Ok);
    assert_eq!(keys.events(Event::KeysChanged), 2);

    // Who is in stays in until his token ends, but a retired key renews nothing.
    assert_eq!(early.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    early.push(Opcode::ResultPush);
    assert_eq!(early.auth(&keys.token(SECOND.0, Some("2"), 7)).status, Status::Ok);
    assert_eq!(early.auth(&keys.token(FIRST.0, Some("1"), 7)).status, Status::BadToken);
    early.closed();
}

#[test]
fn a_key_file_that_cannot_be_used_keeps_the_last_good_keys_and_is_counted() {
    let keys = Rotating::new(&[("1", FIRST.1)]);
    let spoil = |content: Option<&str>| {
        let before = keys.events(Event::KeyFileRefused);
        match content {
            Some(content) => keys.replace(content),
            None => fs::remove_file(&keys.file).unwrap(),
        }
        eventually("it is noticed", || keys.events(Event::KeyFileRefused) > before);
        assert_eq!(keys.auth(FIRST.0, Some("1")), Status::Ok, "{content:?}");
        assert_eq!(keys.auth(SECOND.0, Some("2")), Status::BadToken, "{content:?}");
    };
    let whole = jwks(&[("2", SECOND.1)]);
    spoil(Some(&whole[..whole.len() - 1]));
    spoil(Some(""));
    spoil(Some(r#"{"keys":[]}"#));
    spoil(Some(&jwks(&[("2", SECOND.1), ("2", FIRST.1)])));
    spoil(Some(&jwks(&[("2", "c2hvcnQ")])));
    spoil(None);
    assert_eq!((keys.house.gateway.token_keys(), keys.events(Event::KeysChanged)), (1, 0));
    assert!(keys.house.gateway.not_ready().is_empty());

    keys.replace(&whole);
    eventually("the mended file is in force", || keys.auth(SECOND.0, Some("2")) == Status::Ok);
    assert_eq!(keys.auth(FIRST.0, Some("1")), Status::BadToken);
}

#[test]
fn service_connections_come_from_trusted_addresses_only() {
    let plan =
        Plan::new(5).identity(|identity| identity.service_from = vec!["192.0.2.0/24".parse().unwrap()]);
    let house = plan
        .settings(|settings| {
            settings.proxy_listen = Some("127.0.0.1:0".parse().unwrap());
            settings.proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
        })
        .open();
    let service = house.mint(IdentityKind::Service, 3600);
    assert_eq!(auth(&house, &service), Status::BadToken);
    assert_eq!(auth(&house, &house.token(1)), Status::Ok, "users come from everywhere");
    // Behind a balancer the client's address counts, not the balancer's.
    let behind = |host: &str| {
        let mut client = Client::connect(house.gateway.proxy_addr().unwrap());
        client.write(format!("PROXY TCP4 {host} 127.0.0.1 12345 7700\r\n").as_bytes());
        assert_eq!(client.ask(&hello()).status, Status::Ok);
        (client.auth(&service).status, client)
    };
    assert_eq!(behind("192.0.3.1").0, Status::BadToken);
    let (status, mut back_end) = behind("192.0.2.1");
    assert_eq!(status, Status::Ok);
    assert_eq!(back_end.ask_for(1, &buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(back_end.ask(&buy(SALE, SKU, 1)).status, Status::UserRequired, "named nobody");
    let counters = house.gateway.counters();
    assert_eq!(counters.token_refusal_count(IdentityError::UntrustedSource), 2);
    assert_eq!(house.count("USER_REQUIRED"), 1);
}

/// A token whose header and claims are these, with a signature that is none.
fn unsigned(header: &str, claims: &str) -> String {
    let part = |text: &str| {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits = |chunk: &[u8]| {
            let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
                << (8 * (3 - chunk.len()));
            (0..=chunk.len())
                .map(|at| char::from(letters[(word >> (18 - 6 * at)) as usize & 63]))
                .collect::<String>()
        };
        text.as_bytes().chunks(3).map(bits).collect::<String>()
    };
    format!("{}.{}.{}", part(header), part(claims), "A".repeat(43))
}

#[test]
fn tokens_made_to_be_let_in_are_refused_and_counted_by_reason() {
    let keys = Rotating::new(&[("1", FIRST.1)]);
    let claims = format!(r#"{{"sub":"1","aud":"rushgate","exp":{}}}"#, now_ms() / 1000 + 3600);
    let path = "../".repeat(100);
    for (header, why) in [
        (r#"{"alg":"none","kid":"1"}"#.to_owned(), IdentityError::WrongAlgorithm),
        (r#"{"alg":"RS256","kid":"1"}"#.to_owned(), IdentityError::WrongAlgorithm),
        (r#"{"alg":"ES256","kid":"1"}"#.to_owned(), IdentityError::WrongAlgorithm),
        (r#"{"alg":"HS256","kid":"1"}"#.to_owned(), IdentityError::BadSignature),
        (format!(r#"{{"alg":"HS256","kid":"{path}dev/null"}}"#), IdentityError::UnknownKey),
        (r#"{"alg":"HS256","kid":"file:///etc/passwd"}"#.to_owned(), IdentityError::UnknownKey),
        (r#"{"alg":"HS256","kid":["1"]}"#.to_owned(), IdentityError::Malformed),
    ] {
        let before = keys.refused(why);
        assert_eq!(auth(&keys.house, &unsigned(&header, &claims)), Status::BadToken, "{header}");
        assert_eq!(keys.refused(why), before + 1, "{header}");
    }
    let abroad = keys.house.minter(FIRST.0.as_bytes(), "elsewhere").with_kid(Some("1".to_owned()));
    let app = IdentityKind::App(user(1));
    let token = abroad.mint(app, now_ms() / 1000, Duration::from_secs(60)).unwrap();
    assert_eq!(auth(&keys.house, &token), Status::BadToken);
    assert_eq!(keys.refused(IdentityError::WrongAudience), 1);
    assert_eq!(keys.auth(FIRST.0, Some("1")), Status::Ok);
    // A name of 10 kB does not fit a frame; the longest that does is a name that nobody has.
    let long = unsigned(&format!(r#"{{"alg":"HS256","kid":"{}"}}"#, "k".repeat(10_000)), &claims);
    let mut client = Client::login(keys.house.addr(), &keys.token(FIRST.0, Some("1"), 1));
    client.send(&Request::Auth { token: long.as_bytes() });
    client.closed_with(Status::BadFrame);
    let mut client = Client::login(keys.house.addr(), &keys.token(FIRST.0, Some("1"), 1));
    let long = unsigned(&format!(r#"{{"alg":"HS256","kid":"{}"}}"#, "k".repeat(2_000)), &claims);
    assert_eq!(client.auth(&long).status, Status::BadToken);
    client.closed();
}

#[test]
fn a_service_token_that_expires_while_connected_stops_requests_until_a_fresh_one() {
    let house = Plan::new(5).open();
    let mut back_end = Client::login(house.addr(), &house.mint(IdentityKind::Service, 2));
    assert_eq!(back_end.ask_for(1, &result(SALE)).status, Status::NoOrder);
    eventually("the token expires", || back_end.ask_for(1, &result(SALE)).status == Status::TokenExpired);
    assert_eq!(back_end.ask_for(2, &buy(SALE, SKU, 1)).status, Status::TokenExpired);
    assert_eq!(back_end.ask(&buy(SALE, SKU, 1)).status, Status::UserRequired, "the user is judged first");
    back_end.ping();
    assert_eq!(back_end.auth(&house.token(1)).status, Status::Unexpected, "still a service");
    assert_eq!(
        back_end.ask_for(2, &buy(SALE, SKU, 1)).status,
        Status::TokenExpired,
        "and as expired as before"
    );
    assert_eq!(back_end.auth(&house.mint(IdentityKind::Service, 60)).status, Status::Ok);
    assert_eq!(back_end.ask_for(2, &buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(house.count("rung connection"), 2);
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn what_was_received_before_the_token_expired_is_answered_after() {
    let plan = Plan::new(5).settings(|settings| {
        settings.stock.patience_ms = 20_000;
        settings.stock.unconfirmed_after_ms = 20_000;
    });
    let house = plan.open();
    let mut client = Client::login(house.addr(), &house.mint(IdentityKind::App(user(1)), 2));
    let before = house.gate.arrived();
    house.gate.shut();
    let id = client.send(&buy(SALE, SKU, 1));
    eventually("it is on its way", || house.gate.arrived() > before);
    eventually("the token expires", || client.ask(&result(SALE)).status == Status::TokenExpired);
    house.gate.open();
    let answer = client.answer_to(id);
    assert_eq!((answer.opcode, answer.status), (Opcode::Buy, Status::Queued));
    assert_eq!(client.ask(&result(SALE)).status, Status::TokenExpired);
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn each_algorithm_is_checked_by_a_running_gateway() {
    for (jwk, pem) in [
        (
            r#"{"kty":"OKP","crv":"Ed25519","x":"H72IFAqg7w7ySQHYJO1bZ_dcDRSSdHFp8EGg3xGJ84E"}"#,
            "MC4CAQAwBQYDK2VwBCIEIMZV7vsSZ/r8hkupcvhhHdrU9s16obEVIMyffWOZZ60A",
        ),
        (
            r#"{"kty":"EC","crv":"P-256","x":"Eaxf_eIBxYvdpYA8-nBIm033WIRVjCVXwZ7tZrdyFGg","y":"PDp2k4oUTpZq9R0me0hWGjulQJ53JQfckfYuGhTSrHI"}"#,
            "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMTRznlsMrV7JVY3TKJnQknlQykoAQv+pddZoEBEKZ8ChRANCAAQRrF/94gHFi92lgDz6cEibTfdYhFWMJVfBnu1mt3IUaDw6dpOKFE6WavUdJntIVho7pUCedyUH3JH2LhoU0qxy",
        ),
    ] {
        let keys = Rotating::new(&[("1", FIRST.1)]);
        keys.replace(&format!(r#"{{"keys":[{jwk},{{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"theirs"}}]}}"#));
        let token = minted(&keys.file, pem);
        eventually("it is in force", || auth(&keys.house, &token) == Status::Ok);
        assert_eq!(keys.auth(FIRST.0, Some("1")), Status::BadToken);
    }
}

fn minted(beside: &Path, pem: &str) -> String {
    let file = beside.with_extension("pem");
    fs::write(&file, format!("-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n")).unwrap();
    let settings =
        MintSettings { key: MintKey::PrivateKeyFile(file), audience: "rushgate".to_owned(), issuer: None };
    let minter = Minter::new(&settings).unwrap();
    minter.mint(IdentityKind::App(user(1)), now_ms() / 1000, Duration::from_secs(3600)).unwrap()
}
