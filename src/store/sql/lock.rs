//! The lock file of a data folder: one process at a time serves it (or applies loads while nobody serves).
//!
//! The lock is the operating system's and ends with its process, whatever kills it. The file's text only says
//! who holds it, for people and for deciding whether waiting makes sense.

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
            if holder.starts_with(Role::Server.name()) || waited >= PATIENCE {
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
