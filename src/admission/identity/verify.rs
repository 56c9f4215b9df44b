//! Checking a token.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jsonwebtoken::decode;
use jsonwebtoken::errors::{Error, ErrorKind};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::claims::{ClaimNames, Claims};
use super::inspect::{Header, json, parts};
use super::key::{Key, KeyName};
use super::key_set::{KeyChanges, KeySet};
use super::{Identity, IdentityError, IdentityKind, IdentitySettings, KeyError, TokenAlgorithm, keys};
use crate::admission::Cidr;
use crate::protocol::UserId;

/// Checks tokens. Cheap to share; only its keys change, all at once, by [`Self::reread_keys`].
#[derive(Debug)]
pub struct Verifier {
    keys: ArcSwap<KeySet>,
    /// The one that does not come from the JWKS file.
    configured: Option<Arc<Key>>,
    pub(super) settings: IdentitySettings,
    leeway_ms: u64,
}

/// All optional and of any type: what is missing or wrong gets its own answer, not the parser's.
#[derive(Deserialize)]
struct Registered {
    sub: Option<Value>,
    aud: Option<Value>,
    iss: Option<Value>,
    exp: Option<Value>,
    nbf: Option<Value>,
    scope: Option<Value>,
}

impl Verifier {
    /// Reads and checks the keys.
    pub fn new(settings: &IdentitySettings) -> Result<Self, KeyError> {
        if settings.key.is_none() && settings.jwks_file.is_none() {
            return Err(KeyError::NoKey);
        }
        let configured = settings.key.as_ref().map(|key| keys::configured(key, settings.kid.as_deref()));
        let verifier = Self {
            keys: ArcSwap::from_pointee(KeySet::new(Vec::new(), Vec::new())?),
            configured: configured.transpose()?.map(Arc::new),
            settings: settings.clone(),
            leeway_ms: u64::try_from(settings.leeway.as_millis()).unwrap_or(u64::MAX),
        };
        verifier.reread_keys()?;
        Ok(verifier)
    }

    /// Reads the JWKS file, if there is one, and puts its keys in force. If it cannot be used, all stays as it was.
    /// Waits for the disk: not for a thread that serves.
    pub fn reread_keys(&self) -> Result<KeyChanges, KeyError> {
        let mut keys: Vec<Arc<Key>> = self.configured.iter().cloned().collect();
        let mut skipped = Vec::new();
        if let Some(path) = self.jwks_file() {
            let jwks = keys::of_jwks_file(path)?;
            keys.extend(jwks.keys.into_iter().map(Arc::new));
            skipped = jwks.skipped;
        }
        let set = KeySet::new(keys, skipped)?;
        let changes = set.changes_since(&self.keys.load());
        self.keys.store(Arc::new(set));
        Ok(changes)
    }

    /// Keys in the JWKS file that are for something else: which, and for what.
    pub fn skipped_keys(&self) -> Vec<String> {
        self.keys.load().skipped.clone()
    }

    /// Where further keys stand, if anywhere.
    pub fn jwks_file(&self) -> Option<&Path> {
        self.settings.jwks_file.as_deref()
    }

    /// The keys in force.
    pub fn key_names(&self) -> Vec<KeyName> {
        self.keys.load().names()
    }

    /// How many keys are in force.
    pub fn key_count(&self) -> usize {
        self.keys.load().len()
    }

    /// Whose token this is, if it is good at this time (Unix seconds) for a client at this address.
    pub fn verify(&self, token: &[u8], from: IpAddr, now_unix_s: u64) -> Result<Identity, IdentityError> {
        let [header, ..] = parts(token)?;
        let header: Header = json(header)?;
        // `none`, and every other that no key can have.
        let algorithm = TokenAlgorithm::from_name(&header.alg).ok_or(IdentityError::WrongAlgorithm)?;
        let keys = self.keys.load();
        let key = keys.find(header.kid.as_deref(), algorithm)?;
        let decoded = decode::<Registered>(token, &key.decoding, &key.validation);
        let checked = self.check_claims(&decoded.map_err(|error| reason(&error))?.claims, from)?;
        let expires_at_ms = self.check_dates(checked.nbf_ms, checked.exp_ms, now_unix_s)?;
        Ok(Identity { kind: checked.kind, expires_at_ms, claims: self.kept_claims(token)? })
    }

    /// The further claims that are kept of tokens.
    pub fn claim_names(&self) -> &ClaimNames {
        &self.settings.claims
    }

    /// Of a token that was checked. Read on its own, for hardly any gateway keeps some.
    fn kept_claims(&self, token: &[u8]) -> Result<Claims, IdentityError> {
        if self.settings.claims.is_empty() {
            return Ok(Claims::default());
        }
        let [_, claims, _] = parts(token)?;
        Ok(Claims::of_json(&self.settings.claims, &json::<Map<String, Value>>(claims)?))
    }

