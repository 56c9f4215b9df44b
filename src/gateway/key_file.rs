//! Follows the file with token keys: what is written there is in force within a second or so, without a restart.
//!
//! A thread of its own, only where there is such a file: a folder that hangs holds up nothing but new keys, not even
//! the end of the process, which would wait for the runtime's threads. It looks at the file's state by a timer, reads
//! it when that has changed, and ends with the gateway. A file that cannot be used changes nothing: the last good keys
//! stay, it is said once and counted at every look until it is mended.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::SystemTime;
use std::{io, thread};

use super::Core;
use super::counters::{Event, Sheet};
use super::file_stamp::{LOOK_INTERVAL, Stamp};
use crate::admission::identity::{KeyChanges, KeyError, KeyName};
use crate::store::watched;

/// See the module.
#[derive(Debug, Default)]
struct Follower {
    /// The state that was read; `None` when it has to be read again, whatever it looks like.
    known: Option<Stamp>,
    /// What was said of a file that cannot be used.
    said: Option<String>,
}

/// Starts the thread, if there is a file to follow.
pub(super) fn follow(core: &Arc<Core>) -> io::Result<()> {
    let Some(path) = core.verifier.jwks_file().map(Path::to_owned) else { return Ok(()) };
    let (sheet, core) = (core.counters.sheet(), Arc::downgrade(core));
    let follow = move || {
        let mut follower = Follower::default();
        loop {
            thread::sleep(LOOK_INTERVAL);
            let Some(core) = Weak::upgrade(&core) else { return };
            let look = || follower.look(&core, &sheet, &path);
            // At the next look all of it is read again.
            if watched::caught_now("following the file with token keys", look).is_err() {
                follower = Follower::default();
            }
        }
    };
    thread::Builder::new().name("rushgate-keys".to_owned()).spawn(follow).map(drop)
}

impl Follower {
    fn look(&mut self, core: &Core, sheet: &Sheet, path: &Path) {
        // Before it is read: what is written meanwhile has another stamp then.
        let (stamp, now) = (Stamp::of(path).ok(), SystemTime::now());
        if stamp.is_some() && stamp == self.known {
            return;
        }
        match core.verifier.reread_keys() {
            Ok(changes) => {
                self.known = stamp.filter(|stamp| stamp.is_settled(now));
                self.was_read(core, sheet, path, &changes);
            }
            Err(error) => {
                self.known = None;
                self.was_refused(core, sheet, &error);
            }
        }
    }

    fn was_read(&mut self, core: &Core, sheet: &Sheet, path: &Path, changes: &KeyChanges) {
        if self.said.take().is_some() {
            tracing::info!(path = %path.display(), "the file with token keys can be used again");
        }
        if changes.is_empty() {
            return;
        }
        sheet.event(Event::KeysChanged, 1);
        let (added, retired) = (listed(&changes.added), listed(&changes.retired));
        tracing::info!(added, retired, in_force = core.verifier.key_count(), "token keys changed");
        let skipped = core.verifier.skipped_keys();
        if !skipped.is_empty() {
            tracing::info!(
                skipped = skipped.join("; "),
                "keys for something else in the file with token keys"
            );
        }
    }

    fn was_refused(&mut self, core: &Core, sheet: &Sheet, error: &KeyError) {
        sheet.event(Event::KeyFileRefused, 1);
        let text = error.to_string();
        if self.said.as_ref() != Some(&text) {
            tracing::error!(in_force = core.verifier.key_count(), "{text}; the last good keys stay in force");
            self.said = Some(text);
        }
    }
}

fn listed(names: &[KeyName]) -> String {
    names.iter().map(KeyName::to_string).collect::<Vec<_>>().join(", ")
}
