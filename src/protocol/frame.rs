//! Frames: finding them in a byte stream without copying, and writing them.
//!
//! Runs wherever bytes are: no I/O, no allocation when decoding. A fault in the length, version, CRC or TLV
//! structure means that the stream cannot be trusted any further: the connection closes.

use bytes::{BufMut, BytesMut};

use super::cursor::Cursor;
use super::{Opcode, Status};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 24;
/// Bytes of the length field, which does not count itself.
pub const LENGTH_BYTES: usize = 4;
/// The least value of the length field.
pub const LENGTH_MIN: usize = HEADER_BYTES - LENGTH_BYTES;
/// The version that this module speaks.
pub const VERSION: u8 = 1;
/// Cap on a whole frame from a client that is not authenticated.
pub const FRAME_BYTES_MAX_BEFORE_AUTH: usize = 1024;
/// Cap on a whole frame from an authenticated client, unless HELLO says otherwise.
pub const FRAME_BYTES_MAX_AFTER_AUTH: usize = 4096;
/// Cap on a whole frame from a gateway.
pub const REPLY_BYTES_MAX: usize = 65_536;
/// Flags in these bits must be understood; version 1 defines none.
pub const FLAGS_MUST_UNDERSTAND: u16 = 0xFF00;

const OPCODE_OFFSET: usize = 5;
const CRC_OFFSET: usize = 20;
/// Covered bytes of a frame that counts as short.
const SHORT_BYTES: usize = 128;

/// One complete frame, borrowed from the bytes it came in. Its TLV structure has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// See [`Opcode`]; may be unknown.
    pub opcode: u8,
    /// See [`FLAGS_MUST_UNDERSTAND`].
    pub flags: u16,
    /// Chosen by the client, not 0; 0 in pushes.
    pub request_id: u32,
    /// See [`Status`]; 0 in requests, may be unknown.
    pub status: u16,
    /// Milliseconds: `retry_after` in replies, patience in requests; 0 = none.
    pub hint_ms: u32,
    /// The TLVs.
    pub ext: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

/// Why the stream cannot be read on. All are fatal to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than a header or over the cap.
    #[error("frame length {length} is not within {LENGTH_MIN} to {max}")]
    Length {
        /// The length field.
        length: u32,
        /// The greatest length field that would have been taken.
        max: usize,
    },
    /// Not version 1.
    #[error("protocol version {0} is unknown; this side speaks version {VERSION}")]
    Version(u8),
    /// The bytes are not those that were sent.
    #[error("CRC-32C is {got:#010x}, expected {expected:#010x}")]
    Crc {
        /// In the header.
        got: u32,
        /// Computed.
        expected: u32,
    },
    /// The TLVs run over their end or over the frame's.
    #[error("TLVs overrun their {ext_len} bytes")]
    Ext {
        /// The header's `ext_len`.
        ext_len: u16,
    },
}

impl FrameError {
    /// The status of the ERROR frame that tells the other side.
    pub const fn status(self) -> Status {
        match self {
            Self::Version(_) => Status::BadVersion,
            Self::Length { .. } | Self::Crc { .. } | Self::Ext { .. } => Status::BadFrame,
        }
    }
}

/// Takes the first frame off `bytes`: the frame and how many bytes it took, `None` while it is incomplete.
/// Length and version are judged as soon as they are there, the rest when the frame is complete.
pub fn decode(bytes: &[u8], frame_bytes_max: usize) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let mut head = Cursor(bytes);
    let Some(length) = head.u32() else { return Ok(None) };
    let length_max = frame_bytes_max.saturating_sub(LENGTH_BYTES);
    let rest_bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if rest_bytes < LENGTH_MIN || rest_bytes > length_max {
        return Err(FrameError::Length { length, max: length_max });
    }
    let Some(version) = head.u8() else { return Ok(None) };
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let frame_bytes = rest_bytes.saturating_add(LENGTH_BYTES);
    let Some(whole) = bytes.get(..frame_bytes) else { return Ok(None) };
    parse_whole(whole).map(|frame| Some((frame, frame_bytes)))
}

/// What the whole frames at the front of `bytes` seem to be: opcode and the user whom the first TLV names. Nothing is
/// judged here; it is for a guess at what will be needed soon.
pub fn glance(mut bytes: &[u8]) -> impl Iterator<Item = (u8, Option<u64>)> {
    const USER_TLV: &[u8] = &[0, 1, 0, 8];
    std::iter::from_fn(move || {
        let (length, _) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
        let rest_bytes = usize::try_from(u32::from_be_bytes(*length)).ok()?.max(LENGTH_MIN);
        let (frame, rest) = bytes.split_at_checked(rest_bytes.checked_add(LENGTH_BYTES)?)?;
        bytes = rest;
        let opcode = *frame.get(OPCODE_OFFSET)?;
        let named = frame.get(HEADER_BYTES..).and_then(|ext| ext.strip_prefix(USER_TLV));
        let user = named.and_then(|value| value.first_chunk()).map(|id| u64::from_be_bytes(*id));
        Some((opcode, user))
    })
}

