//! [`RedisShards`]: what every method needs. Runs commands where their shard is served, with a bounded number of
//! repetitions; every command of this store may be repeated.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::time::sleep;

use super::feed_reader::FeedReader;
use super::group_readers::GroupReaders;
use super::keys::Keys;
use super::library;
use super::link::Link;
use super::nodes::{Nodes, Use};
use super::options::RedisOptions;
use super::trouble::{self, Remedy};
use crate::stock::calls::ShardId;
use crate::store::StoreError;

/// Attempts at one command before the caller is told.
const ATTEMPTS_MAX: usize = 5;
/// Between attempts that wait for a cluster to settle.
const PAUSE: Duration = Duration::from_millis(20);

/// The 16 shards in Redis. Cheap to clone; every method may be called from any task.
#[derive(Clone, Debug)]
pub struct RedisShards {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) options: Arc<RedisOptions>,
    pub(super) keys: Keys,
    pub(super) nodes: Nodes,
    pub(super) feeds: FeedReader,
    pub(super) groups: GroupReaders,
}

/// Commands of one shard, sent in one go.
pub(super) struct Work {
    pub(super) what: &'static str,
    pub(super) shard: ShardId,
    pub(super) commands: Vec<Cmd>,
    /// The keys they touch, to name the one that is wrong.
    pub(super) keys: Vec<String>,
    pub(super) purpose: Use,
    pub(super) within: Duration,
}

impl RedisShards {
    pub(super) fn new(options: RedisOptions) -> Self {
        let options = Arc::new(options);
        let inner = Inner {
            keys: Keys::new(&options.prefix),
            nodes: Nodes::new(&options),
            feeds: FeedReader::new(&options),
            groups: GroupReaders::default(),
            options,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Whether its shards may be on several nodes.
    pub fn is_cluster(&self) -> bool {
        self.inner.options.cluster
    }

    /// Runs one function of a shard.
    pub(super) async fn function(
        &self,
        shard: ShardId,
        what: &'static str,
        function: &str,
        keys: Vec<String>,
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut command = library::fcall(function, &keys);
        arguments(&mut command);
        let answers = self.run(&self.work(shard, what, vec![command], keys)).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    pub(super) fn work(
        &self,
        shard: ShardId,
        what: &'static str,
        commands: Vec<Cmd>,
        keys: Vec<String>,
    ) -> Work {
        let within = self.inner.options.call_timeout;
        Work { what, shard, commands, keys, purpose: Use::Commands, within }
    }

    /// Runs commands of a shard; their answers, none of them an error.
    pub(super) async fn run(&self, work: &Work) -> Result<Vec<Value>, StoreError> {
        let nodes = &self.inner.nodes;
        let mut asked = None;
        let mut attempt = 1_usize;
        loop {
            let is_asking = asked.is_some();
            let node = asked.take().unwrap_or_else(|| nodes.master(work.shard));
            let link = nodes.link(&node, work.purpose);
            let error = match attempt_on(&link, &work.commands, is_asking, work.within).await {
                Ok(answers) => return Ok(answers),
                Err(error) => error,
            };
            let remedy = trouble::remedy(&error, self.inner.options.cluster);
            if attempt >= ATTEMPTS_MAX || remedy == Remedy::None {
                return Err(self.told(work, &error, &link).await);
            }
            attempt = attempt.saturating_add(1);
            match remedy {
                Remedy::None => {}
                Remedy::LoadLibrary => {
                    if let Err(error) = load_library(&link, work.within).await {
                        return Err(trouble::told(&error, "loading the functions", &node));
                    }
                    asked = is_asking.then_some(node);
                }
                Remedy::Moved(node) => nodes.learn(work.shard, node),
                Remedy::Ask(node) => asked = Some(node),
                Remedy::Wait => sleep(PAUSE).await,
                Remedy::Refresh if self.inner.options.cluster => {
                    sleep(PAUSE).await;
                    if let Err(error) = nodes.refresh().await {
                        return Err(trouble::told(&error, "asking who serves what", &node));
                    }
                }
                // A connection that had been closed while idle: once more on a new one.
                Remedy::Refresh => attempt = attempt.max(ATTEMPTS_MAX),
            }
        }
    }

    pub(super) async fn told(&self, work: &Work, error: &RedisError, link: &Link) -> StoreError {
        let what = format!("{} in shard {}", work.what, work.shard.number());
        if error.code() == Some("WRONGTYPE")
            && let Some((key, wrong)) = self.wrong_key(work, link).await
        {
            return StoreError::Corrupt(format!(
                "{what}: the key {key} at {} is a {wrong}, which rushgate did not make; nothing was changed",
                link.node
            ));
        }
        trouble::told(error, &what, &link.node)
    }

    /// The first key of another type than it ought to be.
    async fn wrong_key(&self, work: &Work, link: &Link) -> Option<(String, String)> {
        let mut types = Pipeline::new();
        for key in &work.keys {
            types.cmd("TYPE").arg(key);
        }
        let answers = link.send(&types, work.within).await.ok()?;
        work.keys.iter().zip(answers).find_map(|(key, answer)| {
            let Value::SimpleString(found) = answer else { return None };
            let due = match key.rsplit(':').next() {
                _ if key.contains("}:seen:") => "zset",
                Some("feed" | "log") => "stream",
                Some("until" | "gateways" | "wanted") => "zset",
                Some("allowed") => "set",
                _ => "hash",
            };
            (found != due && found != "none").then(|| (key.clone(), found))
        })
    }
}

/// Sends the commands once; the first error of any of them.
async fn attempt_on(
    link: &Link,
    commands: &[Cmd],
    is_asking: bool,
    within: Duration,
) -> Result<Vec<Value>, RedisError> {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        if is_asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(command.clone());
    }
    let answers = link.send(&pipeline, within).await?;
    let (skip, step) = if is_asking { (1, 2) } else { (0, 1) };
    // Errors inside a list are for whoever asked for the list.
    let answer = |value| match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    };
    answers.into_iter().skip(skip).step_by(step).map(answer).collect()
}

/// Loads the library on the node of a link.
pub(super) async fn load_library(link: &Link, within: Duration) -> Result<(), RedisError> {
    let mut commands = Pipeline::new();
    commands.cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(library::CODE);
    // Compiling it may take longer than a call does.
    let answers = link.send(&commands, within.max(Duration::from_secs(2))).await?;
    answers.into_iter().next().unwrap_or_default().extract_error()?;
    tracing::info!(node = link.node, "loaded the library of functions");
    Ok(())
}
