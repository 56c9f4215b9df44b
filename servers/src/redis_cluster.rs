//! A Redis cluster: masters with slots, replicas that are promoted within seconds, slots that can be moved while
//! they are written.
//!
//! It is put together by the commands that `redis-cli --cluster create` sends, without that tool's fixed waits.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{Persistence, Redis, RedisSettings, RespValue, ServerError};

const NAME: &str = "redis cluster";
const SLOTS: usize = 16_384;
/// A node that is silent this long is down; a replica asks to be promoted soon after.
const NODE_TIMEOUT_MS: u64 = 1_000;
const READY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// For an answer about the topology; a node that is silent this long is no master that anybody can reach.
const ASK_MAX: Duration = Duration::from_millis(500);
const KEYS_AT_ONCE: &str = "100";
const MIGRATE_TIMEOUT_MS: &str = "5000";

/// The nodes of a cluster, masters first. All are killed when dropped.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
    masters: usize,
}

/// One line of CLUSTER NODES about the node that answered.
#[derive(Debug)]
struct Myself {
    is_master: bool,
    config_epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

impl RedisCluster {
    /// Starts masters and replicas, spreads the slots evenly over the masters and the replicas in turn, and waits
    /// until all agree and the replicas follow.
    ///
    /// # Errors
    /// When a node does not start, or the nodes do not agree in time.
    pub async fn start(
        masters: usize,
        replicas: usize,
        persistence: Persistence,
    ) -> Result<Self, ServerError> {
        Self::start_with(masters, replicas, RedisSettings::new(persistence)).await
    }

    /// As `start`, each node with these settings.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_with(
        masters: usize,
        replicas: usize,
        mut settings: RedisSettings,
    ) -> Result<Self, ServerError> {
        settings.cluster_node = true;
        let mut more = vec![
            format!("cluster-node-timeout {NODE_TIMEOUT_MS}"),
            // However old its data: what a promotion loses is what the tests are about.
            "cluster-replica-validity-factor 0".to_owned(),
            // Replicas stay where the test put them.
            "cluster-allow-replica-migration no".to_owned(),
        ];
        more.append(&mut settings.more);
        settings.more = more;
        let mut starting = JoinSet::new();
        for _ in 0..masters.saturating_add(replicas) {
            starting.spawn(Redis::start_with(settings.clone()));
        }
        let mut nodes = Vec::new();
        while let Some(started) = starting.join_next().await {
            nodes.push(started.map_err(|error| ServerError::malformed(NAME, error.to_string()))??);
        }
        let cluster = Self { nodes, masters };
        cluster.give_slots().await?;
        cluster.introduce().await?;
        cluster.follow().await?;
        cluster.wait_ok().await?;
        Ok(cluster)
    }

