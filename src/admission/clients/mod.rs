//! What software a gateway serves: platforms, the least app version of each, how a device is named.
//!
//! Judged once a connection, when it says HELLO, on the gateway's worker threads: pure, no I/O, no allocation, and no
//! failure but the verdicts. All of it is what the client says of itself: it sends honest users to a newer app, and
//! keeps out nobody who lies. By default everything passes.

mod platform;
mod version;

pub use platform::Platform;
pub use version::{AppVersion, VersionError};

use serde::{Deserialize, Serialize};

/// Which characters the name of a device may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceCharset {
    /// Every one.
    #[default]
    Any,
    /// Printable ASCII without the blank.
    Plain,
}

/// What HELLO has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRules {
    /// Served; empty = all.
    pub platforms: Vec<Platform>,
    /// The least version of a platform; those not named are served in every version.
    pub min_version: Vec<(Platform, AppVersion)>,
    /// A device's name has at least so many bytes; 0 = there need not be one.
    pub device_bytes_min: usize,
    /// And these characters.
    pub device_charset: DeviceCharset,
}

/// What comes of a HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Served.
    Fine,
    /// No version of this platform is served.
    NotServed,
    /// From this version on.
    TooOld(AppVersion),
    /// Another name of the device, or one at all.
    BadDevice,
}

impl ClientRules {
    /// May a client that says this of itself go on?
    pub fn judge(&self, platform: Platform, version: AppVersion, device: &str) -> Verdict {
        if !self.platforms.is_empty() && !self.platforms.contains(&platform) {
            return Verdict::NotServed;
        }
        let least = self.min_version.iter().find(|(of, _)| *of == platform).map(|(_, least)| *least);
        if let Some(least) = least.filter(|least| version < *least) {
            return Verdict::TooOld(least);
        }
        if platform == Platform::BackEnd || self.is_device_fine(device) {
            Verdict::Fine
        } else {
            Verdict::BadDevice
        }
    }

    /// Whether a user's device may be called so. A back end has none of its own, and what it calls those of its users is
    /// its own business; an app that calls itself a back end is judged when its token tells what it is.
    pub fn is_device_fine(&self, device: &str) -> bool {
        let is_plain = || device.bytes().all(|byte| byte.is_ascii_graphic());
        device.len() >= self.device_bytes_min
            && match self.device_charset {
                DeviceCharset::Any => true,
                DeviceCharset::Plain => is_plain(),
            }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn version(text: &str) -> AppVersion {
        text.parse().unwrap()
    }

    fn rules() -> ClientRules {
        ClientRules {
            platforms: vec![Platform::Ios, Platform::Android, Platform::BackEnd],
            min_version: vec![(Platform::Ios, version("3.2.0")), (Platform::Web, version("1.0.0"))],
            device_bytes_min: 8,
            device_charset: DeviceCharset::Plain,
        }
    }

    const DEVICE: &str = "ios-7f3a";

    #[test]
    fn by_default_everything_is_served() {
        let rules = ClientRules::default();
        for platform in Platform::ALL {
            assert_eq!(rules.judge(*platform, AppVersion([0; 3]), ""), Verdict::Fine);
            assert_eq!(rules.judge(*platform, AppVersion([0; 3]), "\u{202E}\0{00}"), Verdict::Fine);
        }
    }

    #[test]
    fn the_least_version_is_served_and_the_one_before_it_is_not() {
        let rules = rules();
        for old in ["3.1.65535", "2.9.9", "0.0.0"] {
            let verdict = rules.judge(Platform::Ios, version(old), DEVICE);
            assert_eq!(verdict, Verdict::TooOld(version("3.2.0")), "{old}");
        }
        for new in ["3.2.0", "3.2.1", "3.10.0", "4.0.0", "65535.0.0"] {
            assert_eq!(rules.judge(Platform::Ios, version(new), DEVICE), Verdict::Fine, "{new}");
        }
        assert_eq!(rules.judge(Platform::Android, AppVersion([0; 3]), DEVICE), Verdict::Fine);
        assert_eq!(
            rules.judge(Platform::Web, version("9"), DEVICE),
            Verdict::NotServed,
            "whatever its version"
        );
        assert_eq!(rules.judge(Platform::Other, version("9"), DEVICE), Verdict::NotServed);
    }

    #[test]
    fn a_device_is_judged_by_its_bytes_and_a_back_end_has_none() {
        let rules = rules();
        let judge = |device| rules.judge(Platform::Android, AppVersion([1; 3]), device);
        for bad in [
            "",
            "short",
            "with blank",
            "tab\tbed..",
            "null\0byte",
            "schlüssel",
            "\u{202E}reversed",
            "new\nline!",
        ] {
            assert_eq!(judge(bad), Verdict::BadDevice, "{bad:?}");
        }
        for good in [DEVICE, "';DROP--", "{07}:meta", "../../etc/passwd", "*?[a-z]*"] {
            assert_eq!(judge(good), Verdict::Fine, "{good:?}");
        }
        assert_eq!(rules.judge(Platform::BackEnd, AppVersion([0; 3]), ""), Verdict::Fine);
        assert!(!rules.is_device_fine(""), "of its users it is asked");
    }
}
