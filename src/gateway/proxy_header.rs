//! The PROXY protocol header: bytes in, the client's address out. Versions 1 (text) and 2 (binary).
//!
//! Called on the task of a proxied connection, see `proxy`. Pure: no I/O, no clock. It never takes more than
//! [`HEADER_BYTES_MAX`] for a header, says so as soon as the header's own length does, and never panics on what
//! it is given; what is no header ends the connection.

use std::net::IpAddr;

use ppp::{PartialResult, v1, v2};

/// Longer headers are refused. A balancer's addresses and what it adds to them (TLVs: names, a connection's id,
/// facts about TLS) take a few hundred bytes.
pub(super) const HEADER_BYTES_MAX: usize = 4096;

/// Version 2: signature, command, family, and the length of what follows.
const V2_FIXED_BYTES: usize = 16;
const V2_SIGNATURE_BYTES: usize = v2::PROTOCOL_PREFIX.len();
const V2_LOCAL: u8 = 0x20;
/// Version 1 is one line of at most so many bytes, and begins so.
const V1_LINE_BYTES_MAX: usize = 107;
const V1_PREFIX: &[u8] = b"PROXY ";

/// A header that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Where the client is; `None`: the connection is the balancer's own, or it does not know.
    pub(super) client: Option<IpAddr>,
    /// How long the header is; the client's own bytes follow.
    pub(super) bytes: usize,
}

/// Why bytes are no header.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum HeaderError {
    /// They begin otherwise: the balancer does not send one, or no balancer is there.
    #[error("it does not begin with a PROXY header")]
    Missing,
    /// More than is ever needed.
    #[error("its PROXY header is longer than {max} bytes")]
    TooLong {
        /// What is allowed.
        max: usize,
    },
    /// Version 2, against the specification.
    #[error("its PROXY header (version 2) is malformed: {0}")]
    Binary(v2::ParseError),
    /// Version 1, against the specification.
    #[error("its PROXY header (version 1) is malformed: {0}")]
    Text(v1::BinaryParseError),
    /// UDP has no connections.
    #[error("its PROXY header names a datagram, not a connection")]
    Datagram,
}

/// The header at the front of `bytes`; `None` while it is incomplete.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    if begins_like(bytes, v2::PROTOCOL_PREFIX) {
        parse_binary(bytes)
    } else if begins_like(bytes, V1_PREFIX) {
        parse_text(bytes)
    } else {
        Err(HeaderError::Missing)
    }
}

/// Whether `bytes` begins with `prefix`, as far as they go.
fn begins_like(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.iter().zip(prefix).all(|(byte, expected)| byte == expected)
}

fn parse_binary(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    if let Some(&[version_command, _, high, low]) = bytes.get(V2_SIGNATURE_BYTES..V2_FIXED_BYTES) {
        // By its own word, before any of it is waited for.
        let header_bytes = usize::from(u16::from_be_bytes([high, low])).saturating_add(V2_FIXED_BYTES);
        if header_bytes > HEADER_BYTES_MAX {
            return Err(HeaderError::TooLong { max: HEADER_BYTES_MAX });
        }
        // The balancer's own connection, such as a health check. Whatever else it says means nothing, and need not
        // make sense; the parser would look at it.
        if version_command == V2_LOCAL {
            let is_complete = bytes.len() >= header_bytes;
            return Ok(is_complete.then_some(Header { client: None, bytes: header_bytes }));
        }
    }
    let parsed = v2::Header::try_from(bytes);
    if parsed.is_incomplete() {
        return Ok(None);
    }
    let header = parsed.map_err(HeaderError::Binary)?;
    if header.protocol == v2::Protocol::Datagram {
        return Err(HeaderError::Datagram);
    }
    let client = match header.addresses {
        v2::Addresses::IPv4(addresses) => Some(IpAddr::from(addresses.source_address)),
        v2::Addresses::IPv6(addresses) => Some(IpAddr::from(addresses.source_address)),
        v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
    };
    let bytes = header.header.len();
    Ok(Some(Header { client: client.map(|client| client.to_canonical()), bytes }))
}

