//! A TCP link between a client and a server, with faults that a test sets while it runs. It works on bytes and knows
//! no protocol.
//!
//! Lives on the tokio runtime that started it: one task accepts, one task a connection carries both directions.
//! Dropping the link closes every connection. An upstream that is down closes the client's connection.
//!
//! Held bytes outlive the client: a client that gives up and closes its connection has not taken back what it sent,
//! and `release` brings it to the server as a late copy, while the client has long repeated it on another
//! connection.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::ServerError;

const CHUNK_BYTES: usize = 16 * 1024;

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server sends.
    ToClient,
}

/// What both directions have.
#[derive(Debug, Default, Clone, Copy)]
struct Both<T> {
    to_server: T,
    to_client: T,
}

impl<T> Both<T> {
    fn of(&self, direction: Direction) -> &T {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    fn of_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    delay: Both<Duration>,
    swallows: Both<bool>,
    refuses: bool,
    accepted: u64,
    connections: HashMap<u64, Arc<Connection>>,
}

/// What the link tells the task of one connection.
#[derive(Debug)]
struct Connection {
    client_is_cut: watch::Sender<bool>,
    server_is_cut: watch::Sender<bool>,
    is_held: Both<watch::Sender<bool>>,
    bytes_under_way: Both<AtomicU64>,
}

/// A link that can fail.
#[derive(Debug)]
pub struct FaultyLink {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: AbortHandle,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultyLink {
    /// Listens on a free port of 127.0.0.1 and connects each client to `upstream`, at first without faults.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(upstream: SocketAddr) -> Result<Self, ServerError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(ServerError::io("binding a port for a link"))?;
        let address = listener.local_addr().map_err(ServerError::io("asking for a link's port"))?;
        let state = Arc::new(Mutex::new(State::default()));
        let accepting = tokio::spawn(accept(listener, upstream, Arc::clone(&state))).abort_handle();
        Ok(Self { address, state, accepting })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port where clients connect, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Bytes read from now on arrive this much later, in order. `Duration::ZERO` ends that.
    pub fn delay(&self, direction: Direction, by: Duration) {
        *lock(&self.state).delay.of_mut(direction) = by;
    }

    /// Bytes read from now on are lost, and so is the end of a connection: as through a firewall that drops.
    /// A direction that lost bytes is of no use afterwards; `cut` when it is over.
    pub fn swallow(&self, direction: Direction, is_on: bool) {
        *lock(&self.state).swallows.of_mut(direction) = is_on;
    }

    /// Holds what connections that are open now have under way and still send. Later connections are not held.
    pub fn hold(&self, direction: Direction) {
        for connection in lock(&self.state).connections.values() {
            connection.is_held.of(direction).send_replace(true);
        }
    }

    /// Brings all that is held to its end, also for clients that are gone.
    pub fn release(&self, direction: Direction) {
        for connection in lock(&self.state).connections.values() {
            connection.is_held.of(direction).send_replace(false);
        }
    }

    /// Closes every open connection now. What is under way is lost, but for what is held towards the server.
    pub fn cut(&self) {
        for connection in lock(&self.state).connections.values() {
            connection.client_is_cut.send_replace(true);
            if !*connection.is_held.to_server.borrow() {
                connection.server_is_cut.send_replace(true);
            }
        }
    }

    /// New connections are closed at once.
    pub fn refuse(&self, is_on: bool) {
        lock(&self.state).refuses = is_on;
    }

    /// Connections that clients have made so far, refused ones included.
    pub fn accepted(&self) -> u64 {
        lock(&self.state).accepted
    }

    /// Connections that are open, or gone on the client's side with bytes held for the server.
    pub fn open(&self) -> usize {
        lock(&self.state).connections.len()
    }

