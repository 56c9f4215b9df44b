//! Signatures: HMAC-SHA-256 over the time of signing and the body, with a key that both sides have in a file.
//!
//! Two keys may be in force, so that one is replaced while messages under the other are on their way: each side first
//! takes both, then signs with the new one, then forgets the old one. Comparing takes the same time whatever differs.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// When a message was signed, in Unix milliseconds. Each try of a message is signed anew.
pub const TIMESTAMP_HEADER: &str = "rushgate-timestamp";
/// `HMAC-SHA-256(key, timestamp "." body)`, 64 hexadecimal digits.
pub const SIGNATURE_HEADER: &str = "rushgate-signature";
/// The shortest key: as long as the hash.
pub const KEY_BYTES_MIN: usize = 32;
/// No key is longer; a device or a wrong file is not read to its end.
const KEY_FILE_BYTES_MAX: u64 = 4 * 1024;
/// Digits of any time until the year 5138.
const TIMESTAMP_DIGITS_MAX: usize = 15;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file could not be read.
    #[error("payment key file {path}: {source}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a key.
    #[error(
        "payment key file {path} has {bytes} bytes; a key has {KEY_BYTES_MIN} to {KEY_FILE_BYTES_MAX} \
         (openssl rand -hex 32)",
        path = path.display()
    )]
    Length {
        /// Which.
        path: PathBuf,
        /// How many.
        bytes: usize,
    },
}

/// The key that signs, and those that are accepted.
#[derive(Clone)]
pub struct Keys {
    current: Hmac<Sha256>,
    other: Option<Hmac<Sha256>>,
}

/// Without the keys.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("two", &self.other.is_some()).finish_non_exhaustive()
    }
}

impl Keys {
    /// Reads the key that signs, and one more that is accepted.
    pub fn read(current: &Path, other: Option<&Path>) -> Result<Self, KeyFileError> {
        Ok(Self { current: read_key(current)?, other: other.map(read_key).transpose()? })
    }

    /// A key that nobody else has, for both sides in one process; from the operating system.
    pub fn random() -> io::Result<Self> {
        let mut key = [0; KEY_BYTES_MIN];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let current = Hmac::new_from_slice(&key).map_err(io::Error::other)?;
        Ok(Self { current, other: None })
    }

    /// The signature of a message.
    pub fn sign(&self, at_ms: u64, body: &[u8]) -> String {
        let bytes = over(&self.current, &at_ms.to_string(), body).finalize().into_bytes();
        bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
            for digit in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(digit.into(), 16));
            }
            text
        })
    }

    /// When a message was signed; `None`: not with one of these keys, whatever is missing or wrong.
    pub fn verify(&self, timestamp: Option<&str>, signature: Option<&str>, body: &[u8]) -> Option<u64> {
        let timestamp = timestamp?;
        let is_time = (1..=TIMESTAMP_DIGITS_MAX).contains(&timestamp.len())
            && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let at_ms = timestamp.parse().ok().filter(|_| is_time)?;
        let signature = unhex(signature?)?;
        // Both are tried in any case.
        let is_good = |key: &Hmac<Sha256>| over(key, timestamp, body).verify_slice(&signature).is_ok();
        (is_good(&self.current) | self.other.as_ref().is_some_and(is_good)).then_some(at_ms)
    }
}

fn over(key: &Hmac<Sha256>, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    key.clone().chain_update(timestamp).chain_update(b".").chain_update(body)
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        for digit in digits {
            let value = char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok())?;
            *byte = (*byte << 4) | value;
        }
    }
    Some(bytes)
}

