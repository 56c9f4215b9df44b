//! What is listed, as a snapshot: users, blocks of addresses, devices.
//!
//! Made by one task from what a store says, read by every worker. A change makes another snapshot that shares nearly all of
//! its memory (see `pages`). Expired entries do not count, whether or not they are still here; time is an argument.

use std::net::IpAddr;
use std::sync::Arc;

use super::pages::{Pages, Standing};
use super::subject::{Effect, Listing, Subject, SubjectKind};
use crate::admission::Cidr;
use crate::protocol::UserId;

/// Whom a request is from, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The user.
    pub user: UserId,
    /// His address.
    pub ip: Option<IpAddr>,
    /// His device.
    pub device: Option<&'a str>,
}

/// An entry, as a snapshot has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Whom it is about.
    pub subject: Subject,
    /// What becomes of it.
    pub effect: Effect,
    /// Until when; 0 = for good.
    pub until_ms: u64,
    /// By a gateway, as a flag.
    pub is_flag: bool,
}

impl Listed {
    /// How it is listed.
    pub const fn listing(&self) -> Listing {
        let Self { effect, until_ms, is_flag, .. } = *self;
        Listing { effect, until_ms, is_flag }
    }
}

/// What the lists say of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// By any of his names.
    pub(super) is_blocked: bool,
    /// By which of his names he is slowed; each is a number for that subject, the same as long as it is listed.
    pub(super) slowed: [Option<u64>; 3],
    /// When what was found may be over.
    pub(super) until_ms: u64,
}

impl Found {
    const NOTHING: Self = Self { is_blocked: false, slowed: [None; 3], until_ms: u64::MAX };

    fn add(&mut self, standing: Standing, kind: SubjectKind, hash: u64) {
        self.until_ms = self.until_ms.min(standing.until_ms());
        match standing.effect() {
            Effect::Block => self.is_blocked = true,
            Effect::Slow => {
                if let Some(slowed) = self.slowed.get_mut(kind as usize) {
                    *slowed = Some(hash);
                }
            }
        }
    }
}

/// Blocks of addresses: one look for each prefix length that was ever listed.
#[derive(Clone, Debug, Default)]
struct Blocks {
    entries: Pages<Cidr>,
    /// Bit n: a block of IPv4 with n leading bits may be here.
    v4_lengths: u64,
    /// The same of IPv6, and whether one with all 128 may be.
    v6_lengths: (u128, bool),
}

impl Blocks {
    fn with(&self, changes: Vec<(Cidr, Option<Standing>)>, now_ms: u64) -> Self {
        let (mut v4_lengths, mut v6_lengths) = (self.v4_lengths, self.v6_lengths);
        for (block, _) in changes.iter().filter(|(_, standing)| standing.is_some()) {
            let bits = u32::from(block.prefix_len());
            if block.is_ipv4() {
                v4_lengths |= 1_u64.checked_shl(bits).unwrap_or_default();
            } else {
                match 1_u128.checked_shl(bits) {
                    Some(bit) => v6_lengths.0 |= bit,
                    None => v6_lengths.1 = true,
                }
            }
        }
        let entries = self.entries.with(changes, now_ms);
        // A length that nobody has any more costs a look; the next time that all is read, it is gone.
        if entries.len() == 0 {
            return Self { entries, ..Self::default() };
        }
        Self { entries, v4_lengths, v6_lengths }
    }

    /// The longest first: whoever is slowed by several blocks is so by the narrowest.
    fn lengths(&self, ip: IpAddr) -> impl Iterator<Item = u8> {
        let (mut bits, all) = match ip {
            IpAddr::V4(_) => (u128::from(self.v4_lengths), false),
            IpAddr::V6(_) => self.v6_lengths,
        };
        let longest = all.then_some(128);
        // From bit to bit: there are few, and each request asks.
        let others = std::iter::from_fn(move || {
            let highest = bits.checked_ilog2()?;
            bits &= !1_u128.checked_shl(highest)?;
            u8::try_from(highest).ok()
        });
        longest.into_iter().chain(others)
    }

    fn covering(&self, ip: IpAddr) -> impl Iterator<Item = (Cidr, u64, Standing)> {
        let ip = ip.to_canonical();
        self.lengths(ip).filter_map(move |bits| {
            let block = Cidr::new(ip, bits)?;
            let hash = self.entries.hash(&block);
            self.entries.find(hash, |key| *key == block).map(|standing| (block, hash, standing))
        })
    }
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    users: Arc<Pages<u64>>,
    blocks: Arc<Blocks>,
    devices: Arc<Pages<Arc<str>>>,
}

