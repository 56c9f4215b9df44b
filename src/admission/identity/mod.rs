//! Who is calling: tokens (JWT) checked against exactly one algorithm, key and audience.
//!
//! Runs on the gateway's worker threads, once per AUTH: a signature check of microseconds, no clock (time is an
//! argument), no I/O. Key files are read only while a [`Verifier`] or [`Minter`] is built, at start. A token never
//! chooses how it is checked: algorithm and key come from the settings, and the token's own header has to agree.
//! Nothing here fails on what a client sends: it is refused, and the reason is told.

mod dev_secret;
mod key_file;
mod keys;
mod mint;
#[cfg(test)]
mod tests;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

pub use self::dev_secret::{DEV_SECRET_FILE, dev_secret};
pub use self::key_file::{KeyError, SECRET_BYTES_MIN};
pub use self::mint::{MintError, Minter};
pub use self::verify::{TOKEN_BYTES_MAX, Verifier};
use crate::protocol::UserId;

/// The key that tokens are checked with. It fixes the algorithm too: a secret means HS256, a public key EdDSA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyKey {
    /// HS256: a file with at least [`SECRET_BYTES_MIN`] bytes; one line end at its end does not count.
    SecretFile(PathBuf),
    /// HS256: the secret that [`dev_secret()`] keeps in this data folder.
    DevSecret(PathBuf),
    /// EdDSA: an Ed25519 public key in PEM form (`BEGIN PUBLIC KEY`).
    PublicKeyFile(PathBuf),
}

/// What a [`Verifier`] is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentitySettings {
    /// The key, and with it the algorithm.
    pub key: VerifyKey,
    /// Has to be (one of) the token's `aud`.
    pub audience: String,
    /// If given, has to be the token's `iss`.
    pub issuer: Option<String>,
    /// How far the clock of whoever makes the tokens may differ from ours.
    pub leeway: Duration,
}

/// The key that tokens are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MintKey {
    /// HS256, as [`VerifyKey::SecretFile`].
    SecretFile(PathBuf),
    /// HS256, as [`VerifyKey::DevSecret`].
    DevSecret(PathBuf),
    /// EdDSA: an Ed25519 private key in PEM form (PKCS#8, `BEGIN PRIVATE KEY`).
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// For whom it speaks.
    pub kind: IdentityKind,
    /// Unix milliseconds from which on the token is expired here: its `exp` plus the leeway, so that a token is
    /// not accepted by AUTH and refused by the next request.
    pub expires_at_ms: u64,
}

/// Why a token was refused. Where several apply the first in this order is told; in particular `Expired` means
/// that the token was good otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IdentityError {
    /// No JWT: too long, not three parts, not base64url, not JSON, `exp` missing, a date that is no number.
    #[error("the token is not a JWT with an exp claim, of at most {TOKEN_BYTES_MAX} bytes")]
    Malformed,
    /// Its header names another algorithm (`none` included).
    #[error("the token's algorithm is not the one this gateway is configured for")]
    WrongAlgorithm,
    /// The signature does not belong to this content and our key.
    #[error("the token's signature is wrong; it was made with another key, or changed since")]
    BadSignature,
    /// `aud` is missing or names others.
    #[error("the token is for another audience than this gateway's")]
    WrongAudience,
    /// `iss` is missing or another.
    #[error("the token was issued by another issuer than configured")]
    WrongIssuer,
    /// `scope` is none of those known.
    #[error("the token's scope is neither \"app\" nor \"service\"")]
    BadScope,
    /// `sub` is not a user id. (Not looked at in service tokens.)
    #[error("the token's sub is not a user id: a decimal number from 1 to 2^63-1, as a string")]
    BadSubject,
    /// `nbf` lies ahead.
    #[error("the token is not valid yet; compare the clocks")]
    NotYetValid,
    /// `exp` has passed.
    #[error("the token has expired; AUTH with a fresh one")]
    Expired,
}
