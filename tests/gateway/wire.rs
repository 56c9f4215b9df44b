//! A client of bare bytes: a blocking socket and the frame codec, nothing that would mend or hide a fault.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use rushgate::protocol::frame::REPLY_BYTES_MAX;
use rushgate::protocol::{
    ActivityId, ClientVersion, Head, Opcode, Order, Reply, Request, SkuId, Status, UserId, decode, encode,
    put_tlv, tlv,
};

/// How long a test waits for what has to come. Reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The gateway counts in whole milliseconds: what it waits for may be over by so much sooner.
pub(crate) const CLOCK_STEP: Duration = Duration::from_millis(1);

/// A frame from the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) opcode: Opcode,
    pub(crate) status: Status,
    pub(crate) id: u32,
    pub(crate) hint_ms: u32,
    pub(crate) user: Option<u64>,
    pub(crate) reply: Reply,
}

impl Answer {
    /// The ORDER body.
    #[track_caller]
    pub(crate) fn order(&self) -> Order {
        match self.reply {
            Reply::Order(order) => order,
            _ => panic!("no order in {self:?}"),
        }
    }
}

/// The bytes of one request.
pub(crate) fn frame(head: Head, tlvs: &[(u16, &[u8])], body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    let ext = |out: &mut BytesMut| tlvs.iter().for_each(|(kind, value)| put_tlv(out, *kind, value));
    encode(&mut out, head, ext, |out| out.put_slice(body));
    out.to_vec()
}

/// The bytes of a request, its user named when there is one.
pub(crate) fn request(id: u32, user: Option<u64>, request: &Request<'_>) -> Vec<u8> {
    let mut body = BytesMut::new();
    request.write(&mut body);
    let value = user.unwrap_or_default().to_be_bytes();
    let tlvs: &[(u16, &[u8])] = if user.is_some() { &[(tlv::USER, &value)] } else { &[] };
    frame(Head::request(request.opcode(), id), tlvs, &body)
}

pub(crate) fn hello() -> Request<'static> {
    Request::Hello { version: ClientVersion { platform: 2, app: [1, 2, 3] }, device: "a device" }
}

pub(crate) fn buy(activity: u32, sku: u16, quantity: u16) -> Request<'static> {
    Request::Buy { activity: ActivityId(activity), sku: SkuId(sku), quantity }
}

pub(crate) fn result(activity: u32) -> Request<'static> {
    Request::Result { activity: ActivityId(activity) }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
    /// Came while something else was waited for.
    stash: VecDeque<Answer>,
    last_id: u32,
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        Self::over(stream)
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, unread: Vec::new(), stash: VecDeque::new(), last_id: 0 }
    }

    /// HELLO and AUTH done.
    #[track_caller]
    pub(crate) fn login(addr: SocketAddr, token: &str) -> Self {
        let mut client = Self::connect(addr);
        assert_eq!(client.ask(&hello()).status, Status::Ok);
        assert_eq!(client.auth(token).status, Status::Ok);
        client
    }

    #[track_caller]
    pub(crate) fn auth(&mut self, token: &str) -> Answer {
        self.ask(&Request::Auth { token: token.as_bytes() })
    }

    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Says that nothing more comes, and goes on reading.
    pub(crate) fn finish_writing(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Gone at once, as when the device loses its network: the gateway sees a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    #[track_caller]
    pub(crate) fn send(&mut self, what: &Request<'_>) -> u32 {
        let id = self.next_id();
        self.write(&request(id, None, what));
        id
    }

    #[track_caller]
    pub(crate) fn send_for(&mut self, user: u64, what: &Request<'_>) -> u32 {
        let id = self.next_id();
        self.write(&request(id, Some(user), what));
        id
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, what: &Request<'_>) -> Answer {
        let id = self.send(what);
        self.answer_to(id)
    }

    #[track_caller]
    pub(crate) fn ask_for(&mut self, user: u64, what: &Request<'_>) -> Answer {
        let id = self.send_for(user, what);
        self.answer_to(id)
    }

    /// The connection lives, and answers in order.
    #[track_caller]
    pub(crate) fn ping(&mut self) {
        let id = self.next_id();
        let sent = 0x0123_4567_89AB_0000 | u64::from(id);
        self.write(&request(id, None, &Request::Ping { client_time: sent }));
        match self.answer_to(id).reply {
            Reply::Pong { client_time, server_time_ms } => {
                assert_eq!(client_time, sent);
                assert!(server_time_ms > 1_600_000_000_000);
            }
            other => panic!("not a PING reply: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn answer_to(&mut self, id: u32) -> Answer {
        self.wait_for(|answer| answer.id == id)
    }

    /// It has come already, while something else was waited for.
    pub(crate) fn has_answer_to(&self, id: u32) -> bool {
        self.stash.iter().any(|answer| answer.id == id)
    }

    /// The next push of this kind.
    #[track_caller]
    pub(crate) fn push(&mut self, opcode: Opcode) -> Answer {
        self.wait_for(|answer| answer.id == 0 && answer.opcode == opcode)
    }

    /// What comes, in whatever order, until something fits.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, fits: impl Fn(&Answer) -> bool) -> Answer {
        if let Some(at) = self.stash.iter().position(&fits) {
            return self.stash.remove(at).unwrap();
        }
        loop {
            let answer = self.read_fresh().expect("the gateway closed the connection");
            if fits(&answer) {
                return answer;
            }
            self.stash.push_back(answer);
        }
    }

    /// The next frame; `None` when the gateway has closed.
    #[track_caller]
    pub(crate) fn read(&mut self) -> Option<Answer> {
        if let Some(answer) = self.stash.pop_front() {
            return Some(answer);
        }
        self.read_fresh()
    }

    #[track_caller]
    fn read_fresh(&mut self) -> Option<Answer> {
        loop {
            if let Some((frame, taken)) = decode(&self.unread, REPLY_BYTES_MAX).unwrap() {
                let answer = Answer {
                    opcode: Opcode::from_wire(frame.opcode).unwrap(),
                    status: Status::from_wire(frame.status).unwrap(),
                    id: frame.request_id,
                    hint_ms: frame.hint_ms,
                    user: frame.tlv(tlv::USER).map(|value| u64::from_be_bytes(value.try_into().unwrap())),
                    reply: Reply::parse(Opcode::from_wire(frame.opcode).unwrap(), frame.status, frame.body)
                        .unwrap(),
                };
                self.unread.drain(..taken);
                return Some(answer);
            }
            let mut bytes = [0; 16_384];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    assert!(self.unread.is_empty(), "closed in the middle of a frame");
                    return None;
                }
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    /// The gateway says this with an ERROR push, and closes.
    #[track_caller]
    pub(crate) fn closed_with(&mut self, status: Status) {
        let last = self.push(Opcode::Error);
        assert_eq!(last.status, status, "{last:?}");
        assert!(matches!(&last.reply, Reply::Error { message } if !message.is_empty()), "{last:?}");
        assert!(self.read().is_none(), "open after {last:?}");
    }

    /// The gateway closes without another frame.
    #[track_caller]
    pub(crate) fn closed(&mut self) {
        let next = self.read();
        assert!(next.is_none(), "instead of the end: {next:?}");
    }
}

/// Asks again every few milliseconds until it is so: for what shows only from outside, such as counters and other
/// processes.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A user id that may be one.
pub(crate) fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}
