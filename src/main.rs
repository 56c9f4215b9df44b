//! The `rushgate` binary: argument parsing only.

use std::process::ExitCode;

fn main() -> ExitCode {
    rushgate::cli::run()
}
