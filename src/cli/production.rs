//! The production store's servers, from configuration: how they are reached, and the wait for one that is down.
//!
//! Used by every command that needs them, on its task at start. A server that is down, loading or being replaced is
//! told in the log and tried again until it is there; what somebody has to mend (a password, a setting, a version)
//! ends the start with what to do. Passwords are read here, and go nowhere but into the options.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Failure;
use crate::config::{self, Config, PasswordError};
use crate::store::breaker::BreakerRules;
use crate::store::failures::{Failures, Say};
use crate::store::redis::{AttemptLimit, RedisOpenError, RedisOptions, RedisShards};
use crate::store::shared::{DegradingRules, SharedStore};
use crate::store::sql::mysql::{MySqlInstallation, MySqlOpenError, MySqlOptions};

const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Gateways that wait for the same server should not all find out late.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How Redis is reached.
pub(super) fn redis_options(config: &Config) -> Result<RedisOptions, Failure> {
    let redis = &config.redis;
    Ok(RedisOptions {
        nodes: redis.nodes_clock_first(),
        cluster: redis.cluster,
        username: redis.username.clone(),
        password: config.redis_password().map_err(unusable)?,
        prefix: redis.prefix.clone(),
        connect_timeout: redis.connect_timeout,
        call_timeout: redis.call_timeout,
        wait_replicas: redis.replicas_waited_for(),
        wait_timeout: redis.wait_timeout,
        attempts: attempt_limit(config),
    })
}

/// How often a user may ask for units; off where it is 0.
fn attempt_limit(config: &Config) -> Option<AttemptLimit> {
    let limits = &config.limits;
    let limit = AttemptLimit { count_max: limits.store_attempts_max, window: limits.store_attempts_window };
    (limit.count_max > 0).then_some(limit)
}

/// How the database is reached.
pub(super) fn mysql_options(config: &Config) -> Result<MySqlOptions, Failure> {
    let mysql = &config.mysql;
    Ok(MySqlOptions {
        password: config.mysql_password().map_err(unusable)?,
        connections_max: mysql.connections_max,
        connect_timeout: mysql.connect_timeout,
        ..MySqlOptions::new(&mysql.host, mysql.port, &mysql.user, &mysql.database)
    })
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unusable(error: PasswordError) -> Failure {
    Failure::cannot_start(error.to_string())
}

/// Opens the database, however long it takes to be there.
pub(super) async fn open_mysql(config: &Config) -> Result<MySqlInstallation, Failure> {
    let options = mysql_options(config)?;
    patiently(|| MySqlInstallation::open(options.clone()), MySqlOpenError::is_temporary).await
}

/// Opens Redis, however long it takes to be there.
pub(super) async fn open_redis(config: &Config) -> Result<RedisShards, Failure> {
    let options = redis_options(config)?;
    patiently(|| RedisShards::open(options.clone()), RedisOpenError::is_temporary).await
}

/// Opens what a gateway serves from. The database first: without it nobody may register.
pub(super) async fn open_shared_store(config: &Config) -> Result<Arc<SharedStore>, Failure> {
    let sql = open_mysql(config).await?;
    let redis = open_redis(config).await?;
    let config::Breaker { failures, pause_max, probes, database_after } = config.breaker;
    let rules = DegradingRules {
        breaker: BreakerRules { failures, pause_max, probes },
        database_after: (!database_after.is_zero()).then_some(database_after),
    };
    Ok(Arc::new(SharedStore::degrading(redis, sql, rules)))
}

/// Tries until it is done or somebody has to mend something first.
pub(super) async fn patiently<T, E: Display, F: Future<Output = Result<T, E>>>(
    mut attempt: impl FnMut() -> F,
    is_temporary: fn(&E) -> bool,
) -> Result<T, Failure> {
    let (mut pause, mut failures) = (PAUSE_MIN, Failures::default());
    loop {
        match attempt().await {
            Ok(opened) => {
                if let Some(failures) = failures.succeeded() {
                    tracing::info!(failures, "it is there at last");
                }
                return Ok(opened);
            }
            Err(error) if is_temporary(&error) => {
                match failures.failed(Instant::now()) {
                    Say::Nothing => {}
                    Say::First => tracing::warn!("cannot start yet: {error}; it is tried again"),
                    Say::Summary(failures) => tracing::warn!(failures, "still cannot start: {error}"),
                }
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(PAUSE_MAX);
            }
            Err(error) => return Err(Failure::cannot_start(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]
    use std::cell::Cell;

    use super::*;

    fn outcome(is_down: impl Fn(u32) -> bool, error: &'static str) -> (Result<u32, Failure>, u32) {
        let tries = Cell::new(0);
        let attempt = || {
            tries.set(tries.get() + 1);
            let outcome = if is_down(tries.get()) { Err("down") } else { Err(error) };
            std::future::ready(if error.is_empty() && !is_down(tries.get()) { Ok(7) } else { outcome })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let opened = runtime.block_on(patiently(attempt, |error| *error == "down"));
        (opened, tries.get())
    }

    #[test]
    fn what_is_down_is_tried_until_it_is_there_and_what_is_wrong_ends_at_once() {
        let (opened, tries) = outcome(|tries| tries < 3, "");
        assert_eq!((opened.unwrap(), tries), (7, 3));
        let (opened, tries) = outcome(|tries| tries < 3, "wrong password");
        assert!(format!("{:?}", opened.unwrap_err()).contains("wrong password"));
        assert_eq!(tries, 3);
    }
}
