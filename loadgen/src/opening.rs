//! Opening a connection: TCP, HELLO, AUTH and, if wanted, a first request, written in one go.
//!
//! Runs on the caller's task. A connection that fails says why in one of few words, so that failures can be
//! counted; nothing is tried again here.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rushgate::client::Wire;
use rushgate::protocol::frame::REPLY_BYTES_MAX;
use rushgate::protocol::{Frame, FrameError, Opcode, Reply, Status, decode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::output::Failure;
use crate::sources::Sources;
use crate::target::Door;
use crate::work::{AUTH_ID, FIRST_ID, HELLO_ID, status_name};

/// Connections being opened at once by [`open_all`].
const OPENING_AT_ONCE: usize = 256;
/// From connecting to the last answer.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 512;

/// Why a connection did not come to be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// No local address or port.
    #[error("no local port ({0})")]
    Local(io::ErrorKind),
    /// The system did not connect.
    #[error("not connected ({0})")]
    Connect(io::ErrorKind),
    /// No TLS came to be.
    #[error("no TLS ({0})")]
    Tls(String),
    /// It broke before the answers.
    #[error("connection broken ({0})")]
    Broken(io::ErrorKind),
    /// It was closed before the answers.
    #[error("closed by the gateway")]
    Closed,
    /// What came is no frame.
    #[error("bad frame ({0})")]
    Frame(#[from] FrameError),
    /// The gateway said no.
    #[error("told {}", status_name(*.0))]
    Told(u16),
    /// The answer's body cannot be read.
    #[error("answer cannot be read")]
    Unreadable,
    /// Over the time.
    #[error("no answer in time")]
    TimedOut,
}

impl OpenError {
    /// Exit code 2: not one connection can be opened.
    pub(crate) fn cannot_start(&self, addr: SocketAddr) -> Failure {
        match self {
            Self::Told(code) if *code == Status::BadToken.code() || *code == Status::TokenExpired.code() => {
                Failure::cannot_start(format!(
                    "the gateway at {addr} does not let these clients in: {self}; use the secret and the audience of the gateway"
                ))
            }
            Self::Connect(_) => Failure::cannot_start(format!(
                "no gateway answers at {addr}: {self}; start one with `rushgate serve`"
            )),
            _ => Failure::cannot_start(format!("a connection to {addr} cannot be opened: {self}")),
        }
    }
}

/// A connection on which AUTH has succeeded.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) wire: Wire,
    /// Came after the last answer.
    pub(crate) inbox: BytesMut,
    pub(crate) in_flight_max: u16,
    pub(crate) keepalive: Duration,
    /// The first request's answer.
    pub(crate) first_status: Option<u16>,
}

/// Opens one; `first` is what [`crate::work::opening`] made, with or without a first request.
pub(crate) async fn open(
    door: &Door,
    source: Option<SocketAddr>,
    opening: &[u8],
    has_first: bool,
    timeout: Duration,
) -> Result<Opened, OpenError> {
    let opened = tokio::time::timeout(timeout, open_untimed(door, source, opening, has_first)).await;
    opened.unwrap_or(Err(OpenError::TimedOut))
}

/// Connects, without delay between small writes, and says nothing yet.
pub(crate) async fn connect(addr: SocketAddr, source: Option<SocketAddr>) -> Result<TcpStream, OpenError> {
    let local = |error: io::Error| OpenError::Local(error.kind());
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(local)?;
    socket.set_nodelay(true).map_err(local)?;
    if let Some(source) = source {
        socket.bind(source).map_err(local)?;
    }
    socket.connect(addr).await.map_err(|error| match error.kind() {
        kind @ (io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse) => OpenError::Local(kind),
        kind => OpenError::Connect(kind),
    })
}

async fn open_untimed(
    door: &Door,
    source: Option<SocketAddr>,
    opening: &[u8],
    has_first: bool,
) -> Result<Opened, OpenError> {
    let stream = connect(door.addr, source).await?;
    let wire = match &door.tls {
        None => Wire::Left(stream),
        Some(tls) => tls.connect(stream).await.map_err(|error| OpenError::Tls(error.to_string()))?,
    };
    let mut opened = Opened {
        wire,
        inbox: BytesMut::new(),
        in_flight_max: 0,
        keepalive: Duration::MAX,
        first_status: None,
    };
    // A gateway that refuses says why first; that is still to be read when writing fails.
    let write_failed = write(&mut opened.wire, opening).await.err();
    let mut missing = if has_first { 3_u8 } else { 2 };
    while missing > 0 {
        opened.inbox.reserve(READ_BYTES);
        match opened.wire.read_buf(&mut opened.inbox).await {
            Ok(0) => {
                return Err(write_failed.map_or(OpenError::Closed, |error| OpenError::Broken(error.kind())));
            }
            Ok(_) => {}
            Err(error) => return Err(OpenError::Broken(error.kind())),
        }
        while missing > 0 {
            let Some((frame, frame_bytes)) = decode(&opened.inbox, REPLY_BYTES_MAX)? else { break };
            let learnt = learn(&frame)?;
            missing = missing.saturating_sub(u8::from(!matches!(learnt, Learnt::Nothing)));
            opened.inbox.advance(frame_bytes);
            match learnt {
                Learnt::Keepalive(keepalive) => opened.keepalive = keepalive,
                Learnt::InFlightMax(most) => opened.in_flight_max = most,
                Learnt::First(status) => opened.first_status = Some(status),
                Learnt::Nothing => {}
            }
        }
    }
    Ok(opened)
}