fn parse_whole(whole: &[u8]) -> Result<Frame<'_>, FrameError> {
    const SHORT: FrameError = FrameError::Length { length: 0, max: 0 };
    let (covered_head, tail) = whole.split_at_checked(CRC_OFFSET).ok_or(SHORT)?;
    let (crc_bytes, covered_tail) = tail.split_first_chunk::<4>().ok_or(SHORT)?;
    let got = u32::from_be_bytes(*crc_bytes);
    let expected = crc(covered_head, covered_tail);
    if got != expected {
        return Err(FrameError::Crc { got, expected });
    }
    let mut head = Cursor(covered_head);
    let mut fields = || {
        head.u32()?;
        head.u8()?;
        Some((head.u8()?, head.u16()?, head.u32()?, head.u16()?, head.u16()?, head.u32()?))
    };
    let (opcode, flags, request_id, status, ext_len, hint_ms) = fields().ok_or(SHORT)?;
    let overrun = FrameError::Ext { ext_len };
    let (ext, body) = covered_tail.split_at_checked(usize::from(ext_len)).ok_or(overrun)?;
    let mut tlvs = Tlvs(Cursor(ext));
    while tlvs.next().is_some() {}
    if !tlvs.0.0.is_empty() {
        return Err(overrun);
    }
    Ok(Frame { opcode, flags, request_id, status, hint_ms, ext, body })
}

impl<'a> Frame<'a> {
    /// The TLVs in order: (type, value).
    pub const fn tlvs(&self) -> Tlvs<'a> {
        Tlvs(Cursor(self.ext))
    }

    /// The value of the first TLV of a type.
    pub fn tlv(&self, kind: u16) -> Option<&'a [u8]> {
        self.tlvs().find_map(|(found, value)| (found == kind).then_some(value))
    }

    /// Whether a flag is set that has to be understood and is not.
    pub const fn has_unknown_flag(&self) -> bool {
        self.flags & FLAGS_MUST_UNDERSTAND != 0
    }
}

/// TLV types of version 1.
pub mod tlv {
    /// User id, u64; requests and pushes of service connections.
    pub const USER: u16 = 0x0001;
    /// Client address, 4 or 16 bytes; requests of service connections.
    pub const CLIENT_ADDR: u16 = 0x0002;
    /// Device id, UTF-8, 1 to 64 bytes; requests of service connections.
    pub const DEVICE: u16 = 0x0003;
    /// Claims of the user, `name=value;…`, UTF-8, 1 to 256 bytes; requests of service connections.
    pub const CLAIMS: u16 = 0x0004;
}

/// Iterator over a frame's TLVs.
#[derive(Clone, Debug)]
pub struct Tlvs<'a>(Cursor<'a>);

impl<'a> Iterator for Tlvs<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // Leaves the cursor where it is when a TLV does not fit, so that leftovers show.
        let mut at = Cursor(self.0.0);
        let item = (at.u16()?, at.string16()?);
        self.0 = at;
        Some(item)
    }
}

/// The header fields that a writer chooses; lengths, version and CRC follow from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the frame is about.
    pub opcode: u8,
    /// 0 in version 1.
    pub flags: u16,
    /// 0 in pushes.
    pub request_id: u32,
    /// 0 in requests.
    pub status: u16,
    /// Milliseconds; 0 = none.
    pub hint_ms: u32,
}

impl Head {
    /// A request of a client.
    pub const fn request(opcode: Opcode, request_id: u32) -> Self {
        Self { opcode: opcode as u8, flags: 0, request_id, status: 0, hint_ms: 0 }
    }

    /// A reply (or, with id 0, a push) of a gateway.
    pub const fn reply(opcode: Opcode, request_id: u32, status: Status, hint_ms: u32) -> Self {
        Self { opcode: opcode as u8, flags: 0, request_id, status: status.code(), hint_ms }
    }
}

