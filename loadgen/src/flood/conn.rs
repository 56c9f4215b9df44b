//! One connection: its socket, its requests in flight, its bytes.
//!
//! A request id is the number of its place in flight plus one, so that an answer finds its request without a
//! search, and on app connections every place's frame is encoded once for the whole run.

use std::io::{self, Read, Write};

use bytes::{Buf, BytesMut};
use mio::net::TcpStream;
use rushgate::protocol::frame::REPLY_BYTES_MAX;
use rushgate::protocol::{FrameError, Opcode, Status, UserId, decode};

use super::book::Book;
use super::pace::Pace;
use super::wire::Wire;
use crate::opening::Opened;
use crate::work::{Asked, status_name};

/// Where a frame's request id begins.
const REQUEST_ID_AT: usize = 8;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// Closed on the other side.
    #[error("closed by the gateway")]
    Closed,
    /// Reset, or something like it.
    #[error("broken ({0})")]
    Broken(io::ErrorKind),
    /// An echo that is not what was sent.
    #[error("ended by an echo that differs from its request")]
    Differs,
    /// What came is no frame.
    #[error("ended by a bad frame ({0})")]
    Frame(#[from] FrameError),
    /// A fatal ERROR.
    #[error("ended with {}", status_name(*.0))]
    Told(u16),
    /// An answer to nothing.
    #[error("ended by an answer to request {0}, which is not in flight")]
    Stray(u32),
}

/// A place for a request in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    is_taken: bool,
    planned_ns: u64,
    sent_ns: u64,
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) stream: TcpStream,
    wire: Wire,
    slots: Vec<Slot>,
    /// The frame of each place; none on service connections.
    frames: Vec<Box<[u8]>>,
    inbox: BytesMut,
    pub(super) out: BytesMut,
    pub(super) in_flight: usize,
    /// It is in the list of those with something to write.
    pub(super) is_dirty: bool,
    /// The gateway wants nothing new here.
    pub(super) is_leaving: bool,
    pub(super) is_lost: bool,
}

impl Conn {
    /// `fixed`: the one request of this connection, where no user has to be named.
    pub(super) fn new(opened: Opened, wire: Wire, depth: u16, fixed: Option<&Asked>) -> io::Result<Self> {
        let stream = opened.stream.into_std()?;
        stream.set_nonblocking(true)?;
        let frames = fixed.map_or_else(Vec::new, |asked| {
            let frame = |id: u16| {
                let mut frame = BytesMut::new();
                asked.append(&mut frame, u32::from(id), None);
                frame.to_vec().into_boxed_slice()
            };
            (1..=depth).map(frame).collect()
        });
        let slot = Slot { is_taken: false, planned_ns: 0, sent_ns: 0 };
        Ok(Self {
            stream: TcpStream::from_std(stream),
            wire,
            slots: vec![slot; usize::from(depth)],
            frames,
            inbox: opened.inbox,
            out: BytesMut::new(),
            in_flight: 0,
            is_dirty: false,
            is_leaving: false,
            is_lost: false,
        })
    }

    /// Requests that may be in flight.
    pub(super) fn depth(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap_or(u16::MAX)
    }

    pub(super) const fn takes_requests(&self) -> bool {
        !self.is_leaving && !self.is_lost
    }

    /// Puts a request into a free place and its frame behind what is to be written.
    pub(super) fn send(
        &mut self,
        slot: u16,
        user: Option<UserId>,
        asked: &Asked,
        planned_ns: u64,
        now_ns: u64,
    ) {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
        *place = Slot { is_taken: true, planned_ns, sent_ns: now_ns };
        self.in_flight = self.in_flight.saturating_add(1);
        match self.frames.get(usize::from(slot)) {
            Some(frame) => self.out.extend_from_slice(frame),
            None => asked.append(&mut self.out, u32::from(slot).saturating_add(1), user),
        }
    }

