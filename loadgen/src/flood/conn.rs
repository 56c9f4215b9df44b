//! One connection: its socket, its requests in flight, and the bytes that did not fit.

use std::io::{self, Read, Write};

use mio::net::TcpStream;
use rushgate::client::Wire;
use rushgate::protocol::{Opcode, Status};
use rustls::ClientConnection;

use super::answers::{Answers, Found, Lost, request_id};
use super::book::Book;
use super::pace::Pace;
use super::places::Places;
use super::requests::Requests;
use crate::opening::Opened;

/// What one read brings at most.
const READ_BYTES: usize = 64 * 1024;

/// Room for what all connections of a thread read, in turn.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    /// How many of them the last read left: what was kept of the connection's read before, and what came.
    filled: usize,
}

impl ReadBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; READ_BYTES], filled: 0 }
    }
}

/// What a thread has once for all its connections, and an answer goes through.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) answers: Answers,
    pub(super) pace: Pace,
    pub(super) book: Book,
}

/// How a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Open,
    /// The gateway wants nothing new here.
    Leaving,
    Lost,
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) stream: TcpStream,
    /// Where TLS is spoken.
    session: Option<Box<ClientConnection>>,
    pub(super) places: Places,
    /// The beginning of an answer whose end has not come.
    inbox: Vec<u8>,
    /// Not written yet.
    out: Vec<u8>,
    /// It is in the list of those with something to write.
    pub(super) is_dirty: bool,
    /// It is in the list of those with a free place.
    pub(super) is_ready: bool,
    pub(super) standing: Standing,
}

impl Conn {
    pub(super) fn new(opened: Opened, depth: u16, is_open_loop: bool) -> io::Result<Self> {
        let (stream, session) = match opened.wire {
            Wire::Left(stream) => (stream, None),
            Wire::Right(tls) => {
                let (stream, mut session) = tls.into_inner();
                // What is to be written is bounded by the places.
                session.set_buffer_limit(None);
                (stream, Some(Box::new(session)))
            }
        };
        let stream = stream.into_std()?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: TcpStream::from_std(stream),
            session,
            places: Places::new(depth, is_open_loop),
            inbox: opened.inbox.to_vec(),
            out: Vec::new(),
            is_dirty: false,
            is_ready: false,
            standing: Standing::Open,
        })
    }

    pub(super) fn takes_requests(&self) -> bool {
        self.standing == Standing::Open
    }

    pub(super) fn is_lost(&self) -> bool {
        self.standing == Standing::Lost
    }

    pub(super) fn has_unwritten(&self) -> bool {
        !self.out.is_empty() || self.session.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Puts requests that are planned and sent together into free places that follow each other, and their frames
    /// behind what is to be written. How many: at most `most`, 0 when no place is free.
    pub(super) fn send(
        &mut self,
        most: usize,
        planned_ns: u64,
        now_ns: u64,
        requests: &mut Requests,
    ) -> usize {
        let Some(run) = self.places.take(most, planned_ns, now_ns) else { return 0 };
        requests.append(&mut self.out, run);
        run.count
    }

    /// Writes what the socket takes; the rest goes when it is writable again.
    pub(super) fn flush(&mut self) -> Result<(), Lost> {
        if let Some(session) = &mut self.session {
            let written = flush_tls(session, &mut self.stream, &self.out);
            self.out.clear();
            return written;
        }
        let mut written = 0_usize;
        while let Some(unwritten @ [_, ..]) = self.out.get(written..) {
            match self.stream.write(unwritten) {
                Ok(count) => written = written.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.out.drain(..written);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Broken(error.kind())),
            }
        }
        self.out.clear();
        Ok(())
    }

    /// Reads once. `Ok(None)`: nothing came; otherwise whether the socket is empty now.
    pub(super) fn read(&mut self, buffer: &mut ReadBuffer) -> Result<Option<bool>, Lost> {
        let kept = self.inbox.len();
        let wanted = kept.saturating_add(READ_BYTES);
        if buffer.bytes.len() < wanted {
            buffer.bytes.resize(wanted, 0);
        }
        let Some((before, room)) = buffer.bytes.split_at_mut_checked(kept) else { return Ok(None) };
        loop {
            let read = match &mut self.session {
                None => self.stream.read(room),
                Some(session) => read_tls(session, &mut self.stream, room),
            };
            match read {
                Ok(0) => return Err(Lost::Closed),
                Ok(count) => {
                    before.copy_from_slice(&self.inbox);
                    buffer.filled = kept.saturating_add(count);
                    return Ok(Some(self.session.is_none() && count < room.len()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Broken(error.kind())),
            }
        }
    }

    /// Handles every complete answer of what was read, and keeps the beginning of the next.
    pub(super) fn receive(&mut self, buffer: &ReadBuffer, now_ns: u64, desk: &mut Desk) -> Result<(), Lost> {
        let mut bytes = buffer.bytes.get(..buffer.filled).unwrap_or_default();
        while let Some((found, frame_bytes)) = desk.answers.next(bytes)? {
            bytes = bytes.get(frame_bytes..).unwrap_or_default();
            match found {
                Found::Answers { run, status } => {
                    let booked = self.places.answered(run, status, now_ns, &desk.pace, &mut desk.book);
                    booked.map_err(|place| Lost::Stray(request_id(place)))?;
                    self.heed(status == Status::GoingAway.code());
                }
                Found::Push { opcode, status } => {
                    desk.book.pushes = desk.book.pushes.saturating_add(1);
                    if opcode == Opcode::Error as u8 {
                        return Err(Lost::Told(status));
                    }
                    self.heed(opcode == Opcode::Goaway as u8);
                }
            }
        }
        self.inbox.clear();
        self.inbox.extend_from_slice(bytes);
        Ok(())
    }

    fn heed(&mut self, is_goaway: bool) {
        if is_goaway && self.standing == Standing::Open {
            self.standing = Standing::Leaving;
        }
    }
}

/// Encrypts it, and writes what the socket takes; the rest waits in the session.
fn flush_tls(session: &mut ClientConnection, stream: &mut TcpStream, out: &[u8]) -> Result<(), Lost> {
    let broken = |error: io::Error| Lost::Broken(error.kind());
    session.writer().write_all(out).map_err(broken)?;
    while session.wants_write() {
        match session.write_tls(stream) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(())
}

/// Reads what was encrypted; asks the socket only when the session has nothing.
fn read_tls(session: &mut ClientConnection, stream: &mut TcpStream, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match session.reader().read(room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
        if session.read_tls(stream)? == 0 {
            return Ok(0);
        }
        session.process_new_packets().map_err(io::Error::other)?;
    }
}
