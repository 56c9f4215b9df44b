//! Several keys at once: which of them a token means, and what happens when they change under way.

use super::*;

/// Of the fixture's public keys, as members of a JWK.
const ED_X: &str = "H72IFAqg7w7ySQHYJO1bZ_dcDRSSdHFp8EGg3xGJ84E";
const EC_X: &str = "Eaxf_eIBxYvdpYA8-nBIm033WIRVjCVXwZ7tZrdyFGg";
const EC_Y: &str = "PDp2k4oUTpZq9R0me0hWGjulQJ53JQfckfYuGhTSrHI";
const OTHER_EC_X: &str = "mDPMwf6BLJDCtNUIgYpbZcaiumX7Vp8tnBJIhFol1o8";
const OTHER_EC_Y: &str = "CGnIlFi2mPSb2vnaUcP9l21BoxRl1TKEahdCb6Lhmy8";

pub(super) fn ed(kid: &str) -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "x": ED_X, "kid": kid})
}

pub(super) fn ec(kid: &str) -> Value {
    json!({"kty": "EC", "crv": "P-256", "x": EC_X, "y": EC_Y, "kid": kid})
}

fn other_ec(kid: &str) -> Value {
    json!({"kty": "EC", "crv": "P-256", "x": OTHER_EC_X, "y": OTHER_EC_Y, "kid": kid})
}

pub(super) fn oct(kid: &str, secret: &str) -> Value {
    json!({"kty": "oct", "k": base64url(secret.as_bytes()), "kid": kid})
}

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// The key without its name.
fn nameless(mut jwk: Value) -> Value {
    jwk.as_object_mut().unwrap().remove("kid");
    jwk
}

pub(super) struct Rotating {
    pub(super) fixture: Fixture,
    pub(super) verifier: Verifier,
}

impl Rotating {
    pub(super) fn write(fixture: &Fixture, keys: &[Value]) {
        fs::write(fixture.path("jwks"), json!({ "keys": keys }).to_string()).unwrap();
    }

    pub(super) fn try_new(key: Option<&str>, kid: Option<&str>, keys: &[Value]) -> Result<Self, KeyError> {
        let fixture = Fixture::new();
        Self::write(&fixture, keys);
        let mut settings = Fixture::settings(VerifyKey::SecretFile(PathBuf::new()));
        settings.key = key.map(|name| VerifyKey::SecretFile(fixture.path(name)));
        settings.kid = kid.map(str::to_owned);
        settings.jwks_file = Some(fixture.path("jwks"));
        Verifier::new(&settings).map(|verifier| Self { fixture, verifier })
    }

    pub(super) fn new(keys: &[Value]) -> Self {
        Self::try_new(None, None, keys).unwrap()
    }

    pub(super) fn rewrite(&self, keys: &[Value]) -> Result<KeyChanges, KeyError> {
        Self::write(&self.fixture, keys);
        self.verifier.reread_keys()
    }

    /// A token by one of the fixture's keys.
    pub(super) fn token(&self, key: &str, kid: Option<&str>) -> String {
        let path = self.fixture.path(key);
        let key =
            if key.contains("secret") { MintKey::SecretFile(path) } else { MintKey::PrivateKeyFile(path) };
        let minter = Fixture::minter(key).with_kid(kid.map(str::to_owned));
        minter.mint(app(42), NOW, Duration::from_secs(60)).unwrap()
    }

    #[track_caller]
    pub(super) fn check(&self, key: &str, kid: Option<&str>) -> Result<(), IdentityError> {
        self.verifier.verify(self.token(key, kid).as_bytes(), HERE, NOW).map(|_| ())
    }

    fn kids(&self) -> Vec<String> {
        self.verifier.key_names().iter().map(|name| name.kid.clone().unwrap_or_default()).collect()
    }
}

#[test]
fn each_kind_of_key_in_a_jwk_set_checks_its_own_tokens_alone() {
    let keys = Rotating::new(&[oct("h", SECRET), ed("e"), ec("c")]);
    for (key, kid) in [("secret", "h"), ("private", "e"), ("ec-private", "c")] {
        assert_eq!(keys.check(key, Some(kid)), Ok(()), "{kid}");
        for other in ["h", "e", "c"].into_iter().filter(|other| *other != kid) {
            assert_eq!(keys.check(key, Some(other)), Err(IdentityError::WrongAlgorithm), "{key} as {other}");
        }
    }
    for key in ["other-secret", "other", "ec-other"] {
        let kid = if key.contains("secret") {
            "h"
        } else if key.contains("ec") {
            "c"
        } else {
            "e"
        };
        assert_eq!(keys.check(key, Some(kid)), Err(IdentityError::BadSignature), "{key}");
    }
}

#[test]
fn a_token_without_kid_means_the_only_key_of_its_algorithm() {
    let keys = Rotating::new(&[oct("h", SECRET), ed("e"), ec("c1"), other_ec("c2")]);
    assert_eq!(keys.check("secret", None), Ok(()));
    assert_eq!(keys.check("private", None), Ok(()));
    assert_eq!(keys.check("ec-private", None), Err(IdentityError::AmbiguousKey));
    assert_eq!(keys.check("ec-private", Some("c1")), Ok(()));
    assert_eq!(keys.check("ec-other", Some("c2")), Ok(()));
    assert_eq!(keys.check("ec-other", Some("c1")), Err(IdentityError::BadSignature));
}

