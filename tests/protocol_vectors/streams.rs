//! Properties of whole streams: whatever the pieces in which bytes come, and whatever the bytes, the same messages
//! come out, and then the same fault; and every message that can be said comes back as it was said.

use std::collections::BTreeSet;

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rushgate::protocol::frame::{FRAME_BYTES_MAX_AFTER_AUTH, FRAME_BYTES_MAX_BEFORE_AUTH, REPLY_BYTES_MAX};
use rushgate::protocol::{
    ConnectionKind, Head, Opcode, Reply, Request, Status, UserId, decode, encode, put_tlv,
};

use crate::properties::{AnyFrame, Owned, any_frame, any_reply, any_request};
use crate::read_in_pieces;

/// What stands in a stream: mostly frames, and whatever else may come.
#[derive(Clone, Debug)]
enum Piece {
    Frame(AnyFrame),
    /// A frame of which one byte is another, and its checksum right again.
    Forged(AnyFrame, prop::sample::Index, u8),
    Cut(AnyFrame, prop::sample::Index),
    Junk(Vec<u8>),
    /// A length field of that value, and so many bytes.
    Length(u32, usize),
}

impl Piece {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Frame(frame) => frame.encoded().to_vec(),
            Self::Forged(frame, at, value) => {
                let mut bytes = frame.encoded().to_vec();
                let at = at.index(bytes.len());
                bytes[at] = *value;
                let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..20]), &bytes[24..]);
                bytes[20..24].copy_from_slice(&crc.to_be_bytes());
                bytes
            }
            Self::Cut(frame, at) => {
                let bytes = frame.encoded();
                bytes[..at.index(bytes.len())].to_vec()
            }
            Self::Junk(bytes) => bytes.clone(),
            Self::Length(length, count) => [&length.to_be_bytes()[..], &vec![1; *count]].concat(),
        }
    }
}

fn any_piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        8 => any_frame().prop_map(Piece::Frame),
        1 => (any_frame(), any::<prop::sample::Index>(), any::<u8>())
            .prop_map(|(frame, at, value)| Piece::Forged(frame, at, value)),
        1 => (any_frame(), any::<prop::sample::Index>()).prop_map(|(frame, at)| Piece::Cut(frame, at)),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Piece::Junk),
        1 => (prop_oneof![0..6000_u32, any::<u32>()], 0..64_usize)
            .prop_map(|(length, count)| Piece::Length(length, count)),
    ]
}

fn any_cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..40)
}

fn cuts_of(indices: &[prop::sample::Index], bytes: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = indices.iter().map(|index| index.index(bytes.max(1))).collect();
    cuts.sort_unstable();
    cuts
}

fn written(head: Head, tlvs: &[(u16, Vec<u8>)], body: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    let ext = |out: &mut BytesMut| {
        for (kind, value) in tlvs {
            put_tlv(out, *kind, value);
        }
    };
    encode(&mut out, head, ext, body);
    out
}

