//! What came back: answers found in the bytes, and every one of them checked.
//!
//! A gateway that refuses says the same again and again. The last answer to each place's request is kept as it came
//! and was checked, length to checksum; the same bytes again pass the same checks, so that comparing them is enough,
//! whole runs at a time. Anything else is decoded. An echo must be its request: there nothing but comparing is done.
//! All connections of a thread share what is known: a refusal's bytes depend on the request id alone.

use std::io;

use rushgate::protocol::frame::{LENGTH_BYTES, REPLY_BYTES_MAX};
use rushgate::protocol::{Frame, FrameError, Status, decode};

use super::places::Run;
use super::requests::Requests;
use super::wire::Wire;
use crate::work::status_name;

/// Where a frame's request id begins.
const REQUEST_ID_AT: usize = 8;
/// Answers to one kind of request have few lengths that come again: with an order, without, with a time.
const LENGTHS_MAX: usize = 4;
/// Longer answers are decoded each time.
const KNOWN_BYTES_MAX: usize = 256;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// Closed on the other side.
    #[error("closed by the server")]
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

/// What the next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Answers with one status to the requests of places that follow each other. Whether these were in flight is for
    /// the connection to say.
    Answers { run: Run, status: u16 },
    /// A frame that nobody asked for.
    Push { opcode: u8, status: u16 },
}

/// The last answers of one length, by place.
#[derive(Debug)]
struct Known {
    frame_bytes: usize,
    /// Zeros where there is none, which no frame is.
    frames: Vec<u8>,
    statuses: Vec<u16>,
}

impl Known {
    /// The answers at the beginning of `bytes`, from that of a place on, that are the same as the last time.
    fn again(&self, first: usize, bytes: &[u8]) -> Option<(Found, usize)> {
        let status = *self.statuses.get(first)?;
        let known = self.frames.get(first.checked_mul(self.frame_bytes)?..)?;
        let complete = bytes.len().min(known.len()).checked_div(self.frame_bytes)?;
        let statuses = self.statuses.iter().skip(first).take(complete);
        let alike = statuses.take_while(|other| **other == status).count();
        let alike_bytes = alike.checked_mul(self.frame_bytes)?;
        let (came, known) = (bytes.get(..alike_bytes)?, known.get(..alike_bytes)?);
        let count = if came == known {
            alike
        } else {
            let pairs = came.chunks_exact(self.frame_bytes).zip(known.chunks_exact(self.frame_bytes));
            pairs.take_while(|(came, known)| came == known).count()
        };
        let found = Found::Answers { run: Run { first, count }, status };
        (count > 0).then_some((found, count.saturating_mul(self.frame_bytes)))
    }