async fn write(wire: &mut Wire, bytes: &[u8]) -> io::Result<()> {
    wire.write_all(bytes).await?;
    wire.flush().await
}

enum Learnt {
    Keepalive(Duration),
    InFlightMax(u16),
    First(u16),
    Nothing,
}

fn learn(frame: &Frame<'_>) -> Result<Learnt, OpenError> {
    match frame.request_id {
        0 if frame.opcode == Opcode::Error as u8 => Err(OpenError::Told(frame.status)),
        HELLO_ID | AUTH_ID if frame.status != Status::Ok.code() => Err(OpenError::Told(frame.status)),
        HELLO_ID => match Reply::parse(Opcode::Hello, frame.status, frame.body) {
            Some(Reply::Hello { keepalive_ms, .. }) => {
                Ok(Learnt::Keepalive(Duration::from_millis(u64::from(keepalive_ms))))
            }
            _ => Err(OpenError::Unreadable),
        },
        AUTH_ID => match Reply::parse(Opcode::Auth, frame.status, frame.body) {
            Some(Reply::Auth { in_flight_max, .. }) => Ok(Learnt::InFlightMax(in_flight_max)),
            _ => Err(OpenError::Unreadable),
        },
        FIRST_ID => Ok(Learnt::First(frame.status)),
        _ => Ok(Learnt::Nothing),
    }
}

/// Opens one connection for every entry of `openings`, many at once; by their numbers.
pub(crate) async fn open_all(
    door: &Door,
    sources: Sources,
    openings: Vec<Bytes>,
) -> Vec<(usize, Result<Opened, OpenError>)> {
    let mut done = Vec::with_capacity(openings.len());
    let mut tasks = JoinSet::new();
    for (number, opening) in openings.into_iter().enumerate() {
        if tasks.len() >= OPENING_AT_ONCE {
            done.extend(tasks.join_next().await.and_then(Result::ok));
        }
        let door = door.clone();
        tasks.spawn(
            async move { (number, open(&door, sources.of(number), &opening, false, OPEN_TIMEOUT).await) },
        );
    }
    while let Some(finished) = tasks.join_next().await {
        done.extend(finished.ok());
    }
    done.sort_unstable_by_key(|(number, _)| *number);
    done
}

/// The runtime that opens and holds connections: one thread, so that the gateway keeps its cores.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::cannot_start(format!("the runtime cannot start: {error}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rushgate::protocol::{Head, encode};
    use std::io::Write;
    use std::net::TcpListener;

    /// A server that sends `bytes` and closes; where the connection came from, and how it went.
    fn against(bytes: &[u8], source: Option<SocketAddr>) -> (SocketAddr, OpenError) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let bytes = bytes.to_vec();
        let server = std::thread::spawn(move || {
            let (mut stream, from) = listener.accept().unwrap();
            stream.write_all(&bytes).unwrap();
            from
        });
        let error = runtime().map_err(|_| "no runtime").unwrap();
        let error =
            error.block_on(open(&Door { addr, tls: None }, source, &[], true, OPEN_TIMEOUT)).unwrap_err();
        (server.join().unwrap(), error)
    }

    #[test]
    fn a_connection_comes_from_the_address_it_is_given() {
        let source = SocketAddr::from(([127, 0, 0, 9], 0));
        let (from, error) = against(&[], Some(source));
        assert_eq!(from.ip(), source.ip());
        assert!(matches!(error, OpenError::Closed), "{error}");
    }

    #[test]
    fn a_gateway_that_refuses_is_quoted() {
        let mut out = BytesMut::new();
        let head = Head::reply(Opcode::Error, 0, Status::TooManyConnections, 0);
        encode(&mut out, head, |_| {}, |body| Reply::Error { message: String::new() }.write(body));
        assert_eq!(against(&out, None).1.to_string(), "told TOO_MANY_CONNECTIONS");
        assert!(matches!(against(b"HTTP/1.1 400 Bad Request", None).1, OpenError::Frame(_)));
    }
}
