//! Tokens that somebody made to be let in: none is, and none makes the verifier panic.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::rotation::{Rotating, ec, ed, oct};
use super::*;

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn bytes_of(jwk: &Value, member: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(jwk[member].as_str().unwrap()).unwrap()
}

/// A token by HMAC with a header of the forger's choice.
fn forged(header: &Value, secret: &[u8]) -> Vec<u8> {
    let message = format!("{}.{}", part(header), part(&good_claims()));
    let key = EncodingKey::from_secret(secret).unwrap();
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
    format!("{message}.{signature}").into_bytes()
}

#[test]
fn a_public_key_is_nobodys_secret() {
    let (ed_key, ec_key) = (ed("e"), ec("c"));
    let keys = Rotating::new(&[ed_key.clone(), ec_key.clone()]);
    let with_secret = Rotating::new(&[oct("h", OTHER_SECRET), ed_key.clone(), ec_key.clone()]);
    let der =
        |pem: &str| STANDARD.decode(pem.lines().filter(|line| !line.starts_with('-')).collect::<String>());
    let point = [&[4][..], &bytes_of(&ec_key, "x"), &bytes_of(&ec_key, "y")].concat();
    // Everything that a published key can be written as.
    let known: [Vec<u8>; 13] = [
        PUBLIC_PEM.into(),
        PUBLIC_PEM.trim().into(),
        EC_PUBLIC_PEM.into(),
        EC_PUBLIC_PEM.trim().into(),
        der(PUBLIC_PEM).unwrap(),
        der(EC_PUBLIC_PEM).unwrap(),
        bytes_of(&ed_key, "x"),
        bytes_of(&ec_key, "x"),
        point,
        ed_key["x"].as_str().unwrap().into(),
        ec_key["x"].as_str().unwrap().into(),
        ed_key.to_string().into(),
        ec_key.to_string().into(),
    ];
    for secret in known {
        for alg in ["HS256", "RS256", "ES256", "EdDSA", "none", "HS512"] {
            for kid in [json!("e"), json!("c"), json!("h"), json!(null)] {
                let token = forged(&json!({"alg": alg, "typ": "JWT", "kid": kid}), &secret);
                for verifier in [&keys.verifier, &with_secret.verifier] {
                    let outcome = verifier.verify(&token, HERE, NOW);
                    assert!(
                        matches!(
                            outcome,
                            Err(IdentityError::WrongAlgorithm
                                | IdentityError::BadSignature
                                | IdentityError::UnknownKey)
                        ),
                        "{alg} {kid}: {outcome:?}"
                    );
                }
            }
        }
    }
    let token = forged(&json!({"alg": "HS256", "kid": "e"}), PUBLIC_PEM.as_bytes());
    assert_eq!(keys.verifier.verify(&token, HERE, NOW), Err(IdentityError::WrongAlgorithm));
}

#[test]
fn no_kid_is_more_than_a_name() {
    let keys = Rotating::new(&[oct("h", SECRET)]);
    let long = "k".repeat(10_000);
    for (kid, expected) in [
        (json!("h"), Ok(())),
        (json!("H"), Err(IdentityError::UnknownKey)),
        (json!("h\0"), Err(IdentityError::UnknownKey)),
        (json!(" h"), Err(IdentityError::UnknownKey)),
        (json!(""), Err(IdentityError::UnknownKey)),
        (json!("../../../../dev/null"), Err(IdentityError::UnknownKey)),
        (json!("/dev/null"), Err(IdentityError::UnknownKey)),
        (json!("jwks"), Err(IdentityError::UnknownKey)),
        (json!("http://169.254.169.254/latest"), Err(IdentityError::UnknownKey)),
        (json!("h' OR '1'='1"), Err(IdentityError::UnknownKey)),
        (json!("$(reboot)"), Err(IdentityError::UnknownKey)),
        (json!("k".repeat(2000)), Err(IdentityError::UnknownKey)),
        (json!(long), Err(IdentityError::Malformed)),
        (json!(7), Err(IdentityError::Malformed)),
        (json!(["h"]), Err(IdentityError::Malformed)),
        (json!({"h": 1}), Err(IdentityError::Malformed)),
    ] {
        let token = forged(&json!({"alg": "HS256", "kid": kid}), SECRET.as_bytes());
        assert_eq!(keys.verifier.verify(&token, HERE, NOW).map(|_| ()), expected, "{kid}");
    }
    // A secret of no bytes, as if /dev/null had been read.
    let empty = forged(&json!({"alg": "HS256", "kid": "../../dev/null"}), b"\0");
    assert_eq!(keys.verifier.verify(&empty, HERE, NOW), Err(IdentityError::UnknownKey));
}

