//! Reading key files, and everything that can be wrong with one.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The shortest secret accepted: as long as the hash that HS256 uses (RFC 7518, 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

/// No key is longer; a device or a wrong file is not read to its end.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;

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
    #[error("key file {path} is longer than {KEY_FILE_BYTES_MAX} bytes; that is not a key", path = path.display())]
    TooLong {
        /// Which.
        path: PathBuf,
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
    #[error("secret file {path} holds a PEM key; use it with algorithm EdDSA", path = path.display())]
    PemAsSecret {
        /// Which.
        path: PathBuf,
    },
    /// Not an Ed25519 public key.
    #[error(
        "{path} is not an Ed25519 public key in PEM form (openssl pkey -in private.pem -pubout)",
        path = path.display()
    )]
    NotPublicKey {
        /// Which.
        path: PathBuf,
    },
    /// Not an Ed25519 private key.
    #[error(
        "{path} is not an Ed25519 private key in PKCS#8 PEM form (openssl genpkey -algorithm ed25519)",
        path = path.display()
    )]
    NotPrivateKey {
        /// Which.
        path: PathBuf,
    },
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

/// The secret in a file. One line end at its end does not count: editors and `openssl rand -hex` add one.
pub(super) fn secret_file(path: &Path) -> Result<Vec<u8>, KeyError> {
    let mut secret = read(path)?;
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

pub(super) fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let failed = |source| KeyError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mut content = Vec::new();
    file.take(KEY_FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    if u64::try_from(content.len()).is_ok_and(|bytes| bytes <= KEY_FILE_BYTES_MAX) {
        Ok(content)
    } else {
        Err(KeyError::TooLong { path: path.to_owned() })
    }
}
