//! The binary `rushgate-loadgen`: argument parsing only.

mod admin;
mod books;
mod churn;
mod cpu;
mod flood;
mod handshakes;
mod idle;
mod opening;
mod output;
mod paycenter;
mod sale;
mod sources;
mod storm;
mod tally;
mod target;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Load, stress and audit for a running Rushgate gateway.
///
/// Exit codes: 0 done and sound; 1 it ran and the result is bad (the audit failed, something was not answered, the
/// gateway went away); 2 it could not start.
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
    /// Ask one thing as often as it goes, or at a given rate, and measure the answers
    Flood(flood::FloodArgs),
    /// Hold authenticated connections that do nothing, and see what they cost
    Idle(idle::IdleArgs),
    /// Connect, authenticate, buy, close, over and over
    Churn(churn::ChurnArgs),
    /// Make TLS handshakes, full or resumed, and see what they cost
    Handshakes(handshakes::HandshakesArgs),
    /// Connect all at once, and again after being cut
    Storm(storm::StormArgs),
    /// Stand in for the payment centre, with faults at given rates, until it is stopped
    Paycenter(paycenter::PaycenterArgs),
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let result = match command {
        Command::Sale(args) => sale::run(&args),
        Command::Flood(args) => flood::run(&args),
        Command::Idle(args) => idle::run(&args),
        Command::Churn(args) => churn::run(&args),
        Command::Handshakes(args) => handshakes::run(&args),
        Command::Storm(args) => storm::run(&args),
        Command::Paycenter(args) => paycenter::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
