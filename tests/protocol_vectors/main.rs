//! protocol.md and its golden vectors against the `protocol` module.
//!
//! The vectors were written from protocol.md, not by this encoder, so an agreement means something. Where they
//! disagree with the module, the module is wrong. How a living gateway answers the invalid ones is for the
//! gateway's own tests; here is what the module alone decides.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod document;
mod entry;
mod properties;
mod streams;

use bytes::{Buf, BufMut, BytesMut};
use entry::{Entry, class_name, invalid, number, reply_of, request_of, text, unhex, valid};
use rushgate::protocol::frame::{FRAME_BYTES_MAX_AFTER_AUTH, FrameError, REPLY_BYTES_MAX};
use rushgate::protocol::{
    CLAIMS_BYTES_MAX, DEVICE_BYTES_MAX, Frame, Head, Opcode, Reply, Request, Status, decode, encode, put_tlv,
    tlv,
};

/// Feeds `stream` in pieces that end at `cuts` into a buffer as a connection has it, and collects what comes out.
pub(crate) fn read_in_pieces(
    stream: &[u8],
    cuts: &[usize],
    cap: usize,
) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut frames = Vec::new();
    let mut buffer = BytesMut::new();
    let mut from = 0;
    for &cut in cuts.iter().chain(std::iter::once(&stream.len())) {
        buffer.put_slice(&stream[from..cut]);
        from = cut;
        loop {
            match decode(&buffer, cap) {
                Ok(None) => break,
                Ok(Some((_, consumed))) => {
                    frames.push(buffer[..consumed].to_vec());
                    buffer.advance(consumed);
                }
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn one<'a>(entry: &Entry, bytes: &'a [u8]) -> Frame<'a> {
    let (frame, consumed) = decode(bytes, entry.cap())
        .unwrap_or_else(|error| panic!("{}: {error}", entry.name))
        .unwrap_or_else(|| panic!("{}: incomplete", entry.name));
    assert_eq!(consumed, bytes.len(), "{}: frame ends early", entry.name);
    frame
}

fn check_header(entry: &Entry, bytes: &[u8], frame: &Frame<'_>) {
    let name = &entry.name;
    let header = &entry.fields["header"];
    assert_eq!(bytes.len() - 4, number::<usize>(header, "length"), "{name}: length");
    assert_eq!(bytes[4], number::<u8>(header, "version"), "{name}: version");
    assert_eq!(frame.opcode, number::<u8>(header, "opcode"), "{name}: opcode");
    assert_eq!(frame.flags, number::<u16>(header, "flags"), "{name}: flags");
    assert_eq!(frame.request_id, number::<u32>(header, "request_id"), "{name}: request_id");
    assert_eq!(frame.status, number::<u16>(header, "status"), "{name}: status");
    assert_eq!(frame.ext.len(), number::<usize>(header, "ext_len"), "{name}: ext_len");
    assert_eq!(frame.hint_ms, number::<u32>(header, "hint"), "{name}: hint");
    assert_eq!(bytes[20..24], number::<u32>(header, "crc32c").to_be_bytes(), "{name}: crc32c");
    assert!(!frame.has_unknown_flag(), "{name}: flags");
}

fn check_tlvs(entry: &Entry, frame: &Frame<'_>) {
    let name = &entry.name;
    let expected: Vec<(u16, Vec<u8>)> = tlvs_of(entry);
    let found: Vec<(u16, Vec<u8>)> = frame.tlvs().map(|(kind, value)| (kind, value.to_vec())).collect();
    assert_eq!(found, expected, "{name}: TLVs");
    let known = &entry.fields["known_tlvs"];
    let user = known["user"].as_str().map(|user| user.parse::<u64>().unwrap().to_be_bytes());
    assert_eq!(frame.tlv(tlv::USER), user.as_ref().map(|user| &user[..]), "{name}: USER");
    let addr = known["client_addr_hex"].as_str().map(unhex);
    assert_eq!(frame.tlv(tlv::CLIENT_ADDR), addr.as_deref(), "{name}: CLIENT_ADDR");
    assert_eq!(frame.tlv(tlv::DEVICE), known["device"].as_str().map(str::as_bytes), "{name}: DEVICE");
    assert_eq!(frame.tlv(tlv::CLAIMS), known["claims"].as_str().map(str::as_bytes), "{name}: CLAIMS");
}

fn tlvs_of(entry: &Entry) -> Vec<(u16, Vec<u8>)> {
    let tlvs = entry.fields["tlvs"].as_array().unwrap();
    tlvs.iter().map(|tlv| (number(tlv, "type"), unhex(text(tlv, "value_hex")))).collect()
}

fn check_message(entry: &Entry, frame: &Frame<'_>) {
    let name = &entry.name;
    let message = &entry.fields["message"];
    let opcode = Opcode::from_wire(frame.opcode);
    if entry.is_request() {
        let answer = message["answer_hex"].as_str().map(unhex).unwrap_or_default();
        assert_eq!(
            Request::parse(opcode.unwrap(), frame.body),
            Ok(request_of(message, &answer)),
            "{name}: message"
        );
        assert_eq!(request_of(message, &answer).opcode(), opcode.unwrap(), "{name}: opcode");
        return;
    }
    if text(message, "kind") == "OPAQUE" {
        let is_unknown_push = opcode.is_none() && frame.request_id == 0;
        assert!(is_unknown_push || Status::from_wire(frame.status).is_none(), "{name}: known after all");
        assert_eq!(class_name(Status::class_of(frame.status)), text(message, "class"), "{name}: class");
        assert_eq!(frame.body, unhex(text(message, "body_hex")), "{name}: body");
    }
    if let Some(opcode) = opcode {
        let reply = Reply::parse(opcode, frame.status, frame.body);
        assert_eq!(reply, Some(reply_of(message)), "{name}: message");
    }
}

#[test]
fn every_valid_vector_decodes_to_its_fields() {
    for entry in valid() {
        let bytes = entry.bytes();
        let frame = one(&entry, &bytes);
        check_header(&entry, &bytes, &frame);
        check_tlvs(&entry, &frame);
        check_message(&entry, &frame);
    }
}

#[test]
fn every_canonical_vector_is_what_its_fields_encode_to() {
    let mut canonical = 0;
    for entry in valid().into_iter().filter(|entry| entry.canonical) {
        let header = &entry.fields["header"];
        let message = &entry.fields["message"];
        let answer = message["answer_hex"].as_str().map(unhex).unwrap_or_default();
        let opcode = Opcode::from_wire(number(header, "opcode")).unwrap();
        let request_id = number(header, "request_id");
        let hint_ms = number(header, "hint");
        let head = if entry.is_request() {
            Head { hint_ms, ..Head::request(opcode, request_id) }
        } else {
            Head::reply(opcode, request_id, Status::from_wire(number(header, "status")).unwrap(), hint_ms)
        };
        let mut out = BytesMut::from(&b"what was there before"[..]);
        let start = out.len();
        encode(
            &mut out,
            head,
            |ext| tlvs_of(&entry).iter().for_each(|(kind, value)| put_tlv(ext, *kind, value)),
            |body| {
                if entry.is_request() {
                    request_of(message, &answer).write(body);
                } else {
                    reply_of(message).write(body);
                }
            },
        );
        assert_eq!(out[..start], b"what was there before"[..], "{}", entry.name);
        assert_eq!(out[start..], entry.bytes(), "{}", entry.name);
        canonical += 1;
    }
    assert!(canonical >= 100, "only {canonical} canonical vectors");
}

#[test]
fn every_valid_vector_split_at_every_byte_is_incomplete_and_then_whole() {
    for entry in valid() {
        let bytes = entry.bytes();
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], entry.cap()), Ok(None), "{} cut at {end}", entry.name);
        }
        one(&entry, &bytes);
    }
}

