//! What a gateway tells of its risk lists, and of what became of somebody.
//!
//! Asked by the admin port's task; reads snapshots.

use std::net::IpAddr;

use super::explain::LastBuy;
use super::start::Gateway;
use crate::admission::risk::{Listed, SubjectKind};
use crate::protocol::UserId;

/// How the risk lists stand on a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RiskStatus {
    /// Of the last change in force.
    pub version: u64,
    /// For how long the store has not confirmed it.
    pub age_ms: u64,
    /// Users listed; of each kind some whose time has passed may be counted.
    pub users: usize,
    /// Blocks of addresses listed.
    pub ips: usize,
    /// Devices listed.
    pub devices: usize,
}

impl Gateway {
    /// How the risk lists stand here.
    pub fn risk_status(&self) -> RiskStatus {
        let core = self.core();
        let lists = core.funnel.risk.lists();
        RiskStatus {
            version: core.risk.version(),
            age_ms: core.risk.age_ms(core.clock.now().mono_ms()),
            users: lists.len(SubjectKind::User),
            ips: lists.len(SubjectKind::Ip),
            devices: lists.len(SubjectKind::Device),
        }
    }

    /// What is listed of somebody here, by whichever of his names is given.
    pub fn risk_of(&self, user: Option<UserId>, ip: Option<IpAddr>, device: Option<&str>) -> Vec<Listed> {
        let core = self.core();
        core.funnel.risk.lists().of(user, ip, device, core.clock.now().sale_ms)
    }

    /// What became of a user's last BUY here, if it is remembered.
    pub fn last_buy(&self, user: UserId) -> Option<LastBuy> {
        self.core().funnel.explain.of(user)
    }
}
