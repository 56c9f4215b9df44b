//! A whole installation for one drill: Redis, a fresh database, gateways and writers of the real binary.
//!
//! Everything is on free ports of 127.0.0.1 and ends when the shop is dropped.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rushgate::admission::identity::{MintKey, MintSettings, Minter};
use rushgate_servers::{Database, FaultyLink, MariaDb, Persistence, ReservedPort, RespConnection};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::error::{DrillError, Result};
use crate::layout::{ACTIVITY, PRICE_MINOR, SHARDS};
use crate::program::Program;
use crate::sql_side;
use crate::stock_servers::{RedisPlan, StockServers};
use crate::till::{PayPlan, Till};

/// Every key begins so.
const PREFIX: &str = "drill";
/// Its configuration leaves the preheat of activities that open later to the writer.
const OPERATOR: &str = "operator";
const POLL: Duration = Duration::from_millis(20);
const LOADED_MAX: Duration = Duration::from_secs(60);

/// What a drill needs.
#[derive(Clone, Debug)]
pub(crate) struct ShopPlan {
    pub(crate) redis: RedisPlan,
    pub(crate) gateways: usize,
    pub(crate) writers: usize,
    /// SKUs 1, 2, … with their units.
    pub(crate) stock: Vec<u32>,
    /// Units of these that are held back from Redis; gateways sell them by themselves while it is away.
    pub(crate) held_back: Vec<u32>,
    /// Gateway 0 reaches Redis through a link that can fail.
    pub(crate) has_link: bool,
    /// Gateway 0 reaches the database through a link of its own, and all others Redis through another.
    pub(crate) can_be_split: bool,
    /// Orders per second that a writer settles at most; 0 = as many as it can.
    pub(crate) writer_rows_per_s: u32,
    /// From its creation to its opening.
    pub(crate) opens_in: Duration,
    /// Orders are paid, or closed; none: nobody pays, and nothing is closed in a drill's time.
    pub(crate) pay: Option<PayPlan>,
    /// How often a user may buy again after a close.
    pub(crate) buy_again_max: u8,
    /// By so much the clocks of gateway 0 and writer 0 are ahead.
    pub(crate) clocks_ahead: Duration,
}

impl Default for ShopPlan {
    fn default() -> Self {
        Self {
            redis: RedisPlan::One(Persistence::Off),
            gateways: 2,
            writers: 1,
            stock: vec![200, 120, 80],
            held_back: Vec::new(),
            has_link: false,
            can_be_split: false,
            writer_rows_per_s: 0,
            opens_in: Duration::from_millis(600),
            pay: None,
            buy_again_max: 0,
            clocks_ahead: Duration::ZERO,
        }
    }
}

/// What all drills of a run share.
#[derive(Debug)]
pub(crate) struct Premises {
    pub(crate) binary: PathBuf,
    pub(crate) mariadb: MariaDb,
    /// Shrinks waits and users; 1 = as they are.
    pub(crate) is_quick: bool,
}

/// A running installation.
#[derive(Debug)]
pub(crate) struct Shop {
    // Dropped in this order: clients of servers first, then the folder.
    pub(crate) gateways: Vec<Program>,
    pub(crate) writers: Vec<Program>,
    pub(crate) till: Option<Till>,
    pub(crate) link: Option<FaultyLink>,
    pub(crate) sql_link: Option<FaultyLink>,
    pub(crate) link_of_others: Option<FaultyLink>,
    pub(crate) servers: StockServers,
    pub(crate) database: Database,
    pub(crate) addrs: Vec<SocketAddr>,
    pub(crate) premises: Arc<Premises>,
    pub(crate) plan: ShopPlan,
    ports: Vec<ReservedPort>,
    /// Where writers are told of payments.
    writer_ports: Vec<ReservedPort>,
    folder: TempDir,
}

impl Shop {
    /// Starts all of it, with an activity whose stock is loaded; it opens after `plan.opens_in`.
    pub(crate) async fn open(premises: &Arc<Premises>, plan: ShopPlan) -> Result<Self> {
        let mut shop = Self::without_processes(premises, plan).await?;
        for nth in 0..shop.plan.writers {
            shop.add_writer(nth)?;
        }
        for _ in 0..shop.plan.gateways {
            shop.add_gateway()?;
        }
        if !shop.plan.clocks_ahead.is_zero() {
            let ahead = shop.plan.clocks_ahead;
            shop.gateway(0)?.set_clock_ahead(ahead)?;
            shop.writer(0)?.set_clock_ahead(ahead)?;
        }
        for program in shop.writers.iter_mut().chain(&mut shop.gateways) {
            program.spawn(None)?;
        }
        for program in shop.writers.iter_mut().chain(&mut shop.gateways) {
            program.works().await?;
        }
        shop.create_activity().await?;
        Ok(shop)
    }

