//! Follows the file with token keys: what is written there is in force within a second or so, without a restart.
//!
//! One task on the gateway's runtime, only where there is such a file. It looks at the file's state by a timer, and has
//! it read, when that has changed, on a thread for things that wait for the disk: a folder that hangs holds up
//! nothing but new keys. A file that cannot be used changes nothing: the last good keys stay, it is said once and
//! counted at every look until it is mended.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Core;
use super::counters::{Event, Sheet};
use crate::admission::identity::{KeyChanges, KeyError, KeyName};

/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A file that was written so lately may be written again without looking any different, since its times are coarse.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// What tells one state of a file from another. Its number changes when another file takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    bytes: u64,
    file: (u64, u64),
}

impl Stamp {
    async fn of(path: &Path) -> io::Result<Self> {
        let metadata = tokio::fs::metadata(path).await?;
        Ok(Self {
            modified: metadata.modified()?,
            bytes: metadata.len(),
            file: (metadata.dev(), metadata.ino()),
        })
    }

    /// Whether what was read at that time has to be what this state has.
    fn is_settled(&self, read_at: SystemTime) -> bool {
        read_at.duration_since(self.modified).is_ok_and(|age| age >= SETTLED_AFTER)
    }
}

/// See the module.
#[derive(Debug)]
struct Follower {
    core: Arc<Core>,
    sheet: Arc<Sheet>,
    /// The state that was read; `None` when it has to be read again, whatever it looks like.
    known: Option<Stamp>,
    /// What was said of a file that cannot be used.
    said: Option<String>,
}

/// Runs until the gateway stops it.
pub(super) async fn follow(core: Arc<Core>) {
    let Some(path) = core.verifier.jwks_file().map(Path::to_owned) else { return };
    let sheet = core.counters.sheet();
    let mut follower = Follower { core, sheet, known: None, said: None };
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        follower.look(&path).await;
    }
}

impl Follower {
    async fn look(&mut self, path: &Path) {
        // Before it is read: what is written meanwhile has another stamp then.
        let (stamp, now) = (Stamp::of(path).await.ok(), SystemTime::now());
        if stamp.is_some() && stamp == self.known {
            return;
        }
        let core = Arc::clone(&self.core);
        let read = tokio::task::spawn_blocking(move || core.verifier.reread_keys()).await;
        // A thread that ended by itself is tried again like a file that cannot be used.
        self.known = None;
        match read {
            Ok(Ok(changes)) => {
                self.known = stamp.filter(|stamp| stamp.is_settled(now));
                self.was_read(path, &changes);
            }
            Ok(Err(error)) => self.was_refused(&error),
            Err(error) => tracing::error!(%error, "the token keys were not read; it is tried again"),
        }
    }

    fn was_read(&mut self, path: &Path, changes: &KeyChanges) {
        if self.said.take().is_some() {
            tracing::info!(path = %path.display(), "the file with token keys can be used again");
        }
        if changes.is_empty() {
            return;
        }
        self.sheet.event(Event::KeysChanged, 1);
        let (added, retired) = (listed(&changes.added), listed(&changes.retired));
        tracing::info!(added, retired, in_force = self.core.verifier.key_count(), "token keys changed");
        let skipped = self.core.verifier.skipped_keys();
        if !skipped.is_empty() {
            tracing::info!(
                skipped = skipped.join("; "),
                "keys for something else in the file with token keys"
            );
        }
    }

    fn was_refused(&mut self, error: &KeyError) {
        self.sheet.event(Event::KeyFileRefused, 1);
        let text = error.to_string();
        if self.said.as_ref() != Some(&text) {
            tracing::error!(
                in_force = self.core.verifier.key_count(),
                "{text}; the last good keys stay in force"
            );
            self.said = Some(text);
        }
    }
}

fn listed(names: &[KeyName]) -> String {
    names.iter().map(KeyName::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn a_state_is_told_from_others_and_trusted_only_when_old() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, "1").unwrap();
        let first = Stamp::of(&path).await.unwrap();
        assert_eq!(Stamp::of(&path).await.unwrap(), first);
        assert!(!first.is_settled(first.modified));
        assert!(!first.is_settled(first.modified - Duration::from_secs(60)), "a clock that went back");
        assert!(first.is_settled(first.modified + SETTLED_AFTER));
        // Another file of the same length and time takes the name.
        let other = dir.path().join("other");
        std::fs::write(&other, "2").unwrap();
        std::fs::File::options().write(true).open(&other).unwrap().set_modified(first.modified).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_ne!(Stamp::of(&path).await.unwrap(), first);
        std::fs::remove_file(&path).unwrap();
        assert!(Stamp::of(&path).await.is_err());
    }
}