    fn learn(&mut self, place: usize, status: u16, frame: &[u8]) {
        let start = place.saturating_mul(self.frame_bytes);
        let known = self.frames.get_mut(start..).and_then(|frames| frames.get_mut(..frame.len()));
        if let (Some(known), Some(known_status)) = (known, self.statuses.get_mut(place)) {
            known.copy_from_slice(frame);
            *known_status = status;
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Answers {
    wire: Wire,
    depth: usize,
    /// By length; the first few that came.
    known: Vec<Known>,
}

impl Answers {
    pub(super) fn new(wire: Wire, depth: u16, requests: &Requests) -> Self {
        let depth = usize::from(depth);
        let echoes = || Known {
            frame_bytes: requests.frame_bytes(),
            frames: requests.all().to_vec(),
            statuses: vec![Status::Ok.code(); depth],
        };
        let known = match wire {
            Wire::Rushgate => Vec::new(),
            Wire::Echo => vec![echoes()],
        };
        Self { wire, depth, known }
    }

    /// The first frames of `bytes` and how long they are; `None` while not even one is complete.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<(Found, usize)>, Lost> {
        if let Some(known) = self.known(bytes) {
            return Ok(Some(known));
        }
        match self.wire {
            Wire::Rushgate => self.decoded(bytes),
            Wire::Echo => self.no_echo(bytes),
        }
    }

    /// The answers that are the same as the last time.
    fn known(&self, bytes: &[u8]) -> Option<(Found, usize)> {
        let length = bytes.first_chunk().map(|length| u32::from_be_bytes(*length))?;
        let frame_bytes = usize::try_from(length).ok()?.checked_add(LENGTH_BYTES)?;
        let known = self.known.iter().find(|known| known.frame_bytes == frame_bytes)?;
        known.again(place_of(id_in(bytes)?)?, bytes)
    }

    fn decoded(&mut self, bytes: &[u8]) -> Result<Option<(Found, usize)>, Lost> {
        let Some((frame, frame_bytes)) = decode(bytes, REPLY_BYTES_MAX)? else { return Ok(None) };
        let Frame { request_id, opcode, status, .. } = frame;
        if request_id == 0 {
            return Ok(Some((Found::Push { opcode, status }, frame_bytes)));
        }
        let first = place_of(request_id).filter(|place| *place < self.depth);
        let first = first.ok_or(Lost::Stray(request_id))?;
        self.learn(first, status, bytes.get(..frame_bytes).unwrap_or_default());
        Ok(Some((Found::Answers { run: Run { first, count: 1 }, status }, frame_bytes)))
    }

    /// Keeps an answer that was checked.
    fn learn(&mut self, place: usize, status: u16, frame: &[u8]) {
        let frame_bytes = frame.len();
        if let Some(known) = self.known.iter_mut().find(|known| known.frame_bytes == frame_bytes) {
            return known.learn(place, status, frame);
        }
        if self.known.len() < LENGTHS_MAX && frame_bytes <= KNOWN_BYTES_MAX {
            let frames = vec![0; frame_bytes.saturating_mul(self.depth)];
            let mut known = Known { frame_bytes, frames, statuses: vec![0; self.depth] };
            known.learn(place, status, frame);
            self.known.push(known);
        }
    }

    fn no_echo(&self, bytes: &[u8]) -> Result<Option<(Found, usize)>, Lost> {
        if self.known.first().is_none_or(|echoes| bytes.len() < echoes.frame_bytes) {
            return Ok(None);
        }
        let id = id_in(bytes).unwrap_or(0);
        let is_place = place_of(id).is_some_and(|place| place < self.depth);
        Err(if is_place { Lost::Differs } else { Lost::Stray(id) })
    }
}

fn id_in(bytes: &[u8]) -> Option<u32> {
    bytes.get(REQUEST_ID_AT..)?.first_chunk().map(|id| u32::from_be_bytes(*id))
}

/// The request id of a place.
pub(super) fn request_id(place: usize) -> u32 {
    u32::try_from(place).map_or(u32::MAX, |place| place.saturating_add(1))
}

fn place_of(request_id: u32) -> Option<usize> {
    usize::try_from(request_id.checked_sub(1)?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;
    use crate::work::{Asked, Work};
    use bytes::{BufMut, BytesMut};
    use rushgate::protocol::{ActivityId, Head, Opcode, SkuId, encode};

    const DEPTH: u16 = 4;

    fn answers(wire: Wire) -> (Answers, Requests) {
        let asked = Asked::new(Work::Buy, ActivityId(1), SkuId(1));
        let requests = Requests::new(&asked, DEPTH, None);
        (Answers::new(wire, DEPTH, &requests), requests)
    }

    fn reply(id: u32, status: Status, body: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        encode(&mut out, Head::reply(Opcode::Buy, id, status, 0), |_| {}, |out| out.put_slice(body));
        out
    }

    fn replies(ids: &[u32], status: Status) -> BytesMut {
        ids.iter()
            .map(|id| reply(*id, status, &[]))
            .reduce(|mut all, one| {
                all.unsplit(one);
                all
            })
            .unwrap_or_default()
    }

    /// Everything that is found: first place, how many, status.
    fn all(answers: &mut Answers, mut bytes: &[u8]) -> Result<Vec<(usize, usize, u16)>, Lost> {
        let mut found = Vec::new();
        while let Some((one, taken)) = answers.next(bytes)? {
            bytes = &bytes[taken..];
            let Found::Answers { run, status } = one else { panic!("{one:?}") };
            found.push((run.first, run.count, status));
        }
        Ok(found)
    }

    #[test]
    fn answers_that_come_again_are_found_in_runs_and_others_one_by_one() {
        let (mut answers, _) = answers(Wire::Rushgate);
        let (sold_out, busy) = (Status::SoldOut.code(), Status::Busy.code());
        let refused = replies(&[1, 2, 3, 4], Status::SoldOut);
        let singly: Vec<_> = (0..4).map(|place| (place, 1, sold_out)).collect();
        assert_eq!(all(&mut answers, &refused).unwrap(), singly, "nothing is known yet");
        assert_eq!(all(&mut answers, &refused).unwrap(), [(0, 4, sold_out)]);
        let others = replies(&[3, 4, 1], Status::SoldOut);
        assert_eq!(all(&mut answers, &others).unwrap(), [(2, 2, sold_out), (0, 1, sold_out)]);
        all(&mut answers, &reply(2, Status::Busy, &[])).unwrap();
        let again = [(0, 1, sold_out), (1, 1, sold_out), (2, 2, sold_out)];
        assert_eq!(all(&mut answers, &refused).unwrap(), again, "another status in between");
        all(&mut answers, &replies(&[1, 2, 3, 4], Status::Busy)).unwrap();
        assert_eq!(all(&mut answers, &replies(&[1, 2, 3, 4], Status::Busy)).unwrap(), [(0, 4, busy)]);
    }

    #[test]
    fn answers_of_other_lengths_do_not_make_each_other_forgotten() {
        let (mut answers, _) = answers(Wire::Rushgate);
        let (sold_out, queued) = (Status::SoldOut.code(), Status::Queued.code());
        let mut both = replies(&[1, 2], Status::SoldOut);
        both.unsplit(reply(3, Status::Queued, b"an order"));
        both.unsplit(reply(4, Status::Queued, b"an order"));
        assert_eq!(all(&mut answers, &both).unwrap().len(), 4);
        for _ in 0..2 {
            assert_eq!(all(&mut answers, &both).unwrap(), [(0, 2, sold_out), (2, 2, queued)]);
        }
        for bytes in 9..=9 + 2 * LENGTHS_MAX {
            let other = reply(1, Status::Ok, &vec![1; bytes]);
            assert_eq!(all(&mut answers, &other).unwrap(), all(&mut answers, &other).unwrap(), "{bytes}");
        }
        assert_eq!(answers.known.len(), LENGTHS_MAX, "bounded");
        let long = reply(1, Status::Ok, &vec![1; 60_000]);
        assert_eq!(all(&mut answers, &long).unwrap(), [(0, 1, 0)]);
    }

    #[test]
    fn a_flipped_bit_is_found_whatever_was_known() {
        let (mut answers, _) = answers(Wire::Rushgate);
        let good = replies(&[1, 2, 3, 4], Status::SoldOut);
        assert_eq!([4, 1], [(); 2].map(|()| all(&mut answers, &good).unwrap().len()));
        let frame_bytes = good.len() / 4;
        // Behind the length of the third frame.
        for bit in (2 * frame_bytes + 4) * 8..3 * frame_bytes * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(all(&mut answers, &bad).is_err(), "bit {bit}");
        }
        assert!(matches!(all(&mut answers, &reply(5, Status::SoldOut, &[])), Err(Lost::Stray(5))));
        for end in 0..frame_bytes {
            assert_eq!(all(&mut answers, &good[..end]).unwrap(), [], "cut at {end}");
        }
    }

    #[test]
    fn an_echo_is_its_request_and_nothing_else() {
        let (mut answers, requests) = answers(Wire::Echo);
        let sent = requests.all().to_vec();
        assert_eq!(all(&mut answers, &sent).unwrap(), [(0, 4, 0)]);
        assert_eq!(all(&mut answers, &sent[32..100]).unwrap(), [(1, 2, 0)], "and a part");
        for bit in 0..sent.len() * 8 {
            let mut bad = sent.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(all(&mut answers, &bad), Err(Lost::Differs | Lost::Stray(_))), "bit {bit}");
        }
    }

    #[test]
    fn a_push_is_no_answer() {
        let (mut answers, _) = answers(Wire::Rushgate);
        let push = reply(0, Status::GoingAway, &[]);
        let expected = Found::Push { opcode: Opcode::Buy as u8, status: Status::GoingAway.code() };
        assert_eq!(answers.next(&push).unwrap(), Some((expected, push.len())));
    }
}