/// What a client's frame comes to in the steps of protocol.md's precedence that need no connection:
/// flags, `request_id`, opcode, TLVs, body, quantity.
fn judge_request(frame: &Frame<'_>) -> Result<(), Status> {
    if frame.has_unknown_flag() {
        return Err(Status::BadFlags);
    }
    if frame.request_id == 0 && frame.opcode != Opcode::Goaway as u8 {
        return Err(Status::BadRequestId);
    }
    let opcode = Opcode::from_wire(frame.opcode).ok_or(Status::UnknownOpcode)?;
    let request = Request::parse(opcode, frame.body)?;
    let fits = frame.tlv(tlv::USER).is_none_or(|value| value.len() == 8)
        && frame.tlv(tlv::CLIENT_ADDR).is_none_or(|value| matches!(value.len(), 4 | 16))
        && [(tlv::DEVICE, DEVICE_BYTES_MAX), (tlv::CLAIMS, CLAIMS_BYTES_MAX)].iter().all(|(kind, max)| {
            frame
                .tlv(*kind)
                .is_none_or(|value| (1..=*max).contains(&value.len()) && std::str::from_utf8(value).is_ok())
        });
    match request {
        _ if !fits => Err(Status::BadBody),
        Request::Buy { quantity: 0, .. } => Err(Status::BadQuantity),
        _ => Ok(()),
    }
}

