#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests"
)]

mod hostile;
mod jwk_sets;
mod rotation;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::thread;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NOW: u64 = 1_753_000_000;
const SECRET: &str = "0123456789abcdef0123456789abcdef";
const OTHER_SECRET: &str = "fedcba9876543210fedcba9876543210";
const PRIVATE_PEM: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIMZV7vsSZ/r8hkupcvhhHdrU9s16obEVIMyffWOZZ60A\n-----END PRIVATE KEY-----\n";
const PUBLIC_PEM: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAH72IFAqg7w7ySQHYJO1bZ/dcDRSSdHFp8EGg3xGJ84E=\n-----END PUBLIC KEY-----\n";
const EC_PRIVATE_PEM: &str = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMTRznlsMrV7JVY3T\nKJnQknlQykoAQv+pddZoEBEKZ8ChRANCAAQRrF/94gHFi92lgDz6cEibTfdYhFWM\nJVfBnu1mt3IUaDw6dpOKFE6WavUdJntIVho7pUCedyUH3JH2LhoU0qxy\n-----END PRIVATE KEY-----\n";
const EC_PUBLIC_PEM: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEaxf/eIBxYvdpYA8+nBIm033WIRV\njCVXwZ7tZrdyFGg8OnaTihROlmr1HSZ7SFYaO6VAnnclB9yR9i4aFNKscg==\n-----END PUBLIC KEY-----\n";
const OTHER_EC_PRIVATE_PEM: &str = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg8vGYH4QStDVVI08s\nK0NeKxOe//oAGaP7jdUSd88UAPShRANCAASYM8zB/oEskMK01QiBiltlxqK6ZftW\nny2cEkiEWiXWjwhpyJRYtpj0m9r52lHD/ZdtQaMUZdUyhGoXQm+i4Zsv\n-----END PRIVATE KEY-----\n";
const OTHER_PRIVATE_PEM: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEILGOByu/tbZFRzaWPZ3361ZA9odwxOfk+ZmBONYGQZEK\n-----END PRIVATE KEY-----\n";

struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        for (name, content) in [
            ("secret", SECRET),
            ("private", PRIVATE_PEM),
            ("public", PUBLIC_PEM),
            ("other", OTHER_PRIVATE_PEM),
            ("other-secret", OTHER_SECRET),
            ("ec-private", EC_PRIVATE_PEM),
            ("ec-public", EC_PUBLIC_PEM),
            ("ec-other", OTHER_EC_PRIVATE_PEM),
        ] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn settings(key: VerifyKey) -> IdentitySettings {
        IdentitySettings::new(key, "rushgate")
    }

    fn hs256(&self) -> Verifier {
        Verifier::new(&Fixture::settings(VerifyKey::SecretFile(self.path("secret")))).unwrap()
    }

    fn eddsa(&self) -> Verifier {
        Verifier::new(&Fixture::settings(VerifyKey::Ed25519File(self.path("public")))).unwrap()
    }

    fn es256(&self) -> Verifier {
        Verifier::new(&Fixture::settings(VerifyKey::P256File(self.path("ec-public")))).unwrap()
    }

    /// Each algorithm: what checks it, and what makes its tokens.
    fn all(&self) -> [(Verifier, MintKey); 3] {
        [
            (self.hs256(), MintKey::SecretFile(self.path("secret"))),
            (self.eddsa(), MintKey::PrivateKeyFile(self.path("private"))),
            (self.es256(), MintKey::PrivateKeyFile(self.path("ec-private"))),
        ]
    }

    fn minter(key: MintKey) -> Minter {
        Minter::new(&MintSettings { key, audience: "rushgate".to_owned(), issuer: None }).unwrap()
    }
}

fn good_claims() -> Value {
    json!({"sub": "42", "aud": "rushgate", "exp": NOW + 60})
}

/// The good claims with some changed; `null` removes one.
fn with(changes: &Value) -> Value {
    let mut claims = good_claims();
    for (name, value) in changes.as_object().unwrap() {
        claims.as_object_mut().unwrap().insert(name.clone(), value.clone());
    }
    claims
}

fn signed(algorithm: Algorithm, secret: &[u8], claims: &Value) -> Vec<u8> {
    let key = EncodingKey::from_secret(secret).unwrap();
    encode(&Header::new(algorithm), claims, &key).unwrap().into_bytes()
}

