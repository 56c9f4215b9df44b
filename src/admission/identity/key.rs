//! A key that tokens are checked with: its bytes, the one algorithm that it is for, and its name.
//!
//! A [`Key`] exists only if it can be used: length, curve and strength are checked when it is made, so that a bad key
//! is told when it is read and not as a refusal of every token later.

use std::fmt;

use ed25519_dalek::VerifyingKey;
use jsonwebtoken::crypto::CryptoProvider;
use jsonwebtoken::{DecodingKey, Validation};

use super::TokenAlgorithm;

/// The shortest secret accepted: as long as the hash that HS256 uses (RFC 7518, 3.2).
pub const SECRET_BYTES_MIN: usize = 32;
/// The longest `kid` that a key may have. (What a token says is compared, whatever its length, and goes nowhere else.)
pub const KID_BYTES_MAX: usize = 128;

/// How a key is called, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyName {
    /// What a token's `kid` says to mean this key.
    pub kid: Option<String>,
    /// The one algorithm that it checks.
    pub algorithm: TokenAlgorithm,
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = self.algorithm.name();
        match &self.kid {
            Some(kid) => write!(f, "{kid:?} ({algorithm})"),
            None => write!(f, "without kid ({algorithm})"),
        }
    }
}

/// Why bytes are no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFlaw {
    /// A secret that could be guessed.
    #[error("its secret has {0} bytes; HS256 needs at least {SECRET_BYTES_MIN}")]
    ShortSecret(usize),
    /// Not 32 bytes, or no point of the curve.
    #[error("it is not an Ed25519 public key")]
    NotEd25519,
    /// A point of low order, such as all zeros: everybody can sign for it.
    #[error("it is an Ed25519 key of low order, which fits signatures that nobody made")]
    WeakEd25519,
    /// Not a point of P-256.
    #[error("it is not a public key on the curve P-256")]
    NotP256,
    /// A name that is empty or too long.
    #[error("its kid has {0} bytes; allowed are 1 to {KID_BYTES_MAX}")]
    BadKid(usize),
    /// A member that a key of its kind needs is missing, or is not base64url.
    #[error("its member {0:?} is missing or not base64url without padding")]
    BadMember(&'static str),
    /// The private half is with it: it does not belong on a gateway.
    #[error(
        "it holds the private key (\"d\"), which does not belong on a gateway; give the public part alone"
    )]
    Private,
}

/// See the module. Its bytes are never printed.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: KeyName,
    pub(super) decoding: DecodingKey,
    /// Lets jsonwebtoken check algorithm and signature only: its other checks read the clock.
    pub(super) validation: Validation,
}

impl Key {
    /// HS256.
    pub(super) fn secret(kid: Option<String>, secret: &[u8]) -> Result<Self, KeyFlaw> {
        let flaw = KeyFlaw::ShortSecret(secret.len());
        if secret.len() < SECRET_BYTES_MIN {
            return Err(flaw);
        }
        let decoding = DecodingKey::from_secret(secret).map_err(|_| flaw)?;
        Self::new(kid, TokenAlgorithm::Hs256, decoding)
    }

    /// EdDSA, from the 32 bytes of a public key.
    pub(super) fn ed25519(kid: Option<String>, bytes: &[u8]) -> Result<Self, KeyFlaw> {
        // jsonwebtoken panics on a shorter key and ignores what a longer one has more.
        let bytes = <&[u8; 32]>::try_from(bytes).map_err(|_| KeyFlaw::NotEd25519)?;
        let point = VerifyingKey::from_bytes(bytes).map_err(|_| KeyFlaw::NotEd25519)?;
        if point.is_weak() {
            return Err(KeyFlaw::WeakEd25519);
        }
        Self::new(kid, TokenAlgorithm::EdDsa, DecodingKey::from_ed_der(bytes))
    }

    /// ES256, from a point as SEC 1 writes it.
    pub(super) fn p256(kid: Option<String>, point: &[u8]) -> Result<Self, KeyFlaw> {
        let decoding = DecodingKey::from_ec_der(point);
        let provider = CryptoProvider::try_get_default().ok_or(KeyFlaw::NotP256)?;
        // Whether it is a point of the curve.
        (provider.verifier_factory)(&TokenAlgorithm::Es256.jws(), &decoding).map_err(|_| KeyFlaw::NotP256)?;
        Self::new(kid, TokenAlgorithm::Es256, decoding)
    }

    /// From a PEM file with a public key; `None` if there is none for this algorithm.
    pub(super) fn from_pem(
        kid: Option<String>,
        algorithm: TokenAlgorithm,
        pem: &[u8],
    ) -> Option<Result<Self, KeyFlaw>> {
        // jsonwebtoken would take a certificate too, and find some other bits in it.
        if !pem.trim_ascii_start().starts_with(b"-----BEGIN PUBLIC KEY-----") {
            return None;
        }
        match algorithm {
            TokenAlgorithm::Hs256 => None,
            TokenAlgorithm::EdDsa => {
                let key = DecodingKey::from_ed_pem(pem).ok()?;
                Some(Self::ed25519(kid, key.try_get_as_bytes().ok()?))
            }
            TokenAlgorithm::Es256 => {
                let key = DecodingKey::from_ec_pem(pem).ok()?;
                Some(Self::p256(kid, key.try_get_as_bytes().ok()?))
            }
        }
    }

    fn new(kid: Option<String>, algorithm: TokenAlgorithm, decoding: DecodingKey) -> Result<Self, KeyFlaw> {
        if let Some(kid) = kid.as_ref().filter(|kid| !(1..=KID_BYTES_MAX).contains(&kid.len())) {
            return Err(KeyFlaw::BadKid(kid.len()));
        }
        let mut validation = Validation::new(algorithm.jws());
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        Ok(Self { name: KeyName { kid, algorithm }, decoding, validation })
    }

    /// The same name for the same bytes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let bytes = |key: &Self| key.decoding.try_get_as_bytes().map(<[u8]>::to_vec).ok();
        self.name == other.name && bytes(self) == bytes(other)
    }
}
