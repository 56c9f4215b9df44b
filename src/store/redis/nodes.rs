//! Which node serves which shard, and the links to it.
//!
//! Without a cluster that is one node for ever. In a cluster the answer is asked for again whenever a node says
//! that it is not the one, or cannot be reached; one caller asks, the others wait for his answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::{Pipeline, RedisError, Value};

use super::keys;
use super::link::Link;
use super::options::RedisOptions;
use crate::stock::calls::{SHARDS, ShardId};

/// Whoever asks again within this time gets the answer of before.
const FRESH: Duration = Duration::from_millis(50);

/// What a link is for: blocking commands and waits have links of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Use {
    Commands,
    Waiting(ShardId),
    Switches,
    Risk,
}

#[derive(Debug)]
pub(super) struct Nodes {
    options: Arc<RedisOptions>,
    masters: Mutex<[Option<String>; SHARDS]>,
    links: Mutex<HashMap<(String, Use), Arc<Link>>>,
    asked: tokio::sync::Mutex<Option<Instant>>,
}

impl Nodes {
    pub(super) fn new(options: &Arc<RedisOptions>) -> Self {
        Self {
            options: Arc::clone(options),
            masters: Mutex::new(std::array::from_fn(|_| None)),
            links: Mutex::new(HashMap::new()),
            asked: tokio::sync::Mutex::new(None),
        }
    }

    /// The node named first: where the time is asked.
    pub(super) fn first(&self) -> &str {
        self.options.nodes.first().map_or("", String::as_str)
    }

    pub(super) fn link(&self, node: &str, purpose: Use) -> Arc<Link> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let link = links
            .entry((node.to_owned(), purpose))
            .or_insert_with(|| Arc::new(Link::new(node, &self.options)));
        Arc::clone(link)
    }

    /// The node that serves a shard, as far as known.
    pub(super) fn master(&self, shard: ShardId) -> String {
        if !self.options.cluster {
            return self.first().to_owned();
        }
        let masters = self.masters.lock().unwrap_or_else(PoisonError::into_inner);
        masters.get(shard.index()).cloned().flatten().unwrap_or_else(|| self.first().to_owned())
    }

    /// Every node that serves a shard, each once.
    pub(super) fn masters(&self) -> Vec<String> {
        let mut nodes: Vec<_> = ShardId::all().map(|shard| self.master(shard)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// A node said that this one serves the shard.
    pub(super) fn learn(&self, shard: ShardId, node: String) {
        let mut masters = self.masters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(master) = masters.get_mut(shard.index()) {
            *master = Some(node);
        }
    }

    /// Asks the cluster who serves what. The first node that answers is believed.
    pub(super) async fn refresh(&self) -> Result<(), RedisError> {
        if !self.options.cluster {
            return Ok(());
        }
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < FRESH) {
            return Ok(());
        }
        let mut nodes = self.masters();
        nodes.extend(self.options.nodes.iter().cloned());
        let mut last = None;
        for node in nodes {
            match self.ask(&node).await {
                Ok(()) => {
                    *asked = Some(Instant::now());
                    return Ok(());
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            RedisError::from((redis::ErrorKind::InvalidClientConfig, "no node of the cluster is named"))
        }))
    }

    async fn ask(&self, node: &str) -> Result<(), RedisError> {
        let mut commands = Pipeline::new();
        commands.cmd("CLUSTER").arg("SLOTS");
        let answers = self.link(node, Use::Commands).send(&commands, self.options.call_timeout).await?;
        let answer = answers.into_iter().next().unwrap_or_default().extract_error()?;
        let ranges: Vec<(u16, u16, String)> = match &answer {
            Value::Array(ranges) => ranges.iter().filter_map(|range| slot_range(range, node)).collect(),
            _ => Vec::new(),
        };
        let serving = |shard| {
            let slot = keys::slot(shard);
            ranges.iter().find(|(from, to, _)| (*from..=*to).contains(&slot)).map(|(_, _, node)| node.clone())
        };
        let mut masters = self.masters.lock().unwrap_or_else(PoisonError::into_inner);
        for (shard, master) in ShardId::all().zip(masters.iter_mut()) {
            if let Some(node) = serving(shard) {
                *master = Some(node);
            }
        }
        Ok(())
    }
}

/// From slot, to slot, and the master's `host:port`; a node that does not know its own address is where it was asked.
fn slot_range(range: &Value, asked: &str) -> Option<(u16, u16, String)> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(from), Value::Int(to), Value::Array(master), ..] = range.as_slice() else { return None };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
        Value::SimpleString(host) => host.clone(),
        _ => String::new(),
    };
    let host = match host.as_str() {
        "" | "?" => super::link::split(asked)?.0.to_owned(),
        _ => host,
    };
    Some((u16::try_from(*from).ok()?, u16::try_from(*to).ok()?, format!("{host}:{port}")))
}
