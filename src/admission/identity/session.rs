//! Sessions: tokens that say nothing, and stand for what the shop's login service has written down.
//!
//! Pure: which tokens are meant, under which name one is kept (its SHA-256: who reads the store cannot use what he
//! finds), and whether what is kept there lets a client in. Who looks it up is the gateway's business.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::inspect::parts;
use super::{Claims, Identity, IdentityError, Verifier};

/// The shortest token of a session: shorter ones could be guessed.
pub const SESSION_TOKEN_BYTES_MIN: usize = 16;
/// The longest.
pub const SESSION_TOKEN_BYTES_MAX: usize = 512;

/// What is kept of a session, as texts; what is absent is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFields<'a> {
    /// The user id in decimal digits. Not looked at in sessions of back ends.
    pub user: &'a str,
    /// Unix seconds; the session is good before it.
    pub exp: &'a str,
    /// `app` (or nothing) or `service`.
    pub scope: &'a str,
    /// A JSON object.
    pub claims: &'a str,
}

/// The digest under which the session of a token is kept; `None`: it is no token of a session.
pub fn session_digest(token: &[u8]) -> Option<[u8; 32]> {
    let is_session = (SESSION_TOKEN_BYTES_MIN..=SESSION_TOKEN_BYTES_MAX).contains(&token.len());
    // What has a JWT's form is checked as one, and never looked up.
    (is_session && parts(token).is_err()).then(|| Sha256::digest(token).into())
}

/// A new token: 32 bytes of the operating system's, as hex.
pub fn random_session_token() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut token = String::new();
    for byte in bytes {
        write!(token, "{byte:02x}").map_err(io::Error::other)?;
    }
    Ok(token)
}

impl Verifier {
    /// Where the session of this token is kept, if this gateway takes sessions and it is one's token.
    pub fn session_of(&self, token: &[u8]) -> Option<[u8; 32]> {
        if self.settings.sessions { session_digest(token) } else { None }
    }

    /// Whose session this is, if it is good at this time (Unix seconds) for a client at this address.
    pub fn verify_session(
        &self,
        session: &SessionFields<'_>,
        from: IpAddr,
        now_unix_s: u64,
    ) -> Result<Identity, IdentityError> {
        let exp_s: u64 = session.exp.parse().map_err(|_| IdentityError::BadSession)?;
        let scope = if session.scope.is_empty() { None } else { Some(session.scope) };
        let kind = self.kind(scope, Some(session.user), from)?;
        let claims = match session.claims {
            "" => Claims::default(),
            claims => {
                let claims = serde_json::from_str(claims).map_err(|_| IdentityError::BadSession)?;
                Claims::of_json(&self.settings.claims, &claims)
            }
        };
        let expires_at_ms = self.check_dates(0, exp_s.saturating_mul(1000), now_unix_s)?;
        Ok(Identity { kind, expires_at_ms, claims })
    }
}
