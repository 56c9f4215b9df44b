//! What a client sends, made from bytes: mostly frames, with everything about them that may be wrong, and the places
//! where the stream is cut into pieces.
//!
//! The language has no syntax errors. Each step is one byte (low half: what; high half: what is wrong with it) and
//! the choices that it asks for; where bytes are over, choices are 0. Changing it makes the corpus say other things:
//! run the fuzzer again afterwards.

use bytes::{BufMut, BytesMut};
use rushgate::protocol::{ActivityId, ClientVersion, Head, Opcode, Request, SkuId, encode, put_tlv, tlv};

use super::gateway::{Bench, CLOSED, LIVE, SKU, SOLD_OUT, UPCOMING};

const STREAM_BYTES_MAX: usize = 16 * 1024;
const ACTIVITIES: [u32; 6] = [LIVE, SOLD_OUT, UPCOMING, CLOSED, 0, 77];
const TLVS: [u16; 8] = [tlv::USER, tlv::CLIENT_ADDR, tlv::DEVICE, tlv::USER, 0, 0x10, 0x11, 0x7000];

pub(crate) struct Script {
    pub(crate) stream: Vec<u8>,
    /// Ascending; where pieces end.
    pub(crate) cuts: Vec<usize>,
}

struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (some, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        some
    }

    fn of<T: Copy, const N: usize>(&mut self, choices: &[T; N]) -> T {
        choices[usize::from(self.byte()) % N]
    }

    fn number(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }
}

/// A frame before it is bytes.
struct Draft {
    head: Head,
    tlvs: Vec<(u16, Vec<u8>)>,
    body: Vec<u8>,
}

impl Draft {
    fn new(request_id: u32, request: &Request<'_>) -> Self {
        let mut body = BytesMut::new();
        request.write(&mut body);
        Self { head: Head::request(request.opcode(), request_id), tlvs: Vec::new(), body: body.to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        let tlvs = |out: &mut BytesMut| {
            for (kind, value) in &self.tlvs {
                put_tlv(out, *kind, value);
            }
        };
        encode(&mut out, self.head, tlvs, |out| out.put_slice(&self.body));
        out.to_vec()
    }
}

impl Script {
    pub(crate) fn read(data: &[u8], bench: &Bench) -> Self {
        let mut choices = Choices(data);
        let mut script = Self { stream: Vec::new(), cuts: Vec::new() };
        while !choices.0.is_empty() && script.stream.len() < STREAM_BYTES_MAX {
            script.step(&mut choices, bench);
        }
        script.cuts.retain(|cut| *cut < script.stream.len());
        script.cuts.sort_unstable();
        script
    }

    fn step(&mut self, choices: &mut Choices<'_>, bench: &Bench) {
        let op = choices.byte();
        match op & 0x0F {
            12 => {
                let count = usize::from(choices.byte());
                self.stream.extend(choices.bytes(count));
            }
            13 => self.cuts.push(self.stream.len()),
            // The way in, since most of what there is to find lies behind it.
            14 => {
                let token = choices.byte();
                for what in [0, 1] {
                    let draft = draft(what, 1, &mut Choices(&[token]), bench);
                    self.stream.extend(draft.bytes());
                }
            }
            what => {
                let id = choices.byte();
                let id = if id == 0xFF { 0 } else { 1 + u32::from(id % 16) };
                let mut draft = draft(what, id, choices, bench);
                if what >= 4 {
                    draft.tlvs.extend(named_user(choices));
                }
                let at = self.stream.len();
                self.stream.extend(with_fault(op >> 4, draft, choices));
                if op >> 4 == 9 {
                    let within = usize::from(choices.byte()) % (self.stream.len() - at).max(1);
                    self.cuts.push(at + within);
                }
            }
        }
    }
}

fn draft(what: u8, id: u32, choices: &mut Choices<'_>, bench: &Bench) -> Draft {
    let version = ClientVersion { platform: 2, app: [1, 2, 3] };
    let activity = |choices: &mut Choices<'_>| ActivityId(choices.of(&ACTIVITIES));
    let request = match what {
        0 => Request::Hello { version, device: "a device" },
        1 => {
            let token = &bench.tokens[usize::from(choices.byte()) % bench.tokens.len()].0;
            Request::Auth { token: token.as_bytes() }
        }
        2 => Request::Ping { client_time: u64::from(choices.number()) },
        3 => Request::Goaway,
        4 => Request::Activity { activity: activity(choices) },
        5 => Request::Challenge { activity: activity(choices) },
        6 => {
            let (activity, count) = (activity(choices), choices.byte());
            Request::Answer { activity, answer: choices.bytes(usize::from(count)) }
        }
        7 => Request::Token { activity: activity(choices), sku: SkuId(choices.number()) },
        11 => Request::Result { activity: activity(choices) },
        15 => {
            let opcode = choices.byte();
            let count = usize::from(choices.byte());
            let head = Head { opcode, ..Head::request(Opcode::Ping, id) };
            return Draft { head, tlvs: Vec::new(), body: choices.bytes(count).to_vec() };
        }
        _ => {
            let (activity, sku) = (activity(choices), choices.of(&[SKU, SKU, SKU, 0, 9]));
            let quantity = choices.of(&[1, 1, 2, 5, 0, 6, u16::MAX]);
            Request::Buy { activity, sku: SkuId(sku), quantity }
        }
    };
    Draft::new(id, &request)
}

/// The USER TLV, mostly one of 65,536 users.
fn named_user(choices: &mut Choices<'_>) -> Option<(u16, Vec<u8>)> {
    let user: u64 = match choices.byte() {
        0..=0x3F => return None,
        0x40 => 0,
        0x41 => 1 << 63,
        0x42 => super::gateway::OWNER,
        low @ 0x43..=0x7F => u64::from(low),
        _ => 1000 + u64::from(choices.number()),
    };
    Some((tlv::USER, user.to_be_bytes().to_vec()))
}

fn with_fault(fault: u8, mut draft: Draft, choices: &mut Choices<'_>) -> Vec<u8> {
    match fault {
        // One byte is another, and the checksum does not fit, or is made to fit.
        10 | 11 => {
            let mut bytes = draft.bytes();
            let at = usize::from(choices.number()) % bytes.len();
            bytes[at] ^= choices.byte();
            if fault == 11 {
                let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..20]), &bytes[24..]);
                bytes[20..24].copy_from_slice(&crc.to_be_bytes());
            }
            bytes
        }
        12 => {
            let mut bytes = draft.bytes();
            bytes.truncate(usize::from(choices.number()) % bytes.len());
            bytes
        }
        13 => {
            for _ in 0..choices.byte() % 4 {
                let (kind, length) = (choices.of(&TLVS), choices.byte());
                // Long ones too: from 65 on in steps of 16.
                let length = usize::from(length.min(65)) + usize::from(length.saturating_sub(65)) * 16;
                let filling = choices.byte();
                draft.tlvs.insert(0, (kind, vec![filling; length]));
            }
            draft.bytes()
        }
        14 => {
            draft.head.flags = choices.number();
            draft.head.status = choices.number();
            draft.head.hint_ms = u32::from(choices.number());
            draft.bytes()
        }
        // Longer than known, or shorter than needed.
        15 => {
            let count = usize::from(choices.byte());
            if count < draft.body.len() {
                draft.body.truncate(count);
            } else {
                draft.body.resize(count, 0x5A);
            }
            draft.bytes()
        }
        _ => draft.bytes(),
    }
}
