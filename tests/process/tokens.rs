//! Tokens on the command line: made, read, judged; and their keys, changed beside a running gateway.

use std::fs;
use std::process::{Command, Stdio};

use rushgate::protocol::Status;
use serde_json::{Value, json};

use super::house::House;
use super::wire::{Client, eventually, hello};

const ED_PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEIMZV7vsSZ/r8hkupcvhhHdrU9s16obEVIMyffWOZZ60A";
const ED_X: &str = "H72IFAqg7w7ySQHYJO1bZ_dcDRSSdHFp8EGg3xGJ84E";
const EC_PRIVATE: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMTRznlsMrV7JVY3TKJnQknlQykoAQv+pddZoEBEKZ8ChRANCAAQRrF/94gHFi92lgDz6cEibTfdYhFWMJVfBnu1mt3IUaDw6dpOKFE6WavUdJntIVho7pUCedyUH3JH2LhoU0qxy";
const EC_X: &str = "Eaxf_eIBxYvdpYA8-nBIm033WIRVjCVXwZ7tZrdyFGg";
const EC_Y: &str = "PDp2k4oUTpZq9R0me0hWGjulQJ53JQfckfYuGhTSrHI";

fn ed(kid: &str) -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "x": ED_X, "kid": kid})
}

fn ec(kid: &str) -> Value {
    json!({"kty": "EC", "crv": "P-256", "x": EC_X, "y": EC_Y, "kid": kid})
}

const JWKS: [&str; 2] = ["--set", "auth.jwks_file=jwks.json"];

/// A folder with two private keys and a set of these public ones.
fn house(keys: &[Value]) -> House {
    let house = House::with_sale(5);
    for (name, key) in [("ed.pem", ED_PRIVATE), ("ec.pem", EC_PRIVATE)] {
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
        fs::write(house.dir.path().join(name), pem).unwrap();
    }
    write_keys(&house, keys);
    house
}

fn write_keys(house: &House, keys: &[Value]) {
    fs::write(house.dir.path().join("jwks.json"), json!({ "keys": keys }).to_string()).unwrap();
}

fn mint(house: &House, args: &[&str]) -> String {
    house.done(&[&["token", "mint", "--user", "42"][..], args].concat()).trim().to_owned()
}

