//! A block of IP addresses, as operators write it: `10.0.0.0/8`, `2001:db8::/32`, `127.0.0.1`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A block of addresses. The host bits are zero: two texts that mean the same block are equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    network: IpAddr,
    prefix_len: u8,
}

/// Why a text is not a block of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// The part before the slash is no address.
    #[error("{0:?} is not an IP address; write a block like 10.0.0.0/8 or 2001:db8::/32, or one address")]
    Address(String),
    /// The part after the slash is no prefix length of that family.
    #[error("/{text} is not a prefix length; it is a whole number from 0 to {max}")]
    PrefixLen {
        /// What was written after the slash.
        text: String,
        /// 32 or 128.
        max: u8,
    },
    /// Bits after the prefix are set: a slip in either of the two parts.
    #[error("{written} has address bits after its prefix; write {meant}, or another prefix length")]
    HostBits {
        /// What was written.
        written: String,
        /// The block with those bits zero.
        meant: Cidr,
    },
    /// `::ffff:a.b.c.d`: such clients are treated as IPv4, so the block would never match.
    #[error("{0} is an IPv4 address in IPv6 form; write the block in IPv4 form")]
    Mapped(String),
}

impl Cidr {
    /// Every address there is.
    pub const EVERYWHERE: [Self; 2] = [
        Self { network: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix_len: 0 },
        Self { network: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix_len: 0 },
    ];

    /// The block of that many leading bits around an address; `None` for a prefix longer than the address.
    pub fn new(address: IpAddr, prefix_len: u8) -> Option<Self> {
        if prefix_len > address_bits(address) {
            return None;
        }
        Some(Self { network: masked(address, prefix_len), prefix_len })
    }

    /// Leading bits that all its addresses share.
    pub const fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// Whether it is one of IPv4 addresses.
    pub const fn is_ipv4(self) -> bool {
        self.network.is_ipv4()
    }

    /// Whether an address lies in the block. An IPv4 address in IPv6 form (`::ffff:a.b.c.d`) counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.network.is_ipv4() && masked(address, self.prefix_len) == self.network
    }
}

const fn address_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn masked(address: IpAddr, prefix_len: u8) -> IpAddr {
    let host_bits = u32::from(address_bits(address).saturating_sub(prefix_len));
    match address {
        // A shift by the full width (prefix 0) is `None`: no bit is kept.
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address_text, prefix_text) =
            text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address =
            IpAddr::from_str(address_text).map_err(|_| CidrError::Address(address_text.to_owned()))?;
        if address.to_canonical() != address {
            return Err(CidrError::Mapped(text.to_owned()));
        }
        let max = address_bits(address);
        let prefix_len = match prefix_text {
            None => max,
            Some(digits) => parse_prefix_len(digits, max)
                .ok_or_else(|| CidrError::PrefixLen { text: digits.to_owned(), max })?,
        };
        let block = Self { network: masked(address, prefix_len), prefix_len };
        if block.network != address {
            return Err(CidrError::HostBits { written: text.to_owned(), meant: block });
        }
        Ok(block)
    }
}

/// Digits only: the standard parser would also take "+8".
fn parse_prefix_len(digits: &str, max: u8) -> Option<u8> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().filter(|len| *len <= max)
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_len)
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, CidrError> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(block: Cidr) -> Self {
        block.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_block_holds_exactly_its_addresses() {
        for (block, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("192.168.4.0/22", "192.168.7.255", "192.168.8.0"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "ffff::1", "1.2.3.4"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::10.1.2.3"),
        ] {
            let block: Cidr = block.parse().unwrap();
            assert!(block.contains(ip(inside)), "{block} {inside}");
            assert!(!block.contains(ip(outside)), "{block} {outside}");
        }
    }

    #[test]
    fn a_wrong_text_is_refused_with_the_reason() {
        for (text, says) in [
            ("", "not an IP address"),
            ("localhost", "not an IP address"),
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("::/129", "0 to 128"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("2001:db8::1/64", "write 2001:db8::/64"),
            ("::ffff:10.0.0.0/104", "IPv4 form"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_text_comes_back() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "::1/128", "2001:db8::/32"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        assert_eq!(Cidr::new(ip("10.1.2.3"), 8), Some("10.0.0.0/8".parse().unwrap()));
        assert_eq!(Cidr::new(ip("10.1.2.3"), 33), None);
    }
}
