//! Making tokens: for development, tests and load. In production the shop's login service does it.

use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header, encode};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{IdentityKind, KeyError, MintSettings, keys};

/// Makes tokens that a [`super::Verifier`] with the matching settings accepts.
#[derive(Debug)]
pub struct Minter {
    header: Header,
    key: EncodingKey,
    audience: String,
    issuer: Option<String>,
    claims: Map<String, Value>,
}

/// A token could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the token could not be signed: {0}")]
pub struct MintError(String);

#[derive(Serialize)]
struct Claims<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    aud: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    iat: u64,
    exp: u64,
    scope: &'static str,
    #[serde(flatten)]
    further: &'a Map<String, Value>,
}

impl Minter {
    /// Reads and checks the key.
    pub fn new(settings: &MintSettings) -> Result<Self, KeyError> {
        let (algorithm, key) = keys::mint_key(&settings.key)?;
        Ok(Self {
            header: Header::new(algorithm.jws()),
            key,
            audience: settings.audience.clone(),
            issuer: settings.issuer.clone(),
            claims: Map::new(),
        })
    }

    /// Its tokens say this of their user besides.
    #[must_use]
    pub fn with_claims(mut self, claims: Map<String, Value>) -> Self {
        self.claims = claims;
        self
    }

    /// Its tokens name the key so, for a gateway that knows several; `None` = not at all.
    #[must_use]
    pub fn with_kid(mut self, kid: Option<String>) -> Self {
        self.header.kid = kid;
        self
    }

    /// A token good from `now_unix_s` for `valid_for` (whole seconds).
    pub fn mint(
        &self,
        kind: IdentityKind,
        now_unix_s: u64,
        valid_for: Duration,
    ) -> Result<String, MintError> {
        let (sub, scope) = match kind {
            IdentityKind::App(user) => (Some(user.to_string()), "app"),
            IdentityKind::Service => (None, "service"),
        };
        let claims = Claims {
            sub,
            aud: &self.audience,
            iss: self.issuer.as_deref(),
            iat: now_unix_s,
            exp: now_unix_s.saturating_add(valid_for.as_secs()),
            scope,
            further: &self.claims,
        };
        encode(&self.header, &claims, &self.key).map_err(|error| MintError(error.to_string()))
    }
}
