//! What a request names in its TLVs: user, client address, device, claims.
//!
//! Runs on the connection's task, inside one wake. Whether anybody believes it is the session's to say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::protocol::{CLAIMS_BYTES_MAX, DEVICE_BYTES_MAX, Frame, Status, tlv};

/// What a request's TLVs name. They have to be well-formed whoever sends them, also where nobody believes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) user: Option<u64>,
    pub(super) ip: Option<IpAddr>,
    pub(super) device: Option<&'a str>,
    /// Of the user; looked into only where a rule needs it.
    pub(super) claims: Option<&'a str>,
}

impl<'a> Named<'a> {
    /// In one pass; of several TLVs of a type the first counts.
    pub(super) fn of(frame: &Frame<'a>) -> Result<Self, Status> {
        let mut named = Self { user: None, ip: None, device: None, claims: None };
        for (kind, value) in frame.tlvs() {
            match kind {
                tlv::USER if named.user.is_none() => {
                    let user = <[u8; 8]>::try_from(value).map_err(|_| Status::BadBody)?;
                    named.user = Some(u64::from_be_bytes(user));
                }
                tlv::CLIENT_ADDR if named.ip.is_none() => named.ip = Some(client_addr(value)?),
                tlv::DEVICE if named.device.is_none() => named.device = Some(text(value, DEVICE_BYTES_MAX)?),
                tlv::CLAIMS if named.claims.is_none() => named.claims = Some(text(value, CLAIMS_BYTES_MAX)?),
                _ => {}
            }
        }
        Ok(named)
    }
}

/// UTF-8 of 1 to so many bytes.
fn text(value: &[u8], bytes_max: usize) -> Result<&str, Status> {
    if !(1..=bytes_max).contains(&value.len()) {
        return Err(Status::BadBody);
    }
    std::str::from_utf8(value).map_err(|_| Status::BadBody)
}

fn client_addr(value: &[u8]) -> Result<IpAddr, Status> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Ok(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    <[u8; 16]>::try_from(value).map(|v6| IpAddr::V6(Ipv6Addr::from(v6))).map_err(|_| Status::BadBody)
}