    /// Writes what the socket takes; the rest goes when it is writable again.
    pub(super) fn flush(&mut self) -> Result<(), Lost> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(written) if written == self.out.len() => self.out.clear(),
                Ok(written) => self.out.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Broken(error.kind())),
            }
        }
        Ok(())
    }

    /// Reads once. `Ok(None)`: nothing there; otherwise how many bytes came.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Lost> {
        loop {
            return match self.stream.read(buffer) {
                Ok(0) => Err(Lost::Closed),
                Ok(count) => Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(Lost::Broken(error.kind())),
            };
        }
    }

    /// Handles every complete frame of what was read; `freed` is told each place that is free again.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        pace: &Pace,
        book: &mut Book,
        freed: impl FnMut(u16),
    ) -> Result<(), Lost> {
        if self.inbox.is_empty() {
            let taken = self.frames_of(bytes, now_ns, pace, book, freed)?;
            self.inbox.extend_from_slice(bytes.get(taken..).unwrap_or_default());
            return Ok(());
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        inbox.extend_from_slice(bytes);
        let taken = self.frames_of(&inbox, now_ns, pace, book, freed)?;
        inbox.advance(taken);
        self.inbox = inbox;
        Ok(())
    }

    fn frames_of(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        pace: &Pace,
        book: &mut Book,
        freed: impl FnMut(u16),
    ) -> Result<usize, Lost> {
        match self.wire {
            Wire::Rushgate => self.replies_of(bytes, now_ns, pace, book, freed),
            Wire::Echo => self.echoes_of(bytes, now_ns, pace, book, freed),
        }
    }

    /// Every frame of this wire is as long as the first.
    fn echoes_of(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        pace: &Pace,
        book: &mut Book,
        mut freed: impl FnMut(u16),
    ) -> Result<usize, Lost> {
        let mut taken = 0_usize;
        let frame_bytes = self.frames.first().map_or(usize::MAX, |frame| frame.len());
        for echo in bytes.chunks_exact(frame_bytes) {
            taken = taken.saturating_add(frame_bytes);
            let request_id = echo
                .get(REQUEST_ID_AT..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |id| u32::from_be_bytes(*id));
            let slot = request_id.checked_sub(1).and_then(|slot| u16::try_from(slot).ok());
            let slot = slot.ok_or(Lost::Stray(request_id))?;
            let place = self.slots.get_mut(usize::from(slot)).filter(|place| place.is_taken);
            let place = place.ok_or(Lost::Stray(request_id))?;
            if self.frames.get(usize::from(slot)).is_none_or(|frame| **frame != *echo) {
                return Err(Lost::Differs);
            }
            place.is_taken = false;
            book.answered(Status::Ok.code(), place.planned_ns, place.sent_ns, now_ns, pace);
            self.in_flight = self.in_flight.saturating_sub(1);
            freed(slot);
        }
        Ok(taken)
    }

    fn replies_of(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        pace: &Pace,
        book: &mut Book,
        mut freed: impl FnMut(u16),
    ) -> Result<usize, Lost> {
        let mut taken = 0_usize;
        while let Some((frame, frame_bytes)) =
            decode(bytes.get(taken..).unwrap_or_default(), REPLY_BYTES_MAX)?
        {
            taken = taken.saturating_add(frame_bytes);
            let Some(slot) = frame.request_id.checked_sub(1) else {
                book.pushes = book.pushes.saturating_add(1);
                if frame.opcode == Opcode::Error as u8 {
                    return Err(Lost::Told(frame.status));
                }
                self.is_leaving |= frame.opcode == Opcode::Goaway as u8;
                continue;
            };
            let index = usize::try_from(slot).unwrap_or(usize::MAX);
            let place = self.slots.get_mut(index).filter(|place| place.is_taken);
            let (Some(place), Ok(slot)) = (place, u16::try_from(slot)) else {
                return Err(Lost::Stray(frame.request_id));
            };
            place.is_taken = false;
            book.answered(frame.status, place.planned_ns, place.sent_ns, now_ns, pace);
            self.in_flight = self.in_flight.saturating_sub(1);
            self.is_leaving |= frame.status == Status::GoingAway.code();
            freed(slot);
        }
        Ok(taken)
    }

    /// Nobody will answer what is in flight here.
    pub(super) fn give_up(&mut self, now_ns: u64, pace: &Pace, book: &mut Book) {
        for place in self.slots.iter_mut().filter(|place| place.is_taken) {
            place.is_taken = false;
            book.unanswered(place.planned_ns, now_ns, pace);
        }
        self.in_flight = 0;
    }
}
