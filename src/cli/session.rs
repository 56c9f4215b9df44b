//! `rushgate token session-add|session-remove`: sessions, for development and for the person on call. In production the
//! shop's login service writes them.

use serde_json::{Map, Value, json};

use super::Failure;
use super::data_args::Common;
use super::output::print_or_json;
use super::production::redis_options;
use super::session_args::{SessionAddArgs, SessionRemoveArgs};
use super::startup::runtime;
use super::times::now_unix_s;
use super::token_text::given;
use crate::admission::identity::{
    SESSION_TOKEN_BYTES_MAX, SESSION_TOKEN_BYTES_MIN, random_session_token, session_digest,
};
use crate::config::{KeyFiles, StoreKind};
use crate::store::StoreError;
use crate::store::redis::RedisShards;
use crate::store::sessions::{SessionEditor, SessionKey, StoredSession};
use crate::store::sql::SessionFolder;

enum Place {
    Folder(SessionFolder),
    Redis(RedisShards),
}

/// Keeps a session.
pub(super) fn add(args: SessionAddArgs) -> Result<(), Failure> {
    let token = match args.token {
        Some(token) => given(token)?,
        None => random_session_token()
            .map_err(|error| Failure::cannot_start(format!("no random bytes can be had: {error}")))?,
    };
    let key = key_of(&token)?;
    let ends_at_s = now_unix_s().saturating_add(args.ttl.as_secs().max(1));
    let claims: Map<String, Value> = args.claim.into_iter().collect();
    let session = StoredSession {
        user: args.user.map(|user| user.to_string()).unwrap_or_default(),
        exp: ends_at_s.to_string(),
        scope: if args.service { "service" } else { "app" }.to_owned(),
        claims: if claims.is_empty() { String::new() } else { Value::Object(claims).to_string() },
    };
    let json = args.common.json;
    runtime()?.block_on(async {
        match place(args.common).await? {
            Place::Folder(folder) => folder.put_session(&key, &session, ends_at_s).await,
            Place::Redis(redis) => redis.put_session(&key, &session, ends_at_s).await,
        }
        .map_err(failed)
    })?;
    let shown = json!({ "token": token, "sha256": key.to_string(), "expires_at_s": ends_at_s });
    print_or_json(json, &shown, |_| token.clone())
}

/// Removes one.
pub(super) fn remove(args: SessionRemoveArgs) -> Result<(), Failure> {
    let key = key_of(&given(args.token)?)?;
    let json = args.common.json;
    let removed = runtime()?.block_on(async {
        match place(args.common).await? {
            Place::Folder(folder) => folder.remove_session(&key).await,
            Place::Redis(redis) => redis.remove_session(&key).await,
        }
        .map_err(failed)
    })?;
    if !removed {
        return Err(Failure::bad_result("there is no session of this token"));
    }
    print_or_json(json, &json!({ "removed": true }), |_| {
        "removed; connections that are authenticated with it stay so until it would have ended".to_owned()
    })
}

fn key_of(token: &str) -> Result<SessionKey, Failure> {
    let digest = session_digest(token.as_bytes());
    digest.map(SessionKey).ok_or_else(|| {
        Failure::bad_result(format!(
            "the token of a session has {SESSION_TOKEN_BYTES_MIN} to {SESSION_TOKEN_BYTES_MAX} bytes, and not the form \
             of a JWT"
        ))
    })
}

/// Where sessions are kept.
async fn place(common: Common) -> Result<Place, Failure> {
    let folder = if let Some(data_dir) = common.data_dir {
        data_dir
    } else {
        let config = common.config.load(KeyFiles::Unopened)?;
        if config.store.kind == StoreKind::Redis {
            let redis = RedisShards::open(redis_options(&config)?).await;
            return redis.map(Place::Redis).map_err(|error| Failure::cannot_start(error.to_string()));
        }
        config.store.data_dir
    };
    let folder = SessionFolder::open(&folder).await;
    folder.map(Place::Folder).map_err(|error| Failure::cannot_start(error.to_string()))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: StoreError) -> Failure {
    Failure::bad_result(error.to_string())
}
