//! The algorithms that a key can have. A key has one; a token only gets to say that it agrees.

use jsonwebtoken::Algorithm;
use serde::{Deserialize, Serialize};

/// How tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenAlgorithm {
    /// HMAC with SHA-256: one secret, known to both sides.
    #[serde(rename = "HS256")]
    Hs256,
    /// Ed25519: the gateway only knows the public key.
    #[serde(rename = "EdDSA")]
    EdDsa,
    /// ECDSA on the curve P-256 with SHA-256: the gateway only knows the public key.
    #[serde(rename = "ES256")]
    Es256,
}

impl TokenAlgorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hs256, Self::EdDsa, Self::Es256];

    /// As tokens and configurations spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::EdDsa => "EdDSA",
            Self::Es256 => "ES256",
        }
    }

    /// `None` for every other, `none` included.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    pub(super) const fn jws(self) -> Algorithm {
        match self {
            Self::Hs256 => Algorithm::HS256,
            Self::EdDsa => Algorithm::EdDSA,
            Self::Es256 => Algorithm::ES256,
        }
    }
}
