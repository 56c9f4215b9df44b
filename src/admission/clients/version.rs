//! An app's version: three numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Major, minor, patch. Ordered as people do: 3.10.0 is later than 3.9.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AppVersion(pub [u16; 3]);

/// Why a text is no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a version is one to three numbers from 0 to 65535 with points between, such as 3.2.0")]
pub struct VersionError;

impl FromStr for AppVersion {
    type Err = VersionError;

    /// What is not written is 0.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let mut version = [0; 3];
        let mut parts = text.split('.');
        for (place, part) in version.iter_mut().zip(parts.by_ref()) {
            // The standard parser takes a sign.
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            *place = part.parse().ok().filter(|_| is_number).ok_or(VersionError)?;
        }
        if parts.next().is_some() { Err(VersionError) } else { Ok(Self(version)) }
    }
}

impl fmt::Display for AppVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl TryFrom<String> for AppVersion {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<AppVersion> for String {
    fn from(version: AppVersion) -> Self {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_written_and_ordered_by_number() {
        for (text, numbers) in
            [("3.2.0", [3, 2, 0]), ("3.2", [3, 2, 0]), ("3", [3, 0, 0]), ("65535.0.007", [65535, 0, 7])]
        {
            assert_eq!(text.parse(), Ok(AppVersion(numbers)), "{text}");
        }
        assert_eq!(AppVersion([3, 10, 0]).to_string(), "3.10.0");
        assert!(
            AppVersion([3, 10, 0]) > AppVersion([3, 9, 9])
                && AppVersion([3, 9, 9]) > AppVersion([2, 65535, 0])
        );
    }

    #[test]
    fn everything_else_is_no_version() {
        for text in [
            "",
            ".",
            "3.",
            ".3",
            "3..1",
            "1.2.3.4",
            "v3",
            "3.2.0-beta",
            "-1",
            "+1",
            "65536",
            "3,2",
            " 3",
            "3 ",
            "٣",
        ] {
            assert_eq!(text.parse::<AppVersion>(), Err(VersionError), "{text:?}");
        }
    }
}
