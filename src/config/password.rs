//! Passwords of the store's servers: read once, at start, from the files that the configuration names.
//!
//! Nothing here keeps or prints one.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Config;

/// No password is longer; a device or a wrong file is not read to its end.
const PASSWORD_FILE_BYTES_MAX: u64 = 4 * 1024;

/// Why a password cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The file could not be read.
    #[error("{key} = \"{path}\": cannot be read: {source}", path = path.display())]
    Read {
        /// The key that names it.
        key: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something else than one password.
    #[error("{key} = \"{path}\": {why}; it has to hold the password alone, on one line", path = path.display())]
    NotOne {
        /// The key that names it.
        key: &'static str,
        /// Which file.
        path: PathBuf,
        /// What it holds instead.
        why: &'static str,
    },
}

impl Config {
    /// The password for Redis; `None` if no file is named.
    pub fn redis_password(&self) -> Result<Option<String>, PasswordError> {
        password("redis.password_file", self.redis.password_file.as_deref())
    }

    /// The password for MySQL or MariaDB; `None` if no file is named.
    pub fn mysql_password(&self) -> Result<Option<String>, PasswordError> {
        password("mysql.password_file", self.mysql.password_file.as_deref())
    }
}

fn password(key: &'static str, path: Option<&Path>) -> Result<Option<String>, PasswordError> {
    let Some(path) = path else { return Ok(None) };
    let unreadable = |source| PasswordError::Read { key, path: path.to_owned(), source };
    let not_one = |why| PasswordError::NotOne { key, path: path.to_owned(), why };
    let mut content = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(PASSWORD_FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut content).map_err(unreadable)?;
    if u64::try_from(content.len()).map_or(true, |bytes| bytes > PASSWORD_FILE_BYTES_MAX) {
        return Err(not_one("it is longer than 4096 bytes"));
    }
    let text = String::from_utf8(content).map_err(|_| not_one("it is not UTF-8"))?;
    // One line end at its end does not count: editors add it.
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(not_one("it is empty"));
    }
    if line.contains(['\n', '\r', '\0']) {
        return Err(not_one("it holds more than one line"));
    }
    Ok(Some(line.to_owned()))
}