fn hs256(claims: &Value) -> Vec<u8> {
    signed(Algorithm::HS256, SECRET.as_bytes(), claims)
}

fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}

fn app(id: u64) -> IdentityKind {
    IdentityKind::App(user(id))
}

/// base64url of a JSON text, by way of the crate that reads it.
fn encoded(json_text: &str) -> String {
    let value: Value = serde_json::from_str(json_text).unwrap();
    let token = String::from_utf8(hs256(&value)).unwrap();
    token.split('.').nth(1).unwrap().to_owned()
}

#[test]
fn what_is_minted_is_accepted_with_each_algorithm() {
    let fixture = Fixture::new();
    for (verifier, key) in fixture.all() {
        let minter = Fixture::minter(key);
        for kind in [app(1), app(UserId::MAX), IdentityKind::Service] {
            let token = minter.mint(kind, NOW, Duration::from_secs(60)).unwrap();
            let identity = Identity { kind, expires_at_ms: (NOW + 60) * 1000, claims: Claims::default() };
            assert_eq!(verifier.verify(token.as_bytes(), HERE, NOW), Ok(identity.clone()));
            assert_eq!(verifier.verify(token.as_bytes(), HERE, NOW + 59), Ok(identity));
            assert_eq!(verifier.verify(token.as_bytes(), HERE, NOW + 60), Err(IdentityError::Expired));
            assert!(token.len() < 400, "fits a frame before AUTH");
        }
    }
}

#[test]
fn claims_are_checked_one_by_one() {
    use IdentityError as E;
    let verifier = Fixture::new().hs256();
    for (changes, expected) in [
        (json!({}), Ok(app(42))),
        (json!({"scope": "app"}), Ok(app(42))),
        (json!({"scope": "service"}), Ok(IdentityKind::Service)),
        (json!({"scope": "service", "sub": null}), Ok(IdentityKind::Service)),
        (json!({"scope": "service", "sub": "someone"}), Ok(IdentityKind::Service)),
        (json!({"scope": "Service"}), Err(E::BadScope)),
        (json!({"scope": "app service"}), Err(E::BadScope)),
        (json!({"scope": ""}), Err(E::BadScope)),
        (json!({"scope": 1}), Err(E::BadScope)),
        (json!({"scope": ["app"]}), Err(E::BadScope)),
        (json!({"sub": null}), Err(E::BadSubject)),
        (json!({"sub": 42}), Err(E::BadSubject)),
        (json!({"sub": ""}), Err(E::BadSubject)),
        (json!({"sub": "0"}), Err(E::BadSubject)),
        (json!({"sub": "-1"}), Err(E::BadSubject)),
        (json!({"sub": "+1"}), Err(E::BadSubject)),
        (json!({"sub": "042"}), Err(E::BadSubject)),
        (json!({"sub": " 42"}), Err(E::BadSubject)),
        (json!({"sub": "4.2"}), Err(E::BadSubject)),
        (json!({"sub": "0x2a"}), Err(E::BadSubject)),
        (json!({"sub": "٤٢"}), Err(E::BadSubject)),
        (json!({"sub": "9223372036854775807"}), Ok(app(UserId::MAX))),
        (json!({"sub": "9223372036854775808"}), Err(E::BadSubject)),
        (json!({"sub": "18446744073709551617"}), Err(E::BadSubject)),
        (json!({"aud": null}), Err(E::WrongAudience)),
        (json!({"aud": "rushgate2"}), Err(E::WrongAudience)),
        (json!({"aud": []}), Err(E::WrongAudience)),
        (json!({"aud": ["shop", "rushgate"]}), Ok(app(42))),
        (json!({"aud": ["shop", 7]}), Err(E::WrongAudience)),
        (json!({"aud": {"rushgate": 1}}), Err(E::WrongAudience)),
        (json!({"exp": null}), Err(E::Malformed)),
        (json!({"exp": "tomorrow"}), Err(E::Malformed)),
        (json!({"exp": -5}), Err(E::Malformed)),
        (json!({"exp": 1e300}), Err(E::Malformed)),
        (json!({"exp": u64::MAX}), Ok(app(42))),
        (json!({"exp": NOW}), Err(E::Expired)),
        (json!({"exp": 0}), Err(E::Expired)),
        (json!({"exp": NOW + 1}), Ok(app(42))),
        (json!({"nbf": NOW}), Ok(app(42))),
        (json!({"nbf": NOW + 1}), Err(E::NotYetValid)),
        (json!({"nbf": "now"}), Err(E::Malformed)),
        (json!({"exp": NOW, "sub": "0"}), Err(E::BadSubject)),
        (json!({"iss": "anybody", "jti": "x", "name": {"a": [1]}}), Ok(app(42))),
    ] {
        let outcome = verifier.verify(&hs256(&with(&changes)), HERE, NOW).map(|identity| identity.kind);
        assert_eq!(outcome, expected, "{changes}");
    }
}

