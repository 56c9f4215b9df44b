//! What a request names in its TLVs: user, client address, device.
//!
//! Runs on the connection's task, inside one wake. Whether anybody believes it is the session's to say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::protocol::{DEVICE_BYTES_MAX, Frame, Status, tlv};

/// What a request's TLVs name. They have to be well-formed whoever sends them, also where nobody believes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) user: Option<u64>,
    pub(super) ip: Option<IpAddr>,
}

impl Named {
    /// In one pass; of several TLVs of a type the first counts.
    pub(super) fn of(frame: &Frame<'_>) -> Result<Self, Status> {
        let mut named = Self { user: None, ip: None };
        let mut has_device = false;
        for (kind, value) in frame.tlvs() {
            match kind {
                tlv::USER if named.user.is_none() => {
                    let user = <[u8; 8]>::try_from(value).map_err(|_| Status::BadBody)?;
                    named.user = Some(u64::from_be_bytes(user));
                }
                tlv::CLIENT_ADDR if named.ip.is_none() => named.ip = Some(client_addr(value)?),
                tlv::DEVICE if !has_device => {
                    has_device = true;
                    let fits = (1..=DEVICE_BYTES_MAX).contains(&value.len());
                    if !fits || std::str::from_utf8(value).is_err() {
                        return Err(Status::BadBody);
                    }
                }
                _ => {}
            }
        }
        Ok(named)
    }
}

fn client_addr(value: &[u8]) -> Result<IpAddr, Status> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Ok(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    <[u8; 16]>::try_from(value).map(|v6| IpAddr::V6(Ipv6Addr::from(v6))).map_err(|_| Status::BadBody)
}
