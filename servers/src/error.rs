//! What can go wrong with a server of a test. Everything here ends the test, so messages carry the log's tail.

use std::fmt::{self, Debug, Display, Formatter};
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

/// Lines of a log that a message shows.
const TAIL_LINES: usize = 30;

/// A server did not start, did not do as told, or could not be reached.
#[derive(Error)]
pub enum ServerError {
    /// The program is not installed.
    #[error("{program} is not installed: apt-get install {package}")]
    Missing {
        /// What was looked for on PATH, in /usr/sbin and in /usr/local/sbin.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The server ended while it was being waited for.
    #[error("{name} ended with {status} while it was being started; its log ends:\n{log_tail}")]
    Ended {
        /// Which server.
        name: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log_tail: String,
    },
    /// A condition did not come true in time.
    #[error("{name}: {what} within {waited:?}; its log ends:\n{log_tail}")]
    Late {
        /// Which server.
        name: &'static str,
        /// What did not happen.
        what: String,
        /// How long that was waited for.
        waited: Duration,
        /// The last lines of its log.
        log_tail: String,
    },
    /// The server is not running.
    #[error("{name} is not running: it was killed or stopped; call restart first")]
    NotRunning {
        /// Which server.
        name: &'static str,
    },
    /// A command got an error for an answer.
    #[error("{name} refused `{command}`: {answer}")]
    Refused {
        /// Which server.
        name: &'static str,
        /// What it was told.
        command: String,
        /// What it said.
        answer: String,
    },
    /// What a file or an answer holds is not what it should be.
    #[error("{what} is not well-formed: {problem}")]
    Malformed {
        /// Where.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        source: io::Error,
    },
}

/// As `Display`: a test that unwraps shows the log in lines.
impl Debug for ServerError {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, out)
    }
}

impl ServerError {
    /// For `map_err`: names what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn malformed(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Malformed { what: what.into(), problem: problem.into() }
    }

    /// Whether somebody else had the port, so that another one should be tried.
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Ended { log_tail, .. } if log_tail.to_ascii_lowercase().contains("in use"))
    }
}

/// The last lines of a log; a log that cannot be read says so in its place.
pub(crate) fn tail(log: &Path) -> String {
    match fs::read(log) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().rev().take(TAIL_LINES).collect();
            lines.into_iter().rev().flat_map(|line| ["  ", line, "\n"]).collect()
        }
        Err(error) => format!("  ({} cannot be read: {error})", log.display()),
    }
}