#[test]
fn a_date_with_a_fraction_is_understood() {
    let verifier = Fixture::new().hs256();
    let token = hs256(&with(&json!({"exp": 1_753_000_060.5})));
    assert_eq!(verifier.verify(&token, HERE, NOW).unwrap().expires_at_ms, 1_753_000_060_500);
    assert!(verifier.verify(&token, HERE, NOW + 60).is_ok());
    assert_eq!(verifier.verify(&token, HERE, NOW + 61), Err(IdentityError::Expired));
}

#[test]
fn leeway_moves_both_ends_and_is_told() {
    let fixture = Fixture::new();
    let mut settings = Fixture::settings(VerifyKey::SecretFile(fixture.path("secret")));
    settings.leeway = Duration::from_secs(5);
    let verifier = Verifier::new(&settings).unwrap();
    let token = hs256(&with(&json!({"exp": NOW + 10, "nbf": NOW})));
    assert_eq!(verifier.verify(&token, HERE, NOW - 6), Err(IdentityError::NotYetValid));
    assert!(verifier.verify(&token, HERE, NOW - 5).is_ok());
    assert_eq!(verifier.verify(&token, HERE, NOW + 14).unwrap().expires_at_ms, (NOW + 15) * 1000);
    assert_eq!(verifier.verify(&token, HERE, NOW + 15), Err(IdentityError::Expired));
}

#[test]
fn an_issuer_is_demanded_only_where_configured() {
    let fixture = Fixture::new();
    let mut settings = Fixture::settings(VerifyKey::SecretFile(fixture.path("secret")));
    settings.issuer = Some("shop".to_owned());
    let verifier = Verifier::new(&settings).unwrap();
    let verify = |changes| verifier.verify(&hs256(&with(&changes)), HERE, NOW).map(|_| ());
    assert_eq!(verify(json!({"iss": "shop"})), Ok(()));
    assert_eq!(verify(json!({"iss": "shop2"})), Err(IdentityError::WrongIssuer));
    assert_eq!(verify(json!({"iss": ["shop"]})), Err(IdentityError::WrongIssuer));
    assert_eq!(verify(json!({})), Err(IdentityError::WrongIssuer));
    let minter = Minter::new(&MintSettings {
        key: MintKey::SecretFile(fixture.path("secret")),
        audience: "rushgate".to_owned(),
        issuer: settings.issuer.clone(),
    })
    .unwrap();
    let token = minter.mint(app(1), NOW, Duration::from_secs(1)).unwrap();
    assert!(verifier.verify(token.as_bytes(), HERE, NOW).is_ok());
}

#[test]
fn a_forged_signature_is_refused() {
    let fixture = Fixture::new();
    let verifier = fixture.hs256();
    let forged = signed(Algorithm::HS256, OTHER_SECRET.as_bytes(), &good_claims());
    assert_eq!(verifier.verify(&forged, HERE, NOW), Err(IdentityError::BadSignature));
    // Another content under a good signature.
    let good = String::from_utf8(hs256(&good_claims())).unwrap();
    let parts: Vec<_> = good.split('.').collect();
    let other = encoded(&with(&json!({"sub": "43"})).to_string());
    let swapped = format!("{}.{other}.{}", parts[0], parts[2]);
    assert_eq!(verifier.verify(swapped.as_bytes(), HERE, NOW), Err(IdentityError::BadSignature));
    // An expired one with a wrong signature is not told that it expired.
    let old = signed(Algorithm::HS256, OTHER_SECRET.as_bytes(), &with(&json!({"exp": 1})));
    assert_eq!(verifier.verify(&old, HERE, NOW), Err(IdentityError::BadSignature));

    let other_key = Fixture::minter(MintKey::PrivateKeyFile(fixture.path("other")));
    let forged = other_key.mint(app(42), NOW, Duration::from_secs(60)).unwrap();
    assert_eq!(fixture.eddsa().verify(forged.as_bytes(), HERE, NOW), Err(IdentityError::BadSignature));
}

