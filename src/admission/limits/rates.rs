//! The rates in force: a snapshot that is replaced whole when switches or the share of this gateway change.
//!
//! Plain data that the funnel reads together with what is on sale; states are apart from it, in
//! [`Limits`](super::Limits) and [`ActivityLimit`](super::ActivityLimit), and go on through every change.

use std::sync::Arc;

use super::ip_key::IpKey;
use super::pace::Pace;
use super::per_ip::IpPaces;
use super::{LimitsSettings, OpenUnpaidMax, Rate, Share};
use crate::protocol::ActivityId;

/// What operators have set instead of the configuration; `None` = as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateSwitches {
    /// See [`LimitsSettings::global`].
    pub global: Option<Rate>,
    /// See [`LimitsSettings::per_ip`]; overrides stay.
    pub per_ip: Option<Rate>,
    /// See [`LimitsSettings::per_user`].
    pub per_user: Option<Rate>,
    /// See [`LimitsSettings::result_per_user`].
    pub result_per_user: Option<Rate>,
    /// See [`LimitsSettings::per_connection`].
    pub per_connection: Option<Rate>,
    /// See [`OpenUnpaidMax::per_user`].
    pub open_unpaid_per_user: Option<u8>,
    /// See [`OpenUnpaidMax::per_device`].
    pub open_unpaid_per_device: Option<u8>,
    /// Of single activities, instead of [`LimitsSettings::per_activity`]. By ascending number, none twice.
    pub activities: Vec<(ActivityId, Rate)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Rates {
    configured: Arc<LimitsSettings>,
    switches: RateSwitches,
    share: Share,
    pub(super) global: Pace,
    pub(super) ips: IpPaces,
    pub(super) per_user: Pace,
    pub(super) result_per_user: Pace,
    pub(super) per_connection: Pace,
    open_unpaid: OpenUnpaidMax,
}

impl Rates {
    /// As configured.
    pub fn new(settings: &LimitsSettings) -> Self {
        let own = |rate| Pace::new(rate, Share::WHOLE);
        Self {
            configured: Arc::new(settings.clone()),
            switches: RateSwitches::default(),
            share: Share::WHOLE,
            global: own(settings.global),
            ips: IpPaces::new(settings),
            per_user: own(settings.per_user),
            result_per_user: own(settings.result_per_user),
            per_connection: own(settings.per_connection),
            open_unpaid: settings.open_unpaid,
        }
    }

    /// Under these switches from that time on.
    #[must_use]
    pub fn switched(&self, now_ns: u64, switches: RateSwitches) -> Self {
        self.changed(now_ns, switches, self.share)
    }

    /// With this share of what is meant for all gateways from that time on.
    #[must_use]
    pub fn shared(&self, now_ns: u64, share: Share) -> Self {
        self.changed(now_ns, self.switches.clone(), share)
    }

    fn changed(&self, now_ns: u64, switches: RateSwitches, share: Share) -> Self {
        let (configured, own) = (&self.configured, Share::WHOLE);
        let set = |switch: Option<Rate>, configured: Rate| switch.unwrap_or(configured);
        let per_ip = set(switches.per_ip, configured.per_ip);
        Self {
            configured: Arc::clone(configured),
            share,
            global: self.global.changed(now_ns, set(switches.global, configured.global), share),
            ips: self.ips.changed(now_ns, per_ip, share),
            per_user: self.per_user.changed(now_ns, set(switches.per_user, configured.per_user), own),
            result_per_user: self.result_per_user.changed(
                now_ns,
                set(switches.result_per_user, configured.result_per_user),
                own,
            ),
            per_connection: self.per_connection.changed(
                now_ns,
                set(switches.per_connection, configured.per_connection),
                own,
            ),
            open_unpaid: OpenUnpaidMax {
                per_user: switches.open_unpaid_per_user.unwrap_or(configured.open_unpaid.per_user),
                per_device: switches.open_unpaid_per_device.unwrap_or(configured.open_unpaid.per_device),
            },
            switches,
        }
    }

    /// What operators have set.
    pub const fn switches(&self) -> &RateSwitches {
        &self.switches
    }

    /// What this gateway gives out by itself.
    pub const fn share(&self) -> Share {
        self.share
    }

    /// How many reservations may be open and unpaid.
    pub const fn open_unpaid(&self) -> OpenUnpaidMax {
        self.open_unpaid
    }

    /// The global rate, for all gateways together.
    pub const fn global(&self) -> Rate {
        self.global.rate()
    }

    /// The rate of an address, for all gateways together.
    pub fn ip(&self, key: IpKey) -> Rate {
        self.ips.pace(key.rule()).map_or(Rate::OFF, Pace::rate)
    }

    /// The rate of an activity, for all gateways together.
    pub fn activity(&self, id: ActivityId) -> Rate {
        let set = &self.switches.activities;
        let index = set.binary_search_by_key(&id, |(activity, _)| *activity);
        let own = index.ok().and_then(|index| set.get(index)).map(|(_, rate)| *rate);
        own.unwrap_or(self.configured.per_activity)
    }
}
