//! The limit of client addresses: one rate for most, others for the blocks that the operator names.
//!
//! Runs on the gateway's worker threads; see [`Limits`](super::Limits).

use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::super::Cidr;
use super::ip_key::IpKey;
use super::overflow::Overflow;
use super::pace::Pace;
use super::slices::Slices;
use super::table::{Cell, KeyTable, Rule};
use super::{LimitsSettings, Rate, Share};

/// An address's cell knows its rule.
pub(super) type IpCell = Cell<u32>;

/// The rule of addresses that have no limit: none.
const EXEMPT: u32 = u32::MAX;

/// The paces of addresses. Rule 0 is for those without an override.
#[derive(Clone, Debug)]
pub(super) struct IpPaces {
    by_rule: Box<[Pace]>,
    /// Some address has a limit.
    is_on: bool,
}

impl IpPaces {
    pub(super) fn new(settings: &LimitsSettings) -> Self {
        let overrides = sorted(settings).into_iter().map(|(_, rate)| rate);
        let rates = std::iter::once(settings.per_ip).chain(overrides);
        Self::of(rates.map(|rate| Pace::new(rate, Share::WHOLE)).collect())
    }

    fn of(by_rule: Box<[Pace]>) -> Self {
        Self { is_on: by_rule.iter().any(Pace::is_on), by_rule }
    }

    pub(super) fn changed(&self, now_ns: u64, per_ip: Rate, share: Share) -> Self {
        let rates = std::iter::once(per_ip).chain(self.by_rule.iter().skip(1).map(Pace::rate));
        Self::of(
            self.by_rule.iter().zip(rates).map(|(pace, rate)| pace.changed(now_ns, rate, share)).collect(),
        )
    }

    #[inline]
    pub(super) fn pace(&self, rule: u32) -> Option<&Pace> {
        self.by_rule.get(usize::try_from(rule).ok()?)
    }
}

/// By descending prefix length; the nth is rule n + 1.
fn sorted(settings: &LimitsSettings) -> Vec<(Cidr, Rate)> {
    let mut overrides: Vec<_> =
        settings.per_ip_overrides.iter().map(|exception| (exception.cidr, exception.rate)).collect();
    overrides.sort_by_key(|(cidr, _)| std::cmp::Reverse(cidr.prefix_len()));
    overrides
}

/// See the module.
pub(super) struct PerIp {
    overrides: Box<[Cidr]>,
    /// By rule.
    overflows: Box<[Overflow]>,
    /// What a connection holds whose address has an override without a limit: those do not change.
    exempt: Arc<IpCell>,
    pub(super) table: KeyTable<IpKey, u32>,
}

impl PerIp {
    pub(super) fn new(settings: &LimitsSettings) -> Self {
        let overrides: Box<[_]> = sorted(settings).into_iter().map(|(cidr, _)| cidr).collect();
        let overflows = (0..=overrides.len()).map(|_| Overflow::default()).collect();
        let exempt = Arc::new(Cell { state: AtomicU64::new(0), tag: EXEMPT });
        Self { overrides, overflows, exempt, table: KeyTable::new(settings.keys_max) }
    }

    /// `Err`: milliseconds after which it would pass.
    pub(super) fn check(&self, paces: &IpPaces, slices: &Slices, now_ns: u64, ip: IpAddr) -> Result<(), u32> {
        if !paces.is_on {
            return Ok(());
        }
        let ip = ip.to_canonical();
        let number = self.rule_of(ip);
        let Some(rule) = self.rule(paces, number) else { return Ok(()) };
        let key = IpKey::new(number, ip);
        let passed = self.table.check(rule, now_ns, key);
        passed.or_else(|wait_ms| rule.pace.or_borrowed(wait_ms, || slices.take_ip(now_ns, key)))
    }

    /// The same for an address whose cell is held, or is to be held from now on.
    #[inline]
    pub(super) fn check_held(
        &self,
        paces: &IpPaces,
        slices: &Slices,
        now_ns: u64,
        held: &OnceCell<Arc<IpCell>>,
        ip: IpAddr,
    ) -> Result<(), u32> {
        if !paces.is_on {
            return Ok(());
        }
        match held.get() {
            Some(cell) => Self::check_cell(paces, slices, now_ns, cell, ip),
            None => self.check_first(paces, slices, now_ns, held, ip),
        }
    }

    #[inline]
    fn check_cell(
        paces: &IpPaces,
        slices: &Slices,
        now_ns: u64,
        cell: &IpCell,
        ip: IpAddr,
    ) -> Result<(), u32> {
        let Some(pace) = paces.pace(cell.tag).filter(|pace| pace.is_on()) else { return Ok(()) };
        let passed = pace.check(now_ns, &cell.state);
        passed.or_else(|wait_ms| {
            pace.or_borrowed(wait_ms, || slices.take_ip(now_ns, IpKey::new(cell.tag, ip.to_canonical())))
        })
    }

    #[cold]
    fn check_first(
        &self,
        paces: &IpPaces,
        slices: &Slices,
        now_ns: u64,
        held: &OnceCell<Arc<IpCell>>,
        ip: IpAddr,
    ) -> Result<(), u32> {
        let number = self.rule_of(ip.to_canonical());
        let is_exempt = number != 0 && self.rule(paces, number).is_none();
        let cell = if is_exempt {
            Some(Arc::clone(&self.exempt))
        } else {
            // Also while rule 0 is off: it may come on, and others would be looked through each time.
            let overflow = usize::try_from(number).ok().and_then(|number| self.overflows.get(number));
            let key = IpKey::new(number, ip.to_canonical());
            overflow.and_then(|overflow| self.table.hold(overflow, key, number))
        };
        match cell {
            Some(cell) => Self::check_cell(paces, slices, now_ns, held.get_or_init(|| cell), ip),
            // No room: limited in a shared bucket until there is.
            None => self.check(paces, slices, now_ns, ip),
        }
    }

    /// See [`Limits::lend_ip`](super::Limits::lend_ip).
    pub(super) fn lend(&self, paces: &IpPaces, now_ns: u64, key: IpKey, most: u32) -> u32 {
        self.rule(paces, key.rule()).map_or(0, |rule| self.table.lend(rule, now_ns, key, most))
    }

    fn rule_of(&self, ip: IpAddr) -> u32 {
        self.overrides.iter().zip(1..).find(|(cidr, _)| cidr.contains(ip)).map_or(0, |(_, number)| number)
    }

    /// `None` = no limit.
    fn rule<'a>(&'a self, paces: &'a IpPaces, number: u32) -> Option<Rule<'a>> {
        let pace = paces.pace(number).filter(|pace| pace.is_on())?;
        let overflow = self.overflows.get(usize::try_from(number).ok()?)?;
        Some(Rule { pace, overflow })
    }

    /// See [`Limits::retain`](super::Limits::retain).
    pub(super) fn retain(&self, paces: &IpPaces, now_ns: u64) {
        let rests: Vec<u64> = paces.by_rule.iter().map(|pace| pace.rest(now_ns)).collect();
        let rest = |rule: u32| usize::try_from(rule).ok().and_then(|rule| rests.get(rule)).copied();
        self.table.retain(|key: IpKey, state| state <= rest(key.rule()).unwrap_or(u64::MAX));
    }
}
