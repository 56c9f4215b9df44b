//! Checking a token.

use std::time::Duration;

use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde::Deserialize;
use serde_json::Value;

use super::{Identity, IdentityError, IdentityKind, IdentitySettings, KeyError, keys};
use crate::protocol::UserId;

/// The longest token looked at. (A frame before AUTH is shorter already.)
pub const TOKEN_BYTES_MAX: usize = 4096;

/// Checks tokens. Cheap to share, immutable.
#[derive(Debug)]
pub struct Verifier {
    algorithm: Algorithm,
    key: DecodingKey,
    validation: Validation,
    audience: String,
    issuer: Option<String>,
    leeway_ms: u64,
}

/// All optional and of any type: what is missing or wrong gets its own answer, not the parser's.
#[derive(Deserialize)]
struct Claims {
    sub: Option<Value>,
    aud: Option<Value>,
    iss: Option<Value>,
    exp: Option<Value>,
    nbf: Option<Value>,
    scope: Option<Value>,
}

impl Verifier {
    /// Reads and checks the key.
    pub fn new(settings: &IdentitySettings) -> Result<Self, KeyError> {
        let (algorithm, key) = keys::verify_key(&settings.key)?;
        // jsonwebtoken is to check the algorithm and the signature only: its other checks read the clock.
        let mut validation = Validation::new(algorithm);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        Ok(Self {
            algorithm,
            key,
            validation,
            audience: settings.audience.clone(),
            issuer: settings.issuer.clone(),
            leeway_ms: u64::try_from(settings.leeway.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Whose token this is, if it is good at this time (Unix seconds).
    pub fn verify(&self, token: &[u8], now_unix_s: u64) -> Result<Identity, IdentityError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(IdentityError::Malformed);
        }
        let claims = decode::<Claims>(token, &self.key, &self.validation)
            .map_err(|error| self.reason(token, &error))?
            .claims;
        self.check_claims(&claims, now_unix_s)
    }

    fn check_claims(&self, claims: &Claims, now_unix_s: u64) -> Result<Identity, IdentityError> {
        let exp_ms = claims.exp.as_ref().and_then(date_ms).ok_or(IdentityError::Malformed)?;
        let nbf_ms = match &claims.nbf {
            Some(nbf) => date_ms(nbf).ok_or(IdentityError::Malformed)?,
            None => 0,
        };
        if !names(claims.aud.as_ref(), &self.audience) {
            return Err(IdentityError::WrongAudience);
        }
        if self.issuer.as_deref().is_some_and(|issuer| text(claims.iss.as_ref()) != Some(issuer)) {
            return Err(IdentityError::WrongIssuer);
        }
        let kind = match (claims.scope.as_ref(), text(claims.scope.as_ref())) {
            (None, _) | (_, Some("app")) => {
                let user = text(claims.sub.as_ref()).and_then(user_id).ok_or(IdentityError::BadSubject)?;
                IdentityKind::App(user)
            }
            (_, Some("service")) => IdentityKind::Service,
            _ => return Err(IdentityError::BadScope),
        };
        let now_ms = now_unix_s.saturating_mul(1000);
        if now_ms.saturating_add(self.leeway_ms) < nbf_ms {
            return Err(IdentityError::NotYetValid);
        }
        let expires_at_ms = exp_ms.saturating_add(self.leeway_ms);
        if now_ms >= expires_at_ms {
            return Err(IdentityError::Expired);
        }
        Ok(Identity { kind, expires_at_ms })
    }

    fn reason(&self, token: &[u8], error: &Error) -> IdentityError {
        match error.kind() {
            ErrorKind::InvalidAlgorithm => IdentityError::WrongAlgorithm,
            ErrorKind::InvalidSignature => IdentityError::BadSignature,
            // `none` and other names that jsonwebtoken does not know fail in its JSON parser.
            _ if self.names_other_algorithm(token) => IdentityError::WrongAlgorithm,
            _ => IdentityError::Malformed,
        }
    }

    /// Only to word a refusal that is already certain.
    fn names_other_algorithm(&self, token: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Header {
            alg: String,
        }
        let Some(encoded) = token.split(|byte| *byte == b'.').next() else { return false };
        // The part between the last two dots is decoded as JSON; here that is the header.
        let as_claims = [b".", encoded, b"."].concat();
        insecure_decode_claims::<Header>(as_claims)
            .is_ok_and(|header| header.alg.parse::<Algorithm>().ok() != Some(self.algorithm))
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
