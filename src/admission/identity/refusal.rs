//! Why a token is refused.

/// The longest token looked at. (A frame before AUTH is shorter already.)
pub const TOKEN_BYTES_MAX: usize = 4096;

/// Why a token was refused. Where several apply the first in this order is told; in particular `Expired` means
/// that the token was good otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IdentityError {
    /// No JWT: too long, not three parts, not base64url, not JSON, `exp` missing, a date that is no number.
    #[error("the token is not a JWT with an exp claim, of at most {TOKEN_BYTES_MAX} bytes")]
    Malformed,
    /// Its header names another algorithm than that of the key (`none` included).
    #[error("the token's algorithm is not that of the key it means, or of any key of this gateway")]
    WrongAlgorithm,
    /// Its `kid` names a key that is not in force here.
    #[error(
        "the token's kid names none of this gateway's keys; the key was retired, or is not known here yet"
    )]
    UnknownKey,
    /// No `kid`, and several keys could be meant.
    #[error("the token has no kid, and this gateway has several keys of its algorithm")]
    AmbiguousKey,
    /// Nothing is kept under it: there never was such a session, or it was removed, or has ended.
    #[error("there is no session of this token; it has ended or was removed, or the token was never one's")]
    UnknownSession,
    /// What is kept of the session cannot be read.
    #[error("what is kept of the session cannot be read: exp has to be Unix seconds, claims a JSON object")]
    BadSession,
    /// The signature does not belong to this content and our key.
    #[error("the token's signature is wrong; it was made with another key, or changed since")]
    BadSignature,
    /// `aud` is missing or names others.
    #[error("the token is for another audience than this gateway's")]
    WrongAudience,
    /// `iss` is missing or another.
    #[error("the token was issued by another issuer than configured")]
    WrongIssuer,
    /// `scope` is none of those known.
    #[error("the token's scope is neither \"app\" nor \"service\"")]
    BadScope,
    /// `sub` is not a user id. (Not looked at in service tokens.)
    #[error("the token's sub is not a user id: a decimal number from 1 to 2^63-1, as a string")]
    BadSubject,
    /// A service token from an address where no back end is.
    #[error("a service token is not taken from this address")]
    UntrustedSource,
    /// `nbf` lies ahead.
    #[error("the token is not valid yet; compare the clocks")]
    NotYetValid,
    /// `exp` has passed.
    #[error("the token has expired; AUTH with a fresh one")]
    Expired,
}

impl IdentityError {
    /// All of them, in their order.
    pub const ALL: &'static [Self] = &[
        Self::Malformed,
        Self::WrongAlgorithm,
        Self::UnknownKey,
        Self::AmbiguousKey,
        Self::UnknownSession,
        Self::BadSession,
        Self::BadSignature,
        Self::WrongAudience,
        Self::WrongIssuer,
        Self::BadScope,
        Self::BadSubject,
        Self::UntrustedSource,
        Self::NotYetValid,
        Self::Expired,
    ];

    /// The label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::WrongAlgorithm => "wrong_algorithm",
            Self::UnknownKey => "unknown_key",
            Self::AmbiguousKey => "ambiguous_key",
            Self::UnknownSession => "unknown_session",
            Self::BadSession => "bad_session",
            Self::BadSignature => "bad_signature",
            Self::WrongAudience => "wrong_audience",
            Self::WrongIssuer => "wrong_issuer",
            Self::BadScope => "bad_scope",
            Self::BadSubject => "bad_subject",
            Self::UntrustedSource => "untrusted_source",
            Self::NotYetValid => "not_yet_valid",
            Self::Expired => "expired",
        }
    }
}
