//! One connection to one node, made when it is first needed and replaced when it is of no use any more.
//!
//! Driven by the crate's task per connection; a link itself runs nothing. A timeout does not close a connection, so
//! one that times out again and again (half open, or behind a stuck server) is replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::sync::Mutex;

use super::options::RedisOptions;
use super::trouble;

/// Timeouts in a row until a connection is replaced.
const TIMEOUTS_MAX: u32 = 3;
/// Commands that wait to be written to one connection; senders wait when it is full.
const WAITING_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Link {
    /// `host:port`.
    pub(super) node: String,
    options: Arc<RedisOptions>,
    current: Mutex<Option<Open>>,
    opened: AtomicU64,
}

#[derive(Clone, Debug)]
struct Open {
    connection: MultiplexedConnection,
    serial: u64,
    timeouts: Arc<AtomicU32>,
}

impl Link {
    pub(super) fn new(node: &str, options: &Arc<RedisOptions>) -> Self {
        Self {
            node: node.to_owned(),
            options: Arc::clone(options),
            current: Mutex::new(None),
            opened: AtomicU64::new(0),
        }
    }

    /// Sends commands in one go; the answers in order, errors of single commands among them.
    pub(super) async fn send(&self, commands: &Pipeline, within: Duration) -> Result<Vec<Value>, RedisError> {
        let mut open = self.open().await?;
        open.connection.set_response_timeout(within);
        let sent = open.connection.send_packed_commands(commands, 0, commands.len()).await;
        match &sent {
            // Whoever is a replica now was found by a name that may lead to another by now.
            Ok(answers) if answers.iter().any(trouble::is_demoted) => self.discard(open.serial).await,
            Ok(_) => open.timeouts.store(0, Ordering::Relaxed),
            Err(error) if error.is_timeout() => {
                if open.timeouts.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= TIMEOUTS_MAX {
                    self.discard(open.serial).await;
                }
            }
            Err(error) if trouble::is_lost(error) => self.discard(open.serial).await,
            Err(_) => {}
        }
        sent
    }

    /// Forgets the connection: the next send makes a new one.
    pub(super) async fn reset(&self) {
        *self.current.lock().await = None;
    }

    async fn discard(&self, serial: u64) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|open| open.serial == serial) {
            *current = None;
        }
    }

    async fn open(&self) -> Result<Open, RedisError> {
        let mut current = self.current.lock().await;
        if let Some(open) = current.as_ref() {
            return Ok(open.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_timeout))
            .set_response_timeout(Some(self.options.call_timeout))
            .set_pipeline_buffer_size(WAITING_MAX);
        let connection = self.client()?.get_multiplexed_async_connection_with_config(&config).await?;
        let serial = self.opened.fetch_add(1, Ordering::Relaxed);
        let open = Open { connection, serial, timeouts: Arc::default() };
        *current = Some(open.clone());
        Ok(open)
    }

    fn client(&self) -> Result<Client, RedisError> {
        let (host, port) = split(&self.node).ok_or_else(|| {
            RedisError::from((
                redis::ErrorKind::InvalidClientConfig,
                "a node is host:port",
                self.node.clone(),
            ))
        })?;
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(2))
            .with_retries(3);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(Duration::from_secs(5));
        let mut user = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(name) = &self.options.username {
            user = user.set_username(name);
        }
        if let Some(password) = &self.options.password {
            user = user.set_password(password);
        }
        let address = ConnectionAddr::Tcp(host.to_owned(), port);
        Client::open(address.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(user))
    }
}

/// Host and port of a node; an IPv6 address may be in brackets.
pub(super) fn split(node: &str) -> Option<(&str, u16)> {
    let (host, port) = node.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then_some((host, port))
}
