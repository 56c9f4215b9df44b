//! Printing: results to stdout, everything else to stderr; failures with their exit code.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command ends with another code than 0.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    lines: Vec<String>,
}

impl Failure {
    /// Exit code 1: it ran, and the result is bad.
    pub(crate) fn bad_result(lines: Vec<String>) -> Self {
        Self { code: 1, lines }
    }

    /// Exit code 2: it could not start.
    pub(crate) fn cannot_start(message: impl Display) -> Self {
        Self { code: 2, lines: vec![message.to_string()] }
    }

    /// Tells stderr; gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let mut stderr = io::stderr().lock();
        for line in &self.lines {
            // Nowhere to report to if stderr is gone.
            let _ = writeln!(stderr, "rushgate-loadgen: {line}");
        }
        ExitCode::from(self.code)
    }
}

/// Prints a result to stdout. A reader that went away (a closed pipe) ends the printing, not the program.
pub(crate) fn print(text: &impl Display) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}
