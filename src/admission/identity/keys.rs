//! From key files to keys, read and checked once, at start.

use std::path::Path;

use jsonwebtoken::crypto::CryptoProvider;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};

use super::dev_secret::dev_secret;
use super::key_file::{KeyError, read, secret_file};
use super::{MintKey, VerifyKey};

/// An Ed25519 public key.
const ED25519_BYTES: usize = 32;

pub(super) fn verify_key(key: &VerifyKey) -> Result<(Algorithm, DecodingKey), KeyError> {
    match key {
        VerifyKey::SecretFile(path) => secret_for_verify(path, &secret_file(path)?),
        VerifyKey::DevSecret(data_dir) => secret_for_verify(data_dir, &dev_secret(data_dir)?),
        VerifyKey::PublicKeyFile(path) => {
            let pem = read(path)?;
            let key = public_key(&pem).ok_or_else(|| KeyError::NotPublicKey { path: path.clone() })?;
            Ok((Algorithm::EdDSA, key))
        }
    }
}

pub(super) fn mint_key(key: &MintKey) -> Result<(Algorithm, EncodingKey), KeyError> {
    match key {
        MintKey::SecretFile(path) => secret_for_mint(path, &secret_file(path)?),
        MintKey::DevSecret(data_dir) => secret_for_mint(data_dir, &dev_secret(data_dir)?),
        MintKey::PrivateKeyFile(path) => {
            let pem = read(path)?;
            let key = private_key(&pem).ok_or_else(|| KeyError::NotPrivateKey { path: path.clone() })?;
            Ok((Algorithm::EdDSA, key))
        }
    }
}

fn secret_for_verify(path: &Path, secret: &[u8]) -> Result<(Algorithm, DecodingKey), KeyError> {
    let key = DecodingKey::from_secret(secret).map_err(|_| too_short(path, secret))?;
    Ok((Algorithm::HS256, key))
}

fn secret_for_mint(path: &Path, secret: &[u8]) -> Result<(Algorithm, EncodingKey), KeyError> {
    let key = EncodingKey::from_secret(secret).map_err(|_| too_short(path, secret))?;
    Ok((Algorithm::HS256, key))
}

/// The only objection jsonwebtoken has to a secret.
fn too_short(path: &Path, secret: &[u8]) -> KeyError {
    KeyError::TooShort { path: path.to_owned(), bytes: secret.len() }
}

fn public_key(pem: &[u8]) -> Option<DecodingKey> {
    // jsonwebtoken would take a certificate too, and find some other bits in it.
    if !pem.trim_ascii_start().starts_with(b"-----BEGIN PUBLIC KEY-----") {
        return None;
    }
    let key = DecodingKey::from_ed_pem(pem).ok()?;
    // jsonwebtoken panics on a shorter key and ignores what a longer one has more.
    if key.try_get_as_bytes().ok()?.len() != ED25519_BYTES {
        return None;
    }
    // Whether it is a point of the curve; otherwise every token would be refused, later.
    (CryptoProvider::try_get_default()?.verifier_factory)(&Algorithm::EdDSA, &key).ok()?;
    Some(key)
}

fn private_key(pem: &[u8]) -> Option<EncodingKey> {
    let key = EncodingKey::from_ed_pem(pem).ok()?;
    (CryptoProvider::try_get_default()?.signer_factory)(&Algorithm::EdDSA, &key).ok()?;
    Some(key)
}
