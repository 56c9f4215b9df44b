//! The section of what software is served, with its defaults. What a value may be is in `schema`; what each key is
//! for, at length, in rushgate.example.toml.

use serde::{Deserialize, Serialize};

use super::{Config, text};
use crate::admission::clients::{AppVersion, ClientRules, DeviceCharset, Platform};

/// `[clients]`: what HELLO has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clients {
    /// Platforms that are served; empty = all.
    pub platforms: Vec<Platform>,
    /// A device's name has at least so many bytes; 0 = there need not be one.
    pub device_bytes_min: usize,
    /// And these characters.
    pub device_charset: DeviceCharset,
    /// The least version of each platform that is served.
    pub min_version: MinVersion,
}

/// By platform; none = every version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MinVersion {
    /// Platform 0, and every one that is not known.
    #[serde(with = "text::empty_is_none")]
    pub other: Option<AppVersion>,
    /// Platform 1.
    #[serde(with = "text::empty_is_none")]
    pub ios: Option<AppVersion>,
    /// Platform 2.
    #[serde(with = "text::empty_is_none")]
    pub android: Option<AppVersion>,
    /// Platform 3.
    #[serde(with = "text::empty_is_none")]
    pub web: Option<AppVersion>,
    /// Platform 4.
    #[serde(with = "text::empty_is_none")]
    pub mini_program: Option<AppVersion>,
    /// Platform 5.
    #[serde(with = "text::empty_is_none")]
    pub back_end: Option<AppVersion>,
}

impl MinVersion {
    /// Those that are set.
    fn set(&self) -> Vec<(Platform, AppVersion)> {
        let Self { other, ios, android, web, mini_program, back_end } = *self;
        let by_platform = Platform::ALL.iter().zip([other, ios, android, web, mini_program, back_end]);
        by_platform.filter_map(|(platform, least)| Some((*platform, least?))).collect()
    }
}

impl Config {
    /// For the gateway's settings.
    pub fn client_rules(&self) -> ClientRules {
        let clients = &self.clients;
        ClientRules {
            platforms: clients.platforms.clone(),
            min_version: clients.min_version.set(),
            device_bytes_min: clients.device_bytes_min,
            device_charset: clients.device_charset,
        }
    }
}
