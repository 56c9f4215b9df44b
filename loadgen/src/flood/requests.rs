//! The bytes of the requests, prepared once for all connections of a thread.
//!
//! The frame of each place lies behind that of the place before it, so that a run is one copy. On service connections
//! the user's id and the checksum are put into the copy: the checksum of what comes before the id is known.

use bytes::BytesMut;
use rushgate::protocol::UserId;
use rushgate::protocol::frame::{HEADER_BYTES, LENGTH_BYTES};

use super::places::Run;
use crate::work::Asked;

const CRC_AT: usize = HEADER_BYTES - LENGTH_BYTES;
/// Behind the type and the length of the first TLV.
const USER_AT: usize = HEADER_BYTES + 4;

/// Users of service connections, in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Users {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) next: u64,
}

impl Users {
    const fn take(&mut self) -> UserId {
        let user = UserId(self.first.saturating_add(self.next));
        self.next = self.next.saturating_add(1);
        if self.next >= self.count {
            self.next = 0;
        }
        user
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Requests {
    /// All frames, by place.
    bytes: Vec<u8>,
    frame_bytes: usize,
    /// Who asks; `None` where the connection says it, or nobody needs to know.
    users: Option<Users>,
    /// Of what comes before the user's id, by place; empty without users.
    crc_before_user: Vec<u32>,
}

impl Requests {
    pub(super) fn new(asked: &Asked, depth: u16, users: Option<Users>) -> Self {
        let users = users.filter(|_| asked.names_user());
        let mut bytes = BytesMut::new();
        let mut frame_bytes = 0;
        let mut crc_before_user = Vec::new();
        for id in 1..=u32::from(depth) {
            let start = bytes.len();
            asked.append(&mut bytes, id, users.map(|_| UserId(0)));
            frame_bytes = bytes.len().saturating_sub(start);
            let frame = bytes.get(start..).unwrap_or_default();
            if users.is_some() {
                let head = crc32c::crc32c(frame.get(..CRC_AT).unwrap_or_default());
                let before = frame.get(HEADER_BYTES..USER_AT).unwrap_or_default();
                crc_before_user.push(crc32c::crc32c_append(head, before));
            }
        }
        Self { bytes: bytes.to_vec(), frame_bytes, users, crc_before_user }
    }

    /// How long each frame is.
    pub(super) const fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// The frames of all places, without users.
    pub(super) fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the requests of a run.
    pub(super) fn append(&mut self, out: &mut Vec<u8>, run: Run) {
        let start = out.len();
        let at = |place: usize| place.saturating_mul(self.frame_bytes);
        out.extend_from_slice(self.bytes.get(at(run.first)..at(run.end())).unwrap_or_default());
        let Some(users) = &mut self.users else { return };
        let crcs = self.crc_before_user.get(run.range()).unwrap_or_default();
        let frames = out.get_mut(start..).unwrap_or_default().chunks_exact_mut(self.frame_bytes.max(1));
        for (frame, crc_before) in frames.zip(crcs) {
            name_user(frame, *crc_before, users.take());
        }
    }
}

fn name_user(frame: &mut [u8], crc_before: u32, user: UserId) {
    let Some((before, user_and_body)) = frame.split_at_mut_checked(USER_AT) else { return };
    if let Some(id) = user_and_body.first_chunk_mut() {
        *id = user.0.to_be_bytes();
    }
    let crc = crc32c::crc32c_append(crc_before, user_and_body);
    if let Some(bytes) = before.get_mut(CRC_AT..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = crc.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::work::Work;
    use rushgate::protocol::{ActivityId, SkuId};

    const WORKS: [Work; 4] = [Work::Buy, Work::Result, Work::Activity, Work::Ping];
    const DEPTH: u16 = 9;

    /// Bytes of two runs, and the same one by one as the protocol encodes them.
    fn both(work: Work, users: Option<Users>) -> (Vec<u8>, BytesMut) {
        let asked = Asked::new(work, ActivityId(0x0102_0304), SkuId(0x0506));
        let mut requests = Requests::new(&asked, DEPTH, users);
        let mut out = Vec::new();
        let mut expected = BytesMut::new();
        let mut users = users;
        for run in [Run { first: 3, count: 6 }, Run { first: 0, count: 2 }] {
            requests.append(&mut out, run);
            for place in run.range() {
                let id = u32::try_from(place).unwrap().checked_add(1).unwrap();
                asked.append(&mut expected, id, users.as_mut().map(Users::take));
            }
        }
        (out, expected)
    }

    #[test]
    fn prepared_frames_are_those_that_the_protocol_encodes() {
        for work in WORKS {
            let users = Users { first: 1 << 40, count: 5, next: 3 };
            for users in [None, Some(users)] {
                let (out, expected) = both(work, users);
                assert_eq!(out, expected, "{work:?} {users:?}");
            }
        }
    }
}