/// One line end at the end of the file does not count: editors and `openssl rand -hex` add one.
fn read_key(path: &Path) -> Result<Hmac<Sha256>, KeyFileError> {
    let failed = |source| KeyFileError::Read { path: path.to_owned(), source };
    let mut content = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(KEY_FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    let key = content.strip_suffix(b"\n").unwrap_or(&content);
    let key = key.strip_suffix(b"\r").unwrap_or(key);
    let is_long_enough = key.len() >= KEY_BYTES_MIN;
    let is_short_enough = u64::try_from(key.len()).is_ok_and(|bytes| bytes <= KEY_FILE_BYTES_MAX);
    let wrong = || KeyFileError::Length { path: path.to_owned(), bytes: key.len() };
    if !(is_long_enough && is_short_enough) {
        return Err(wrong());
    }
    Hmac::new_from_slice(key).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn keys(current: &str, other: Option<&str>) -> Keys {
        let folder = tempfile::TempDir::new().unwrap();
        let file = |name: &str, key: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, key).unwrap();
            path
        };
        Keys::read(&file("a", current), other.map(|key| file("b", key)).as_deref()).unwrap()
    }

    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn the_signature_is_hmac_sha_256_of_time_and_body() {
        // printf '1700000000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
        let expected = "14d903a7968191213f1336d145a46fb179d74631812ab6f38f0018433c500c39";
        assert_eq!(keys(OLD, None).sign(1_700_000_000_000, b"{\"a\":1}"), expected);
        // A line end is not part of the key.
        assert_eq!(keys(&format!("{OLD}\r\n"), None).sign(1_700_000_000_000, b"{\"a\":1}"), expected);
    }

    #[test]
    fn nothing_but_the_very_message_is_taken() {
        let keys = keys(OLD, None);
        let good = keys.sign(1234, b"body");
        assert_eq!(keys.verify(Some("1234"), Some(&good), b"body"), Some(1234));
        assert_eq!(keys.verify(Some("1234"), Some(&good.to_uppercase()), b"body"), Some(1234));
        let mut flipped = good.clone();
        flipped.replace_range(0..1, if good.starts_with('0') { "1" } else { "0" });
        for (timestamp, signature, body) in [
            (Some("1235"), Some(good.as_str()), "body"),
            (Some("1234"), Some(&good), "bodY"),
            (Some("1234"), Some(&good), ""),
            (Some("01234"), Some(&good), "body"),
            (Some("+1234"), Some(&good), "body"),
            (Some(" 1234"), Some(&good), "body"),
            (Some(""), Some(&good), "body"),
            (Some("99999999999999999999999"), Some(&good), "body"),
            (Some("1234"), Some(&flipped), "body"),
            (Some("1234"), Some(&good[1..]), "body"),
            (Some("1234"), Some(&"ä".repeat(32)), "body"),
            (Some("1234"), Some(""), "body"),
            (Some("1234"), None, "body"),
            (None, Some(&good), "body"),
        ] {
            assert_eq!(
                keys.verify(timestamp, signature, body.as_bytes()),
                None,
                "{timestamp:?} {signature:?}"
            );
        }
    }

    #[test]
    fn keys_are_replaced_without_a_message_refused() {
        let (before, both, after) = (keys(OLD, Some(NEW)), keys(NEW, Some(OLD)), keys(NEW, None));
        let good = |by: &Keys, to: &Keys| to.verify(Some("1"), Some(&by.sign(1, b"x")), b"x").is_some();
        // Each side is at most one step ahead of the other.
        for (one, other) in [(&before, &both), (&both, &after)] {
            assert!(good(one, other) && good(other, one));
        }
        assert!(!good(&after, &keys(OLD, None)) && !good(&keys(OLD, None), &after));
    }

    #[test]
    fn a_short_or_a_missing_key_is_refused_and_none_is_shown() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("key");
        assert!(Keys::read(&path, None).unwrap_err().to_string().contains("key: "));
        for (key, bytes) in [("", 0), ("x", 1), (&OLD[1..], 31), (&"x".repeat(5000), 4097)] {
            std::fs::write(&path, key).unwrap();
            let error = Keys::read(&path, None).unwrap_err().to_string();
            assert!(error.contains(&format!("has {bytes} bytes")), "{error}");
        }
        assert!(!format!("{:?}", keys(OLD, Some(NEW))).contains("0123"));
    }
}
