//! The sections of what a gateway flags by itself, with their defaults. What a value may be is in `schema`; what each key is
//! for, at length, in rushgate.example.toml.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Config, text};
use crate::admission::behaviour::BehaviourRules;
use crate::admission::devices::DeviceRules;
use crate::admission::risk;

/// `[devices]`: how many users a device may have, and devices a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Devices {
    /// Users of one device; 0 = any number.
    pub users_max: u32,
    /// Devices of one user; 0 = any number.
    pub per_user_max: u32,
    /// For how long one counts after he was seen last.
    #[serde(with = "text::duration")]
    pub window: Duration,
    /// What becomes of the device, or of the user.
    pub effect: Effect,
    /// For how long.
    #[serde(with = "text::duration")]
    pub flag_for: Duration,
}

/// `[behaviour]`: how many requests a user may make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Requests a minute that one user may go on with; 0 = any number.
    pub per_minute: u32,
    /// At once, after a rest.
    pub burst: u32,
    /// For how long he is slowed who makes more.
    #[serde(with = "text::duration")]
    pub slow_for: Duration,
    /// So many more, and he is blocked.
    pub block_after: u32,
    /// For how long.
    #[serde(with = "text::duration")]
    pub block_for: Duration,
}

impl Default for Behaviour {
    fn default() -> Self {
        let BehaviourRules { per_minute, burst, slow_for, block_after, block_for } =
            BehaviourRules::default();
        Self { per_minute, burst, slow_for, block_after, block_for }
    }
}

/// What becomes of who is flagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// One request every so often.
    Slow,
    /// None.
    Block,
}

impl Default for Devices {
    fn default() -> Self {
        let DeviceRules { users_max, per_user_max, window, effect, flag_for } = DeviceRules::default();
        Self { users_max, per_user_max, window, effect: effect.into(), flag_for }
    }
}

impl Config {
    /// For the gateway's settings.
    pub fn device_rules(&self) -> DeviceRules {
        let Devices { users_max, per_user_max, window, effect, flag_for } = self.devices;
        DeviceRules { users_max, per_user_max, window, effect: effect.into(), flag_for }
    }

    /// For the gateway's settings.
    pub fn behaviour_rules(&self) -> BehaviourRules {
        let Behaviour { per_minute, burst, slow_for, block_after, block_for } = self.behaviour;
        BehaviourRules { per_minute, burst, slow_for, block_after, block_for }
    }
}

impl From<risk::Effect> for Effect {
    fn from(effect: risk::Effect) -> Self {
        match effect {
            risk::Effect::Slow => Self::Slow,
            risk::Effect::Block => Self::Block,
        }
    }
}

impl From<Effect> for risk::Effect {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Slow => Self::Slow,
            Effect::Block => Self::Block,
        }
    }
}
