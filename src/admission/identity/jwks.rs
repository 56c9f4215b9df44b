//! JWK Sets (RFC 7517): the keys of whoever makes the tokens, as their services publish them.
//!
//! Pure: bytes in, keys out. A set may hold keys for others, such as RSA or encryption keys: they are left out, and it
//! is told which. A key that is meant for us and cannot be used makes the whole set unusable, so that what is in
//! force is always a set that somebody wrote. Messages name places and kids, never what a key is made of.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::key::{Key, KeyFlaw};

/// No file with keys is longer.
pub(super) const JWKS_BYTES_MAX: u64 = 64 * 1024;

const KEYS_MAX: usize = 64;

/// What a coordinate of P-256 has.
const COORDINATE_BYTES: usize = 32;

/// Why bytes are not a JWK Set that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// Not JSON, or not of that form.
    #[error("not a JWK Set (RFC 7517: {{\"keys\": [...]}}), at line {line} column {column}")]
    NotJwkSet {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// More than any rotation needs.
    #[error("{0} keys; at most {KEYS_MAX} are looked at")]
    TooManyKeys(usize),
    /// Nothing that a token could be checked with. Also what a set by mistake empty looks like.
    #[error("no key for HS256, EdDSA or ES256 in it ({skipped} for something else)")]
    NoUsableKey {
        /// Those for something else.
        skipped: usize,
    },
    /// A key that is meant for us and is none.
    #[error("keys[{index}]{}: {flaw}", named(.kid.as_deref()))]
    Flawed {
        /// Its place, from 0.
        index: usize,
        /// Its name.
        kid: Option<String>,
        /// What is wrong.
        flaw: KeyFlaw,
    },
}

fn named(kid: Option<&str>) -> String {
    kid.map(|kid| format!(" (kid {kid:?})")).unwrap_or_default()
}

/// What a set holds.
#[derive(Debug)]
pub(super) struct Jwks {
    pub(super) keys: Vec<Key>,
    /// Keys for something else: which, and for what.
    pub(super) skipped: Vec<String>,
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

/// Without `Debug`: it may hold a secret.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    k: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<serde::de::IgnoredAny>,
}

/// Reads a set.
pub(super) fn parse(text: &[u8]) -> Result<Jwks, JwksError> {
    let set: JwkSet = serde_json::from_slice(text)
        .map_err(|error| JwksError::NotJwkSet { line: error.line(), column: error.column() })?;
    if set.keys.len() > KEYS_MAX {
        return Err(JwksError::TooManyKeys(set.keys.len()));
    }
    let mut jwks = Jwks { keys: Vec::new(), skipped: Vec::new() };
    for (index, jwk) in set.keys.into_iter().enumerate() {
        if let Some(purpose) = jwk.other_purpose() {
            jwks.skipped.push(format!("keys[{index}]{}: {purpose}", named(jwk.kid.as_deref())));
            continue;
        }
        let kid = jwk.kid.clone();
        jwks.keys.push(jwk.key().map_err(|flaw| JwksError::Flawed { index, kid, flaw })?);
    }
    if jwks.keys.is_empty() {
        return Err(JwksError::NoUsableKey { skipped: jwks.skipped.len() });
    }
    Ok(jwks)
}

impl Jwk {
    /// What it is for, if not for us.
    fn other_purpose(&self) -> Option<String> {
        let (kind, algorithms): (_, &[&str]) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("oct", _) => ("oct", &["HS256"]),
            // The second is its name since RFC 9864.
            ("OKP", Some("Ed25519")) => ("Ed25519", &["EdDSA", "Ed25519"]),
            ("EC", Some("P-256")) => ("P-256", &["ES256"]),
            ("OKP" | "EC", Some(curve)) => return Some(format!("curve {curve:?}")),
            // Ours, but flawed.
            ("OKP" | "EC", None) => return None,
            (other, _) => return Some(format!("kty {other:?}")),
        };
        if let Some(alg) = self.alg.as_deref().filter(|alg| !algorithms.contains(alg)) {
            return Some(format!("{kind} key for {alg:?}"));
        }
        if let Some(usage) = self.usage.as_deref().filter(|usage| *usage != "sig") {
            return Some(format!("use {usage:?}"));
        }
        let verifies = self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        (!verifies).then(|| "key_ops without \"verify\"".to_owned())
    }

    fn key(self) -> Result<Key, KeyFlaw> {
        let member = |name: &'static str, value: Option<&String>| {
            let decoded = value.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
            decoded.ok_or(KeyFlaw::BadMember(name))
        };
        if self.kty == "oct" {
            return Key::secret(self.kid, &member("k", self.k.as_ref())?);
        }
        if self.crv.is_none() {
            return Err(KeyFlaw::BadMember("crv"));
        }
        if self.d.is_some() {
            return Err(KeyFlaw::Private);
        }
        let x = member("x", self.x.as_ref())?;
        if self.kty == "OKP" {
            return Key::ed25519(self.kid, &x);
        }
        let y = member("y", self.y.as_ref())?;
        // Each has its full length (RFC 7518, 6.2.1.2); only then it is clear where one ends.
        if x.len() != COORDINATE_BYTES || y.len() != COORDINATE_BYTES {
            return Err(KeyFlaw::NotP256);
        }
        Key::p256(self.kid, &[&[4][..], &x, &y].concat())
    }
}
