//! What tells one state of a file from another, for those who follow a file by looking at it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{fs, io};

/// How often a file that is followed is looked at.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A file that was written so lately may be written again without looking any different, since its times are coarse.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Its number changes when another file takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: SystemTime,
    bytes: u64,
    file: (u64, u64),
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            modified: metadata.modified()?,
            bytes: metadata.len(),
            file: (metadata.dev(), metadata.ino()),
        })
    }

    /// Whether what was read at that time has to be what this state has.
    pub(super) fn is_settled(&self, read_at: SystemTime) -> bool {
        read_at.duration_since(self.modified).is_ok_and(|age| age >= SETTLED_AFTER)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_state_is_told_from_others_and_trusted_only_when_old() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("keys");
        fs::write(&path, "1").unwrap();
        let first = Stamp::of(&path).unwrap();
        assert_eq!(Stamp::of(&path).unwrap(), first);
        assert!(!first.is_settled(first.modified));
        assert!(!first.is_settled(first.modified - Duration::from_secs(60)), "a clock that went back");
        assert!(first.is_settled(first.modified + SETTLED_AFTER));
        // Another file of the same length and time takes the name.
        let other = dir.path().join("other");
        fs::write(&other, "2").unwrap();
        fs::File::options().write(true).open(&other).unwrap().set_modified(first.modified).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_ne!(Stamp::of(&path).unwrap(), first);
        fs::remove_file(&path).unwrap();
        assert!(Stamp::of(&path).is_err());
    }
}
