//! Opening: checks that the settings fit the server and the server fits its task, and loads the library on every
//! master.

use std::time::Duration;

use redis::{ErrorKind, Pipeline, RedisError};

use super::answers;
use super::link::{self, Link};
use super::nodes::Use;
use super::options::{RedisOpenError, RedisOptions};
use super::shards::{RedisShards, load_library};

impl RedisShards {
    /// Reaches Redis, checks that it can hold the stock, and loads the library of functions. Redis that is only
    /// down or loading is an error that [`is_temporary`](RedisOpenError::is_temporary): try again later.
    pub async fn open(options: RedisOptions) -> Result<Self, RedisOpenError> {
        check(&options)?;
        let shards = Self::new(options);
        let inner = &shards.inner;
        let first = inner.nodes.first().to_owned();
        inner.nodes.refresh().await.map_err(|error| failed(&first, &error))?;
        for node in inner.nodes.masters() {
            let link = inner.nodes.link(&node, Use::Commands);
            fitness(&link, inner.options.cluster, &inner.options).await?;
            load_library(&link, within(&inner.options)).await.map_err(|error| failed(&node, &error))?;
        }
        Ok(shards)
    }
}

fn check(options: &RedisOptions) -> Result<(), RedisOpenError> {
    let wrong = |what: String| Err(RedisOpenError::Settings(what));
    if options.nodes.is_empty() {
        return wrong("no node is named; name host:port".to_owned());
    }
    if let Some(node) = options.nodes.iter().find(|node| link::split(node).is_none()) {
        return wrong(format!("{node:?} is no node; write host:port"));
    }
    if !options.cluster && options.nodes.len() > 1 {
        return wrong(format!("{} nodes are named without a cluster; name one", options.nodes.len()));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if options.prefix.is_empty() || !options.prefix.chars().all(is_plain) {
        return wrong(format!("the key prefix {:?} is not of letters, digits, - _ . :", options.prefix));
    }
    if options.call_timeout.is_zero() || options.connect_timeout.is_zero() {
        return wrong("a timeout is 0".to_owned());
    }
    if options.wait_replicas > 0 && options.wait_timeout.as_millis() == 0 {
        return wrong("replicas are waited for, but for no time (WAIT 0 is for ever)".to_owned());
    }
    if options.attempts.is_some_and(|limit| limit.count_max == 0 || limit.window.as_millis() == 0) {
        return wrong("a limit of attempts lets nobody ask, or its window is 0".to_owned());
    }
    Ok(())
}

/// For an answer on a connection that has to be made first.
fn within(options: &RedisOptions) -> Duration {
    options.connect_timeout.saturating_add(options.call_timeout)
}

/// What the server says of itself, against what the stock needs.
async fn fitness(link: &Link, cluster: bool, options: &RedisOptions) -> Result<(), RedisOpenError> {
    let mut commands = Pipeline::new();
    commands.cmd("INFO");
    let within = within(options);
    let answers = link.send(&commands, within).await.map_err(|error| failed(&link.node, &error))?;
    let info = answers.into_iter().next().unwrap_or_default().extract_error();
    let info = info.map_err(|error| failed(&link.node, &error))?;
    let info = answers::text(info).unwrap_or_default();
    is_fit(&info, &link.node, cluster)
}

/// By its answer to INFO.
fn is_fit(info: &str, node: &str, cluster: bool) -> Result<(), RedisOpenError> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default().trim()
    };
    let unfit = |reason: String| Err(RedisOpenError::Unfit { node: node.to_owned(), reason });
    let version = field("redis_version");
    if version.split('.').next().and_then(|major| major.parse().ok()).is_none_or(|major: u32| major < 7) {
        return unfit(format!("it is version {version:?}; rushgate needs 7.0 or newer (functions)"));
    }
    if field("loading") == "1" {
        let reason = "it is loading its data".to_owned();
        return Err(RedisOpenError::Unavailable { node: node.to_owned(), reason });
    }
    if field("role") != "master" {
        return unfit(format!("it is a {}; name the master", field("role")));
    }
    if (field("cluster_enabled") == "1") != cluster {
        let (is, says) = if cluster { ("no", "a cluster") } else { ("a", "no cluster") };
        return Err(RedisOpenError::Settings(format!(
            "{node} is {is} cluster node, the settings say {says}"
        )));
    }
    let policy = field("maxmemory_policy");
    if field("maxmemory") != "0" && policy.starts_with("allkeys") {
        return unfit(format!(
            "it evicts keys when memory is short ({policy}); set maxmemory-policy noeviction"
        ));
    }
    Ok(())
}

fn failed(node: &str, error: &RedisError) -> RedisOpenError {
    let (node, reason) = (node.to_owned(), error.to_string());
    match (error.kind(), error.code()) {
        (ErrorKind::InvalidClientConfig, _) => RedisOpenError::Settings(format!("{node}: {reason}")),
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
            RedisOpenError::Refused { node, reason }
        }
        (_, Some("ERR")) => RedisOpenError::Unfit { node, reason },
        _ => RedisOpenError::Unavailable { node, reason },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// What the server in question answers, as far as it is looked at.
    fn info(version: &str, more: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n# Replication\r\nrole:master\r\n\
             loading:0\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n{more}"
        )
    }

    #[test]
    fn a_version_below_7_is_refused_and_says_which_is_needed() {
        for version in ["7.0.0", "7.0.15", "7.4.1", "8.0.0", "10.2.3"] {
            is_fit(&info(version, ""), "a:1", false).unwrap();
        }
        for version in ["6.2.14", "5.0.7", "", "unstable"] {
            let error = is_fit(&info(version, ""), "a:1", false).unwrap_err();
            assert!(!error.is_temporary(), "{error}");
            let said = error.to_string();
            assert!(
                said.contains(version) && said.contains("7.0 or newer") && said.contains("a:1"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_server_that_is_loading_is_waited_for_and_one_that_evicts_is_not() {
        let loading = info("7.0.15", "").replace("loading:0", "loading:1");
        assert!(is_fit(&loading, "a:1", false).unwrap_err().is_temporary());
        let evicting = info("7.0.15", "").replace("maxmemory:0", "maxmemory:1");
        is_fit(&evicting, "a:1", false).unwrap();
        let evicting = evicting.replace("noeviction", "allkeys-lru");
        assert!(!is_fit(&evicting, "a:1", false).unwrap_err().is_temporary());
        let replica = info("7.0.15", "").replace("role:master", "role:slave");
        assert!(is_fit(&replica, "a:1", false).unwrap_err().to_string().contains("name the master"));
    }
}
