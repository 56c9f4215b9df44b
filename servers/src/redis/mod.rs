//! One redis-server, with or without an append-only file, as a master or as a replica.

mod aof;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use crate::process::{ServerFolder, ServerProcess, find_program};
use crate::{ReservedPort, RespConnection, RespValue, ServerError};

const NAME: &str = "redis";
const READY_MAX: Duration = Duration::from_secs(30);
/// A command of `cli`; a paused server must end in an error, not in a test that hangs.
const CALL_MAX: Duration = Duration::from_secs(20);
const PORT_TRIES: usize = 5;

/// What survives a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    Off,
    /// The append-only file, flushed to disk each second. It is written before the answer, so that a killed process
    /// (not a lost machine) still loses nothing: what a lost second looks like is made by `Redis::truncate_aof`.
    EverySecond,
    /// The append-only file, flushed to disk before each answer.
    Always,
}

/// How a Redis is to be started.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// What survives a kill.
    pub persistence: Persistence,
    /// `requirepass`, and what it authenticates to its master with.
    pub password: Option<String>,
    /// `maxmemory`, with the policy noeviction.
    pub maxmemory_bytes: Option<u64>,
    /// The port of the master that it follows.
    pub replica_of: Option<u16>,
    /// Runs as a node of a cluster, with a second port for the cluster bus.
    pub cluster_node: bool,
    /// More lines of redis.conf.
    pub more: Vec<String>,
}

impl RedisSettings {
    /// A master without password and without limits.
    pub fn new(persistence: Persistence) -> Self {
        Self {
            persistence,
            password: None,
            maxmemory_bytes: None,
            replica_of: None,
            cluster_node: false,
            more: Vec::new(),
        }
    }

    fn config(&self, port: u16, bus_port: Option<&ReservedPort>, folder: &Path) -> String {
        let mut lines = vec![
            format!("port {port}"),
            format!("bind {}", Ipv4Addr::LOCALHOST),
            format!("dir \"{}\"", folder.display()),
            "daemonize no".to_owned(),
            "save \"\"".to_owned(),
            "enable-debug-command local".to_owned(),
            // Replicas of tests are synchronised at once and without a file.
            "repl-diskless-sync yes".to_owned(),
            "repl-diskless-sync-delay 0".to_owned(),
            "repl-ping-replica-period 1".to_owned(),
            // A rewrite would move commands into the base file, where `truncate_aof` finds none.
            "auto-aof-rewrite-percentage 0".to_owned(),
        ];
        match self.persistence {
            Persistence::Off => lines.push("appendonly no".to_owned()),
            Persistence::EverySecond => lines.push("appendonly yes\nappendfsync everysec".to_owned()),
            Persistence::Always => lines.push("appendonly yes\nappendfsync always".to_owned()),
        }
        if let Some(password) = &self.password {
            lines.push(format!("requirepass \"{password}\"\nmasterauth \"{password}\""));
        }
        if let Some(bytes) = self.maxmemory_bytes {
            lines.push(format!("maxmemory {bytes}\nmaxmemory-policy noeviction"));
        }
        if let Some(master) = self.replica_of {
            lines.push(format!("replicaof {} {master}", Ipv4Addr::LOCALHOST));
        }
        if let Some(bus_port) = bus_port {
            lines.push(format!("cluster-enabled yes\ncluster-port {}", bus_port.number()));
        }
        lines.extend(self.more.iter().cloned());
        lines.join("\n") + "\n"
    }
}

/// A redis-server of its own. Killed when dropped.
#[derive(Debug)]
pub struct Redis {
    // Dropped in this order: the process, then the folder that it writes, then the port.
    process: ServerProcess,
    folder: ServerFolder,
    port: ReservedPort,
    bus_port: Option<ReservedPort>,
    settings: RedisSettings,
}

impl Redis {
    /// Starts a master without password and waits until it answers.
    ///
    /// # Errors
    /// When redis-server is not installed, ends, or does not answer in time; the message shows its log.
    pub async fn start(persistence: Persistence) -> Result<Self, ServerError> {
        Self::start_with(RedisSettings::new(persistence)).await
    }