#[test]
fn the_key_without_kid_is_meant_by_all_whose_kid_names_no_other() {
    let keys = Rotating::try_new(Some("secret"), None, &[oct("new", OTHER_SECRET), ed("e")]).unwrap();
    for kid in [None, Some("old"), Some("")] {
        assert_eq!(keys.check("secret", kid), Ok(()), "{kid:?}");
        assert_eq!(keys.check("other-secret", kid), Err(IdentityError::BadSignature), "{kid:?}");
    }
    assert_eq!(keys.check("other-secret", Some("new")), Ok(()));
    assert_eq!(keys.check("secret", Some("new")), Err(IdentityError::BadSignature));
    assert_eq!(keys.check("ec-private", None), Err(IdentityError::WrongAlgorithm), "no such key at all");
}

#[test]
fn a_configured_key_with_a_kid_goes_by_it() {
    let keys = Rotating::try_new(Some("secret"), Some("a"), &[oct("b", OTHER_SECRET)]).unwrap();
    assert_eq!(keys.check("secret", Some("a")), Ok(()));
    assert_eq!(keys.check("other-secret", Some("b")), Ok(()));
    assert_eq!(keys.check("secret", Some("c")), Err(IdentityError::UnknownKey));
    assert_eq!(keys.check("secret", None), Err(IdentityError::AmbiguousKey));
}

#[test]
fn a_rotation_never_refuses_a_token_of_a_key_in_force() {
    let keys = Rotating::new(&[ec("1")]);
    assert_eq!(keys.check("ec-other", Some("2")), Err(IdentityError::UnknownKey), "not known yet");
    let read = keys.rewrite(&[ec("1"), other_ec("2")]).unwrap();
    assert_eq!((read.added.len(), read.retired.len()), (1, 0));
    assert_eq!((keys.check("ec-private", Some("1")), keys.check("ec-other", Some("2"))), (Ok(()), Ok(())));
    let read = keys.rewrite(&[other_ec("2")]).unwrap();
    assert_eq!(read.retired[0].kid.as_deref(), Some("1"));
    assert_eq!(keys.check("ec-private", Some("1")), Err(IdentityError::UnknownKey), "retired");
    assert_eq!(keys.check("ec-private", None), Err(IdentityError::BadSignature), "retired");
    assert_eq!(keys.check("ec-other", Some("2")), Ok(()));
    assert!(keys.rewrite(&[other_ec("2")]).unwrap().is_empty());
    // Another key under the same name.
    let read = keys.rewrite(&[ec("2")]).unwrap();
    assert_eq!((read.added.len(), read.retired.len()), (1, 1));
    assert_eq!(keys.check("ec-other", Some("2")), Err(IdentityError::BadSignature));
    assert_eq!(keys.check("ec-private", Some("2")), Ok(()));
}

#[test]
fn a_file_that_cannot_be_used_leaves_the_last_good_keys() {
    let keys = Rotating::try_new(Some("secret"), None, &[ec("1")]).unwrap();
    for bad in ["", "{", "[]", "{\"keys\": []}", "{\"keys\": [{\"kty\": \"oct\", \"k\": \"AA\"}]}"] {
        fs::write(keys.fixture.path("jwks"), bad).unwrap();
        assert!(keys.verifier.reread_keys().is_err(), "{bad}");
    }
    fs::remove_file(keys.fixture.path("jwks")).unwrap();
    assert!(keys.verifier.reread_keys().is_err());
    assert_eq!((keys.check("ec-private", Some("1")), keys.check("secret", None)), (Ok(()), Ok(())));
    assert!(keys.rewrite(&[other_ec("2")]).is_ok());
    assert_eq!(keys.kids(), ["", "2"]);
}

#[test]
fn keys_that_a_token_could_not_tell_apart_are_refused() {
    let says = |key, kid, keys: &[Value]| match Rotating::try_new(key, kid, keys) {
        Ok(_) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(says(None, None, &[ec("a"), other_ec("a")]).contains("two keys have the kid \"a\""));
    assert!(says(None, None, &[ec("a"), oct("a", SECRET)]).contains("two keys have the kid \"a\""));
    assert!(says(Some("secret"), Some("a"), &[ed("a")]).contains("two keys have the kid \"a\""));
    assert!(
        says(None, None, &[nameless(ec("")), nameless(other_ec(""))]).contains("two ES256 keys have no kid")
    );
    assert!(
        says(Some("secret"), None, &[nameless(oct("", OTHER_SECRET))]).contains("two HS256 keys have no kid")
    );
    assert_eq!(says(Some("secret"), None, &[nameless(ed("")), nameless(ec(""))]), "nothing");
    let long = "k".repeat(129);
    assert!(says(Some("secret"), Some(&long), &[ed("a")]).contains("kid has 129 bytes"));
    assert!(says(Some("secret"), Some(""), &[ed("a")]).contains("kid has 0 bytes"));
    let mut settings = Fixture::settings(VerifyKey::SecretFile(PathBuf::new()));
    settings.key = None;
    assert!(Verifier::new(&settings).unwrap_err().to_string().contains("no key"));
}

#[test]
fn the_key_that_a_token_means_is_told() {
    let keys = Rotating::new(&[oct("h", SECRET), ec("c")]);
    let name = |key, kid| keys.verifier.key_of(keys.token(key, kid).as_bytes()).map(|name| name.to_string());
    assert_eq!(name("secret", Some("h")), Ok("\"h\" (HS256)".to_owned()));
    assert_eq!(name("ec-private", None), Ok("\"c\" (ES256)".to_owned()));
    assert_eq!(name("secret", Some("x")), Err(IdentityError::UnknownKey));
}