    /// The servers and an empty database.
    pub(crate) async fn without_processes(premises: &Arc<Premises>, plan: ShopPlan) -> Result<Self> {
        let servers = StockServers::start(plan.redis).await?;
        let upstream = servers.addresses().first().and_then(|addr| addr.parse().ok());
        let upstream = upstream.ok_or_else(|| DrillError::Malformed("Redis has no address".to_owned()))?;
        let link = link_to(upstream, plan.has_link).await?;
        let link_of_others = link_to(upstream, plan.can_be_split).await?;
        let sql = SocketAddr::from(([127, 0, 0, 1], premises.mariadb.port()));
        let sql_link = link_to(sql, plan.can_be_split).await?;
        let database = premises.mariadb.create_database().await?;
        let folder = TempDir::with_prefix("rushgate-drill-").map_err(DrillError::io("making a folder"))?;
        // Once: processes read it while others are being configured.
        fs::write(folder.path().join("password"), &database.password)
            .map_err(DrillError::io("writing the password's file"))?;
        let writers = if plan.pay.is_some() { plan.writers } else { 0 };
        let writer_ports = (0..writers).map(|_| ReservedPort::reserve()).collect::<Result<Vec<_>, _>>()?;
        let till = match &plan.pay {
            Some(pay) => {
                let ports: Vec<_> = writer_ports.iter().map(ReservedPort::number).collect();
                Some(Till::start(pay, folder.path(), &ports).await?)
            }
            None => None,
        };
        Ok(Self {
            gateways: Vec::new(),
            writers: Vec::new(),
            till,
            link,
            sql_link,
            link_of_others,
            servers,
            database,
            addrs: Vec::new(),
            premises: Arc::clone(premises),
            plan,
            ports: Vec::new(),
            writer_ports,
            folder,
        })
    }

    /// A gateway that is not started yet.
    pub(crate) fn add_gateway(&mut self) -> Result<&mut Program> {
        let nth = self.gateways.len();
        let port = ReservedPort::reserve()?;
        let addr = SocketAddr::from(([127, 0, 0, 1], port.number()));
        let nodes = match &self.link {
            Some(link) if nth == 0 => vec![link.address().to_string()],
            _ => self.nodes_of_others(),
        };
        let config = self.configured(&format!("gateway{nth}"), addr, &nodes)?;
        let arguments = ["serve", "--config", &config].map(str::to_owned).to_vec();
        let name = format!("gateway{nth}");
        self.gateways.push(Program::new(&self.premises.binary, &name, arguments, self.folder.path()));
        self.addrs.push(addr);
        self.ports.push(port);
        self.gateway(nth)
    }

    /// A writer that is not started yet.
    pub(crate) fn add_writer(&mut self, nth: usize) -> Result<&mut Program> {
        let name = format!("writer{nth}");
        let nodes = self.nodes_of_others();
        let port = self.writer_ports.get(nth).map_or(0, ReservedPort::number);
        let config = self.configured(&name, SocketAddr::from(([127, 0, 0, 1], port)), &nodes)?;
        let arguments = ["writer", "--config", &config].map(str::to_owned).to_vec();
        self.writers.push(Program::new(&self.premises.binary, &name, arguments, self.folder.path()));
        self.writer(nth)
    }

    fn nodes_of_others(&self) -> Vec<String> {
        let link = self.link_of_others.as_ref();
        link.map_or_else(|| self.servers.addresses(), |link| vec![link.address().to_string()])
    }