    /// Starts as the settings say and waits until it answers; a replica, until it follows its master.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_with(settings: RedisSettings) -> Result<Self, ServerError> {
        let mut tries_left = PORT_TRIES;
        loop {
            tries_left = tries_left.saturating_sub(1);
            match Self::start_once(settings.clone()).await {
                Err(error) if error.is_port_taken() && tries_left > 0 => {}
                outcome => return outcome,
            }
        }
    }

    /// A replica of `master`, with its persistence and password.
    ///
    /// # Errors
    /// As `start`.
    pub async fn replicate_of(master: &Redis) -> Result<Self, ServerError> {
        Self::start_with(RedisSettings { replica_of: Some(master.port()), ..master.settings.clone() }).await
    }

    async fn start_once(settings: RedisSettings) -> Result<Self, ServerError> {
        let program = find_program("redis-server", "redis-server")?;
        let port = ReservedPort::reserve()?;
        let bus_port = if settings.cluster_node { Some(ReservedPort::reserve()?) } else { None };
        let folder = ServerFolder::create(NAME)?;
        let config = folder.path().join("redis.conf");
        fs::write(&config, settings.config(port.number(), bus_port.as_ref(), folder.path()))
            .map_err(ServerError::io(format!("writing {}", config.display())))?;
        let process = ServerProcess::new(NAME, program, vec![config.into()], Vec::new(), folder.path());
        let redis = Self { process, folder, port, bus_port, settings };
        redis.process.spawn()?;
        redis.wait_ready().await?;
        Ok(redis)
    }

    async fn wait_ready(&self) -> Result<(), ServerError> {
        let waiting = self.process.waiting("did not answer PING, or did not follow its master", READY_MAX);
        while !self.is_ready().await {
            waiting.again().await?;
        }
        Ok(())
    }

    async fn is_ready(&self) -> bool {
        let Ok(mut connection) = self.connect().await else { return false };
        // While it still reads its file, LOADING is an error answer.
        if connection.call(&["PING"]).await.is_err() {
            return false;
        }
        let Ok(info) = connection.call(&["INFO"]).await.map(|info| info.to_string()) else { return false };
        // Not somebody else's server that has the port while this one fails to bind it.
        let is_this_one = self.process_id().is_some_and(|id| info.contains(&format!("process_id:{id}\r\n")));
        is_this_one && (self.settings.replica_of.is_none() || info.contains("master_link_status:up"))
    }

    /// Where it listens: always 127.0.0.1.
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// The port it listens on, the same after each restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port of the cluster bus, of a node of a cluster.
    pub fn bus_port(&self) -> Option<u16> {
        self.bus_port.as_ref().map(ReservedPort::number)
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host(), self.port())
    }

    /// `redis://[:password@]host:port/`.
    pub fn url(&self) -> String {
        let password = self.settings.password.as_ref().map(|password| format!(":{password}@"));
        format!("redis://{}{}/", password.unwrap_or_default(), self.address())
    }

    /// What it asks for, if anything.
    pub fn password(&self) -> Option<&str> {
        self.settings.password.as_deref()
    }

    /// The folder of its append-only file and of its log.
    pub fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    /// The process's number while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }

    /// A key prefix that no other caller in this process is given, for tests that share a server.
    pub fn fresh_prefix(&self) -> String {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        format!("t{}", GIVEN.fetch_add(1, Ordering::Relaxed))
    }

    /// A connection of its own, authenticated.
    ///
    /// # Errors
    /// When it is down.
    pub async fn connect(&self) -> Result<RespConnection, ServerError> {
        RespConnection::connect(self.port(), self.password()).await
    }

    /// One command on a connection of its own.
    ///
    /// # Errors
    /// When it is down, does not answer (20 s), or answers with an error.
    pub async fn call<A: AsRef<[u8]>>(&self, command: &[A]) -> Result<RespValue, ServerError> {
        let called = async { self.connect().await?.call(command).await };
        timeout(CALL_MAX, called)
            .await
            .unwrap_or_else(|_| Err(self.process.late("did not answer a command", CALL_MAX)))
    }

    /// One command, its answer as `redis-cli` would print it into a file.
    ///
    /// # Errors
    /// As `call`.
    pub async fn cli(&self, command: &[&str]) -> Result<String, ServerError> {
        Ok(self.call(command).await?.to_string())
    }

    /// Kills it without notice and waits until it is gone.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&self) -> Result<(), ServerError> {
        self.process.kill9().await
    }

    /// Starts it again on the same folder and port, and waits until it has loaded its data. One that is still
    /// running is stopped first, in order.
    ///
    /// # Errors
    /// As `start`.
    pub async fn restart(&self) -> Result<(), ServerError> {
        if self.process.id().is_some() {
            self.process.stop().await?;
        }
        self.process.spawn()?;
        self.wait_ready().await
    }

    /// Asks it to stop (SIGTERM) and waits until it is gone.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop_gracefully(&self) -> Result<(), ServerError> {
        self.process.stop().await
    }

    /// Stops its clock (SIGSTOP): connections stay, nothing is answered.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn pause(&self) -> Result<(), ServerError> {
        self.process.pause().await
    }

    /// Whether it runs and is not paused.
    pub fn is_running(&self) -> bool {
        self.process.id().is_some() && !self.process.is_paused()
    }

    /// Lets it run on (SIGCONT).
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.process.resume()
    }

    /// CPU time used since the last start.
    ///
    /// # Errors
    /// When it is not running.
    pub fn cpu_time(&self) -> Result<Duration, ServerError> {
        self.process.cpu_time()
    }

    /// Cuts the last commands off the append-only file, as a crash of the machine loses them. A transaction, and
    /// all that one script wrote, is one command. Returns how many commands are left.
    ///
    /// # Errors
    /// When it is running, has no append-only file, or that has fewer commands.
    pub fn truncate_aof(&self, commands_from_end: usize) -> Result<usize, ServerError> {
        self.truncate_aof_naming("", commands_from_end)
    }

    /// The same, counting only commands that name `part` (a key, say); what is between and behind them is cut off, too.
    ///
    /// # Errors
    /// As those of [`truncate_aof`](Self::truncate_aof).
    pub fn truncate_aof_naming(&self, part: &str, commands_from_end: usize) -> Result<usize, ServerError> {
        if self.process.id().is_some() {
            return Err(ServerError::malformed(
                "truncate_aof",
                "redis is running and would write on; kill9 first",
            ));
        }
        aof::truncate(&self.aof_dir(), part, commands_from_end)
    }

    fn aof_dir(&self) -> PathBuf {
        self.folder.path().join("appendonlydir")
    }
}
