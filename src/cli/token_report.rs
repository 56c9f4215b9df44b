//! What is said of a token: its content, and whether a gateway takes it. Nothing here decides; the verifier does.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::admission::identity::{
    Identity, IdentityError, IdentityKind, IdentitySettings, KeyName, Unverified, Verifier, inspect,
};

/// A claim longer than this is cut.
const SHOWN_CHARS_MAX: usize = 200;

/// Header and claims, one a line, dates also as people read them.
pub(super) fn content(said: &Unverified, now_unix_s: u64) -> String {
    let mut text = String::new();
    for (part, values) in [("header", &said.header), ("claim", &said.claims)] {
        let Value::Object(values) = values else {
            let _ = writeln!(text, "{part}: {}, which is not an object", shown(values));
            continue;
        };
        for (name, value) in values {
            let _ = write!(text, "{part} {}: {}", name.escape_debug(), shown(value));
            if let Some(date) = value.as_u64().filter(|_| matches!(name.as_str(), "exp" | "nbf" | "iat")) {
                let _ = write!(text, " = {}", when(date, now_unix_s));
            }
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text,
    }
}

/// `2026-07-01T12:00:00Z, 5m ago`.
fn when(unix_s: u64, now_unix_s: u64) -> String {
    let distance = humantime::format_duration(Duration::from_secs(unix_s.abs_diff(now_unix_s)));
    let side = if unix_s >= now_unix_s { format!("in {distance}") } else { format!("{distance} ago") };
    match UNIX_EPOCH.checked_add(Duration::from_secs(unix_s)) {
        // The formatter knows no later year.
        Some(time) if unix_s < 253_402_300_800 => {
            format!("{}, {side}", humantime::format_rfc3339_seconds(time))
        }
        _ => side,
    }
}

/// What a gateway makes of a token.
#[derive(Debug)]
pub(super) struct Verdict {
    outcome: Result<(Identity, KeyName), IdentityError>,
    /// What helps to understand a refusal.
    detail: Option<String>,
    now_unix_s: u64,
}

impl Verdict {
    pub(super) fn of(
        verifier: &Verifier,
        settings: &IdentitySettings,
        token: &[u8],
        from: IpAddr,
        now_unix_s: u64,
    ) -> Self {
        let outcome = verifier.verify(token, from, now_unix_s);
        let outcome = outcome.and_then(|identity| Ok((identity, verifier.key_of(token)?)));
        let detail = match (outcome.as_ref().err(), inspect(token)) {
            (Some(why), Ok(said)) => detail(*why, &said, verifier, settings, from, now_unix_s),
            _ => None,
        };
        Self { outcome, detail, now_unix_s }
    }

    pub(super) const fn is_good(&self) -> bool {
        self.outcome.is_ok()
    }

    pub(super) fn json(&self) -> Value {
        match &self.outcome {
            Ok((identity, key)) => json!({
                "accepted": true,
                "kind": kind(identity.kind),
                "user": match identity.kind {
                    IdentityKind::App(user) => Some(user.to_string()),
                    IdentityKind::Service => None,
                },
                "kid": key.kid,
                "algorithm": key.algorithm.name(),
                "expires_at_ms": identity.expires_at_ms,
            }),
            Err(why) => json!({
                "accepted": false,
                "why": why.name(),
                "message": why.to_string(),
                "detail": self.detail,
            }),
        }
    }
}

const fn kind(kind: IdentityKind) -> &'static str {
    match kind {
        IdentityKind::App(_) => "app",
        IdentityKind::Service => "service",
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok((identity, key)) => {
                match identity.kind {
                    IdentityKind::App(user) => write!(f, "accepted: user {user}")?,
                    IdentityKind::Service => {
                        write!(f, "accepted: a service, which names the user of each request")?;
                    }
                }
                let expires_at = identity.expires_at_ms.checked_div(1000).unwrap_or_default();
                write!(f, "; key {key}; expires, leeway included, at {}", when(expires_at, self.now_unix_s))
            }
            Err(why) => {
                write!(f, "refused ({}): {why}", why.name())?;
                self.detail.as_ref().map_or(Ok(()), |detail| write!(f, "\n  {detail}"))
            }
        }
    }
}

/// The token's side and the gateway's side of a refusal.
fn detail(
    why: IdentityError,
    said: &Unverified,
    verifier: &Verifier,
    settings: &IdentitySettings,
    from: IpAddr,
    now_unix_s: u64,
) -> Option<String> {
    let claim = |name: &str| said.claims.get(name).map_or_else(|| "nothing".to_owned(), shown);
    let header = |name: &str| said.header.get(name).map_or_else(|| "nothing".to_owned(), shown);
    let date = |name: &str| match said.claims.get(name).and_then(Value::as_u64) {
        Some(unix_s) => format!("{name} is {}", when(unix_s, now_unix_s)),
        None => format!("{name} is {}", claim(name)),
    };
    let text = match why {
        IdentityError::WrongAlgorithm
        | IdentityError::UnknownKey
        | IdentityError::AmbiguousKey
        | IdentityError::BadSignature => {
            let keys: Vec<_> = verifier.key_names().iter().map(KeyName::to_string).collect();
            format!("the token says alg {}, kid {}; keys: {}", header("alg"), header("kid"), keys.join(", "))
        }
        IdentityError::WrongAudience => {
            format!("the token says aud {}; auth.audience is {:?}", claim("aud"), settings.audience)
        }
        IdentityError::WrongIssuer => {
            let issuer = settings.issuer.as_deref().unwrap_or_default();
            format!("the token says iss {}; auth.issuer is {issuer:?}", claim("iss"))
        }
        IdentityError::BadScope => format!("the token says scope {}", claim("scope")),
        IdentityError::BadSubject => format!("the token says sub {}", claim("sub")),
        IdentityError::UntrustedSource => {
            let blocks: Vec<_> = settings.service_from.iter().map(ToString::to_string).collect();
            format!("{from} is in none of auth.service_from: [{}]; --from tries another", blocks.join(", "))
        }
        IdentityError::NotYetValid => date("nbf"),
        IdentityError::Expired => date("exp"),
        IdentityError::Malformed | IdentityError::UnknownSession | IdentityError::BadSession => return None,
    };
    Some(text)
}
