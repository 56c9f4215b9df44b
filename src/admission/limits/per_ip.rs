//! The limit of client addresses: one rate for most, others for the blocks that the operator names.
//!
//! Runs on the gateway's worker threads; see [`Limits`](super::Limits).

use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::super::Cidr;
use super::rung::Rule;
use super::table::{Cell, KeyTable};
use super::{LimitsSettings, Rate};

/// An address's cell knows its rule.
pub(super) type IpCell = Cell<u32>;

/// The rule of addresses that have no limit: none.
const EXEMPT: u32 = u32::MAX;

/// See the module.
pub(super) struct PerIp {
    /// By descending prefix length; the nth belongs to rule n + 1.
    overrides: Box<[Cidr]>,
    /// Rule 0 is for the addresses without an override; `None` = no limit.
    rules: Box<[Option<Rule>]>,
    /// Some address has a limit.
    is_on: bool,
    /// What a connection holds whose address has none.
    exempt: Arc<IpCell>,
    pub(super) table: KeyTable<IpKey, u32>,
}

impl PerIp {
    pub(super) fn new(settings: &LimitsSettings) -> Self {
        let mut overrides: Vec<_> =
            settings.per_ip_overrides.iter().map(|exception| (exception.cidr, exception.rate)).collect();
        overrides.sort_by_key(|(cidr, _)| std::cmp::Reverse(cidr.prefix_len()));
        let rates = std::iter::once(settings.per_ip).chain(overrides.iter().map(|(_, rate)| *rate));
        let rules: Box<[_]> = rates.map(|rate: Rate| Rule::new(rate)).collect();
        Self {
            overrides: overrides.into_iter().map(|(cidr, _)| cidr).collect(),
            is_on: rules.iter().any(Option::is_some),
            rules,
            exempt: Arc::new(Cell { state: AtomicU64::new(0), tag: EXEMPT }),
            table: KeyTable::new(settings.keys_max),
        }
    }

    /// `Err`: milliseconds after which it would pass.
    pub(super) fn check(&self, now_ns: u64, ip: IpAddr) -> Result<(), u32> {
        if !self.is_on {
            return Ok(());
        }
        let ip = ip.to_canonical();
        let number = self.rule_of(ip);
        self.rule(number).map_or(Ok(()), |rule| self.table.check(rule, now_ns, IpKey::new(number, ip)))
    }

    /// The same for an address whose cell is held, or is to be held from now on.
    #[inline]
    pub(super) fn check_held(
        &self,
        now_ns: u64,
        held: &OnceCell<Arc<IpCell>>,
        ip: IpAddr,
    ) -> Result<(), u32> {
        match held.get() {
            Some(cell) => self.check_cell(now_ns, cell),
            None if self.is_on => self.check_first(now_ns, held, ip),
            None => Ok(()),
        }
    }

    fn check_cell(&self, now_ns: u64, cell: &IpCell) -> Result<(), u32> {
        self.rule(cell.tag).map_or(Ok(()), |rule| rule.rung.check(now_ns, &cell.state))
    }

    #[cold]
    fn check_first(&self, now_ns: u64, held: &OnceCell<Arc<IpCell>>, ip: IpAddr) -> Result<(), u32> {
        let ip = ip.to_canonical();
        let number = self.rule_of(ip);
        let cell = match self.rule(number) {
            None => Arc::clone(&self.exempt),
            Some(rule) => {
                let key = IpKey::new(number, ip);
                match self.table.hold(rule, key, number) {
                    Some(cell) => cell,
                    // No room: limited in a shared bucket until there is.
                    None => return self.table.check(rule, now_ns, key),
                }
            }
        };
        self.check_cell(now_ns, held.get_or_init(|| cell))
    }

    fn rule_of(&self, ip: IpAddr) -> u32 {
        self.overrides.iter().zip(1..).find(|(cidr, _)| cidr.contains(ip)).map_or(0, |(_, number)| number)
    }

    fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)?.as_ref()
    }
}

/// What counts as one client address. The rule is part of it, so that all rules share one table though an IPv6
/// /64 may be cut by an override with a longer prefix. Three words of 32 bits: the table packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct IpKey {
    /// Twice the rule's number, plus 1 for IPv6.
    rule_and_family: u32,
    high: u32,
    low: u32,
}

impl IpKey {
    fn new(rule: u32, ip: IpAddr) -> Self {
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
}
