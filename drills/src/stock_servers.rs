//! The servers that hold the stock: one Redis, a master and its replica, or a cluster.

use std::net::SocketAddr;

use rushgate_servers::{FaultyLink, Persistence, Redis, RedisCluster, RedisSettings, ReservedPort};

use crate::error::{DrillError, Result};

/// Which Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisPlan {
    One(Persistence),
    /// A master whose replica follows through a link that can be cut.
    Replicated,
    /// Three masters, three replicas.
    Cluster,
}

/// The servers that hold the stock.
#[derive(Debug)]
pub(crate) enum StockServers {
    One(Box<Redis>),
    Replicated { master: Box<Redis>, link: FaultyLink, replica: Box<Redis> },
    Cluster(RedisCluster),
}

impl StockServers {
    /// Starts them.
    pub(crate) async fn start(plan: RedisPlan) -> Result<Self> {
        Ok(match plan {
            RedisPlan::One(persistence) => Self::One(Box::new(Redis::start(persistence).await?)),
            RedisPlan::Replicated => {
                let master = Redis::start(Persistence::Off).await?;
                let upstream = SocketAddr::from(([127, 0, 0, 1], master.port()));
                let link = FaultyLink::start(upstream).await?;
                let settings =
                    RedisSettings { replica_of: Some(link.port()), ..RedisSettings::new(Persistence::Off) };
                let replica = Redis::start_with(settings).await?;
                Self::Replicated { master: Box::new(master), link, replica: Box::new(replica) }
            }
            RedisPlan::Cluster => Self::Cluster(RedisCluster::start(3, 3, Persistence::Off).await?),
        })
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        match self {
            Self::One(redis) | Self::Replicated { master: redis, .. } => vec![redis.address()],
            Self::Cluster(cluster) => cluster.addresses(),
        }
    }

    /// The one server of a drill that has one.
    pub(crate) fn one(&self) -> Result<&Redis> {
        match self {
            Self::One(redis) | Self::Replicated { master: redis, .. } => Ok(redis),
            Self::Cluster(_) => Err(DrillError::Malformed("the drill's Redis is a cluster".to_owned())),
        }
    }

    /// Kills the master; its replica becomes the master, on the same address.
    pub(crate) async fn promote_replica(&self) -> Result<()> {
        let Self::Replicated { master, replica, .. } = self else {
            return Err(DrillError::Malformed("the drill's Redis has no replica".to_owned()));
        };
        master.kill9().await?;
        replica.cli(&["REPLICAOF", "NO", "ONE"]).await?;
        replica.cli(&["CONFIG", "SET", "port", &master.port().to_string()]).await?;
        Ok(())
    }

    /// The replica becomes the master on the master's address, and the old master lives on for whoever is connected
    /// to it.
    pub(crate) async fn promote_beside_the_old(&self) -> Result<()> {
        let Self::Replicated { master, replica, .. } = self else {
            return Err(DrillError::Malformed("the drill's Redis has no replica".to_owned()));
        };
        let elsewhere = ReservedPort::reserve()?;
        replica.cli(&["REPLICAOF", "NO", "ONE"]).await?;
        master.cli(&["CONFIG", "SET", "port", &elsewhere.number().to_string()]).await?;
        replica.cli(&["CONFIG", "SET", "port", &master.port().to_string()]).await?;
        Ok(())
    }

    /// The cluster of a drill that has one.
    pub(crate) fn cluster(&self) -> Result<&RedisCluster> {
        match self {
            Self::Cluster(cluster) => Ok(cluster),
            _ => Err(DrillError::Malformed("the drill's Redis is no cluster".to_owned())),
        }
    }
}
