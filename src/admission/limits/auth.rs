//! The limit of AUTH: how often a client address may show a token.
//!
//! Checking one costs a signature, or a question to the store, and who shows wrong ones pays nothing for it. So it is
//! asked before the token is looked at, of this gateway alone, by the same table of addresses as BUY's limit, with states
//! of its own. Addresses that are exempt there are exempt here.

use std::net::IpAddr;

use super::per_ip::{IpPaces, PerIp};
use super::slices::Slices;
use super::{LimitsSettings, Rate};

/// See the module.
pub(super) struct AuthLimit {
    paces: IpPaces,
    ips: PerIp,
    /// Nothing is borrowed.
    slices: Slices,
}

impl AuthLimit {
    pub(super) fn new(settings: &LimitsSettings) -> Self {
        let is_exempt = |exception: &&super::IpOverride| exception.rate == Rate::OFF;
        let settings = LimitsSettings {
            per_ip: settings.auth_per_ip,
            per_ip_overrides: settings.per_ip_overrides.iter().filter(is_exempt).copied().collect(),
            keys_max: settings.keys_max,
            ..LimitsSettings::default()
        };
        Self { paces: IpPaces::new(&settings), ips: PerIp::new(&settings), slices: Slices::new() }
    }

    /// `Err`: milliseconds after which it would pass.
    pub(super) fn check(&self, now_ns: u64, ip: IpAddr) -> Result<(), u32> {
        self.ips.check(&self.paces, &self.slices, now_ns, ip)
    }

    pub(super) fn retain(&self, now_ns: u64) {
        self.ips.retain(&self.paces, now_ns);
    }
}
