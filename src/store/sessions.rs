//! Where sessions are kept: what the shop's login service knows of a token, under the token's SHA-256.
//!
//! A store knows nothing of what a session means: fields are texts, and whoever reads them judges them. Every method may be
//! called from any task, and repeated.

use std::fmt;
use std::future::Future;

use super::StoreError;

/// The SHA-256 of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(pub [u8; 32]);

/// As hex: 64 digits, small letters.
impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What is kept of a session; what is absent is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSession {
    /// The user id in decimal digits.
    pub user: String,
    /// When it ends, in Unix seconds.
    pub exp: String,
    /// `app` or `service`.
    pub scope: String,
    /// A JSON object.
    pub claims: String,
}

/// A store of sessions, as gateways read it.
pub trait SessionStore: Send + Sync + 'static {
    /// The session of a token, if there is one.
    fn session(
        &self,
        key: &SessionKey,
    ) -> impl Future<Output = Result<Option<StoredSession>, StoreError>> + Send;
}

/// A store of sessions, as operators and login services change it.
pub trait SessionEditor: SessionStore {
    /// Keeps a session until it ends (this Unix second), in the place of one that was there.
    fn put_session(
        &self,
        key: &SessionKey,
        session: &StoredSession,
        ends_at_s: u64,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes one; whether there was one.
    fn remove_session(&self, key: &SessionKey) -> impl Future<Output = Result<bool, StoreError>> + Send;
}