fn any_tlvs() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    prop::collection::vec((0..6_u16, prop::collection::vec(any::<u8>(), 0..40)), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_in_any_pieces_is_the_same_frames_and_the_same_fault(
        pieces in prop::collection::vec(any_piece(), 0..10),
        cuts in any_cuts(),
        cap in prop::sample::select(vec![24, 100, FRAME_BYTES_MAX_BEFORE_AUTH, FRAME_BYTES_MAX_AFTER_AUTH, REPLY_BYTES_MAX]),
    ) {
        let stream: Vec<u8> = pieces.iter().flat_map(Piece::bytes).collect();
        let whole = read_in_pieces(&stream, &[], cap);
        prop_assert_eq!(&read_in_pieces(&stream, &cuts_of(&cuts, stream.len()), cap), &whole);
        let each: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(&read_in_pieces(&stream, &each, cap), &whole);
        // What came out is what stood there, nothing is lost or made up.
        let taken = whole.0.concat();
        prop_assert_eq!(&stream[..taken.len()], &taken[..]);
        let next = decode(&stream[taken.len()..], cap);
        prop_assert_eq!(next.err(), whole.1);
    }

    #[test]
    fn a_conversation_in_any_pieces_is_the_same_requests(
        asked in prop::collection::vec((any_request(), any::<u32>(), any::<u32>(), any_tlvs()), 1..12),
        cuts in any_cuts(),
    ) {
        let heads: Vec<Head> = asked.iter().map(|(request, request_id, hint_ms, _)| {
            Head { hint_ms: *hint_ms, ..Head::request(request.request().opcode(), *request_id) }
        }).collect();
        let mut stream = Vec::new();
        for ((request, _, _, tlvs), head) in asked.iter().zip(&heads) {
            stream.extend(written(*head, tlvs, |body| request.request().write(body)));
        }
        let (frames, fault) = read_in_pieces(&stream, &cuts_of(&cuts, stream.len()), FRAME_BYTES_MAX_AFTER_AUTH);
        prop_assert_eq!((frames.len(), fault), (asked.len(), None));
        for ((bytes, (request, _, _, tlvs)), head) in frames.iter().zip(&asked).zip(&heads) {
            let (frame, _) = decode(bytes, FRAME_BYTES_MAX_AFTER_AUTH).unwrap().unwrap();
            let opcode = Opcode::from_wire(frame.opcode).unwrap();
            prop_assert_eq!(Head { hint_ms: frame.hint_ms, ..Head::request(opcode, frame.request_id) }, *head);
            prop_assert_eq!(Request::parse(opcode, frame.body), Ok(request.request()));
            let found: Vec<_> = frame.tlvs().map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(&found, tlvs);
        }
    }

    #[test]
    fn what_a_gateway_says_in_any_pieces_is_the_same_replies(
        said in prop::collection::vec((any_reply(), any::<u32>(), any::<u32>(), any_tlvs()), 1..12),
        cuts in any_cuts(),
    ) {
        let mut stream = Vec::new();
        for ((opcode, status, reply), request_id, hint_ms, tlvs) in &said {
            let head = Head::reply(*opcode, *request_id, *status, *hint_ms);
            stream.extend(written(head, tlvs, |body| reply.write(body)));
        }
        let (frames, fault) = read_in_pieces(&stream, &cuts_of(&cuts, stream.len()), REPLY_BYTES_MAX);
        prop_assert_eq!((frames.len(), fault), (said.len(), None));
        for (bytes, ((opcode, status, reply), request_id, hint_ms, _)) in frames.iter().zip(&said) {
            let (frame, _) = decode(bytes, REPLY_BYTES_MAX).unwrap().unwrap();
            prop_assert_eq!((frame.opcode, frame.status), (*opcode as u8, status.code()));
            prop_assert_eq!((frame.request_id, frame.hint_ms), (*request_id, *hint_ms));
            prop_assert_eq!(Reply::parse(*opcode, frame.status, frame.body), Some(reply.clone()));
        }
    }

    #[test]
    fn what_parses_from_any_bytes_is_written_and_read_the_same(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120), few in any::<bool>(),
        status in prop_oneof![Just(0_u16), any::<u16>(), prop::sample::select(Status::ALL).prop_map(Status::code)],
    ) {
        if few {
            // Small numbers, so that counts and lengths in the bytes come true.
            for byte in &mut bytes {
                *byte &= 3;
            }
        }
        for &opcode in Opcode::ALL {
            if let Ok(request) = Request::parse(opcode, &bytes) {
                let mut body = BytesMut::new();
                request.write(&mut body);
                prop_assert_eq!(request.opcode(), opcode);
                prop_assert!(body.len() <= bytes.len());
                prop_assert_eq!(Request::parse(opcode, &body), Ok(request));
            }
            if let Some(reply) = Reply::parse(opcode, status, &bytes) {
                let mut body = BytesMut::new();
                reply.write(&mut body);
                prop_assert_eq!(Reply::parse(opcode, status, &body), Some(reply));
            }
        }
    }
}