#[test]
fn no_token_brings_its_own_key() {
    let keys = Rotating::new(&[oct("h", SECRET)]);
    for header in [
        json!({"alg": "HS256", "jwk": oct("h", OTHER_SECRET)}),
        json!({"alg": "HS256", "kid": "h", "jwk": {"kty": "oct", "k": "AA"}}),
        json!({"alg": "HS256", "jku": "https://example.com/keys"}),
        json!({"alg": "HS256", "x5u": "file:///etc/passwd", "x5c": ["AA"]}),
    ] {
        let token = forged(&header, OTHER_SECRET.as_bytes());
        let outcome = keys.verifier.verify(&token, HERE, NOW);
        assert!(
            matches!(outcome, Err(IdentityError::BadSignature | IdentityError::Malformed)),
            "{header}: {outcome:?}"
        );
    }
}

#[test]
fn a_header_that_says_two_things_is_malformed() {
    let keys = Rotating::new(&[oct("h", SECRET), ed("e")]);
    let claims = part(&good_claims());
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    for header in [
        r#"{"alg":"HS256","alg":"none","kid":"h"}"#,
        r#"{"alg":"none","alg":"HS256","kid":"h"}"#,
        r#"{"alg":"HS256","kid":"h","kid":"e"}"#,
        r#"{"kid":"h"}"#,
        r#"{"alg":null,"kid":"h"}"#,
        r#"{"alg":["HS256"],"kid":"h"}"#,
        r#"{"alg":"HS256","kid":"h"} "x""#,
        r#"["HS256"]"#,
        "null",
    ] {
        let message = format!("{}.{claims}", URL_SAFE_NO_PAD.encode(header));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
        let token = format!("{message}.{signature}");
        assert_eq!(
            keys.verifier.verify(token.as_bytes(), HERE, NOW),
            Err(IdentityError::Malformed),
            "{header}"
        );
        assert!(keys.verifier.key_of(token.as_bytes()).is_err(), "{header}");
    }
}

#[test]
fn service_tokens_are_good_from_trusted_addresses_only() {
    let fixture = Fixture::new();
    let mut settings = Fixture::settings(VerifyKey::SecretFile(fixture.path("secret")));
    settings.service_from = vec!["10.1.0.0/16".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    let verifier = Verifier::new(&settings).unwrap();
    let service = |changes: Value| {
        let mut claims = with(&json!({"scope": "service"}));
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        hs256(&claims)
    };
    let from = |token: &[u8], address: &str| {
        verifier.verify(token, address.parse().unwrap(), NOW).map(|identity| identity.kind)
    };
    for (address, trusted) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("2001:db8::1", true),
        ("10.2.0.1", false),
        ("127.0.0.1", false),
        ("::1", false),
        ("::ffff:127.0.0.1", false),
    ] {
        let expected = if trusted { Ok(IdentityKind::Service) } else { Err(IdentityError::UntrustedSource) };
        assert_eq!(from(&service(json!({})), address), expected, "{address}");
        assert_eq!(from(&hs256(&good_claims()), address), Ok(app(42)), "users come from everywhere");
    }
    // Nobody learns by it whether a forged token would be good elsewhere.
    let forged = signed(Algorithm::HS256, OTHER_SECRET.as_bytes(), &with(&json!({"scope": "service"})));
    assert_eq!(from(&forged, "127.0.0.1"), Err(IdentityError::BadSignature));
    assert_eq!(from(&service(json!({"aud": "x"})), "127.0.0.1"), Err(IdentityError::WrongAudience));
    assert_eq!(from(&service(json!({"exp": 1})), "127.0.0.1"), Err(IdentityError::UntrustedSource));
    assert_eq!(from(&service(json!({"exp": 1})), "10.1.2.3"), Err(IdentityError::Expired));

    settings.service_from.clear();
    let nobody = Verifier::new(&settings).unwrap();
    let outcome = nobody.verify(&service(json!({})), "10.1.2.3".parse().unwrap(), NOW);
    assert_eq!(outcome, Err(IdentityError::UntrustedSource));
    let everybody = Verifier::new(&Fixture::settings(VerifyKey::SecretFile(fixture.path("secret")))).unwrap();
    for address in ["8.8.8.8", "2001:db8::1", "::1"] {
        assert!(everybody.verify(&service(json!({})), address.parse().unwrap(), NOW).is_ok(), "{address}");
    }
}

