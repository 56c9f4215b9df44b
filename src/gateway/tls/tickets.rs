//! Session tickets: what a client shows to be spared the certificate's signature when it comes again, here or at
//! another gateway with the same keys.
//!
//! A ticket is the session's state, sealed by AES-256-GCM under the newest key (RFC 5077, section 4, recommends as much):
//! key name (4 bytes), nonce (12), the sealed (Unix seconds of its making, 8 bytes, and the state), tag (16). The gateway keeps
//! nothing. A ticket that is too old, from an unknown key or changed costs its owner a full handshake, no more.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::server::ProducesTickets;
use sha2::{Digest as _, Sha256};

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Keys that are taken from a file: the newest, and those that tickets may still be from.
pub(super) const KEYS_MAX: usize = 8;
const NAME_BYTES: usize = 4;
const TIME_BYTES: usize = 8;
/// How long a ticket is good for: a sale's evening. Keys that are older than this may be taken from the file.
const LIFETIME_S: u32 = 12 * 3600;

/// Why a file of ticket keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TicketKeysError {
    /// Nothing but comments.
    #[error("holds no key; write one: openssl rand -base64 32")]
    None,
    /// Nobody needs as many.
    #[error("holds more than {KEYS_MAX} keys; keep those of the last 12 hours")]
    TooMany,
    /// Not 32 bytes in base64.
    #[error("line {0} is not 32 bytes in base64; write a key by: openssl rand -base64 32")]
    Line(usize),
}

struct Key {
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

impl Key {
    fn new(bytes: &[u8; KEY_BYTES]) -> Option<Self> {
        let name = *Sha256::digest(bytes).first_chunk()?;
        Some(Self { name, key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?) })
    }
}

/// See the module.
pub(super) struct Tickets {
    /// The newest first.
    keys: Vec<Key>,
    random: SystemRandom,
    now_s: fn() -> u64,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Tickets {
    /// With a key of its own, which nobody else knows and which ends with the process. `None`: the system gives no random.
    pub(super) fn own() -> Option<Self> {
        let (random, mut bytes) = (SystemRandom::new(), [0; KEY_BYTES]);
        random.fill(&mut bytes).ok()?;
        Some(Self { keys: vec![Key::new(&bytes)?], random, now_s: unix_now_s })
    }

    /// With the keys of a file's text: one a line in base64, the newest first; `#` begins a comment.
    pub(super) fn of_text(text: &str) -> Result<Self, TicketKeysError> {
        let lines = text.lines().enumerate().map(|(index, line)| (index.saturating_add(1), line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let keys = lines.map(|(number, line)| {
            let bytes =
                BASE64_STANDARD.decode(line).ok().and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
            bytes.as_ref().and_then(Key::new).ok_or(TicketKeysError::Line(number))
        });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        match keys.len() {
            0 => Err(TicketKeysError::None),
            count if count > KEYS_MAX => Err(TicketKeysError::TooMany),
            _ => Ok(Self { keys, random: SystemRandom::new(), now_s: unix_now_s }),
        }
    }

    fn seal(&self, state: &[u8]) -> Option<Vec<u8>> {
        let Key { name, key } = self.keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = (self.now_s)().to_be_bytes().to_vec();
        sealed.extend_from_slice(state);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(name), &mut sealed)
            .ok()?;
        Some([name.as_slice(), &nonce, &sealed].concat())
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let Key { key, .. } = self.keys.iter().find(|key| key.name == *name)?;
        let mut sealed = sealed.to_vec();
        let opened =
            key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(name), &mut sealed).ok()?;
        let (made_s, state) = opened.split_first_chunk::<TIME_BYTES>()?;
        // One from the future is of a gateway whose clock is ahead: it is as young as any.
        let age_s = (self.now_s)().saturating_sub(u64::from_be_bytes(*made_s));
        (age_s <= u64::from(LIFETIME_S)).then(|| state.to_vec())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    const FIRST: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const SECOND: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn at(text: &str, now_s: fn() -> u64) -> Tickets {
        Tickets { now_s, ..Tickets::of_text(text).unwrap() }
    }

    #[test]
    fn another_gateway_with_the_keys_opens_a_ticket_also_after_a_rotation() {
        let one = Tickets::of_text(FIRST).unwrap();
        let ticket = one.seal(b"state").unwrap();
        assert_ne!(ticket, one.seal(b"state").unwrap(), "a nonce of its own");
        let rotated = format!("# newest first\n{SECOND}\n\n{FIRST}\n");
        let other = Tickets::of_text(&rotated).unwrap();
        assert_eq!(other.open(&ticket).unwrap(), b"state");
        assert_eq!(
            one.open(&other.seal(b"state").unwrap()),
            None,
            "the older one does not know the new key yet"
        );
        assert_eq!(Tickets::of_text(SECOND).unwrap().open(&ticket), None, "the key was taken away");
        assert_eq!(Tickets::own().unwrap().open(&ticket), None);
    }

    #[test]
    fn a_changed_short_or_old_ticket_opens_nowhere() {
        let made = at(FIRST, || 1_000_000);
        let ticket = made.seal(b"state").unwrap();
        for index in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[index] ^= 1;
            assert_eq!(made.open(&changed), None, "byte {index}");
            assert_eq!(made.open(&ticket[..index]), None, "{index} bytes");
        }
        assert!(at(FIRST, || 1_000_000 + 12 * 3600).open(&ticket).is_some());
        assert_eq!(at(FIRST, || 1_000_001 + 12 * 3600).open(&ticket), None);
        assert!(at(FIRST, || 999_000).open(&ticket).is_some(), "by a gateway whose clock is behind");
    }

    #[test]
    fn a_file_without_usable_keys_says_what_is_wrong() {
        assert_eq!(Tickets::of_text("# none\n").unwrap_err(), TicketKeysError::None);
        assert_eq!(Tickets::of_text(&format!("{FIRST}\n\nabc")).unwrap_err(), TicketKeysError::Line(3));
        let many = format!("{FIRST}\n").repeat(KEYS_MAX + 1);
        assert_eq!(Tickets::of_text(&many).unwrap_err(), TicketKeysError::TooMany);
    }
}