#[test]
fn no_token_chooses_its_algorithm() {
    use IdentityError::WrongAlgorithm;
    let fixture = Fixture::new();
    let (with_secret, with_key) = (fixture.hs256(), fixture.eddsa());
    let claims = encoded(&good_claims().to_string());
    for alg in ["none", "None", "NONE", "HS257", ""] {
        let header = encoded(&json!({"alg": alg, "typ": "JWT"}).to_string());
        for signature in ["", "AAAA"] {
            let token = format!("{header}.{claims}.{signature}");
            assert_eq!(with_secret.verify(token.as_bytes(), HERE, NOW), Err(WrongAlgorithm), "{token}");
            assert_eq!(with_key.verify(token.as_bytes(), HERE, NOW), Err(WrongAlgorithm), "{token}");
        }
    }
    // The public key, which everybody may know, as an HS256 secret.
    for secret in [PUBLIC_PEM.as_bytes(), PUBLIC_PEM.trim().as_bytes()] {
        let confused = signed(Algorithm::HS256, secret, &good_claims());
        assert_eq!(with_key.verify(&confused, HERE, NOW), Err(WrongAlgorithm));
    }
    // Our own secret, but a stronger relative of the algorithm: still not the one configured.
    for algorithm in [Algorithm::HS384, Algorithm::HS512] {
        let relative = signed(algorithm, SECRET.as_bytes(), &good_claims());
        assert_eq!(with_secret.verify(&relative, HERE, NOW), Err(WrongAlgorithm));
    }
    let eddsa = Fixture::minter(MintKey::PrivateKeyFile(fixture.path("private")))
        .mint(app(1), NOW, Duration::from_secs(60))
        .unwrap();
    assert_eq!(with_secret.verify(eddsa.as_bytes(), HERE, NOW), Err(WrongAlgorithm));
}

#[test]
fn what_is_no_token_is_malformed() {
    let verifier = Fixture::new().hs256();
    let good = String::from_utf8(hs256(&good_claims())).unwrap();
    let crit = encoded(r#"{"alg": "HS256", "crit": ["x"], "x": 1}"#);
    let mut garbage: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"...".to_vec(),
        b"..".to_vec(),
        b"a.b".to_vec(),
        vec![0xFF; 300],
        vec![b'.'; 4096],
        format!("{good}.").into_bytes(),
        format!("{good}.x").into_bytes(),
        format!(" {good}").into_bytes(),
        format!("{good}\n").into_bytes(),
        format!("Bearer {good}").into_bytes(),
        format!("{crit}.{}", good.split_once('.').unwrap().1).into_bytes(),
    ];
    // Too long by one, though signed by us.
    let mut name = String::new();
    while hs256(&with(&json!({"name": name}))).len() <= TOKEN_BYTES_MAX {
        name.push('x');
    }
    garbage.push(hs256(&with(&json!({"name": name}))));
    name.pop();
    assert!(verifier.verify(&hs256(&with(&json!({"name": name}))), HERE, NOW).is_ok());
    garbage.push(vec![b'a'; 10_000_000]);
    for token in garbage {
        let outcome = verifier.verify(&token, HERE, NOW);
        assert_eq!(
            outcome,
            Err(IdentityError::Malformed),
            "{}",
            String::from_utf8_lossy(&token[..token.len().min(99)])
        );
    }
    // Claims that are no object.
    for claims in [json!(7), json!([]), json!("x"), json!(null)] {
        assert_eq!(verifier.verify(&hs256(&claims), HERE, NOW), Err(IdentityError::Malformed), "{claims}");
    }
}

#[test]
fn a_claim_named_twice_is_malformed() {
    struct Twice;
    impl serde::Serialize for Twice {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeMap;
            let mut map = serializer.serialize_map(None)?;
            for sub in ["42", "43"] {
                map.serialize_entry("sub", sub)?;
            }
            map.serialize_entry("aud", "rushgate")?;
            map.serialize_entry("exp", &(NOW + 60))?;
            map.end()
        }
    }
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    let token = encode(&Header::new(Algorithm::HS256), &Twice, &key).unwrap();
    assert_eq!(Fixture::new().hs256().verify(token.as_bytes(), HERE, NOW), Err(IdentityError::Malformed));
}

