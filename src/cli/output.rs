//! Printing: results to stdout, everything else to stderr; failures with their exit code.

use std::io::{self, Write};
use std::process::ExitCode;

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

/// A process that ends because a task that it cannot be without has panicked.
pub(super) fn ended_by_fault(task: &'static str) -> Failure {
    Failure::bad_result(format!(
        "a fault of this program: {task} has panicked, and without it this process would only look as if it worked. \
         It has ended as in a crash, which loses nothing that was acknowledged: start it again, and report what its log \
         says of the panic"
    ))
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
