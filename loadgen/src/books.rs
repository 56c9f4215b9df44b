//! Where a sale's audit reads: the database in the data folder, or the database server and the Redis that the
//! gateway's configuration names. Opened once, before the sale; only ever read.

use std::sync::Arc;

use rushgate::config::{Config, StoreKind};
use rushgate::protocol::{ActivityId, SkuId, SkuKey};
use rushgate::rehearsal::{MySqlDatabase, Reading, ShardUnits, SharedStock, Source, Transfer};
use rushgate::stock::calls::{ShardId, SkuCounters};
use rushgate::store::redis::{RedisOptions, RedisShards};

use crate::output::Failure;

/// The embedded store's database in its data folder.
const DATABASE_FILE: &str = "rushgate.db";

/// Refuses a data folder without a database.
pub(crate) fn check_books(config: &Config) -> Result<(), Failure> {
    let database = config.store.data_dir.join(DATABASE_FILE);
    if config.store.kind == StoreKind::Redis || database.is_file() {
        return Ok(());
    }
    Err(Failure::cannot_start(format!(
        "there is no database {}; name the gateway's data folder with --data-dir (`rushgate serve` makes it), or its \
         configuration with --config",
        database.display()
    )))
}

/// Where the books are, by the gateway's configuration.
pub(crate) async fn source(config: &Config) -> Result<Source, Failure> {
    if config.store.kind == StoreKind::Sqlite {
        return Ok(Source::Sqlite(config.store.data_dir.join(DATABASE_FILE)));
    }
    let mysql = &config.mysql;
    let database = MySqlDatabase {
        host: mysql.host.clone(),
        port: mysql.port,
        user: mysql.user.clone(),
        password: config.mysql_password().map_err(Failure::cannot_start)?,
        database: mysql.database.clone(),
    };
    let redis = &config.redis;
    let options = RedisOptions {
        nodes: redis.nodes_clock_first(),
        cluster: redis.cluster,
        username: redis.username.clone(),
        password: config.redis_password().map_err(Failure::cannot_start)?,
        prefix: redis.prefix.clone(),
        connect_timeout: redis.connect_timeout,
        call_timeout: redis.call_timeout,
        wait_replicas: redis.replicas_waited_for(),
        wait_timeout: redis.wait_timeout,
        attempts: None,
    };
    let shards = RedisShards::open(options).await.map_err(Failure::cannot_start)?;
    Ok(Source::Shared { database, stock: Arc::new(RedisStock(shards)) })
}

/// Free units, moves and backlog in Redis.
#[derive(Debug)]
struct RedisStock(RedisShards);

impl SharedStock for RedisStock {
    fn unsettled_events(&self) -> Reading<'_, u64> {
        Box::pin(async move {
            let mut events = 0_u64;
            for shard in ShardId::ALL {
                let backlog = self.0.backlog(shard).await.map_err(|error| error.to_string())?;
                events = events.saturating_add(backlog.entries_pending);
                events = events.saturating_add(backlog.entries_undelivered);
            }
            Ok(events)
        })
    }

    fn units(&self, activity: ActivityId, sku: SkuId) -> Reading<'_, Vec<ShardUnits>> {
        Box::pin(async move {
            let mut units = Vec::new();
            for shard in ShardId::ALL {
                let snapshot = self.0.snapshot(shard).await.map_err(|error| error.to_string())?;
                let wanted = SkuKey { activity, sku };
                let found = snapshot.counters.iter().find(|counters| counters.sku == wanted);
                units.extend(found.map(|counters| units_of(shard, counters)));
            }
            Ok(units)
        })
    }
}

fn units_of(shard: ShardId, counters: &SkuCounters) -> ShardUnits {
    let here = shard.index();
    let signed = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
    let mut transfers: Vec<Transfer> = Vec::new();
    for (target, units) in &counters.out {
        let peer = target.index();
        transfers.push(Transfer { shard: here, peer, moved_out: signed(*units), brought_in: 0 });
    }
    for (source, units) in &counters.brought_in {
        let (peer, units) = (source.index(), signed(*units));
        match transfers.iter_mut().find(|transfer| transfer.peer == peer) {
            Some(transfer) => transfer.brought_in = units,
            None => transfers.push(Transfer { shard: here, peer, moved_out: 0, brought_in: units }),
        }
    }
    ShardUnits { shard: here, free: counters.free.into(), transfers }
}
