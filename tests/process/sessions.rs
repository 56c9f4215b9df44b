//! Sessions of the production form: what commands and the shop's own hands write into Redis, and a Redis that is away.

use rushgate::protocol::Status;
use rushgate_servers::{Persistence, RedisSettings};
use serde_json::Value;

use super::shop::{Shop, background, own_redis};
use super::wire::{Client, eventually, hello, result};

const SESSIONS: &[&str] = &["auth.sessions=true", "auth.claims=[\"level\"]"];

fn auth(addr: std::net::SocketAddr, token: &str) -> Status {
    let mut client = Client::connect(addr);
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    client.auth(token).status
}

#[test]
fn a_command_keeps_and_removes_sessions_that_every_gateway_takes() {
    let shop = Shop::new();
    let gateways = [shop.house.serve(SESSIONS), shop.house.serve(SESSIONS)];
    let token = shop.house.done(&["token", "session-add", "--user", "42", "--claim", "level=3"]);
    let token = token.trim();
    assert_eq!(token.len(), 64, "{token}");
    for gateway in &gateways {
        assert_eq!(auth(gateway.addr, token), Status::Ok);
    }
    let mut inside = Client::login(gateways[0].addr, token);
    shop.house.done(&["token", "session-remove", token]);
    for gateway in &gateways {
        assert_eq!(auth(gateway.addr, token), Status::BadToken);
        assert!(gateway.get("/metrics").1.contains("why=\"unknown_session\"} 1"));
    }
    assert_eq!(inside.ask(&result(7)).status, Status::NoOrder);

    // As the shop's login service may: the name is the token's SHA-256, its first digit the shard. In Redis itself there
    // is nothing to be used.
    let said =
        shop.house.done(&["token", "session-add", "a token of sixteen or more", "--user", "7", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let digest = said["sha256"].as_str().unwrap();
    let shard = usize::from_str_radix(&digest[..1], 16).unwrap();
    let key = shop.key(rushgate::stock::calls::ShardId::ALL[shard], &format!("session:{digest}"));
    assert_eq!(shop.redis(&["HGET", &key, "user"]), "7");
    let ttl: i64 = shop.redis(&["TTL", &key]).parse().unwrap();
    assert!((3_500..=3_600).contains(&ttl), "{ttl}");
    shop.redis(&["DEL", &key]);
    shop.redis(&["HSET", &key, "user", "8", "exp", "4000000000", "claims", "{\"level\":2}"]);
    let mut client = Client::login(gateways[1].addr, "a token of sixteen or more");
    assert_eq!(client.ask(&result(7)).status, Status::NoOrder);
    // Something that is no session is refused, and harms nothing else.
    shop.redis(&["DEL", &key]);
    shop.redis(&["SET", &key, "x"]);
    assert_eq!(auth(gateways[1].addr, "a token of sixteen or more"), Status::BadToken);
    let verify = shop.house.run(&["token", "verify", token, "--set", "auth.sessions=true"]);
    assert!(String::from_utf8(verify.stderr).unwrap().contains("the token of a session"));
    for args in [
        &["token", "session-add", "short", "--user", "7"][..],
        &["token", "session-add", "aaaaaaaa.bbbbbbbb.cccccccc", "--user", "7"],
        &["token", "session-remove", "a token that nobody has"],
    ] {
        assert_eq!(shop.house.run(args).status.code(), Some(1), "{args:?}");
    }
    shop.house.refused_by_usage(&["token", "session-add", "--user", "0"]);
}

#[test]
fn while_redis_is_away_auth_with_a_session_is_busy_and_with_a_jwt_it_is_not() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    let gateway = shop.house.serve(SESSIONS);
    let add = ["token", "session-add", "a token of sixteen or more", "--user", "42"];
    shop.house.done(&add);
    let token = "a token of sixteen or more";
    let mut client = Client::login(gateway.addr, token);
    runtime.block_on(redis.kill9()).unwrap();
    eventually("it is noticed", || client.auth(token).status == Status::Busy);
    assert!(client.auth(token).hint_ms > 0);
    // Judged from memory, as ever.
    assert_ne!(client.ask(&result(7)).status, Status::TokenExpired);
    drop(shop.app(&gateway, 43));
    assert!(gateway.metric("rushgate_session_lookups_failed_total") >= 2);
    runtime.block_on(redis.restart()).unwrap();
    shop.house.done(&add);
    eventually("it is back", || client.auth(token).status == Status::Ok);
}