/// The exit code of `token verify`, and what it said.
fn verify(house: &House, token: &str, args: &[&str]) -> (i32, String) {
    let output = house.run(&[&["token", "verify", token][..], args].concat());
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[test]
fn a_token_is_minted_with_each_kind_of_key_and_judged() {
    let house = house(&[ed("e"), ec("c")]);
    for (key, kid, algorithm) in [("ed.pem", "e", "EdDSA"), ("ec.pem", "c", "ES256")] {
        let token = mint(&house, &["--private-key-file", key, "--kid", kid, JWKS[0], JWKS[1]]);
        let (code, said) = verify(&house, &token, &JWKS);
        assert_eq!(code, 0, "{said}");
        assert!(
            said.contains("accepted: user 42") && said.contains(&format!("\"{kid}\" ({algorithm})")),
            "{said}"
        );
        let (_, said) = verify(&house, &token, &[JWKS[0], JWKS[1], "--json"]);
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(
            (&said["accepted"], &said["user"], &said["kid"]),
            (&json!(true), &json!("42"), &json!(kid))
        );
        let said = house.done(&["token", "inspect", &token]);
        assert!(
            said.contains(&format!("header kid: \"{kid}\"")) && said.contains("claim sub: \"42\""),
            "{said}"
        );
        assert!(said.contains("Nothing of this was checked"), "{said}");
    }
    // The development secret, and another one.
    assert!(verify(&house, &mint(&house, &[]), &[]).1.contains("without kid (HS256)"));
    fs::write(house.dir.path().join("secret"), "another secret, 32 bytes or more of it").unwrap();
    let token = mint(&house, &["--secret-file", "secret", "--kid", "s"]);
    assert_eq!(verify(&house, &token, &["--set", "auth.secret_file=secret", "--set", "auth.kid=s"]).0, 0);
    // The configured key's name is the tokens' too.
    let named = ["--set", "auth.secret_file=secret", "--set", "auth.kid=configured"];
    let token = mint(&house, &named);
    assert!(house.done(&["token", "inspect", &token]).contains("header kid: \"configured\""));
    assert_eq!(verify(&house, &token, &named).0, 0);
}

#[test]
fn a_refusal_says_why_and_what_both_sides_have() {
    let house = house(&[ed("e"), ec("c")]);
    let good = mint(&house, &["--private-key-file", "ec.pem", "--kid", "c", JWKS[0], JWKS[1]]);
    let retired = mint(&house, &["--private-key-file", "ec.pem", "--kid", "b", JWKS[0], JWKS[1]]);
    let service = house.done(&[
        "token",
        "mint",
        "--service",
        "--private-key-file",
        "ec.pem",
        "--kid",
        "c",
        JWKS[0],
        JWKS[1],
    ]);
    // 63 bytes of a signature are left.
    let cut = &good[..good.len() - 2];
    let with = |args: &[&'static str]| [&JWKS[..], args].concat();
    for (token, args, why, says) in [
        (retired.as_str(), with(&[]), "unknown_key", "kid \"b\"; keys: \"e\" (EdDSA), \"c\" (ES256)"),
        (cut, with(&[]), "bad_signature", "made with another key"),
        ("nonsense", with(&[]), "malformed", "not a JWT"),
        (&good, with(&["--set", "auth.audience=shop"]), "wrong_audience", "auth.audience is \"shop\""),
        (
            &good,
            with(&["--set", "auth.issuer=login"]),
            "wrong_issuer",
            "iss nothing; auth.issuer is \"login\"",
        ),
        (&good, vec![], "wrong_algorithm", "alg \"ES256\", kid \"c\"; keys: without kid (HS256)"),
        (
            service.trim(),
            with(&["--set", "auth.service_from=10.0.0.0/8", "--from", "10.0.0.1"]),
            "",
            "accepted: a service",
        ),
        (
            service.trim(),
            with(&["--set", "auth.service_from=10.0.0.0/8"]),
            "untrusted_source",
            "127.0.0.1 is in none of auth.service_from: [10.0.0.0/8]",
        ),
    ] {
        let (code, said) = verify(&house, token, &args);
        assert_eq!(code, i32::from(!why.is_empty()), "{said}");
        assert!(said.contains(says) && said.contains(why), "{why}: {said}");
        let (_, said) = verify(&house, token, &[&args[..], &["--json"]].concat());
        let said: Value = serde_json::from_str(said.trim()).unwrap();
        assert_eq!(said["why"].as_str().unwrap_or_default(), why);
    }
    let short = mint(&house, &["--ttl", "1s", "--set", "auth.leeway=0s"]);
    eventually("it expires", || {
        verify(&house, &short, &["--set", "auth.leeway=0s"]).1.contains("refused (expired)")
    });
    assert!(verify(&house, &short, &["--set", "auth.leeway=0s"]).1.contains("exp is 2"), "a date");
    assert_eq!(house.run(&["token", "inspect", "nonsense"]).status.code(), Some(1));
}

#[test]
fn a_token_is_read_from_standard_input_too() {
    let house = house(&[ec("c")]);
    let mut command = house.shell("$RUSHGATE token mint --user 7 | $RUSHGATE token verify -");
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("accepted: user 7"), "{output:?}");
    let mut command: Command = house.shell("head -c 100000 /dev/zero | $RUSHGATE token inspect -");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn what_cannot_be_minted_or_served_is_told() {
    let house = house(&[ec("c")]);
    for (args, says) in [
        (&["token", "mint", "--user", "1", JWKS[0], JWKS[1]][..], "auth.jwks_file"),
        (&["token", "mint", "--user", "1", "--private-key-file", "ec.pem"], "not with private key ec.pem"),
        (
            &["token", "mint", "--user", "1", "--private-key-file", "jwks.json", JWKS[0], JWKS[1]],
            "P-256 private key",
        ),
        (&["serve", "--set", "auth.jwks_file=ec.pem"], "not a JWK Set (RFC 7517"),
        (&["serve", "--set", "auth.jwks_file=nowhere"], "auth.jwks_file = \"nowhere\": cannot be read"),
        (&["serve", JWKS[0], JWKS[1], "--set", "auth.kid=c"], "auth.kid"),
        (&["token", "verify", "x", "--set", "auth.jwks_file=nowhere"], "cannot be read"),
    ] {
        let message = house.refused(args);
        assert!(message.contains(says), "{message}");
    }
    let mut private = ec("c");
    private["d"] = json!("AAAA");
    write_keys(&house, &[private]);
    let message = house.refused(&["serve", JWKS[0], JWKS[1]]);
    assert!(message.contains("keys[0] (kid \"c\"): it holds the private key"), "{message}");
}

#[test]
fn a_running_gateway_follows_its_key_file_and_says_so_once() {
    let house = house(&[ed("e"), json!({"kty": "RSA", "kid": "theirs", "n": "AQAB", "e": "AQAB"})]);
    let serving = house.serve(&[JWKS[1]]);
    let ed_token = mint(&house, &["--private-key-file", "ed.pem", "--kid", "e", JWKS[0], JWKS[1]]);
    let ec_token = mint(&house, &["--private-key-file", "ec.pem", "--kid", "c", JWKS[0], JWKS[1]]);
    let auth = |token: &str| {
        let mut client = Client::connect(serving.addr);
        assert_eq!(client.ask(&hello()).status, Status::Ok);
        client.auth(token).status
    };
    assert_eq!((auth(&ed_token), auth(&ec_token)), (Status::Ok, Status::BadToken));
    assert!(!house.data_dir().join("auth.secret").exists(), "no secret that nobody asked for");
    fs::write(house.dir.path().join("jwks.json"), "{\"keys\": [").unwrap();
    eventually("the broken file is looked at thrice", || {
        serving.metric("rushgate_key_file_refused_total") >= 3
    });
    assert_eq!((auth(&ed_token), auth(&ec_token)), (Status::Ok, Status::BadToken));
    write_keys(&house, &[ec("c")]);
    eventually("the new key is in force", || auth(&ec_token) == Status::Ok);
    assert_eq!(auth(&ed_token), Status::BadToken);
    assert_eq!(
        (serving.metric("rushgate_token_keys"), serving.metric("rushgate_token_keys_changed_total")),
        (1, 1)
    );
    let unknown = serving.metric("rushgate_tokens_refused_total{why=\"unknown_key\"}");
    let other = serving.metric("rushgate_tokens_refused_total{why=\"wrong_algorithm\"}");
    assert!(unknown + other >= 3, "{unknown} {other}");
    let log = serving.log();
    assert_eq!(log.matches("the last good keys stay in force").count(), 1, "{log}");
    assert_eq!(log.matches("can be used again").count(), 1, "{log}");
    assert!(log.contains("token keys changed") && log.contains("theirs"), "{log}");
}