fn parse_text(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    // Only a whole line is given to the parser: it takes a line that breaks off behind a space for a wrong one.
    let line = bytes.get(..V1_LINE_BYTES_MAX).unwrap_or(bytes);
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        let is_too_long = line.len() == V1_LINE_BYTES_MAX;
        return if is_too_long { Err(HeaderError::TooLong { max: V1_LINE_BYTES_MAX }) } else { Ok(None) };
    };
    let line = line.get(..=end).unwrap_or(line);
    let header = v1::Header::try_from(line).map_err(HeaderError::Text)?;
    let client = match header.addresses {
        v1::Addresses::Tcp4(addresses) => Some(IpAddr::from(addresses.source_address)),
        v1::Addresses::Tcp6(addresses) => Some(IpAddr::from(addresses.source_address)),
        v1::Addresses::Unknown => None,
    };
    Ok(Some(Header { client: client.map(|client| client.to_canonical()), bytes: line.len() }))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "tests"
    )]
    use proptest::prelude::*;

    use super::*;

    fn binary(version_command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [v2::PROTOCOL_PREFIX, &[version_command, family], &length, payload].concat()
    }

    /// From 192.0.2.7:1 to 198.51.100.1:443.
    const V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0, 1, 1, 187];

    fn v6(source: [u8; 16]) -> Vec<u8> {
        [&source[..], &[0; 16], &[0, 1, 1, 187]].concat()
    }

    /// Every beginning is incomplete, and what follows is left alone.
    fn assert_header(header: &[u8], client: Option<&str>) {
        for end in 0..header.len() {
            assert_eq!(parse(&header[..end]), Ok(None), "{end} bytes of {header:?}");
        }
        let expected = Header { client: client.map(|text| text.parse().unwrap()), bytes: header.len() };
        assert_eq!(parse(header), Ok(Some(expected)), "{header:?}");
        assert_eq!(parse(&[header, b"\r\n\r\nPROXY more"].concat()), Ok(Some(expected)));
    }

    #[test]
    fn both_versions_name_the_client() {
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 7];
        let documentation = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_header(&binary(0x21, 0x11, &V4), Some("192.0.2.7"));
        assert_header(&binary(0x21, 0x21, &v6(documentation)), Some("2001:db8::9"));
        assert_header(&binary(0x21, 0x21, &v6(mapped)), Some("192.0.2.7"));
        assert_header(&binary(0x21, 0x11, &[&V4[..], &[5, 0, 1, 9], &[0; 300]].concat()), Some("192.0.2.7"));
        assert_header(b"PROXY TCP4 192.0.2.7 198.51.100.1 1 443\r\n", Some("192.0.2.7"));
        assert_header(b"PROXY TCP6 2001:db8::9 ::1 1 443\r\n", Some("2001:db8::9"));
        assert_header(b"PROXY TCP6 ::ffff:192.0.2.7 ::1 1 443\r\n", Some("192.0.2.7"));
    }

    #[test]
    fn without_a_client_it_is_the_balancers_own_connection() {
        assert_header(&binary(0x20, 0x00, &[]), None);
        assert_header(&binary(0x20, 0x11, &V4), None);
        assert_header(&binary(0x20, 0x11, &[]), None);
        assert_header(&binary(0x20, 0xFF, &[1, 2, 3]), None);
        assert_header(&binary(0x21, 0x00, &[1, 2, 3]), None);
        assert_header(&binary(0x21, 0x31, &[7; 216]), None);
        assert_header(b"PROXY UNKNOWN\r\n", None);
        assert_header(b"PROXY UNKNOWN ffff::1 ::1 1 2\r\n", None);
    }

    #[test]
    fn the_longest_header_is_taken_and_a_longer_one_refused_by_its_length() {
        let longest = HEADER_BYTES_MAX - V2_FIXED_BYTES;
        let tlvs = vec![0; longest - V4.len()];
        assert_header(&binary(0x21, 0x11, &[&V4[..], &tlvs].concat()), Some("192.0.2.7"));
        let longer = binary(0x21, 0x11, &vec![0; longest + 1]);
        let too_long = Err(HeaderError::TooLong { max: HEADER_BYTES_MAX });
        assert_eq!(parse(&longer[..V2_FIXED_BYTES]), too_long);
        assert_eq!(parse(&binary(0x20, 0x00, &vec![0; 65_535])), too_long);
        let line = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100]].concat();
        assert_eq!(parse(&line[..106]), Ok(None));
        assert_eq!(parse(&line), Err(HeaderError::TooLong { max: V1_LINE_BYTES_MAX }));
    }

    #[test]
    fn what_is_malformed_is_refused_at_once() {
        assert_eq!(parse(b"GET / HTTP/1.1\r\n"), Err(HeaderError::Missing));
        assert_eq!(parse(b"PROXYTCP4"), Err(HeaderError::Missing));
        assert_eq!(parse(b"\r\n\r\n\x00\r\nQUIX"), Err(HeaderError::Missing));
        assert_eq!(parse(&binary(0x21, 0x12, &V4)), Err(HeaderError::Datagram));
        for wrong in [binary(0x11, 0x11, &V4), binary(0x22, 0x11, &V4), binary(0x21, 0x41, &V4)] {
            assert!(matches!(parse(&wrong), Err(HeaderError::Binary(_))), "{wrong:?}");
        }
        // Addresses that its own length has no room for.
        assert!(matches!(parse(&binary(0x21, 0x21, &V4)), Err(HeaderError::Binary(_))));
        for wrong in [
            &b"PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n"[..],
            b"PROXY TCP4 192.0.2.7 198.51.100.1 1 443 5\r\n",
            b"PROXY TCP4 192.0.2.7 198.51.100.1 1 443\n",
            b"PROXY TCP4 ::1 ::1 1 443\r\n",
            b"PROXY TCP4 192.0.2.7 198.51.100.1 1 65536\r\n",
            b"PROXY UDP4 192.0.2.7 198.51.100.1 1 443\r\n",
            b"PROXY TCP4 \xFF 198.51.100.1 1 443\r\n",
            b"PROXY \r\n",
        ] {
            assert!(matches!(parse(wrong), Err(HeaderError::Text(_))), "{}", String::from_utf8_lossy(wrong));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_make_it_panic_or_take_more_than_there_are(junk: Vec<u8>, kind in 0..3) {
            let begin: &[u8] = [&b""[..], v2::PROTOCOL_PREFIX, V1_PREFIX][usize::try_from(kind).unwrap()];
            let bytes = [begin, &junk].concat();
            if let Ok(Some(header)) = parse(&bytes) {
                prop_assert!(header.bytes <= bytes.len() && header.bytes <= HEADER_BYTES_MAX);
            }
        }
    }
}
