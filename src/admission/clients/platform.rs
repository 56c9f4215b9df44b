//! What a client runs on, as HELLO's first byte tells.

use serde::{Deserialize, Serialize};

/// A platform; a byte that version 1 does not know counts as [`Platform::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// Any other.
    Other,
    /// iOS.
    Ios,
    /// Android.
    Android,
    /// A browser.
    Web,
    /// A mini program.
    MiniProgram,
    /// A shop's back end.
    BackEnd,
}

impl Platform {
    /// All of them, by their bytes.
    pub const ALL: &'static [Self] =
        &[Self::Other, Self::Ios, Self::Android, Self::Web, Self::MiniProgram, Self::BackEnd];

    /// As the configuration has them, in the same order.
    pub const NAMES: [&'static str; 6] = ["other", "ios", "android", "web", "mini_program", "back_end"];

    /// That of a HELLO.
    pub fn from_wire(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or(Self::Other)
    }

    /// As the configuration has it.
    pub fn name(self) -> &'static str {
        Self::NAMES.get(self as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_protocol_and_the_names_those_of_the_configuration() {
        for (byte, platform) in (0..).zip(Platform::ALL) {
            assert_eq!(Platform::from_wire(byte), *platform);
            assert_eq!(serde_json::to_value(platform).unwrap(), platform.name());
        }
        for unknown in [6, 7, 255] {
            assert_eq!(Platform::from_wire(unknown), Platform::Other);
        }
    }
}
