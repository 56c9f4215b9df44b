//! What a token says, unchecked: for whoever has to find out why it is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::{IdentityError, TOKEN_BYTES_MAX};

/// A token's content. Anybody may have written it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unverified {
    /// `alg`, `kid` and what else is there.
    pub header: Value,
    /// `sub`, `aud`, `exp` and what else is there.
    pub claims: Value,
}

/// What is read of a header before its signature is checked. A name that comes twice is no header.
#[derive(Deserialize)]
pub(super) struct Header {
    pub(super) alg: String,
    pub(super) kid: Option<String>,
}

/// Reads a token without checking it.
pub fn inspect(token: &[u8]) -> Result<Unverified, IdentityError> {
    let [header, claims, _] = parts(token)?;
    Ok(Unverified { header: json(header)?, claims: json(claims)? })
}

/// Header, claims and signature, still encoded.
pub(super) fn parts(token: &[u8]) -> Result<[&[u8]; 3], IdentityError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(IdentityError::Malformed);
    }
    let mut parts = token.split(|byte| *byte == b'.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) => Ok([header, claims, signature]),
        _ => Err(IdentityError::Malformed),
    }
}

/// One part, decoded.
pub(super) fn json<T: for<'a> Deserialize<'a>>(part: &[u8]) -> Result<T, IdentityError> {
    let decoded = URL_SAFE_NO_PAD.decode(part).map_err(|_| IdentityError::Malformed)?;
    serde_json::from_slice(&decoded).map_err(|_| IdentityError::Malformed)
}
