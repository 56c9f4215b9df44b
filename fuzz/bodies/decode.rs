//! Any bytes, decoded: no panic, nothing lost or made up, and what decodes is encoded to the same bytes.
//!
//! As every body here it is called by its target under libFuzzer, and by `tests/corpus_replay.rs` with every file of
//! `corpus/` on stable Rust. It returns when all is right, and panics with what is wrong.

use bytes::{BufMut, BytesMut};
use rushgate::protocol::frame::{HEADER_BYTES, LENGTH_BYTES, VERSION};
use rushgate::protocol::{Frame, FrameError, Head, Opcode, Reply, Request, Status, decode, encode, put_tlv};

/// The caps of the protocol, and one that no frame of two TLVs fits.
const CAPS: [usize; 4] = [1024, 4096, 65_536, 40];

/// The first byte says how the others are taken: the cap, and whether checksums are put right first.
pub(crate) fn run(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else { return };
    let cap = CAPS[usize::from(how & 3)];
    let mut stream = bytes.to_vec();
    if how & 0x80 != 0 {
        seal(&mut stream);
    }
    let whole = frames(&stream, &[], cap);
    // In pieces of one to 32 bytes, as the same byte says.
    let piece = usize::from(how >> 2 & 0x1F) + 1;
    let cuts: Vec<usize> = (piece..stream.len()).step_by(piece).collect();
    assert_eq!(frames(&stream, &cuts, cap), whole, "pieces of {piece} bytes");
    for frame in &whole.0 {
        let (frame, taken) = decode(frame, cap).unwrap().unwrap();
        check(&frame, taken);
    }
}

/// Makes frames of what has the length of one: version and checksum are put right.
fn seal(stream: &mut [u8]) {
    let mut at = 0;
    while let Some(rest) = stream.get_mut(at..) {
        let Some(length) = rest.first_chunk().map(|length| u32::from_be_bytes(*length)) else { return };
        let frame_bytes = length as usize + LENGTH_BYTES;
        if frame_bytes < HEADER_BYTES || frame_bytes > rest.len() {
            return;
        }
        let frame = &mut rest[..frame_bytes];
        frame[4] = VERSION;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[..20]), &frame[24..]);
        frame[20..24].copy_from_slice(&crc.to_be_bytes());
        at += frame_bytes;
    }
}

/// The frames of a stream that comes in pieces, and the fault at its end.
fn frames(stream: &[u8], cuts: &[usize], cap: usize) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let (mut found, mut at) = (Vec::new(), 0);
    for &end in cuts.iter().chain([&stream.len()]) {
        loop {
            match decode(&stream[at..end], cap) {
                Ok(None) => break,
                Ok(Some((_, taken))) => {
                    assert!((HEADER_BYTES..=cap.min(end - at)).contains(&taken), "{taken} bytes taken");
                    found.push(stream[at..at + taken].to_vec());
                    at += taken;
                }
                Err(error) => {
                    assert!(matches!(error.status(), Status::BadFrame | Status::BadVersion));
                    assert!(!error.to_string().is_empty());
                    return (found, Some(error));
                }
            }
        }
    }
    (found, None)
}

fn check(frame: &Frame<'_>, taken: usize) {
    let Frame { opcode, flags, request_id, status, hint_ms, ext, body } = *frame;
    let mut again = BytesMut::new();
    let head = Head { opcode, flags, request_id, status, hint_ms };
    let tlvs = |out: &mut BytesMut| {
        for (kind, value) in frame.tlvs() {
            put_tlv(out, kind, value);
        }
    };
    encode(&mut again, head, tlvs, |out| out.put_slice(body));
    assert_eq!(again.len(), taken);
    assert_eq!(decode(&again, taken), Ok(Some((*frame, taken))));
    assert_eq!(&again[HEADER_BYTES..], &[ext, body].concat()[..]);
    for end in [4, 5, HEADER_BYTES - 1, HEADER_BYTES, taken - 1] {
        assert!(end >= taken || decode(&again[..end], taken) == Ok(None), "cut at {end}");
    }
    let _ = frame.has_unknown_flag();
    let Some(opcode) = Opcode::from_wire(opcode) else { return };
    if let Ok(request) = Request::parse(opcode, body) {
        let mut again = BytesMut::new();
        request.write(&mut again);
        assert_eq!(request.opcode(), opcode);
        assert!(again.len() <= body.len(), "{request:?} grew");
        assert_eq!(Request::parse(opcode, &again), Ok(request));
    }
    if let Some(reply) = Reply::parse(opcode, status, body) {
        let mut again = BytesMut::new();
        reply.write(&mut again);
        assert_eq!(Reply::parse(opcode, status, &again), Some(reply));
    }
}