/// Appends one frame to `out`: `ext` writes the TLVs (see [`put_tlv`]), `body` the body.
/// What they write has to stay below the receiver's cap; both are given the same buffer and only append.
pub fn encode(
    out: &mut BytesMut,
    head: Head,
    ext: impl FnOnce(&mut BytesMut),
    body: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    out.put_bytes(0, HEADER_BYTES);
    ext(out);
    let ext_len = out.len().saturating_sub(start).saturating_sub(HEADER_BYTES);
    body(out);
    let length = out.len().saturating_sub(start).saturating_sub(LENGTH_BYTES);
    let Some((header, covered_tail)) =
        out.get_mut(start..).and_then(|frame| frame.split_first_chunk_mut::<HEADER_BYTES>())
    else {
        return;
    };
    let (covered_head, mut crc_slot) = header.split_at_mut(CRC_OFFSET);
    {
        let mut fields: &mut [u8] = &mut *covered_head;
        fields.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        fields.put_u8(VERSION);
        fields.put_u8(head.opcode);
        fields.put_u16(head.flags);
        fields.put_u32(head.request_id);
        fields.put_u16(head.status);
        fields.put_u16(u16::try_from(ext_len).unwrap_or(u16::MAX));
        fields.put_u32(head.hint_ms);
    }
    crc_slot.put_u32(crc(covered_head, covered_tail));
}

/// CRC-32C over both. Nearly all frames are short, and a short one costs little more than starting the computation:
/// so it is started once, over the two laid side by side.
fn crc(covered_head: &[u8], covered_tail: &[u8]) -> u32 {
    let mut both = [0; SHORT_BYTES];
    let covered_bytes = covered_head.len().saturating_add(covered_tail.len());
    match both.get_mut(..covered_bytes).and_then(|both| both.split_at_mut_checked(covered_head.len())) {
        _ if covered_tail.is_empty() => crc32c::crc32c(covered_head),
        None => crc32c::crc32c_append(crc32c::crc32c(covered_head), covered_tail),
        Some((head, tail)) => {
            head.copy_from_slice(covered_head);
            tail.copy_from_slice(covered_tail);
            crc32c::crc32c(both.get(..covered_bytes).unwrap_or_default())
        }
    }
}

/// Appends one TLV; a value over 65,535 bytes is cut.
pub fn put_tlv(out: &mut BytesMut, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    out.put_u16(kind);
    out.put_u16(length);
    out.put_slice(value.get(..usize::from(length)).unwrap_or(value));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    #[test]
    fn a_short_frame_has_the_same_crc_as_in_two_steps() {
        let bytes: Vec<u8> = (0..=255).cycle().take(300).collect();
        for end in CRC_OFFSET..bytes.len() {
            let (head, tail) = bytes[..end].split_at(CRC_OFFSET);
            assert_eq!(crc(head, tail), crc32c::crc32c(&bytes[..end]), "{end} bytes");
        }
    }

    #[test]
    fn a_glance_sees_opcodes_and_users_and_stops_where_a_frame_is_not_whole() {
        let mut out = BytesMut::new();
        let head = Head::request(Opcode::Buy, 1);
        encode(
            &mut out,
            head,
            |ext| put_tlv(ext, tlv::USER, &7_u64.to_be_bytes()),
            |body| body.put_slice(b"body"),
        );
        encode(&mut out, Head { opcode: 9, ..head }, |_| {}, |_| {});
        let two = [(Opcode::Buy as u8, Some(7)), (9, None)];
        assert_eq!(glance(&out).collect::<Vec<_>>(), two);
        assert_eq!(glance(&out[..out.len() - 1]).collect::<Vec<_>>(), two[..1]);
        for length in [0_u32, 19, u32::MAX] {
            assert_eq!(glance(&length.to_be_bytes()).count(), 0);
        }
        assert_eq!(glance(&[0; 100]).count(), 4, "lengths below the least are not followed for ever");
    }

    #[test]
    fn what_is_encoded_decodes_the_same_and_any_flipped_bit_is_noticed() {
        let mut out = BytesMut::new();
        let head = Head { opcode: 0x20, flags: 1, request_id: 7, status: 0, hint_ms: 9 };
        encode(&mut out, head, |ext| put_tlv(ext, tlv::USER, &[1; 8]), |body| body.put_slice(b"body"));
        let (frame, consumed) = decode(&out, 4096).unwrap().unwrap();
        assert_eq!((consumed, frame.opcode, frame.flags, frame.hint_ms), (out.len(), 0x20, 1, 9));
        assert_eq!(
            (frame.request_id, frame.tlv(tlv::USER), frame.body),
            (7, Some(&[1; 8][..]), &b"body"[..])
        );
        for bit in 32..out.len() * 8 {
            let mut bad = out.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, 4096).is_err(), "bit {bit}");
        }
        for end in 0..out.len() {
            assert_eq!(decode(&out[..end], 4096), Ok(None), "cut at {end}");
        }
    }
}