#[test]
fn a_token_cut_or_changed_anywhere_is_refused() {
    let fixture = Fixture::new();
    for (verifier, key) in fixture.all() {
        let token = Fixture::minter(key).mint(app(42), NOW, Duration::from_secs(60)).unwrap().into_bytes();
        for at in 0..token.len() {
            assert!(verifier.verify(&token[..at], HERE, NOW).is_err(), "cut at {at}");
            let mut changed = token.clone();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(verifier.verify(&changed, HERE, NOW).is_err(), "changed at {at}");
        }
    }
}

#[test]
fn wrong_key_files_are_refused_with_the_reason() {
    let fixture = Fixture::new();
    fs::write(fixture.path("short"), "x".repeat(31) + "\n").unwrap();
    fs::write(fixture.path("long"), "x".repeat(20_000)).unwrap();
    fs::write(fixture.path("empty"), "").unwrap();
    let truncated = PUBLIC_PEM.replace("MCowBQYDK2VwAyEA", "MCowBQYDK2VwAyEB");
    fs::write(fixture.path("truncated"), &truncated[..truncated.len() - 40]).unwrap();
    // A well-formed Ed25519 key of 8 bytes.
    fs::write(
        fixture.path("tiny"),
        "-----BEGIN PUBLIC KEY-----\nMBIwBQYDK2VwAwkAAQIDBAUGBwg=\n-----END PUBLIC KEY-----\n",
    )
    .unwrap();
    let secret = |name| VerifyKey::SecretFile(fixture.path(name));
    let public = |name| VerifyKey::Ed25519File(fixture.path(name));
    let ec_public = |name| VerifyKey::P256File(fixture.path(name));
    for (name, pem) in [
        // The point of order 4 that 32 zero bytes are.
        ("zeros", "MCowBQYDK2VwAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        (
            "p384",
            "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEZDEc2+Sg8rKMRKy5B3Mi7u/YE4PEJeevlWrQ811MVf5n6e2TNm92j7A9opansvfuP8n77SJGGHOjfrT/mQzNXoVyZcgFr3Un9dxYzb3GKeEngcM/h3+jaKpwRRY2Kcxf",
        ),
        (
            "k256",
            "MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAE/PJ70vxVpOaMi9HSAAjkUHaAmyo9vS7d0n7R3XY3TQYwUVR8npyXDPVa2sJesSKIib4i+KwpbGk/S3TO9i2dHg==",
        ),
        (
            "rsa",
            "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDhbSgRs7FFrpWHwftMJG2T2SI4F3hXm5XxaVsPAJD08tsH7NLhgyP7AQTNksQKmHzZxFNTGiuzKjuoKFogXh1lboQdRFGVplR3NHcfvTbnXbKKKoqK+N9j2H4Bz85CkwX+iySCn3J2e7qYGlOfC/QQpLrMv+1xMTobHGU6HX0zEwIDAQAB",
        ),
    ] {
        fs::write(
            fixture.path(name),
            format!("-----BEGIN PUBLIC KEY-----\n{pem}\n-----END PUBLIC KEY-----\n"),
        )
        .unwrap();
    }
    for (key, says) in [
        (secret("missing"), "missing: No such file"),
        (secret(""), "directory"),
        (secret("short"), "has 31 bytes; HS256 needs at least 32"),
        (secret("empty"), "has 0 bytes"),
        (secret("long"), "longer than 16384 bytes"),
        (secret("public"), "holds a PEM key"),
        (secret("private"), "holds a PEM key"),
        (public("secret"), "not an Ed25519 public key"),
        (public("private"), "not an Ed25519 public key"),
        (public("truncated"), "not an Ed25519 public key"),
        (public("tiny"), "not an Ed25519 public key"),
        (public("empty"), "not an Ed25519 public key"),
        (public("ec-public"), "not an Ed25519 public key"),
        (public("rsa"), "not an Ed25519 public key"),
        (public("zeros"), "low order"),
        (ec_public("public"), "not a P-256 public key"),
        (ec_public("ec-private"), "not a P-256 public key"),
        (ec_public("p384"), "not a P-256 public key"),
        (ec_public("k256"), "not a P-256 public key"),
        (ec_public("rsa"), "not a P-256 public key"),
        (ec_public("empty"), "not a P-256 public key"),
    ] {
        let error = Verifier::new(&Fixture::settings(key.clone())).unwrap_err().to_string();
        assert!(error.contains(says), "{key:?}: {error}");
    }
    for name in ["public", "secret", "empty"] {
        let key = MintKey::PrivateKeyFile(fixture.path(name));
        let settings = MintSettings { key, audience: String::new(), issuer: None };
        let error = Minter::new(&settings).unwrap_err().to_string();
        assert!(error.contains("not an Ed25519 or P-256 private key"), "{error}");
    }
}

