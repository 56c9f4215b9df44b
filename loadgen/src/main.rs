//! The binary `rushgate-loadgen`: argument parsing only.

mod output;
mod sale;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Load, stress and audit for a running Rushgate gateway.
///
/// Exit codes: 0 done and sound; 1 it ran and the audit failed; 2 it could not start.
#[derive(Debug, Parser)]
#[command(name = "rushgate-loadgen", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Let many users fight over one SKU, then audit what they were told against the database
    Sale(sale::SaleArgs),
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let result = match command {
        Command::Sale(args) => sale::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