    /// The key that a token means, by its header.
    pub fn key_of(&self, token: &[u8]) -> Result<KeyName, IdentityError> {
        let [header, ..] = parts(token)?;
        let header: Header = json(header)?;
        let algorithm = TokenAlgorithm::from_name(&header.alg).ok_or(IdentityError::WrongAlgorithm)?;
        self.keys.load().find(header.kid.as_deref(), algorithm).map(|key| key.name.clone())
    }

    fn check_claims(&self, claims: &Registered, from: IpAddr) -> Result<Checked, IdentityError> {
        let exp_ms = claims.exp.as_ref().and_then(date_ms).ok_or(IdentityError::Malformed)?;
        let nbf_ms = match &claims.nbf {
            Some(nbf) => date_ms(nbf).ok_or(IdentityError::Malformed)?,
            None => 0,
        };
        if !names(claims.aud.as_ref(), &self.settings.audience) {
            return Err(IdentityError::WrongAudience);
        }
        let issuer = self.settings.issuer.as_deref();
        if issuer.is_some_and(|issuer| text(claims.iss.as_ref()) != Some(issuer)) {
            return Err(IdentityError::WrongIssuer);
        }
        // A scope that is no text is none that is known.
        let scope = claims.scope.as_ref().map(|scope| scope.as_str().unwrap_or_default());
        let kind = self.kind(scope, text(claims.sub.as_ref()), from)?;
        Ok(Checked { kind, nbf_ms, exp_ms })
    }

    /// For whom somebody with this scope speaks, if he may from there.
    pub(super) fn kind(
        &self,
        scope: Option<&str>,
        user: Option<&str>,
        from: IpAddr,
    ) -> Result<IdentityKind, IdentityError> {
        match scope {
            None | Some("app") => {
                user.and_then(user_id).map(IdentityKind::App).ok_or(IdentityError::BadSubject)
            }
            Some("service") if !self.takes_service_from(from) => Err(IdentityError::UntrustedSource),
            Some("service") => Ok(IdentityKind::Service),
            Some(_) => Err(IdentityError::BadScope),
        }
    }

    /// Until when it is good here, in Unix milliseconds.
    pub(super) fn check_dates(
        &self,
        nbf_ms: u64,
        exp_ms: u64,
        now_unix_s: u64,
    ) -> Result<u64, IdentityError> {
        let now_ms = now_unix_s.saturating_mul(1000);
        if now_ms.saturating_add(self.leeway_ms) < nbf_ms {
            return Err(IdentityError::NotYetValid);
        }
        let expires_at_ms = exp_ms.saturating_add(self.leeway_ms);
        if now_ms >= expires_at_ms {
            return Err(IdentityError::Expired);
        }
        Ok(expires_at_ms)
    }

    fn takes_service_from(&self, from: IpAddr) -> bool {
        self.settings.service_from.iter().any(|block: &Cidr| block.contains(from))
    }
}

/// Claims that are as they should be, but for the time.
#[derive(Clone, Copy)]
struct Checked {
    kind: IdentityKind,
    nbf_ms: u64,
    exp_ms: u64,
}

/// Only to word a refusal that is already certain.
fn reason(error: &Error) -> IdentityError {
    match error.kind() {
        ErrorKind::InvalidAlgorithm => IdentityError::WrongAlgorithm,
        ErrorKind::InvalidSignature => IdentityError::BadSignature,
        _ => IdentityError::Malformed,
    }
}

fn text(claim: Option<&Value>) -> Option<&str> {
    claim.and_then(Value::as_str)
}

/// `aud` is one name or a list of them.
fn names(aud: Option<&Value>, audience: &str) -> bool {
    match aud {
        Some(Value::String(name)) => name == audience,
        Some(Value::Array(list)) => list.iter().any(|name| name.as_str() == Some(audience)),
        _ => false,
    }
}

/// One spelling per user: digits only, no leading zero.
fn user_id(sub: &str) -> Option<UserId> {
    let plain = sub.bytes().all(|byte| byte.is_ascii_digit()) && !sub.starts_with('0');
    plain.then(|| sub.parse().ok()).flatten().and_then(UserId::new)
}

/// A `NumericDate` (RFC 7519): seconds, possibly with a fraction, as some libraries write it.
fn date_ms(date: &Value) -> Option<u64> {
    if let Some(seconds) = date.as_u64() {
        return Some(seconds.saturating_mul(1000));
    }
    let since_epoch = Duration::try_from_secs_f64(date.as_f64()?).ok()?;
    Some(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
