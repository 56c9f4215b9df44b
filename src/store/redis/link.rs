//! One connection to one node, made when it is first needed and replaced when it is of no use any more.
//!
//! Driven by the crate's task per connection; a task makes the connection, and nobody waits for it longer than for his
//! command. A timeout does not close a connection, so one that times out again and again (half open, or behind a stuck
//! server) is replaced.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

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
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug)]
struct Open {
    connection: MultiplexedConnection,
    serial: u64,
    timeouts: Arc<AtomicU32>,
}

/// What became of an attempt to connect; `None` while it is made.
type Opening = watch::Receiver<Option<Result<Open, RedisError>>>;

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    opening: Option<Opening>,
    opened: u64,
}

impl Link {
    pub(super) fn new(node: &str, options: &Arc<RedisOptions>) -> Self {
        Self { node: node.to_owned(), options: Arc::clone(options), state: Arc::default() }
    }

    /// Sends commands in one go; the answers in order, errors of single commands among them. `within` is for all of
    /// it, the connection included where there is none.
    pub(super) async fn send(&self, commands: &Pipeline, within: Duration) -> Result<Vec<Value>, RedisError> {
        let begun = Instant::now();
        let mut open = self.open(within).await?;
        open.connection.set_response_timeout(within.saturating_sub(begun.elapsed()));
        let sent = open.connection.send_packed_commands(commands, 0, commands.len()).await;
        match &sent {
            // Whoever is a replica now was found by a name that may lead to another by now.
            Ok(answers) if answers.iter().any(trouble::is_demoted) => self.discard(open.serial),
            Ok(_) => open.timeouts.store(0, Ordering::Relaxed),
            Err(error) if error.is_timeout() => {
                if open.timeouts.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= TIMEOUTS_MAX {
                    self.discard(open.serial);
                }
            }
            Err(error) if trouble::is_lost(error) => self.discard(open.serial),
            Err(_) => {}
        }
        sent
    }

    /// Forgets the connection: the next send makes a new one.
    pub(super) fn reset(&self) {
        lock(&self.state).open = None;
    }

    fn discard(&self, serial: u64) {
        let mut state = lock(&self.state);
        if state.open.as_ref().is_some_and(|open| open.serial == serial) {
            state.open = None;
        }
    }

    /// The connection; one that has to be made is made by a task, for everybody who waits for it, and goes on when they
    /// do not wait any more.
    async fn open(&self, within: Duration) -> Result<Open, RedisError> {
        let mut opening = {
            let mut state = lock(&self.state);
            if let Some(open) = &state.open {
                return Ok(open.clone());
            }
            match &state.opening {
                Some(opening) => opening.clone(),
                None => self.begin(&mut state)?,
            }
        };
        match timeout(within, opening.wait_for(Option::is_some)).await {
            Ok(Ok(opened)) => match &*opened {
                Some(opened) => opened.clone(),
                None => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
            },
            Ok(Err(_)) => {
                // The task is gone without a word, which only the runtime's end does.
                lock(&self.state).opening = None;
                Err(io::Error::from(io::ErrorKind::NotConnected).into())
            }
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }

    fn begin(&self, state: &mut State) -> Result<Opening, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_timeout))
            .set_response_timeout(Some(self.options.call_timeout))
            .set_pipeline_buffer_size(WAITING_MAX);
        let client = self.client()?;
        let (tell, told) = watch::channel(None);
        state.opening = Some(told.clone());
        let shared = Arc::clone(&self.state);
        tokio::spawn(async move {
            let made = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut state = lock(&shared);
            state.opening = None;
            state.opened = state.opened.wrapping_add(1);
            let serial = state.opened;
            let made = made.map(|connection| Open { connection, serial, timeouts: Arc::default() });
            state.open = made.as_ref().ok().cloned();
            drop(state);
            tell.send_replace(Some(made));
        });
        Ok(told)
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

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Host and port of a node; an IPv6 address may be in brackets.
pub(super) fn split(node: &str) -> Option<(&str, u16)> {
    let (host, port) = node.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then_some((host, port))
}