/// All three kinds of key, and a good token of each.
static SCENE: LazyLock<(Rotating, [String; 3])> = LazyLock::new(|| {
    let keys = Rotating::try_new(Some("other-secret"), None, &[oct("h", SECRET), ed("e"), ec("c")]).unwrap();
    let tokens = [("secret", "h"), ("private", "e"), ("ec-private", "c")];
    let tokens = tokens.map(|(key, kid)| keys.token(key, Some(kid)));
    (keys, tokens)
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_refused(token: Vec<u8>) {
        let (keys, _) = &*SCENE;
        prop_assert!(keys.verifier.verify(&token, HERE, NOW).is_err());
        let _ = (inspect(&token), keys.verifier.key_of(&token));
    }

    #[test]
    fn arbitrary_parts_are_refused(header in "\\PC{0,60}", claims in "\\PC{0,60}", signature: Vec<u8>) {
        let (keys, _) = &*SCENE;
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        for header in [header, r#"{"alg":"ES256","kid":"c"}"#.into(), r#"{"alg":"EdDSA"}"#.into(), r#"{"alg":"HS256"}"#.into()] {
            for claims in [claims.as_bytes(), good_claims().to_string().as_bytes()] {
                let token = format!("{}.{}.{}", encode(header.as_bytes()), encode(claims), encode(&signature));
                prop_assert!(keys.verifier.verify(token.as_bytes(), HERE, NOW).is_err());
                let _ = inspect(token.as_bytes());
            }
        }
    }

    #[test]
    fn good_tokens_are_refused_once_anything_is_changed(
        which in 0..3_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<u8>()), 1..4),
    ) {
        let (keys, tokens) = &*SCENE;
        let good = tokens[which].as_bytes();
        prop_assert!(keys.verifier.verify(good, HERE, NOW).is_ok());
        let mut token = good.to_vec();
        for (at, kind, byte) in edits {
            let at = at.index(token.len().max(1));
            match kind {
                0 if at < token.len() => token[at] = byte,
                1 if at < token.len() => { token.remove(at); }
                2 => token.truncate(at),
                _ => token.insert(at.min(token.len()), byte),
            }
        }
        prop_assume!(token != good);
        prop_assert!(keys.verifier.verify(&token, HERE, NOW).is_err(), "{}", String::from_utf8_lossy(&token));
        let _ = (inspect(&token), keys.verifier.key_of(&token));
    }

    #[test]
    fn parts_of_different_good_tokens_make_no_good_one(picks in prop::array::uniform3(0..3_usize)) {
        let (keys, tokens) = &*SCENE;
        prop_assume!(picks != [picks[0]; 3]);
        let token: Vec<_> = picks.iter().enumerate().map(|(at, pick)| tokens[*pick].split('.').nth(at).unwrap()).collect();
        // The claims of all three are the same.
        let same_key = picks[0] == picks[2];
        prop_assert_eq!(keys.verifier.verify(token.join(".").as_bytes(), HERE, NOW).is_ok(), same_key);
    }

    #[test]
    fn no_bytes_make_the_reader_of_sets_panic(text: Vec<u8>, at: prop::sample::Index, byte: u8) {
        let _ = jwks::parse(&text);
        let mut set = json!({"keys": [oct("h", SECRET), ed("e"), ec("c")]}).to_string().into_bytes();
        let at = at.index(set.len());
        set[at] = byte;
        let _ = jwks::parse(&set);
    }
}