    fn configured(&self, name: &str, listen: SocketAddr, nodes: &[String]) -> Result<String> {
        let folder = self.folder.path();
        let password = folder.join("password");
        let write = |path: &Path, text: &str| {
            fs::write(path, text).map_err(DrillError::io(format!("writing {}", path.display())))
        };
        let Database { host, port, user, name: database, .. } = &self.database;
        let port = match &self.sql_link {
            Some(link) if name == "gateway0" => link.port(),
            _ => *port,
        };
        let is_cluster = matches!(self.servers, StockServers::Cluster(_));
        let text = format!(
            "[store]\nkind = \"redis\"\ndata_dir = \"{data}\"\n\
             [redis]\nnodes = {nodes:?}\ncluster = {is_cluster}\nprefix = \"{PREFIX}\"\ncall_timeout = \"500ms\"\n\
             wait_timeout = \"300ms\"\nconnect_timeout = \"500ms\"\n\
             [mysql]\nhost = \"{host}\"\nport = {port}\nuser = \"{user}\"\npassword_file = \"{password}\"\n\
             database = \"{database}\"\nconnections_max = 8\nconnect_timeout = \"1s\"\n\
             [writer]\nadmin_listen = \"{listen}\"\nlinger = \"5ms\"\nbatch_rows_max = 64\nclaim_idle = \"1s\"\n\
             rows_per_s = {rows_per_s}\npreheat_ahead = \"{preheat_ahead}\"\n\
             [gateway]\nlisten = \"{listen}\"\nworker_threads = 1\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n\
             [limits]\nper_ip = {{ rate_per_s = 0, burst = 1 }}\nper_user = {{ rate_per_s = 0, burst = 1 }}\n\
             result_per_user = {{ rate_per_s = 0, burst = 1 }}\n\
             [stock]\npatience = \"1s\"\nunconfirmed_after = \"1500ms\"\ncall_timeout = \"600ms\"\n\
             [breaker]\ndatabase_after = \"{database_after}\"\n{payment}",
            data = folder.join("data").display(),
            password = password.display(),
            database_after = if self.plan.held_back.is_empty() { "0s" } else { "200ms" },
            rows_per_s = self.plan.writer_rows_per_s,
            payment = self.till.as_ref().map_or("", Till::config),
            preheat_ahead = if name == OPERATOR { "1s" } else { "10m" },
        );
        let path = folder.join(format!("{name}.toml"));
        write(&path, &text)?;
        Ok(path.display().to_string())
    }