    /// Bytes read that have not arrived yet, of open connections: held or delayed.
    pub fn bytes_under_way(&self, direction: Direction) -> u64 {
        let state = lock(&self.state);
        let under_way = state.connections.values().map(|connection| connection.bytes_under_way.of(direction));
        under_way.map(|bytes| bytes.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }
}

impl Drop for FaultyLink {
    fn drop(&mut self) {
        // The task of the listener owns the tasks of the connections.
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, state: Arc<Mutex<State>>) {
    let mut carrying = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of file descriptors: others of the test close theirs.
            tokio::task::yield_now().await;
            continue;
        };
        while carrying.try_join_next().is_some() {}
        let number = {
            let mut state = lock(&state);
            state.accepted = state.accepted.saturating_add(1);
            if state.refuses {
                continue;
            }
            state.accepted
        };
        carrying.spawn(carry(number, client, upstream, Arc::clone(&state)));
    }
}

/// Carries one connection to its end.
async fn carry(number: u64, client: TcpStream, upstream: SocketAddr, state: Arc<Mutex<State>>) {
    // Known before the server is: a fault that is set while the connection to the server is made counts for it.
    let connection = Arc::new(Connection {
        client_is_cut: watch::Sender::new(false),
        server_is_cut: watch::Sender::new(false),
        is_held: Both { to_server: watch::Sender::new(false), to_client: watch::Sender::new(false) },
        bytes_under_way: Both::default(),
    });
    lock(&state).connections.insert(number, Arc::clone(&connection));
    if let Ok(server) = TcpStream::connect(upstream).await {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let lane =
            |direction| Lane { direction, connection: Arc::clone(&connection), state: Arc::clone(&state) };
        let cut = (connection.client_is_cut.subscribe(), connection.server_is_cut.subscribe());
        let (sent, arriving) = mpsc::unbounded_channel();
        let (answered, returning) = mpsc::unbounded_channel();
        tokio::join!(
            lane(Direction::ToServer).read(from_client, sent, cut.0.clone()),
            lane(Direction::ToServer).write(arriving, to_server, cut.1.clone()),
            lane(Direction::ToClient).read(from_server, answered, cut.1),
            lane(Direction::ToClient).write(returning, to_client, cut.0),
        );
    }
    lock(&state).connections.remove(&number);
}

/// Bytes on their way, and when they may arrive at the earliest. The end of a connection is the end of the channel.
struct UnderWay {
    due: Instant,
    bytes: Vec<u8>,
}

/// One direction of one connection.
struct Lane {
    direction: Direction,
    connection: Arc<Connection>,
    state: Arc<Mutex<State>>,
}

impl Lane {
    async fn read(
        self,
        mut from: OwnedReadHalf,
        to: mpsc::UnboundedSender<UnderWay>,
        mut cut: watch::Receiver<bool>,
    ) {
        let under_way = self.connection.bytes_under_way.of(self.direction);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = tokio::select! {
                biased;
                _ = cut.wait_for(|is_cut| *is_cut) => return,
                read = from.read(&mut chunk) => read.unwrap_or(0),
            };
            let (delay, swallows) = {
                let state = lock(&self.state);
                (*state.delay.of(self.direction), *state.swallows.of(self.direction))
            };
            match (read, swallows) {
                (0, false) => return,
                (0, true) => {
                    // The end is lost, too: the other side hears nothing of it until the link is cut.
                    let _ = cut.wait_for(|is_cut| *is_cut).await;
                    return;
                }
                (_, true) => {}
                (length, false) => {
                    let bytes = chunk.get(..length).unwrap_or_default().to_vec();
                    let now = Instant::now();
                    under_way.fetch_add(byte_count(&bytes), Ordering::Relaxed);
                    let due = now.checked_add(delay).unwrap_or(now);
                    if let Err(unsent) = to.send(UnderWay { due, bytes }) {
                        // The receiver is gone; reading on keeps the sender from being told so by a reset.
                        under_way.fetch_sub(byte_count(&unsent.0.bytes), Ordering::Relaxed);
                    }
                }
            }
        }
    }

    async fn write(
        self,
        mut from: mpsc::UnboundedReceiver<UnderWay>,
        mut to: OwnedWriteHalf,
        mut cut: watch::Receiver<bool>,
    ) {
        let mut held = self.connection.is_held.of(self.direction).subscribe();
        let under_way = self.connection.bytes_under_way.of(self.direction);
        let writing = async {
            while let Some(UnderWay { due, bytes }) = from.recv().await {
                sleep_until(due).await;
                let _ = held.wait_for(|is_held| !is_held).await;
                if to.write_all(&bytes).await.is_err() {
                    break;
                }
                under_way.fetch_sub(byte_count(&bytes), Ordering::Relaxed);
            }
            // An end that follows held bytes is behind them; without bytes it is held itself.
            let _ = held.wait_for(|is_held| !is_held).await;
        };
        tokio::select! {
            biased;
            _ = cut.wait_for(|is_cut| *is_cut) => {}
            () = writing => {}
        }
        under_way.store(0, Ordering::Relaxed);
        let _ = to.shutdown().await;
    }
}

fn byte_count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
