//! What counts as one client address: an IPv4 address, an IPv6 /64. Pure.

use std::net::IpAddr;

/// One client address under the rule that limits it. The rule is part of it, so that all rules share one table though
/// an IPv6 /64 may be cut by an override with a longer prefix. Three words of 32 bits: the table packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpKey {
    /// Twice the rule's number, plus 1 for IPv6.
    rule_and_family: u32,
    high: u32,
    low: u32,
}

impl IpKey {
    /// Of a canonical address.
    pub(super) fn new(rule: u32, ip: IpAddr) -> Self {
        let rule_and_family = rule.wrapping_shl(1);
        match ip {
            IpAddr::V4(v4) => Self { rule_and_family, high: 0, low: v4.to_bits() },
            // The upper half: a subscriber commonly has a whole /64.
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                let word = |upper: u16, lower: u16| (u32::from(upper) << 16) | u32::from(lower);
                Self { rule_and_family: rule_and_family | 1, high: word(a, b), low: word(c, d) }
            }
        }
    }

    /// The rule's number; 0 = no override.
    pub(super) const fn rule(self) -> u32 {
        self.rule_and_family >> 1
    }

    /// As a number: the same on every gateway with these overrides.
    pub fn number(self) -> u128 {
        let [rule_and_family, high, low] = [self.rule_and_family, self.high, self.low].map(u128::from);
        (rule_and_family << 64) | (high << 32) | low
    }

    /// By its number, if it is one.
    pub fn of_number(number: u128) -> Option<Self> {
        let word = |bits: u128| u32::try_from(bits & u128::from(u32::MAX)).ok();
        let rule_and_family = u32::try_from(number >> 64).ok()?;
        Some(Self { rule_and_family, high: word(number >> 32)?, low: word(number)? })
    }
}
