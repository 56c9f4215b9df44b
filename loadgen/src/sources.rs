//! Where connections come from: local addresses and descriptors, both bounded by the system.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::output::Failure;

/// Standard streams, epoll, timers, files of /proc.
const DESCRIPTORS_BESIDE: u64 = 64;
const PORT_RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Linux's default, for systems that do not tell theirs.
const PORT_RANGE_DEFAULT: (u32, u32) = (32_768, 60_999);
/// 127.0.0.2 to 127.0.0.250.
const LOOPBACK_SOURCES_MAX: usize = 249;

/// Local addresses for many connections to one remote address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources {
    /// Connections from one address; `None`: the system chooses the address, for all of them.
    per_source: Option<usize>,
}

impl Sources {
    /// Spreads over several loopback addresses when one has not enough ports.
    pub(crate) fn for_connections(addr: SocketAddr, connections: usize) -> Result<Self, Failure> {
        let (low, high) = port_range();
        let ports = usize::try_from(high.saturating_sub(low).saturating_add(1)).unwrap_or(0);
        // Ports that other programs use, or that rest after a close, stay free of ours.
        let per_source = ports.saturating_sub(ports / 8).max(1);
        if connections <= per_source {
            return Ok(Self { per_source: None });
        }
        let is_loopback = addr.ip().is_loopback() && addr.is_ipv4();
        let most = if is_loopback { per_source.saturating_mul(LOOPBACK_SOURCES_MAX) } else { per_source };
        if connections > most {
            return Err(Failure::cannot_start(format!(
                "{connections} connections to {addr} need more than the {most} local ports there are ({low} to {high} in \
                 {PORT_RANGE_FILE}); ask for fewer, or run it from several machines"
            )));
        }
        Ok(Self { per_source: Some(per_source) })
    }

    /// The local address of a connection by its number; `None`: any.
    pub(crate) fn of(self, number: usize) -> Option<SocketAddr> {
        let source = number.checked_div(self.per_source?)?;
        let last = u8::try_from(source.saturating_add(2)).ok()?;
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0))
    }
}

fn port_range() -> (u32, u32) {
    let read = || {
        let text = fs::read_to_string(PORT_RANGE_FILE).ok()?;
        let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    read().unwrap_or(PORT_RANGE_DEFAULT)
}

/// Descriptors that so many connections take; asks the system for as many as it gives.
pub(crate) fn reserve_descriptors(connections: usize) -> Result<u64, Failure> {
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(DESCRIPTORS_BESIDE);
    let limit = rlimit::increase_nofile_limit(needed)
        .map_err(|error| Failure::cannot_start(format!("cannot read the descriptor limit: {error}")))?;
    if needed <= limit {
        return Ok(needed);
    }
    Err(Failure::cannot_start(format!(
        "{connections} connections need {needed} descriptors, but the limit is {limit}; at most {} connections fit: \
         ask for fewer, or raise it (ulimit -n, LimitNOFILE)",
        limit.saturating_sub(DESCRIPTORS_BESIDE)
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn many_connections_come_from_several_loopback_addresses_in_turn() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 7700));
        assert_eq!(Sources::for_connections(loopback, 10).unwrap().of(9), None);
        let many = Sources::for_connections(loopback, 70_000).unwrap();
        assert_eq!(many.of(0).unwrap().to_string(), "127.0.0.2:0");
        assert_ne!(many.of(69_999).unwrap(), many.of(0).unwrap());
        assert!(Sources::for_connections(loopback, usize::MAX).is_err());
        assert!(Sources::for_connections(SocketAddr::from(([192, 0, 2, 1], 7700)), 70_000).is_err());
        assert!(reserve_descriptors(usize::MAX).is_err());
        assert_eq!(reserve_descriptors(1).unwrap(), 65);
    }
}
