//! Who is calling: tokens (JWT) checked against a set of keys, and one audience; or sessions that somebody has looked up.
//!
//! Runs on the gateway's worker threads, once per AUTH: one look at the keys in force and a signature check of
//! microseconds; no clock (time is an argument), no I/O, no lock. Key files are read while a [`Verifier`] or
//! [`Minter`] is built, and by [`Verifier::reread_keys`], on a thread that serves nobody. A token never chooses how
//! it is checked: its `kid` says which key is meant, and the key says the algorithm. What its header holds besides
//! (`jku`, `jwk`, `x5u` …) is not looked at. Nothing here fails on what a client sends: it is refused, and the reason
//! is told.

mod algorithm;
mod claims;
mod dev_secret;
mod inspect;
mod jwks;
mod key;
mod key_file;
mod key_set;
mod keys;
mod mint;
mod refusal;
mod session;
#[cfg(test)]
mod tests;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

pub use self::algorithm::TokenAlgorithm;
pub(in crate::admission) use self::claims::number;
pub use self::claims::{
    CLAIM_NAME_BYTES_MAX, CLAIM_TEXT_BYTES_MAX, CLAIMS_MAX, Claim, ClaimNameError, ClaimNames, Claims,
    asserted, is_claim_name,
};
pub use self::dev_secret::{DEV_SECRET_FILE, dev_secret};
pub use self::inspect::{Unverified, inspect};
pub use self::jwks::JwksError;
pub use self::key::{KID_BYTES_MAX, KeyFlaw, KeyName, SECRET_BYTES_MIN};
pub use self::key_file::KeyError;
pub use self::key_set::{KeyChanges, KeySetError};
pub use self::mint::{MintError, Minter};
pub use self::refusal::{IdentityError, TOKEN_BYTES_MAX};
pub use self::session::{
    SESSION_TOKEN_BYTES_MAX, SESSION_TOKEN_BYTES_MIN, SessionFields, random_session_token, session_digest,
};
pub use self::verify::Verifier;
use super::Cidr;
use crate::protocol::UserId;

/// A key that tokens are checked with. It fixes the algorithm too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyKey {
    /// HS256: a file with at least [`SECRET_BYTES_MIN`] bytes; one line end at its end does not count.
    SecretFile(PathBuf),
    /// HS256: the secret that [`dev_secret()`] keeps in this data folder.
    DevSecret(PathBuf),
    /// EdDSA: an Ed25519 public key in PEM form (`BEGIN PUBLIC KEY`).
    Ed25519File(PathBuf),
    /// ES256: a public key on P-256, in the same form.
    P256File(PathBuf),
}

/// What a [`Verifier`] is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentitySettings {
    /// The key that is always in force, if any.
    pub key: Option<VerifyKey>,
    /// Its name. A key without one is meant by every token whose `kid` names no other.
    pub kid: Option<String>,
    /// Further keys: a file with a JWK Set.
    pub jwks_file: Option<PathBuf>,
    /// Has to be (one of) the token's `aud`.
    pub audience: String,
    /// If given, has to be the token's `iss`.
    pub issuer: Option<String>,
    /// How far the clock of whoever makes the tokens may differ from ours.
    pub leeway: Duration,
    /// From where service tokens are good.
    pub service_from: Vec<Cidr>,
    /// Further claims that are kept, for activities' rules.
    pub claims: ClaimNames,
    /// Whether tokens that are no JWTs stand for sessions.
    pub sessions: bool,
}

impl IdentitySettings {
    /// One key without a name; service tokens from everywhere, no leeway.
    pub fn new(key: VerifyKey, audience: &str) -> Self {
        Self {
            key: Some(key),
            kid: None,
            jwks_file: None,
            audience: audience.to_owned(),
            issuer: None,
            leeway: Duration::ZERO,
            service_from: Cidr::EVERYWHERE.to_vec(),
            claims: ClaimNames::default(),
            sessions: false,
        }
    }
}

/// The key that tokens are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MintKey {
    /// HS256, as [`VerifyKey::SecretFile`].
    SecretFile(PathBuf),
    /// HS256, as [`VerifyKey::DevSecret`].
    DevSecret(PathBuf),
    /// EdDSA or ES256: an Ed25519 or P-256 private key in PEM form (PKCS#8, `BEGIN PRIVATE KEY`).
    PrivateKeyFile(PathBuf),
}

/// What a [`Minter`] is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MintSettings {
    /// The key, and with it the algorithm.
    pub key: MintKey,
    /// The tokens' `aud`.
    pub audience: String,
    /// The tokens' `iss`, if they are to have one.
    pub issuer: Option<String>,
}

/// For whom a token speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityKind {
    /// One user, for the life of the connection (scope `app`).
    App(UserId),
    /// A back end that names the user in each request (scope `service`).
    Service,
}

/// What a token that was accepted says.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// For whom it speaks.
    pub kind: IdentityKind,
    /// Unix milliseconds from which on the token is expired here: its `exp` plus the leeway, so that a token is
    /// not accepted by AUTH and refused by the next request.
    pub expires_at_ms: u64,
    /// What it says besides, as far as it is kept.
    pub claims: Claims,
}