#[test]
fn a_line_end_after_the_secret_does_not_count() {
    let fixture = Fixture::new();
    for (name, line_end) in [("unix", "\n"), ("dos", "\r\n")] {
        fs::write(fixture.path(name), format!("{SECRET}{line_end}")).unwrap();
        let verifier = Verifier::new(&Fixture::settings(VerifyKey::SecretFile(fixture.path(name)))).unwrap();
        assert!(verifier.verify(&hs256(&good_claims()), HERE, NOW).is_ok());
    }
}

#[test]
fn nothing_prints_a_key() {
    let fixture = Fixture::new();
    let minter = Fixture::minter(MintKey::SecretFile(fixture.path("secret")));
    let bytes = format!("{:?}", SECRET.as_bytes());
    for text in [format!("{:?}", fixture.hs256()), format!("{minter:?}")] {
        assert!(!text.contains(SECRET) && !text.contains(&bytes), "{text}");
    }
}

#[test]
fn the_development_secret_is_made_once_for_its_owner_only() {
    let fixture = Fixture::new();
    let data_dir = fixture.path("new/data");
    let secret = dev_secret(&data_dir).unwrap();
    assert_eq!(secret.len(), 64);
    assert!(secret.iter().all(u8::is_ascii_hexdigit));
    assert_eq!(dev_secret(&data_dir).unwrap(), secret);
    let mode = fs::metadata(data_dir.join(DEV_SECRET_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(&data_dir).unwrap().count(), 1, "nothing is left behind");
    assert_ne!(dev_secret(&fixture.path("other-data")).unwrap(), secret);

    let verifier = Verifier::new(&Fixture::settings(VerifyKey::DevSecret(data_dir.clone()))).unwrap();
    let token =
        Fixture::minter(MintKey::DevSecret(data_dir)).mint(app(7), NOW, Duration::from_secs(9)).unwrap();
    assert_eq!(verifier.verify(token.as_bytes(), HERE, NOW).unwrap().kind, app(7));
}

#[test]
fn racing_for_the_development_secret_all_get_the_same() {
    let fixture = Fixture::new();
    for round in 0..20 {
        let data_dir = fixture.path(&format!("data{round}"));
        let start = Barrier::new(8);
        let secrets: Vec<Vec<u8>> = thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        dev_secret(&data_dir).unwrap()
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0]));
        assert_eq!(fs::read_dir(&data_dir).unwrap().count(), 1);
    }
}

#[test]
fn a_folder_that_takes_no_secret_is_told() {
    let fixture = Fixture::new();
    let error = dev_secret(&fixture.path("secret")).unwrap_err().to_string();
    assert!(error.contains("auth.secret"), "{error}");
}

