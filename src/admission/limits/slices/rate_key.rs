//! Which of the shared rates: a name that means the same on every gateway.

use super::super::IpKey;
use crate::protocol::ActivityId;

/// One of the rates that all gateways share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateKey {
    /// Of all requests.
    Global,
    /// Of one activity.
    Activity(ActivityId),
    /// Of one client address. The rule is part of it: the same on gateways with the same overrides.
    Ip(IpKey),
}

impl RateKey {
    /// As stores know it.
    pub fn name(self) -> String {
        match self {
            Self::Global => "g".to_owned(),
            Self::Activity(activity) => format!("a:{activity}"),
            Self::Ip(key) => format!("i:{:024x}", key.number()),
        }
    }

    /// By its name; `None` for what no gateway of this version calls so.
    pub fn parse(name: &str) -> Option<Self> {
        if name == "g" {
            return Some(Self::Global);
        }
        let (kind, rest) = name.split_once(':')?;
        let key = match kind {
            "a" => Self::Activity(ActivityId(rest.parse().ok()?)),
            "i" => Self::Ip(IpKey::of_number(u128::from_str_radix(rest, 16).ok()?)?),
            _ => return None,
        };
        // No other spelling: two names of one rate would be two pools.
        (key.name() == name).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_name_tells_the_rate_and_nothing_else_does() {
        let keys = ["192.0.2.1", "2001:db8:1:2:3::4", "::", "255.255.255.255"].map(|ip| ip.parse().unwrap());
        let addresses = keys.map(|ip| RateKey::Ip(IpKey::new(3, ip)));
        for key in [RateKey::Global, RateKey::Activity(ActivityId(7))].into_iter().chain(addresses) {
            assert_eq!(RateKey::parse(&key.name()), Some(key), "{}", key.name());
        }
        assert_eq!(addresses.map(RateKey::name)[0], "i:0000000600000000c0000201");
        for odd in
            ["", "g:", "G", "a", "a:", "a:07", "a:-1", "a:x", "i:1", "i:", "i:g", "u:1", "a:99999999999"]
        {
            assert_eq!(RateKey::parse(odd), None, "{odd:?}");
        }
        assert_eq!(RateKey::parse(&format!("i:{:032x}", u128::MAX)), None);
    }
}