    /// Runs an operator's command; what it printed, or how it refused.
    pub(crate) async fn operate(&self, arguments: &[&str]) -> Result<std::result::Result<String, String>> {
        let config =
            self.configured(OPERATOR, SocketAddr::from(([127, 0, 0, 1], 0)), &self.servers.addresses())?;
        let mut command = Command::new(&self.premises.binary);
        command.args(arguments).args(["--config", &config]).env_clear().stdin(Stdio::null());
        let ran = tokio::task::spawn_blocking(move || command.output()).await;
        let output = ran
            .map_err(|error| DrillError::Malformed(error.to_string()))?
            .map_err(DrillError::io("running an operator's command"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
    }

    /// Runs an operator's command that has to be done.
    pub(crate) async fn operated(&self, arguments: &[&str]) -> Result<String> {
        self.operate(arguments).await?.map_err(|error| {
            DrillError::Malformed(format!("rushgate {} was refused: {error}", arguments.join(" ")))
        })
    }

    /// Creates the drill's activity.
    pub(crate) async fn create(&self) -> Result<()> {
        let skus =
            self.plan.stock.iter().zip(1..).map(|(units, sku)| format!("--sku={sku}:{units}:{PRICE_MINOR}"));
        let skus: Vec<_> = skus.collect();
        let held_back = self.plan.held_back.iter().zip(1..);
        let held_back = held_back.map(|(units, sku)| format!("--fallback-reserve={sku}:{units}"));
        let skus: Vec<_> = skus.into_iter().chain(held_back).collect();
        let opens = format!("+{}ms", self.plan.opens_in.as_millis());
        let id = ACTIVITY.to_string();
        let mut arguments = vec!["activity", "create", "--id", &id, "--name", "a drill", "--opens", &opens];
        let again = self.plan.buy_again_max.to_string();
        arguments.extend(["--closes", "+1h", "--per-user-limit", "2", "--buy-again-max", &again]);
        let pay_within =
            self.till.as_ref().map(|till| format!("--pay-within={}ms", till.pay_within().as_millis()));
        arguments.extend(skus.iter().chain(&pay_within).map(String::as_str));
        self.operated(&arguments).await.map(drop)
    }

    /// Creates the drill's activity and waits until its stock is loaded.
    async fn create_activity(&self) -> Result<()> {
        self.create().await?;
        self.loaded().await
    }

    /// Waits until every load is in Redis.
    pub(crate) async fn loaded(&self) -> Result<()> {
        let begun = Instant::now();
        while sql_side::pending_loads(&self.database).await? > 0 {
            if begun.elapsed() > LOADED_MAX {
                let what = format!("the stock was not loaded; a writer's log ends:\n{}", self.tails());
                return Err(DrillError::Late { what, waited: LOADED_MAX });
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Stops the clocks of all our processes, so that nothing happens while a drill looks at what survived.
    pub(crate) fn pause(&mut self) -> Result<()> {
        self.running().try_for_each(|program| program.pause())
    }

    /// Lets them run on.
    pub(crate) fn resume(&mut self) -> Result<()> {
        self.running().try_for_each(|program| program.resume())
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Program> {
        self.gateways
            .iter_mut()
            .chain(&mut self.writers)
            .filter_map(|program| program.is_running().then_some(program))
    }

    pub(crate) fn gateway(&mut self, nth: usize) -> Result<&mut Program> {
        self.gateways.get_mut(nth).ok_or_else(|| DrillError::Malformed(format!("no gateway {nth}")))
    }

    pub(crate) fn writer(&mut self, nth: usize) -> Result<&mut Program> {
        self.writers.get_mut(nth).ok_or_else(|| DrillError::Malformed(format!("no writer {nth}")))
    }

    /// The link between gateway 0 and Redis.
    pub(crate) fn link(&self) -> Result<&FaultyLink> {
        self.link.as_ref().ok_or_else(|| DrillError::Malformed("the drill has no link".to_owned()))
    }

    /// The payment centre.
    pub(crate) fn till(&self) -> Result<&Till> {
        self.till.as_ref().ok_or_else(|| DrillError::Malformed("nobody pays in this drill".to_owned()))
    }

    /// The ends of all logs.
    pub(crate) fn tails(&self) -> String {
        let tail = |program: &Program| format!("--- {}\n{}\n", program.name(), program.log_tail());
        self.writers.iter().chain(&self.gateways).map(tail).collect()
    }

    /// Units of all SKUs as they were planned.
    pub(crate) fn units(&self) -> u64 {
        self.plan.stock.iter().map(|units| u64::from(*units)).sum()
    }

    /// Whether SQL says so and every shard has a tombstone alone.
    pub(crate) async fn is_archived(&self) -> Result<bool> {
        for shard in 0..SHARDS {
            let mut connection = self.shard_connection(shard).await?;
            let field = format!("a:{ACTIVITY}");
            let phase = connection.call(&["HGET", &Self::key(shard, "meta"), &field]).await?.to_string();
            let key = Self::key(shard, &format!("{ACTIVITY}:buyers"));
            if phase != "archived" || connection.call(&["EXISTS", &key]).await?.to_string() != "0" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Signs tokens that the gateways accept.
    pub(crate) fn minter(&self) -> Result<Minter> {
        let settings = MintSettings {
            key: MintKey::DevSecret(self.folder.path().join("data")),
            audience: "rushgate".to_owned(),
            issuer: None,
        };
        Minter::new(&settings).map_err(|error| DrillError::Malformed(error.to_string()))
    }

    /// Key of a shard, as the protocol names it.
    pub(crate) fn key(shard: usize, rest: &str) -> String {
        format!("{PREFIX}:{{{shard:02}}}:{rest}")
    }

    /// A connection to the server that has the shard now.
    pub(crate) async fn shard_connection(&self, shard: usize) -> Result<RespConnection> {
        let port = match &self.servers {
            StockServers::One(redis) | StockServers::Replicated { master: redis, .. } => redis.port(),
            StockServers::Cluster(cluster) => {
                let node = cluster.master_of_key(&Self::key(shard, "meta")).await?;
                cluster.node(node)?.port()
            }
        };
        Ok(RespConnection::connect(port, None).await?)
    }

    /// How long shards were closed, by all logs so far; one entry for each time.
    pub(crate) fn closed_ms(&self) -> Vec<u64> {
        let logs = self.writers.iter().chain(&self.gateways).map(Program::log);
        logs.flat_map(|log| numbers_after(&log, "closed_ms=")).collect()
    }
}

async fn link_to(upstream: SocketAddr, is_wanted: bool) -> Result<Option<FaultyLink>> {
    if is_wanted { Ok(Some(FaultyLink::start(upstream).await?)) } else { Ok(None) }
}

fn numbers_after(log: &str, name: &str) -> Vec<u64> {
    let after = log.split(name).skip(1);
    after
        .filter_map(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok())
        .collect()
}
