//! Real servers for tests, drills and benches, each on a free port of 127.0.0.1 with a data folder of its own.
//!
//! A server runs from `start` until its value is dropped; dropping kills it, also when the test panics. A value in
//! a `static` is never dropped: the orphan guard (see `orphans.rs`) then kills the server and removes its folder as
//! soon as the process that started it has ended, however that ended.
//!
//! Methods take `&self` and bind nothing to a tokio runtime, so that one server can serve all tests of a binary,
//! each in a runtime of its own. Isolation is then by key prefix or by database:
//!
//! ```no_run
//! use rushgate_servers::{MariaDb, Persistence, Redis, ServerError};
//! use tokio::sync::OnceCell;
//!
//! static REDIS: OnceCell<Redis> = OnceCell::const_new();
//! static MARIADB: OnceCell<MariaDb> = OnceCell::const_new();
//!
//! # async fn one_test() -> Result<(), ServerError> {
//! let redis = REDIS.get_or_try_init(|| Redis::start(Persistence::Off)).await?;
//! let prefix = redis.fresh_prefix(); // a key prefix that no other test has
//! let mariadb = MARIADB.get_or_try_init(MariaDb::start).await?;
//! let database = mariadb.create_database().await?; // a database that no other test has
//! # Ok(()) }
//! ```
//!
//! A test that kills, pauses or reconfigures a server starts one for itself.

mod error;
mod faulty_link;
mod haproxy;
mod mariadb;
mod orphans;
mod ports;
mod process;
mod redis;
mod redis_cluster;
mod resp;

pub use error::ServerError;
pub use faulty_link::{Direction, FaultyLink};
pub use haproxy::HaProxy;
pub use mariadb::{Database, MariaDb};
pub use orphans::{forget_group, watch_group};
pub use ports::ReservedPort;
pub use redis::{Persistence, Redis, RedisSettings};
pub use redis_cluster::RedisCluster;
pub use resp::{RespConnection, RespValue};