fn judge_reply(frame: &Frame<'_>) -> Result<(), Status> {
    if frame.has_unknown_flag() {
        return Err(Status::BadFlags);
    }
    let opcode = Opcode::from_wire(frame.opcode).ok_or(Status::UnknownOpcode)?;
    Reply::parse(opcode, frame.status, frame.body).map(|_| ()).ok_or(Status::BadBody)
}

fn judge(entry: &Entry, frame: &Frame<'_>) -> Result<(), Status> {
    if entry.is_request() { judge_request(frame) } else { judge_reply(frame) }
}

#[test]
fn every_invalid_vector_gets_its_status_and_closes_only_where_it_must() {
    for entry in invalid() {
        let name = &entry.name;
        let bytes = entry.bytes();
        let (status, request_id) = match decode(&bytes, entry.cap()) {
            Err(error) => (error.status(), None),
            Ok(None) => panic!("{name}: taken for incomplete"),
            Ok(Some((frame, consumed))) => {
                assert_eq!(consumed, bytes.len(), "{name}");
                let status = judge(&entry, &frame).expect_err(name);
                (status, Some(frame.request_id))
            }
        };
        assert_eq!(status.name(), text(&entry.expect, "status"), "{name}");
        assert_eq!(request_id.is_none(), entry.closes(), "{name}: closes");
        assert_eq!(request_id.map(u64::from), entry.expect["request_id"].as_u64(), "{name}: request_id");
    }
}

#[test]
fn every_invalid_vector_split_at_every_byte_is_incomplete_or_already_the_same_fault() {
    for entry in invalid() {
        let bytes = entry.bytes();
        let whole = decode(&bytes, entry.cap());
        for end in 0..bytes.len() {
            let prefix = decode(&bytes[..end], entry.cap());
            assert!(prefix == Ok(None) || prefix == whole, "{} cut at {end}: {prefix:?}", entry.name);
        }
    }
}

#[test]
fn no_valid_vector_is_judged_wrong() {
    for entry in valid() {
        let bytes = entry.bytes();
        let frame = one(&entry, &bytes);
        if Opcode::from_wire(frame.opcode).is_some() {
            assert_eq!(judge(&entry, &frame), Ok(()), "{}", entry.name);
        }
    }
}

#[test]
fn vectors_behind_one_another_come_out_one_by_one_whatever_the_pieces() {
    for from in ["client", "server"] {
        let cap = if from == "client" { FRAME_BYTES_MAX_AFTER_AUTH } else { REPLY_BYTES_MAX };
        let living = invalid().into_iter().filter(|entry| !entry.closes());
        let frames: Vec<Vec<u8>> =
            valid().into_iter().chain(living).filter(|e| e.from == from).map(|e| e.bytes()).collect();
        let stream = frames.concat();
        for piece in [1, 2, 23, 24, 25, 1000, stream.len()] {
            let cuts: Vec<usize> = (piece..stream.len()).step_by(piece).collect();
            assert_eq!(read_in_pieces(&stream, &cuts, cap), (frames.clone(), None), "pieces of {piece}");
        }
    }
}

#[test]
fn a_closing_vector_behind_a_good_one_leaves_the_good_one_whole() {
    let first = valid().into_iter().find(|entry| entry.name == "ping").unwrap().bytes();
    for entry in invalid().into_iter().filter(Entry::closes) {
        let stream = [first.clone(), entry.bytes()].concat();
        for cut in 0..stream.len() {
            let (frames, error) = read_in_pieces(&stream, &[cut], entry.cap());
            assert_eq!(frames, vec![first.clone()], "{} cut at {cut}", entry.name);
            let status = error.map(|error| error.status().name());
            assert_eq!(status, entry.expect["status"].as_str(), "{} cut at {cut}", entry.name);
        }
    }
}

#[test]
fn the_vectors_cover_every_opcode_and_status_and_no_name_comes_twice() {
    let entries: Vec<Entry> = valid().into_iter().chain(invalid()).collect();
    let names: std::collections::HashSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names.len(), entries.len());
    let valid = valid();
    let seen = |from: &str, key: &str, code: u64| {
        valid.iter().any(|entry| entry.from == from && entry.fields["header"][key].as_u64() == Some(code))
    };
    for status in Status::ALL {
        assert!(seen("server", "status", status.code().into()), "no vector of {}", status.name());
    }
    for &opcode in Opcode::ALL {
        let by_client = !matches!(opcode, Opcode::Error | Opcode::ResultPush);
        assert_eq!(seen("client", "opcode", opcode as u64), by_client, "requests {}", opcode.name());
        assert!(seen("server", "opcode", opcode as u64), "replies {}", opcode.name());
    }
}
