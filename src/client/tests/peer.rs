//! The scripted side.

use bytes::{Buf, BytesMut};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::client::{ClientError, Connected, Identity, Push, Session, Settings};
use crate::protocol::frame::encode;
use crate::protocol::{
    ActivityId, ConnectionKind, Head, Opcode, Order, OrderNumber, OrderState, Reply, Request, SkuId, SkuKey,
    Status, UserId, decode, put_tlv, tlv,
};

/// A request as the scripted gateway saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) opcode: Opcode,
    pub(super) id: u32,
    pub(super) user: Option<u64>,
    pub(super) body: Vec<u8>,
}

/// The gateway's end of one connection.
pub(super) struct Peer {
    stream: TcpStream,
    inbox: BytesMut,
    /// Bytes of the first read.
    pub(super) first_read: usize,
}

pub(super) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

pub(super) fn order(number: u64) -> Order {
    Order {
        number: OrderNumber(number),
        sku: SkuKey { activity: ActivityId(1), sku: SkuId(1) },
        quantity: 1,
        state: OrderState::Reserved,
        attempt: 1,
        pay_by_ms: 0,
    }
}

pub(super) fn identity() -> Identity {
    Identity::back_end("token".to_owned())
}

/// Connects to a scripted gateway that greets; both ends.
pub(super) async fn pair(
    settings: Settings,
    in_flight_max: u16,
    pushes: mpsc::Sender<Push>,
) -> (Session, Peer) {
    let (listener, addr) = listen().await;
    let greeting = async {
        let mut peer = Peer::accept(&listener).await;
        peer.greet(in_flight_max, 60_000).await;
        peer
    };
    let identity = identity();
    let (connected, peer) = tokio::join!(Session::connect(addr, &identity, settings, &[], pushes), greeting);
    (connected.unwrap().session, peer)
}

pub(super) async fn connect(
    addr: SocketAddr,
    first: &[(Request<'_>, Option<crate::client::OnBehalf<'_>>)],
) -> Result<Connected, ClientError> {
    Session::connect(addr, &identity(), Settings::default(), first, mpsc::channel(8).0).await
}

impl Peer {
    pub(super) async fn accept(listener: &TcpListener) -> Self {
        let stream = timeout(Duration::from_secs(10), listener.accept()).await.expect("nobody connects");
        Self { stream: stream.unwrap().0, inbox: BytesMut::new(), first_read: 0 }
    }

    /// The next request; `None` at the end of the stream.
    pub(super) async fn try_read(&mut self) -> Option<Seen> {
        loop {
            if let Some((frame, taken)) = decode(&self.inbox, 4096).unwrap() {
                let seen = Seen {
                    opcode: Opcode::from_wire(frame.opcode).unwrap(),
                    id: frame.request_id,
                    user: frame.tlv(tlv::USER).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())),
                    body: frame.body.to_vec(),
                };
                self.inbox.advance(taken);
                return Some(seen);
            }
            self.inbox.reserve(4096);
            let read = timeout(Duration::from_secs(10), self.stream.read_buf(&mut self.inbox)).await;
            let count = read.expect("the client sends nothing").unwrap_or(0);
            if self.first_read == 0 {
                self.first_read = count;
            }
            if count == 0 {
                return None;
            }
        }
    }

    pub(super) async fn read(&mut self) -> Seen {
        self.try_read().await.expect("the client closed")
    }

    pub(super) async fn read_a(&mut self, opcode: Opcode) -> Seen {
        let seen = self.read().await;
        assert_eq!(seen.opcode, opcode);
        seen
    }

    pub(super) async fn greet(&mut self, in_flight_max: u16, keepalive_ms: u32) {
        let hello = self.read_a(Opcode::Hello).await;
        let auth = self.read_a(Opcode::Auth).await;
        let reply = Reply::Hello {
            server_time_ms: 1_000_000,
            connection_id: 7,
            keepalive_ms,
            frame_bytes_max: 4096,
            in_flight_max,
        };
        self.reply(&hello, Status::Ok, 0, &reply).await;
        let user = UserId::new(5);
        let reply = Reply::Auth { user, expires_at_ms: 2_000_000, kind: ConnectionKind::App, in_flight_max };
        self.reply(&auth, Status::Ok, 0, &reply).await;
    }

    pub(super) async fn reply(&mut self, to: &Seen, status: Status, hint_ms: u32, reply: &Reply) {
        self.write(&frame(to.opcode, to.id, status, hint_ms, None, reply)).await;
    }

    pub(super) async fn push(
        &mut self,
        opcode: Opcode,
        status: Status,
        hint_ms: u32,
        user: Option<u64>,
        reply: &Reply,
    ) {
        self.write(&frame(opcode, 0, status, hint_ms, user, reply)).await;
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }
}

pub(super) fn frame(
    opcode: Opcode,
    id: u32,
    status: Status,
    hint_ms: u32,
    user: Option<u64>,
    reply: &Reply,
) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(
        &mut out,
        Head::reply(opcode, id, status, hint_ms),
        |ext| {
            if let Some(user) = user {
                put_tlv(ext, tlv::USER, &user.to_be_bytes());
            }
        },
        |body| reply.write(body),
    );
    out.to_vec()
}
