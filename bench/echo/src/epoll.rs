//! The echo on a bare epoll loop: one thread, one read and one write for each time a connection is woken.
//!
//! All connections read into one buffer; a connection holds bytes of its own only for a frame that is half there
//! and for what its socket did not take. A connection that fails or misbehaves is closed; the others go on.

use std::io::{self, Read, Write};
use std::net;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::framing::{FRAME_BYTES_MAX, whole_bytes};

/// Half a frame and a whole read behind it fit.
const BUFFER_BYTES: usize = 2 * FRAME_BYTES_MAX;
const EVENTS_MAX: usize = 1024;
const LISTENER: Token = Token(usize::MAX);

/// Serves for ever; `Err` when the system gives no epoll.
pub(crate) fn serve(listener: net::TcpListener) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(EVENTS_MAX);
    let mut listener = TcpListener::from_std(listener);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            let token = event.token();
            if token == LISTENER {
                accept(&listener, &poll, &mut connections, &mut free)?;
                continue;
            }
            let Some(place) = connections.get_mut(token.0) else { continue };
            let Some(connection) = place else { continue };
            let is_closing = event.is_read_closed() || event.is_error();
            if connection.wake(&mut buffer, is_closing).is_err() {
                *place = None;
                free.push(token.0);
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    poll: &Poll,
    connections: &mut Vec<Option<Connection>>,
    free: &mut Vec<usize>,
) -> io::Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        let index = free.pop().unwrap_or(connections.len());
        poll.registry().register(&mut stream, Token(index), Interest::READABLE.add(Interest::WRITABLE))?;
        let connection = Connection { stream, tail: Vec::new(), unsent: Vec::new() };
        match connections.get_mut(index) {
            Some(place) => *place = Some(connection),
            None => connections.push(Some(connection)),
        }
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// The beginning of a frame whose end has not come.
    tail: Vec<u8>,
    /// What the socket did not take. Nothing is read before it has gone.
    unsent: Vec<u8>,
}

impl Connection {
    /// Echoes what is there. `Err`: the connection is over.
    fn wake(&mut self, buffer: &mut [u8], is_closing: bool) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let unsent = std::mem::take(&mut self.unsent);
            self.write(&unsent)?;
        }
        while self.unsent.is_empty() {
            let held = self.tail.len();
            if let Some(front) = buffer.get_mut(..held) {
                front.copy_from_slice(&self.tail);
            }
            let space = buffer.get_mut(held..).unwrap_or_default();
            let room = space.len();
            let count = match self.stream.read(space) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let bytes = buffer.get(..held.saturating_add(count)).unwrap_or_default();
            let whole = whole_bytes(bytes).map_err(io::Error::other)?;
            let (frames, tail) = bytes.split_at_checked(whole).unwrap_or((bytes, &[]));
            self.tail.clear();
            self.tail.extend_from_slice(tail);
            self.write(frames)?;
            // A short read emptied the socket: what comes later wakes again. An end that is already there does not.
            if count < room && !is_closing {
                return Ok(());
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(bytes);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