#[test]
fn claims_are_kept_by_name_and_type_and_only_those_that_are_configured() {
    let fixture = Fixture::new();
    let names = ["level", "vip", "city"].map(str::to_owned);
    let mut settings = Fixture::settings(VerifyKey::SecretFile(fixture.path("secret")));
    settings.claims = ClaimNames::new(&names).unwrap();
    let verifier = Verifier::new(&settings).unwrap();
    let claims_of = |changes: &Value| {
        let identity = verifier.verify(&hs256(&with(changes)), HERE, NOW).unwrap();
        [0, 1, 2, 3].map(|place| identity.claims.at(place).map(|claim| format!("{claim:?}")))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        claims_of(&json!({"level": 2.5, "vip": true, "city": "武汉", "club": 7})),
        [some("Number(2.5)"), some("Flag(true)"), some("Text(\"武汉\")"), None]
    );
    assert_eq!(
        claims_of(&json!({"level": [1], "vip": null, "city": "x".repeat(65)})),
        [None, None, None, None]
    );
    assert_eq!(claims_of(&json!({"city": "x".repeat(64)}))[2], some(&format!("Text({:?})", "x".repeat(64))));
    // What speaks of whose token it is stays what it is.
    assert_eq!(ClaimNames::new(&["a b".to_owned()]), Err(ClaimNameError::NotAName("a b".to_owned())));
    assert_eq!(ClaimNames::new(&vec!["a".to_owned(); 17]), Err(ClaimNameError::TooMany(17)));
    for bad in ["", "1a", "not", "true", "a-b", &"x".repeat(33), "城"] {
        assert!(!is_claim_name(bad), "{bad}");
    }
}

#[test]
fn only_what_has_no_jwts_form_and_a_sessions_length_stands_for_one() {
    let fixture = Fixture::new();
    assert_eq!(fixture.hs256().session_of(&[b'x'; 64]), None, "unless sessions are taken");
    let mut settings = Fixture::settings(VerifyKey::SecretFile(fixture.path("secret")));
    settings.sessions = true;
    let verifier = Verifier::new(&settings).unwrap();
    for token in [&b""[..], &[b'x'; 15], &[b'x'; 513], b"aaaaaaaa.bbbbbbbb.cccccccc"] {
        assert!(verifier.session_of(token).is_none(), "{token:?}");
    }
    for token in [&[b'x'; 16][..], &[b'.'; 16], &[0xFF; 512], b"aaaaaaaaaaaaaaaaaaa.b"] {
        assert!(verifier.session_of(token).is_some(), "{token:?}");
    }
    // A test value of FIPS 180-2.
    let digest = session_digest(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").unwrap();
    assert_eq!(digest[..4], [0x24, 0x8d, 0x6a, 0x61]);
    assert_ne!(random_session_token().unwrap(), random_session_token().unwrap());
}

#[test]
fn a_session_is_judged_as_a_token_with_its_claims_would_be() {
    let fixture = Fixture::new();
    let mut settings = Fixture::settings(VerifyKey::SecretFile(fixture.path("secret")));
    settings.claims = ClaimNames::new(&["level".to_owned()]).unwrap();
    settings.leeway = Duration::from_secs(5);
    settings.service_from = vec!["10.0.0.0/8".parse().unwrap()];
    let verifier = Verifier::new(&settings).unwrap();
    let exp = (NOW + 60).to_string();
    let good = SessionFields { user: "42", exp: &exp, scope: "", claims: "" };
    let judged = |session: SessionFields<'_>, now: u64| verifier.verify_session(&session, HERE, now);
    let identity = judged(good, NOW).unwrap();
    assert_eq!((identity.kind, identity.expires_at_ms), (app(42), (NOW + 65) * 1000));
    assert!(judged(good, NOW + 64).is_ok(), "by the same leeway");
    assert_eq!(judged(good, NOW + 65), Err(IdentityError::Expired));
    let claims = judged(SessionFields { claims: "{\"level\":3,\"x\":[1]}", ..good }, NOW).unwrap().claims;
    assert_eq!(claims.at(0), Some(Claim::Number(3.0)));
    for (session, why) in [
        (SessionFields { exp: "", ..good }, IdentityError::BadSession),
        (SessionFields { exp: "-1", ..good }, IdentityError::BadSession),
        (SessionFields { claims: "{", ..good }, IdentityError::BadSession),
        (SessionFields { claims: "3", ..good }, IdentityError::BadSession),
        (SessionFields { scope: "App", ..good }, IdentityError::BadScope),
        (SessionFields { user: "0", ..good }, IdentityError::BadSubject),
        (SessionFields { user: "-42", ..good }, IdentityError::BadSubject),
        (SessionFields { scope: "service", ..good }, IdentityError::UntrustedSource),
    ] {
        assert_eq!(judged(session, NOW), Err(why), "{session:?}");
    }
    let back_end = SessionFields { scope: "service", user: "", ..good };
    let from = "10.1.2.3".parse().unwrap();
    assert_eq!(verifier.verify_session(&back_end, from, NOW).unwrap().kind, IdentityKind::Service);
}
