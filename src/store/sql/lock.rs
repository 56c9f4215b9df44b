//! The lock file of a data folder: one process at a time serves it (or applies loads while nobody serves).
//!
//! The lock is the operating system's and ends with its process, whatever kills it. The file's text only says
//! who holds it, for people and for deciding whether waiting makes sense. A killed server's text stays behind until
//! the next holder has written its own, so a text that names a process that is gone decides nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs4::{FileExt, TryLockError};

use super::error::OpenError;

const FILE_NAME: &str = "rushgate.lock";

/// How long a starting server waits for an operator's command to end; such a command holds the lock for
/// milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// How long a holder may need from taking the lock to having written its text.
const WRITING: Duration = Duration::from_millis(500);

/// What the holder does with the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Serves it until it ends.
    Server,
    /// Runs one short command.
    Operator,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Operator => "operator command",
        }
    }
}

/// The exclusive lock; held until dropped.
#[derive(Debug)]
pub(super) struct FolderLock {
    file: File,
}

impl FolderLock {
    /// `None` while another process holds the lock.
    pub(super) fn try_acquire(folder: &Path, role: Role) -> Result<Option<Self>, OpenError> {
        let attempt = || -> io::Result<Option<Self>> {
            let mut file = open(folder)?;
            match FileExt::try_lock(&file) {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            file.set_len(0)?;
            writeln!(file, "{}, process {}", role.name(), std::process::id())?;
            Ok(Some(Self { file }))
        };
        attempt().map_err(|error| OpenError::folder(folder, &error))
    }

    /// Waits for operators' commands, but not for another server.
    pub(super) async fn acquire_to_serve(folder: &Path) -> Result<Self, OpenError> {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(lock) = Self::try_acquire(folder, Role::Server)? {
                return Ok(lock);
            }
            let holder = holder(folder);
            let serves = holder.starts_with(Role::Server.name());
            let patience = match (serves, is_left_behind(&holder)) {
                (false, _) => PATIENCE,
                (true, true) => WRITING,
                (true, false) => Duration::ZERO,
            };
            if waited >= patience {
                return Err(OpenError::Locked { path: PathBuf::from(folder), holder });
            }
            tokio::time::sleep(PAUSE).await;
            waited = waited.saturating_add(PAUSE);
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // So that the text of an ended server makes nobody give up early. Only a courtesy: the lock itself ends
        // with the file.
        let _ = self.file.set_len(0);
    }
}

fn open(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(folder.join(FILE_NAME))
}

/// What the holder wrote; empty text while it is about to.
fn holder(folder: &Path) -> String {
    let mut text = String::new();
    if let Ok(mut file) = open(folder) {
        let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    }
    let text = text.trim();
    if text.is_empty() { "unknown process".to_owned() } else { text.to_owned() }
}

/// Whether the text is certainly not the present holder's: its process is gone, or is this one (in containers
/// numbers come again). Where there is no /proc, nothing is certain.
fn is_left_behind(holder: &str) -> bool {
    let process = holder.rsplit(' ').next().and_then(|number| number.parse::<u32>().ok());
    process.is_some_and(|process| {
        let processes = Path::new("/proc");
        process == std::process::id()
            || (processes.join("self").exists() && !processes.join(process.to_string()).exists())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Above the greatest number that Linux gives.
    const GONE: u32 = 4_194_305;

    /// An operator's command that has just taken the lock after a server was killed.
    fn taken_with_text(text: &str) -> (tempfile::TempDir, FolderLock) {
        let folder = tempfile::tempdir().unwrap();
        let mut lock = FolderLock::try_acquire(folder.path(), Role::Operator).unwrap().unwrap();
        lock.file.set_len(0).unwrap();
        lock.file.rewind().unwrap();
        writeln!(lock.file, "{text}").unwrap();
        (folder, lock)
    }

    #[tokio::test]
    async fn the_text_of_a_killed_server_makes_nobody_give_up() {
        let (folder, lock) = taken_with_text(&format!("server, process {GONE}"));
        let ending = async {
            tokio::task::yield_now().await;
            drop(lock);
        };
        let (acquired, ()) = tokio::join!(FolderLock::acquire_to_serve(folder.path()), ending);
        acquired.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_lives_is_not_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let (folder, lock) = taken_with_text(&format!("server, process {}", child.id()));
        let ending = async {
            tokio::task::yield_now().await;
            drop(lock);
        };
        let (refused, ()) = tokio::join!(FolderLock::acquire_to_serve(folder.path()), ending);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn a_lock_that_is_held_with_an_old_text_is_told_in_the_end() {
        let (folder, _lock) = taken_with_text(&format!("server, process {GONE}"));
        let refused = FolderLock::acquire_to_serve(folder.path()).await;
        assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
    }

    #[test]
    fn only_a_process_that_is_gone_or_this_one_leaves_a_text_behind() {
        assert!(is_left_behind(&format!("server, process {GONE}")));
        assert!(is_left_behind(&format!("server, process {}", std::process::id())));
        for text in ["server, process ", "unknown process", "", "server, process 1x"] {
            assert!(!is_left_behind(text), "{text}");
        }
    }
}