#[test]
fn a_status_without_a_body_is_empty_under_every_opcode_whatever_follows() {
    for &opcode in Opcode::ALL {
        for &status in Status::ALL {
            let Some(Reply::Empty) = Reply::parse(opcode, status.code(), &[]) else { continue };
            let mut body = BytesMut::new();
            Reply::Empty.write(&mut body);
            assert!(body.is_empty());
            assert_eq!(Reply::parse(opcode, status.code(), &[7; 300]), Some(Reply::Empty));
        }
    }
}

#[test]
fn an_auth_reply_without_a_user_comes_back_without() {
    let service = ConnectionKind::Service;
    for user in [None, UserId::new(1), UserId::new(UserId::MAX)] {
        let reply = Reply::Auth { user, expires_at_ms: 1, kind: service, in_flight_max: 1024 };
        let mut body = BytesMut::new();
        reply.write(&mut body);
        assert_eq!(Reply::parse(Opcode::Auth, 0, &body), Some(reply));
    }
}

#[test]
fn codes_come_back_as_they_were_and_no_other_is_known() {
    let known: Vec<u8> = (0..=u8::MAX).filter_map(Opcode::from_wire).map(|opcode| opcode as u8).collect();
    assert_eq!(known, Opcode::ALL.iter().map(|opcode| *opcode as u8).collect::<Vec<_>>());
    let known: Vec<Status> = (0..=u16::MAX).filter_map(Status::from_wire).collect();
    assert_eq!(known, Status::ALL);
    for code in 0..=u16::MAX {
        assert!(Status::from_wire(code).is_none_or(|status| status.code() == code));
    }
}

/// Which one it is. A variant that is added does not compile until it has a place here, and then has to be made.
const fn place_of_request(request: &Request<'_>) -> usize {
    match request {
        Request::Hello { .. } => 0,
        Request::Auth { .. } => 1,
        Request::Ping { .. } => 2,
        Request::Goaway => 3,
        Request::Activity { .. } => 4,
        Request::Challenge { .. } => 5,
        Request::Answer { .. } => 6,
        Request::Token { .. } => 7,
        Request::Buy { .. } => 8,
        Request::Result { .. } => 9,
        Request::Cancel { .. } => 10,
    }
}

const fn place_of_reply(reply: &Reply) -> usize {
    match reply {
        Reply::Hello { .. } => 0,
        Reply::Auth { .. } => 1,
        Reply::Pong { .. } => 2,
        Reply::Goaway { .. } => 3,
        Reply::Error { .. } => 4,
        Reply::Activity { .. } => 5,
        Reply::Order(_) => 6,
        Reply::Left { .. } => 7,
        Reply::OpensAt { .. } => 8,
        Reply::Pending { .. } => 9,
        Reply::Empty => 10,
        Reply::Upgrade { .. } => 11,
    }
}

#[test]
fn the_strategies_make_every_request_and_every_reply() {
    let mut runner = TestRunner::deterministic();
    let (mut requests, mut replies) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..2000 {
        let owned: Owned = any_request().new_tree(&mut runner).unwrap().current();
        requests.insert(place_of_request(&owned.request()));
        replies.insert(place_of_reply(&any_reply().new_tree(&mut runner).unwrap().current().2));
    }
    assert!(requests.into_iter().eq(0..11), "a request is never tried");
    assert!(replies.into_iter().eq(0..12), "a reply is never tried");
}

#[test]
fn junk_never_makes_a_frame_but_by_its_checksum() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let mut bytes = vec![0; random.usize(24..80)];
        random.fill(&mut bytes);
        let length = u32::try_from(bytes.len() - 4).unwrap();
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes[4] = 1;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..20]), &bytes[24..]);
        let is_right = bytes[20..24] == crc.to_be_bytes();
        assert!(is_right || decode(&bytes, REPLY_BYTES_MAX).is_err());
        let mut sealed = BytesMut::from(&bytes[..20]);
        sealed.put_u32(crc);
        sealed.put_slice(&bytes[24..]);
        assert!(!matches!(decode(&sealed, REPLY_BYTES_MAX), Ok(None)));
    }
}