    async fn give_slots(&self) -> Result<(), ServerError> {
        for (at, node) in self.nodes.iter().enumerate() {
            // Distinct epochs from the start; a node sets its own only while it is alone.
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &at.saturating_add(1).to_string()]).await?;
            if at < self.masters {
                let bound =
                    |master: usize| master.saturating_mul(SLOTS).checked_div(self.masters).unwrap_or(0);
                let (first, after) = (bound(at), bound(at.saturating_add(1)));
                let last = after.saturating_sub(1).to_string();
                node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last]).await?;
            }
        }
        Ok(())
    }

    async fn introduce(&self) -> Result<(), ServerError> {
        let Some((first, others)) = self.nodes.split_first() else {
            return Err(ServerError::malformed(NAME, "it has no nodes"));
        };
        for node in others {
            let (port, bus_port) = (node.port().to_string(), node.bus_port().unwrap_or_default().to_string());
            first.cli(&["CLUSTER", "MEET", node.host(), &port, &bus_port]).await?;
        }
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        let begun = Instant::now();
        for node in &self.nodes {
            while !node.cli(&["CLUSTER", "INFO"]).await?.contains(&known)
                || node.cli(&["CLUSTER", "NODES"]).await?.contains("handshake")
            {
                self.again("not all nodes know each other", begun, node).await?;
            }
        }
        Ok(())
    }

    async fn follow(&self) -> Result<(), ServerError> {
        let (masters, replicas) = self.nodes.split_at_checked(self.masters).unwrap_or_default();
        for (master, replica) in masters.iter().cycle().zip(replicas) {
            let id = master.cli(&["CLUSTER", "MYID"]).await?;
            replica.cli(&["CLUSTER", "REPLICATE", &id]).await?;
        }
        Ok(())
    }

    /// Returns after a moment; fails at the deadline.
    async fn again(
        &self,
        what_did_not_happen: &str,
        begun: Instant,
        asked: &Redis,
    ) -> Result<(), ServerError> {
        if begun.elapsed() > READY_MAX {
            return Err(self.late(what_did_not_happen, asked).await);
        }
        sleep(POLL).await;
        Ok(())
    }

    async fn late(&self, what: &str, node: &Redis) -> ServerError {
        let seen = node.cli(&["CLUSTER", "NODES"]).await.unwrap_or_else(|error| error.to_string());
        ServerError::Late {
            name: NAME,
            what: format!("{what}, asked at {}", node.address()),
            waited: READY_MAX,
            log_tail: seen,
        }
    }

    /// Waits until every running node (not killed, not paused) says `cluster_state:ok`, all agree on who has which
    /// slots, and every running replica follows its master.
    ///
    /// # Errors
    /// When that takes too long (60 s).
    pub async fn wait_ok(&self) -> Result<(), ServerError> {
        let begun = Instant::now();
        while let Some(asked) = self.first_not_ok().await {
            self.again("the cluster was not ok", begun, asked).await?;
        }
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Redis)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_running())
    }

    async fn first_not_ok(&self) -> Option<&Redis> {
        let all_run = self.nodes.iter().all(Redis::is_running);
        let replicas = self.nodes.len().saturating_sub(self.masters);
        let mut owners_seen: Option<Vec<String>> = None;
        for (_, node) in self.running() {
            let Ok(info) = node.cli(&["CLUSTER", "INFO"]).await else { return Some(node) };
            let Ok(replication) = node.cli(&["INFO", "replication"]).await else { return Some(node) };
            let Ok(nodes) = node.cli(&["CLUSTER", "NODES"]).await else { return Some(node) };
            let follows =
                replication.contains("role:master") || replication.contains("master_link_status:up");
            let sees_all = nodes.lines().filter(|line| line.contains("slave")).count() == replicas
                && !nodes.contains("fail");
            let owners = owners(&nodes);
            let agrees = owners_seen.as_ref().is_none_or(|seen| *seen == owners);
            if !(info.contains("cluster_state:ok") && follows && agrees && (sees_all || !all_run)) {
                return Some(node);
            }
            owners_seen = Some(owners);
        }
        None
    }

    /// All nodes: at the start the masters, then the replicas; the first replica follows the first master.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// `host:port` of all nodes.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::address).collect()
    }

    /// A node by its number in `nodes`.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&self, number: usize) -> Result<&Redis, ServerError> {
        self.nodes.get(number).ok_or_else(|| {
            ServerError::malformed(NAME, format!("it has {} nodes, no node {number}", self.nodes.len()))
        })
    }

    /// Kills a node without notice and waits until it is gone.
    ///
    /// # Errors
    /// When there is none, or it is not running.
    pub async fn kill9(&self, number: usize) -> Result<(), ServerError> {
        self.node(number)?.kill9().await
    }

    /// Starts a node again on its folder and ports.
    ///
    /// # Errors
    /// When there is none, or it does not start.
    pub async fn restart(&self, number: usize) -> Result<(), ServerError> {
        self.node(number)?.restart().await
    }

    /// The slot of a key; `{tag}` counts as in Redis.
    ///
    /// # Errors
    /// When no node is running.
    pub async fn slot_of(&self, key: &str) -> Result<u16, ServerError> {
        for (_, node) in self.running() {
            if let Ok(Ok(slot)) = timeout(ASK_MAX, node.cli(&["CLUSTER", "KEYSLOT", key])).await {
                return slot.parse().map_err(|_| ServerError::malformed("CLUSTER KEYSLOT", slot));
            }
        }
        Err(ServerError::NotRunning { name: NAME })
    }

    /// The node that says of itself that it is the master of a slot, by the newest epoch. `None` while there is
    /// none, as before a promotion.
    pub async fn master_of_slot(&self, slot: u16) -> Option<usize> {
        let mut newest: Option<(u64, usize)> = None;
        for (number, node) in self.running() {
            let Ok(Ok(nodes)) = timeout(ASK_MAX, node.cli(&["CLUSTER", "NODES"])).await else { continue };
            let Some(myself) = myself(&nodes) else { continue };
            if myself.is_master && myself.slots.iter().any(|range| range.contains(&slot)) {
                newest = newest.max(Some((myself.config_epoch, number)));
            }
        }
        newest.map(|(_, number)| number)
    }

    /// The node that is the master of a key's slot.
    ///
    /// # Errors
    /// When there is none.
    pub async fn master_of_key(&self, key: &str) -> Result<usize, ServerError> {
        let slot = self.slot_of(key).await?;
        self.master_of_slot(slot)
            .await
            .ok_or_else(|| ServerError::malformed(NAME, format!("slot {slot} has no master")))
    }

    /// Waits until another node than `former` is the master of a slot, and every running node says
    /// `cluster_state:ok`.
    ///
    /// # Errors
    /// When that takes too long (60 s).
    pub async fn wait_promotion(&self, slot: u16, former: usize) -> Result<usize, ServerError> {
        let begun = Instant::now();
        loop {
            match self.master_of_slot(slot).await {
                Some(master) if master != former => {
                    self.wait_ok().await?;
                    return Ok(master);
                }
                _ => {
                    let what = format!("no replica was promoted for slot {slot} of node {former}");
                    self.again(&what, begun, self.node(former)?).await?;
                }
            }
        }
    }

    /// One command at the master of a key.
    ///
    /// # Errors
    /// When there is none, it is down, or it answers with an error.
    pub async fn cli(&self, key: &str, command: &[&str]) -> Result<String, ServerError> {
        self.node(self.master_of_key(key).await?)?.cli(command).await
    }

    /// Moves a slot with its keys to another master, while clients go on: ASK and then MOVED are what they see.
    /// Masters that take no part hear of it by gossip; `wait_ok` waits for that.
    ///
    /// # Errors
    /// When the slot has no master, or a node refuses.
    pub async fn move_slot(&self, slot: u16, to: usize) -> Result<(), ServerError> {
        let from = self.begin_move(slot, to).await?;
        self.finish_move(slot, from, to).await
    }

    /// The first half of `move_slot`: the slot is migrating, no key is moved yet. Answers with its master.
    ///
    /// # Errors
    /// As `move_slot`.
    pub async fn begin_move(&self, slot: u16, to: usize) -> Result<usize, ServerError> {
        let from = self
            .master_of_slot(slot)
            .await
            .ok_or_else(|| ServerError::malformed(NAME, format!("slot {slot} has no master")))?;
        let (source, target) = (self.node(from)?, self.node(to)?);
        let (source_id, target_id) =
            (source.cli(&["CLUSTER", "MYID"]).await?, target.cli(&["CLUSTER", "MYID"]).await?);
        let slot = slot.to_string();
        target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await?;
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await?;
        Ok(from)
    }

    /// The second half of `move_slot`: the keys are moved, and the slot is the other master's.
    ///
    /// # Errors
    /// As `move_slot`.
    pub async fn finish_move(&self, slot: u16, from: usize, to: usize) -> Result<(), ServerError> {
        let (source, target) = (self.node(from)?, self.node(to)?);
        let slot = slot.to_string();
        loop {
            let keys = source.call(&["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_AT_ONCE]).await?;
            let RespValue::Array(Some(keys)) = keys else {
                return Err(ServerError::malformed("CLUSTER GETKEYSINSLOT", keys.to_string()));
            };
            if keys.is_empty() {
                break;
            }
            let port = target.port().to_string();
            let head = ["MIGRATE", target.host(), &port, "", "0", MIGRATE_TIMEOUT_MS];
            let mut command: Vec<Vec<u8>> = head.iter().map(|word| word.as_bytes().to_vec()).collect();
            if let Some(password) = target.password() {
                command.extend([b"AUTH".to_vec(), password.as_bytes().to_vec()]);
            }
            command.push(b"KEYS".to_vec());
            command.extend(keys.into_iter().filter_map(|key| match key {
                RespValue::Bulk(bytes) => bytes,
                _ => None,
            }));
            source.call(&command).await?;
        }
        let id = target.cli(&["CLUSTER", "MYID"]).await?;
        // The new master first: it raises its epoch, so that no gossip of the old one wins.
        for node in [target, source] {
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]).await?;
        }
        Ok(())
    }
}

/// Who has which slots, as a node sees it: each master's line of CLUSTER NODES without what differs by moment.
fn owners(nodes: &str) -> Vec<String> {
    let mut owners: Vec<String> = nodes
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let id = words.next()?;
            let slots: Vec<&str> = words.skip(7).filter(|word| !word.starts_with('[')).collect();
            (!slots.is_empty()).then(|| format!("{id} {}", slots.join(" ")))
        })
        .collect();
    owners.sort();
    owners
}

/// What a node says about itself in CLUSTER NODES:
/// `id address flags master ping pong config-epoch link-state slot...`.
fn myself(nodes: &str) -> Option<Myself> {
    let line = nodes.lines().find(|line| line.contains("myself"))?;
    let mut words = line.split_whitespace().skip(2);
    let flags = words.next()?;
    let config_epoch = words.nth(3)?.parse().ok()?;
    // A slot that is on the move is in brackets, besides being in a range of its master.
    let slots = words.skip(1).filter(|word| !word.starts_with('[')).filter_map(|word| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    Some(Myself { is_master: flags.contains("master"), config_epoch, slots: slots.collect() })
}
