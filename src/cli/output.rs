//! Printing: results to stdout, everything else to stderr; failures with their exit code.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::admission::switches::LogLevel;

/// Why a command ends with another code than 0.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Exit code 1: it ran, and the result is bad.
    pub fn bad_result(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// Exit code 2: it could not start; nothing was started.
    pub fn cannot_start(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// Why.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Prints the message to stderr and gives the exit code.
    pub(super) fn report(self) -> ExitCode {
        let text = self.message.trim_end();
        if !text.is_empty() {
            // Nowhere to report to if stderr is gone.
            let _ = writeln!(io::stderr(), "rushgate: {text}");
        }
        ExitCode::from(self.code)
    }
}

/// Prints a result to stdout. A reader that went away (a closed pipe) ends the printing, not the program.
pub(super) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = stdout.write_all(b"\n");
    }
    let _ = stdout.flush();
}

/// Prints one JSON object to stdout.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::bad_result(format!("the result cannot be written as JSON: {error}")))?;
    print(&text);
    Ok(())
}

/// Prints a result for a machine or for a person.
pub(super) fn print_or_json<T: serde::Serialize>(
    json: bool,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    if json {
        return print_json(value);
    }
    print(&text(value));
    Ok(())
}

/// Chooses anew what is logged.
pub(super) struct LogControl {
    default: String,
    reload: Box<dyn Fn(EnvFilter) + Send + Sync>,
}

impl LogControl {
    /// Everything of this level and above; what it was started with for `Default`.
    pub(super) fn set(&self, level: LogLevel) {
        let filter = match level {
            LogLevel::Default => filter(&self.default),
            LogLevel::Error => EnvFilter::new("error"),
            level => EnvFilter::new(format!("rushgate={},warn", level.name())),
        };
        (self.reload)(filter);
    }
}

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default))
}

/// Logs go to stderr; `RUST_LOG` chooses, `default` otherwise. A second call in one process changes nothing.
pub(super) fn start_logging(default: &str) -> LogControl {
    let colours = io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(default))
        .with_ansi(colours)
        .with_writer(io::stderr)
        .with_filter_reloading();
    let handle = subscriber.reload_handle();
    let _ = subscriber.try_init();
    // It fails only when there is nobody who logs.
    let reload = Box::new(move |filter| drop(handle.reload(filter)));
    LogControl { default: default.to_owned(), reload }
}
