//! JWK Sets as others write them, right and wrong.

use super::rotation::{Rotating, ec, ed, oct};
use super::*;
use crate::admission::identity::jwks::{self, JwksError};

fn parse(keys: &[Value]) -> Result<jwks::Jwks, JwksError> {
    jwks::parse(json!({ "keys": keys }).to_string().as_bytes())
}

/// With some members changed; `null` removes one.
fn changed(mut jwk: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        let members = jwk.as_object_mut().unwrap();
        if value.is_null() {
            members.remove(name)
        } else {
            members.insert(name.clone(), value.clone())
        };
    }
    jwk
}

#[test]
fn members_that_say_nothing_else_are_let_pass() {
    for (jwk, changes) in [
        (
            ec("a"),
            json!({"use": "sig", "alg": "ES256", "key_ops": ["verify"], "x5c": ["AA"], "more": {"x": 1}}),
        ),
        (ed("a"), json!({"alg": "EdDSA"})),
        (ed("a"), json!({"alg": "Ed25519"})),
        (oct("a", SECRET), json!({"alg": "HS256", "key_ops": ["sign", "verify"]})),
        (ec("a"), json!({"kid": null})),
        (ec(&"k".repeat(128)), json!({})),
    ] {
        let jwk = changed(jwk, &changes);
        assert_eq!(parse(std::slice::from_ref(&jwk)).unwrap().keys.len(), 1, "{jwk}");
    }
}

#[test]
fn keys_for_something_else_are_left_out_and_told() {
    for (jwk, changes, says) in [
        (ec("a"), json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}), "kty \"RSA\""),
        (ec("a"), json!({"crv": "P-384"}), "curve \"P-384\""),
        (ec("a"), json!({"crv": "secp256k1"}), "curve \"secp256k1\""),
        (ed("a"), json!({"crv": "X25519"}), "curve \"X25519\""),
        (ed("a"), json!({"crv": "Ed448"}), "curve \"Ed448\""),
        (ec("a"), json!({"use": "enc"}), "use \"enc\""),
        (ec("a"), json!({"key_ops": ["sign"]}), "key_ops without"),
        (ec("a"), json!({"alg": "ES384"}), "P-256 key for \"ES384\""),
        (ed("a"), json!({"alg": "HS256"}), "Ed25519 key for \"HS256\""),
        (oct("a", SECRET), json!({"alg": "HS512"}), "oct key for \"HS512\""),
        (oct("a", SECRET), json!({"alg": "A128KW"}), "oct key for \"A128KW\""),
    ] {
        let jwk = changed(jwk, &changes);
        let set = parse(&[jwk.clone(), oct("ours", SECRET)]).unwrap();
        assert_eq!((set.keys.len(), set.skipped.len()), (1, 1), "{jwk}");
        assert!(set.skipped[0].contains(says) && set.skipped[0].contains("\"a\""), "{:?}", set.skipped);
        assert_eq!(parse(&[jwk]).unwrap_err(), JwksError::NoUsableKey { skipped: 1 });
    }
}

#[test]
fn a_key_of_ours_that_is_none_spoils_the_set() {
    let zeros = "A".repeat(43);
    for (jwk, changes, says) in [
        (oct("a", "short"), json!({}), "secret has 5 bytes"),
        (oct("a", ""), json!({}), "secret has 0 bytes"),
        (oct("a", SECRET), json!({"k": null}), "member \"k\""),
        (oct("a", SECRET), json!({"k": "not base64!"}), "member \"k\""),
        (oct("a", SECRET), json!({"k": format!("{}=", "A".repeat(43))}), "member \"k\""),
        (ed("a"), json!({"x": null}), "member \"x\""),
        (ed("a"), json!({"x": "AAAA"}), "not an Ed25519"),
        (ed("a"), json!({"x": zeros}), "low order"),
        (ed("a"), json!({"crv": null}), "member \"crv\""),
        (ed("a"), json!({"d": "AAAA"}), "private key"),
        (ec("a"), json!({"d": "AAAA"}), "private key"),
        (ec("a"), json!({"y": null}), "member \"y\""),
        (ec("a"), json!({"y": zeros}), "not a public key on the curve P-256"),
        (ec("a"), json!({"x": "AAAA"}), "not a public key on the curve P-256"),
        (ec("a"), json!({"x": "A".repeat(86), "y": ""}), "not a public key on the curve P-256"),
        (ec(""), json!({}), "kid has 0 bytes"),
        (ec(&"k".repeat(129)), json!({}), "kid has 129 bytes"),
    ] {
        let jwk = changed(jwk, &changes);
        let error = parse(&[oct("ours", SECRET), jwk.clone()]).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("keys[1]"), "{jwk}: {error}");
    }
}

#[test]
fn what_is_no_jwk_set_is_told_without_its_content() {
    let secret = oct("a", SECRET)["k"].as_str().unwrap().to_owned();
    let twice = format!("{{\"keys\":[{{\"kty\":\"oct\",\"k\":\"{secret}\",\"k\":\"{secret}\"}}]}}");
    for text in [
        String::new(),
        "nonsense".to_owned(),
        format!("\"{secret}\""),
        format!("{{\"keys\": \"{secret}\"}}"),
        format!("{{\"keys\": [\"{secret}\"]}}"),
        oct("a", SECRET).to_string(),
        format!("{{\"keys\": [{{\"kty\": \"oct\", \"k\": \"{secret}\", \"key_ops\": \"{secret}\"}}]}}"),
        format!("{{\"keys\": [{{\"k\": \"{secret}\"}}]}}"),
        twice,
        "[".repeat(100_000),
        PUBLIC_PEM.to_owned(),
    ] {
        let error = jwks::parse(text.as_bytes()).unwrap_err();
        assert!(matches!(error, JwksError::NotJwkSet { .. }), "{text}: {error}");
        assert!(!format!("{error} {error:?}").contains(&secret));
    }
    let many: Vec<_> = (0..65).map(|number| ec(&number.to_string())).collect();
    assert_eq!(parse(&many).unwrap_err(), JwksError::TooManyKeys(65));
    assert_eq!(parse(&many[..64]).unwrap().keys.len(), 64);
}

#[test]
fn a_file_of_any_size_is_read_to_its_bound_only() {
    let keys = Rotating::new(&[ec("a")]);
    fs::write(keys.fixture.path("jwks"), " ".repeat(64 * 1024 + 1)).unwrap();
    let error = keys.verifier.reread_keys().unwrap_err().to_string();
    assert!(error.contains("longer than 65536 bytes"), "{error}");
    fs::remove_file(keys.fixture.path("jwks")).unwrap();
    for not_a_file in ["/dev/zero", "/", "/dev/null"] {
        std::os::unix::fs::symlink(not_a_file, keys.fixture.path("jwks")).unwrap();
        let error = keys.verifier.reread_keys().unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{not_a_file}: {error}");
        fs::remove_file(keys.fixture.path("jwks")).unwrap();
    }
    assert!(keys.verifier.reread_keys().unwrap_err().to_string().contains("No such file"));
}

#[test]
fn nothing_prints_the_keys_of_a_set() {
    let keys = Rotating::new(&[oct("a", SECRET)]);
    let text = format!("{:?}", keys.verifier);
    assert!(!text.contains(SECRET) && !text.contains(&format!("{:?}", SECRET.as_bytes())), "{text}");
    assert!(!text.contains(oct("a", SECRET)["k"].as_str().unwrap()), "{text}");
}
