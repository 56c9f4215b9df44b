//! From key files to keys: at start, and again whenever the JWKS file changes.

use std::fs;
use std::path::Path;

use jsonwebtoken::EncodingKey;
use jsonwebtoken::crypto::CryptoProvider;

use super::dev_secret::dev_secret;
use super::jwks::{self, JWKS_BYTES_MAX, Jwks};
use super::key::{Key, KeyFlaw};
use super::key_file::{KEY_FILE_BYTES_MAX, KeyError, read, secret_file};
use super::{MintKey, TokenAlgorithm, VerifyKey};

/// The key that the configuration names.
pub(super) fn configured(key: &VerifyKey, kid: Option<&str>) -> Result<Key, KeyError> {
    let kid = kid.map(str::to_owned);
    match key {
        VerifyKey::SecretFile(path) => checked(path, Key::secret(kid, &secret_file(path)?)),
        VerifyKey::DevSecret(data_dir) => checked(data_dir, Key::secret(kid, &dev_secret(data_dir)?)),
        VerifyKey::Ed25519File(path) => public(path, kid, TokenAlgorithm::EdDsa),
        VerifyKey::P256File(path) => public(path, kid, TokenAlgorithm::Es256),
    }
}

fn public(path: &Path, kid: Option<String>, algorithm: TokenAlgorithm) -> Result<Key, KeyError> {
    let pem = read(path, KEY_FILE_BYTES_MAX)?;
    let not_public = || KeyError::NotPublicKey { path: path.to_owned(), algorithm };
    match Key::from_pem(kid, algorithm, &pem) {
        None | Some(Err(KeyFlaw::NotEd25519 | KeyFlaw::NotP256)) => Err(not_public()),
        Some(key) => checked(path, key),
    }
}

fn checked(path: &Path, key: Result<Key, KeyFlaw>) -> Result<Key, KeyError> {
    key.map_err(|flaw| KeyError::Flawed { path: path.to_owned(), flaw })
}

/// The keys of a JWKS file.
pub(super) fn of_jwks_file(path: &Path) -> Result<Jwks, KeyError> {
    // Before it is opened: opening a pipe may wait for ever.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(KeyError::NotAFile { path: path.to_owned() });
    }
    let text = read(path, JWKS_BYTES_MAX)?;
    jwks::parse(&text).map_err(|source| KeyError::Jwks { path: path.to_owned(), source })
}

/// The key that tokens are made with. A private key says itself which algorithm it is for.
pub(super) fn mint_key(key: &MintKey) -> Result<(TokenAlgorithm, EncodingKey), KeyError> {
    match key {
        MintKey::SecretFile(path) => secret_for_mint(path, &secret_file(path)?),
        MintKey::DevSecret(data_dir) => secret_for_mint(data_dir, &dev_secret(data_dir)?),
        MintKey::PrivateKeyFile(path) => {
            let pem = read(path, KEY_FILE_BYTES_MAX)?;
            private_key(&pem).ok_or_else(|| KeyError::NotPrivateKey { path: path.clone() })
        }
    }
}

fn secret_for_mint(path: &Path, secret: &[u8]) -> Result<(TokenAlgorithm, EncodingKey), KeyError> {
    // The only objection jsonwebtoken has to a secret.
    let too_short = |_| KeyError::TooShort { path: path.to_owned(), bytes: secret.len() };
    Ok((TokenAlgorithm::Hs256, EncodingKey::from_secret(secret).map_err(too_short)?))
}

fn private_key(pem: &[u8]) -> Option<(TokenAlgorithm, EncodingKey)> {
    let (algorithm, key) = match EncodingKey::from_ed_pem(pem) {
        Ok(key) => (TokenAlgorithm::EdDsa, key),
        Err(_) => (TokenAlgorithm::Es256, EncodingKey::from_ec_pem(pem).ok()?),
    };
    (CryptoProvider::try_get_default()?.signer_factory)(&algorithm.jws(), &key).ok()?;
    Some((algorithm, key))
}
