//! Devices and their users: when too many share one, or one has too many.
//!
//! Counting is a store's, over all gateways; here is what comes of a count. [`Recent`] keeps the same device and user
//! from being counted again at every connection. Pure: time is an argument, nothing here fails or waits.

mod recent;

pub use recent::Recent;

use std::time::Duration;

use super::flag::{Flag, Why};
use super::risk::{Effect, Subject};
use crate::protocol::UserId;

/// How many is too many, and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRules {
    /// Users of one device; 0 = any number.
    pub users_max: u32,
    /// Devices of one user; 0 = any number.
    pub per_user_max: u32,
    /// For how long a user counts after he was seen last.
    pub window: Duration,
    /// What becomes of the device, or of the user.
    pub effect: Effect,
    /// For how long.
    pub flag_for: Duration,
}

impl Default for DeviceRules {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours.saturating_mul(3600));
        Self { users_max: 0, per_user_max: 0, window: hours(24), effect: Effect::Slow, flag_for: hours(1) }
    }
}

impl DeviceRules {
    /// Whether anything is to be counted.
    pub const fn is_on(&self) -> bool {
        self.users_max > 0 || self.per_user_max > 0
    }

    /// For how long who was counted need not be counted again: often enough that he goes on to count, and that what
    /// was flagged does not get free while it goes on.
    pub fn count_again_after(&self) -> Duration {
        self.window.min(self.flag_for).div_f32(4.0)
    }

    /// What comes of the users counted on this device, and of this user's devices. A device whose name no list can hold
    /// is not flagged: its users are, one by one.
    pub fn judge(&self, device: &str, user: UserId, users: u32, devices: u32) -> impl Iterator<Item = Flag> {
        let is_over = |count: u32, max: u32| max > 0 && count > max;
        let shared = is_over(users, self.users_max).then(|| Flag {
            subject: Subject::device(device).unwrap_or(Subject::User(user)),
            effect: self.effect,
            lasts: self.flag_for,
            why: Why::UsersOfDevice { max: self.users_max, window: self.window },
        });
        let many = is_over(devices, self.per_user_max).then_some(Flag {
            subject: Subject::User(user),
            effect: self.effect,
            lasts: self.flag_for,
            why: Why::DevicesOfUser { max: self.per_user_max, window: self.window },
        });
        shared.into_iter().chain(many)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rules() -> DeviceRules {
        DeviceRules { users_max: 3, per_user_max: 2, effect: Effect::Block, ..DeviceRules::default() }
    }

    fn judged(rules: &DeviceRules, device: &str, users: u32, devices: u32) -> Vec<String> {
        let flags = rules.judge(device, UserId::new(7).unwrap(), users, devices);
        flags.map(|flag| format!("{} {}", flag.subject, flag.effect)).collect()
    }

    #[test]
    fn as_many_as_may_be_are_fine_and_one_more_is_not() {
        assert!(judged(&rules(), "d", 3, 2).is_empty());
        assert_eq!(judged(&rules(), "d", 4, 2), ["device:d block"]);
        assert_eq!(judged(&rules(), "d", 3, 3), ["user:7 block"]);
        assert_eq!(judged(&rules(), "d", 4, 3), ["device:d block", "user:7 block"]);
        let off = DeviceRules::default();
        assert!(!off.is_on() && judged(&off, "d", u32::MAX, u32::MAX).is_empty());
        let one_way = DeviceRules { per_user_max: 0, ..rules() };
        assert_eq!(judged(&one_way, "d", 9, 9), ["device:d block"]);
    }

    #[test]
    fn of_a_device_that_no_list_can_hold_the_users_are_flagged() {
        for hostile in ["new\nline", "nul\0", "\u{1b}[2J"] {
            assert_eq!(judged(&rules(), hostile, 4, 1), ["user:7 block"], "{hostile:?}");
        }
        for odd in ["{07}:meta", "user:9", "' OR 1=1 --", "\u{202E}reversed", "*"] {
            assert_eq!(judged(&rules(), odd, 4, 1), [format!("device:{odd} block")], "{odd:?}");
        }
    }
}
