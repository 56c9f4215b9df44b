//! Where frames end in a stream of bytes: the length prefix and nothing else.

/// The longest frame that is echoed, prefix included: what the gateway sends at most.
pub(crate) const FRAME_BYTES_MAX: usize = 65_536;

/// Bytes of the length prefix.
const PREFIX_BYTES: usize = 4;

/// A frame longer than [`FRAME_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame is announced with {0} bytes")]
pub(crate) struct TooLong(usize);

/// How many bytes at the front are whole frames.
pub(crate) fn whole_bytes(bytes: &[u8]) -> Result<usize, TooLong> {
    let mut end = 0_usize;
    loop {
        let rest = bytes.get(end..).unwrap_or_default();
        let Some(prefix) = rest.first_chunk::<PREFIX_BYTES>() else { return Ok(end) };
        let body_bytes = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        let frame_bytes = body_bytes.saturating_add(PREFIX_BYTES);
        if frame_bytes > FRAME_BYTES_MAX {
            return Err(TooLong(frame_bytes));
        }
        if frame_bytes > rest.len() {
            return Ok(end);
        }
        end = end.saturating_add(frame_bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests")]
    use super::*;

    const STREAM: &[u8] = &[0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 1, 9];

    #[test]
    fn a_frame_counts_once_its_last_byte_is_there() {
        let ends = [0, 7, 11, 16];
        for cut in 0..=STREAM.len() {
            let expected = ends.iter().rev().find(|end| **end <= cut).copied();
            assert_eq!(whole_bytes(&STREAM[..cut]).ok(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_length_past_the_cap_is_refused_at_once() {
        assert_eq!(whole_bytes(&[0, 1, 0, 0]), Err(TooLong(65_540)));
        assert_eq!(whole_bytes(&[255; 4]), Err(TooLong(4_294_967_299)));
        assert_eq!(whole_bytes(&[0, 0, 255, 252]), Ok(0), "the longest that is allowed");
    }
}