impl Lists {
    /// The lists after these changes, in their order; `None`: taken off. What has passed at `now_ms` may be dropped.
    #[must_use]
    pub fn with<L: Into<Listing>>(&self, changes: Vec<(Subject, Option<L>)>, now_ms: u64) -> Self {
        let (mut users, mut blocks, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for (subject, listed) in changes {
            let standing = listed.map(|listing| Standing::new(listing.into()));
            match subject {
                Subject::User(user) => users.push((user.0, standing)),
                Subject::Ip(block) => blocks.push((block, standing)),
                Subject::Device(name) => devices.push((name, standing)),
            }
        }
        let mut after = self.clone();
        if !users.is_empty() {
            after.users = Arc::new(self.users.with(users, now_ms));
        }
        if !blocks.is_empty() {
            after.blocks = Arc::new(self.blocks.with(blocks, now_ms));
        }
        if !devices.is_empty() {
            after.devices = Arc::new(self.devices.with(devices, now_ms));
        }
        after
    }

    /// Nobody. Of these lists nevertheless: whoever is listed again has the same number, and waits as long as he would have.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            users: Arc::new(self.users.emptied()),
            blocks: Arc::new(Blocks { entries: self.blocks.entries.emptied(), ..Blocks::default() }),
            devices: Arc::new(self.devices.emptied()),
        }
    }

    /// How many are listed of a kind, some of those whose time has passed included.
    pub fn len(&self, kind: SubjectKind) -> usize {
        match kind {
            SubjectKind::User => self.users.len(),
            SubjectKind::Ip => self.blocks.entries.len(),
            SubjectKind::Device => self.devices.len(),
        }
    }

    /// Whether nobody is listed.
    pub fn is_empty(&self) -> bool {
        SubjectKind::ALL.into_iter().all(|kind| self.len(kind) == 0)
    }

    /// What is listed of somebody, for whoever asks why.
    pub fn of(
        &self,
        user: Option<UserId>,
        ip: Option<IpAddr>,
        device: Option<&str>,
        now_ms: u64,
    ) -> Vec<Listed> {
        let by_user = user.and_then(|user| Some((Subject::User(user), self.user(user)?.1)));
        let by_ip = ip.into_iter().flat_map(|ip| self.blocks.covering(ip));
        let by_ip = by_ip.map(|(block, _, standing)| (Subject::Ip(block), standing));
        let by_device = device.and_then(|name| Some((Subject::device(name)?, self.device(name)?.1)));
        let found = by_user.into_iter().chain(by_ip).chain(by_device);
        found.filter(|(_, standing)| standing.holds(now_ms)).map(listed).collect()
    }

    /// How this very subject is listed, also if its time has passed.
    pub fn listing(&self, subject: &Subject) -> Option<Listing> {
        let standing = match subject {
            Subject::User(user) => self.user(*user)?.1,
            Subject::Ip(block) => {
                let entries = &self.blocks.entries;
                entries.find(entries.hash(block), |key| key == block)?
            }
            Subject::Device(name) => self.device(name)?.1,
        };
        Some(standing.listing())
    }

    /// Everything that is listed and has not passed.
    pub fn iter(&self, now_ms: u64) -> impl Iterator<Item = Listed> + '_ {
        let users = self
            .users
            .iter()
            .filter_map(|(id, standing)| Some((Subject::User(UserId::new(*id)?), *standing)));
        let blocks = self.blocks.entries.iter().map(|(block, standing)| (Subject::Ip(*block), *standing));
        let devices =
            self.devices.iter().map(|(name, standing)| (Subject::Device(Arc::clone(name)), *standing));
        users.chain(blocks).chain(devices).filter(move |(_, standing)| standing.holds(now_ms)).map(listed)
    }

    /// `None`: he is not listed by any of his names.
    #[inline]
    pub(super) fn find(&self, who: &Who<'_>, now_ms: u64) -> Option<Found> {
        let by_user = self.user(who.user);
        let by_device = who.device.and_then(|name| self.device(name));
        let ip = who.ip.filter(|_| self.blocks.entries.len() > 0);
        if by_user.is_none() && by_device.is_none() && ip.is_none() {
            return None;
        }
        self.found(by_user, by_device, ip, now_ms)
    }

    fn found(
        &self,
        by_user: Option<(u64, Standing)>,
        by_device: Option<(u64, Standing)>,
        ip: Option<IpAddr>,
        now_ms: u64,
    ) -> Option<Found> {
        let mut found = Found::NOTHING;
        let mut add = |kind, (hash, standing): (u64, Standing)| {
            if standing.holds(now_ms) {
                found.add(standing, kind, hash);
            }
        };
        if let Some(by_user) = by_user {
            add(SubjectKind::User, by_user);
        }
        if let Some(by_device) = by_device {
            add(SubjectKind::Device, by_device);
        }
        if let Some(ip) = ip {
            // The narrowest comes first: the one that slows.
            let mut is_slowed = false;
            for (_, hash, standing) in
                self.blocks.covering(ip).filter(|(.., standing)| standing.holds(now_ms))
            {
                let is_slow = standing.effect() == Effect::Slow;
                if !(is_slow && is_slowed) {
                    add(SubjectKind::Ip, (hash, standing));
                }
                is_slowed |= is_slow;
            }
        }
        (found != Found::NOTHING).then_some(found)
    }

    #[inline]
    fn user(&self, user: UserId) -> Option<(u64, Standing)> {
        if self.users.len() == 0 {
            return None;
        }
        let hash = self.users.hash(&user.0);
        self.users.find(hash, |key| *key == user.0).map(|standing| (hash, standing))
    }

    fn device(&self, name: &str) -> Option<(u64, Standing)> {
        if self.devices.len() == 0 {
            return None;
        }
        let hash = self.devices.hash(name);
        self.devices.find(hash, |key| &**key == name).map(|standing| (hash, standing))
    }

    #[cfg(test)]
    pub(super) fn slot_bytes(&self) -> usize {
        let blocks = self.blocks.entries.slot_bytes();
        self.users.slot_bytes().saturating_add(blocks).saturating_add(self.devices.slot_bytes())
    }
}

fn listed((subject, standing): (Subject, Standing)) -> Listed {
    let Listing { effect, until_ms, is_flag } = standing.listing();
    Listed { subject, effect, until_ms, is_flag }
}
