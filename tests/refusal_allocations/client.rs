//! A client of one blocking socket whose loop allocates nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use rushgate::gateway::Conversation;
use rushgate::protocol::{Opcode, Status};
use socket2::{Domain, Socket, Type};

use super::micro::requests::answers;
use super::micro::{Scene, Work};

/// How long it waits for what has to come. Reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Wakes, and room for what one of them is answered.
pub(crate) struct Exchange {
    work: Work,
    depth: usize,
    wakes: Vec<Vec<u8>>,
    replies: Vec<u8>,
}

pub(crate) struct Client(TcpStream);

impl Exchange {
    pub(crate) fn new(work: Work, depth: u32, rounds: u32) -> Self {
        let wakes = (0..rounds).map(|round| work.wake(round * depth, depth)).collect();
        Self { work, depth: usize::try_from(depth).unwrap(), wakes, replies: Vec::new() }
    }

    /// Goes through all wakes without a socket.
    pub(crate) fn feed(&self, conversation: &mut Conversation, replies: &mut BytesMut) {
        for wake in &self.wakes {
            replies.clear();
            assert_eq!(conversation.feed(wake, replies), None, "the conversation ended");
            assert_eq!(replies.len(), self.replies.len());
        }
    }
}

impl Client {
    pub(crate) fn log_in(scene: &Scene, work: Work) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((work.address(), 0)).into()).unwrap();
        socket.connect(&scene.addr().into()).unwrap();
        let mut client = Self(socket.into());
        client.0.set_nodelay(true).unwrap();
        client.0.set_read_timeout(Some(PATIENCE)).unwrap();
        for (opcode, greeting) in [Opcode::Hello, Opcode::Auth].into_iter().zip(scene.greeting(work)) {
            client.0.write_all(&greeting).unwrap();
            assert_eq!(answers(&client.read_answers(1)), [(Some(opcode), Some(Status::Ok))]);
        }
        client
    }

    /// Goes through all wakes once: every user is known after it, every buffer as large as it gets, and every
    /// answer was the one that it has to be.
    pub(crate) fn check(&mut self, exchange: &mut Exchange) {
        let (opcode, status) = exchange.work.answer();
        for wake in &exchange.wakes {
            self.0.write_all(wake).unwrap();
            exchange.replies = self.read_answers(exchange.depth);
            for (answered, told) in answers(&exchange.replies) {
                // Once a second the limit lets one pass. Its answer is as long.
                let is_let_pass = exchange.work == Work::RateLimited && told == Some(Status::SoldOut);
                assert_eq!(answered, Some(opcode));
                assert!(told == Some(status) || is_let_pass, "{:?} was answered {told:?}", exchange.work);
            }
        }
    }

    /// Goes through all wakes again, allocating nothing.
    pub(crate) fn run(&mut self, exchange: &mut Exchange) {
        for wake in &exchange.wakes {
            self.0.write_all(wake).unwrap();
            self.0.read_exact(&mut exchange.replies).unwrap();
        }
    }

    fn read_answers(&mut self, count: usize) -> Vec<u8> {
        let mut replies = Vec::new();
        while answers(&replies).len() < count {
            let mut bytes = [0; 8192];
            let taken = self.0.read(&mut bytes).unwrap();
            assert_ne!(taken, 0, "the gateway closed");
            replies.extend_from_slice(&bytes[..taken]);
        }
        replies
    }
}
