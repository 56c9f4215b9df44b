//! Reading key files, and everything that can be wrong with one.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::TokenAlgorithm;
use super::jwks::JwksError;
use super::key::{KeyFlaw, SECRET_BYTES_MIN};
use super::key_set::KeySetError;

/// No key is longer; a device or a wrong file is not read to its end.
pub(super) const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file could not be read.
    #[error("key file {path}: {source}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Longer than any key.
    #[error("key file {path} is longer than {bytes_max} bytes; that is not a key", path = path.display())]
    TooLong {
        /// Which.
        path: PathBuf,
        /// What is read at most.
        bytes_max: u64,
    },
    /// A secret that could be guessed.
    #[error(
        "secret file {path} has {bytes} bytes; HS256 needs at least {SECRET_BYTES_MIN} (openssl rand -hex 32)",
        path = path.display()
    )]
    TooShort {
        /// Which.
        path: PathBuf,
        /// How many.
        bytes: usize,
    },
    /// A PEM file given as secret: whoever knows a public key could make tokens.
    #[error("secret file {path} holds a PEM key; use a public key with algorithm EdDSA or ES256", path = path.display())]
    PemAsSecret {
        /// Which.
        path: PathBuf,
    },
    /// Not a public key for the algorithm.
    #[error(
        "{path} is not {what} public key in PEM form (openssl pkey -in private.pem -pubout)",
        path = path.display(),
        what = curve(*algorithm)
    )]
    NotPublicKey {
        /// Which.
        path: PathBuf,
        /// What it should be for.
        algorithm: TokenAlgorithm,
    },
    /// Not a private key that tokens can be made with.
    #[error(
        "{path} is not an Ed25519 or P-256 private key in PKCS#8 PEM form (openssl genpkey -algorithm ed25519, or \
         -algorithm EC -pkeyopt ec_paramgen_curve:P-256)",
        path = path.display()
    )]
    NotPrivateKey {
        /// Which.
        path: PathBuf,
    },
    /// A key that cannot be used.
    #[error("key file {path}: {flaw}", path = path.display())]
    Flawed {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        flaw: KeyFlaw,
    },
    /// Something that gives its content once, or never ends.
    #[error("JWKS file {path} is not a regular file; it is read again and again", path = path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// A JWKS file that cannot be used.
    #[error("JWKS file {path}: {source}", path = path.display())]
    Jwks {
        /// Which.
        path: PathBuf,
        /// Why.
        source: JwksError,
    },
    /// Keys that do not go together.
    #[error("the gateway's token keys: {0}")]
    Set(#[from] KeySetError),
    /// Neither a key nor a file with keys.
    #[error("there is no key to check tokens with; name a secret, a public key or a JWKS file")]
    NoKey,
    /// The development secret could not be made.
    #[error(
        "development secret {path} cannot be created: {source}; \
         make the data folder writable or configure a key (auth.secret_file)",
        path = path.display()
    )]
    Create {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

const fn curve(algorithm: TokenAlgorithm) -> &'static str {
    match algorithm {
        TokenAlgorithm::Hs256 => "a",
        TokenAlgorithm::EdDsa => "an Ed25519",
        TokenAlgorithm::Es256 => "a P-256",
    }
}

/// The secret in a file. One line end at its end does not count: editors and `openssl rand -hex` add one.
pub(super) fn secret_file(path: &Path) -> Result<Vec<u8>, KeyError> {
    let mut secret = read(path, KEY_FILE_BYTES_MAX)?;
    if secret.last() == Some(&b'\n') {
        secret.pop();
        if secret.last() == Some(&b'\r') {
            secret.pop();
        }
    }
    if secret.trim_ascii_start().starts_with(b"-----BEGIN ") {
        return Err(KeyError::PemAsSecret { path: path.to_owned() });
    }
    if secret.len() < SECRET_BYTES_MIN {
        return Err(KeyError::TooShort { path: path.to_owned(), bytes: secret.len() });
    }
    Ok(secret)
}

/// The content of a file that is at most so long.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, KeyError> {
    let failed = |source| KeyError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mut content = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    if u64::try_from(content.len()).is_ok_and(|bytes| bytes <= bytes_max) {
        Ok(content)
    } else {
        Err(KeyError::TooLong { path: path.to_owned(), bytes_max })
    }
}
