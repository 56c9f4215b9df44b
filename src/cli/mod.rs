//! The commands behind `rushgate`: each reads its arguments, calls one part of the library, prints for a person or
//! (`--json`) for a machine, and ends with an exit code that means something.
//!
//! Exit codes: 0 done; 1 it ran and the result is bad (an audit failed, a drain was incomplete, an operator's
//! request was refused); 2 it could not start (wrong arguments or configuration, a port in use, a data folder
//! that cannot be used), and nothing was started.

mod activity;
mod activity_args;
mod activity_place;
mod admin_port;
mod allow;
mod allow_args;
mod backfill;
mod data_args;
mod demo;
mod demo_life;
mod log;
mod metric_text;
mod obedience;
#[cfg(test)]
mod on_call;
mod output;
mod payments;
mod probe;
mod process_metrics;
mod production;
mod reconcile;
mod reconcile_report;
mod risk;
mod risk_args;
mod risk_explain;
mod risk_import;
mod risk_lists;
mod serve;
mod session;
mod session_args;
mod startup;
mod stop_signals;
mod switch;
mod switch_args;
mod takeover;
mod takeover_report;
mod times;
mod token;
mod token_report;
mod token_text;
mod whoami;
mod writer;
mod writer_metrics;
mod writer_probe;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

pub use output::Failure;

use crate::config::{Config, KeyFiles, Sources};
use crate::store::crash_point;

/// A flash-sale gateway: refuses the doomed from memory, sells every unit exactly once.
#[derive(Debug, Parser)]
#[command(name = "rushgate", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway until SIGTERM or Ctrl-C.
    Serve(serve::ServeArgs),
    /// Run the sidecar writer until SIGTERM or Ctrl-C.
    Writer(writer::WriterArgs),
    /// Rehearse a whole sale in this process, on the embedded store, and audit it.
    Demo(demo::DemoArgs),
    /// Make and change activities.
    Activity(activity::ActivityArgs),
    /// Close and open entries, choose what is logged, drain a gateway, while a sale runs.
    Switch(switch::SwitchArgs),
    /// Block and slow down users, addresses and devices, and say why somebody was turned away.
    Risk(risk::RiskArgs),
    /// Compare Redis with the database and its ledger, while a sale runs or after it, and correct what differs.
    Reconcile(reconcile::ReconcileArgs),
    /// Sell activities from the database because Redis and its data are gone, and give them back.
    Takeover(takeover::TakeoverArgs),
    /// Settle orders that were only recorded (the switch orders.mode), at a rate; goes on where it was stopped.
    Backfill(backfill::BackfillArgs),
    /// Make tokens for development, and say why one is refused.
    Token(token::TokenArgs),
}

/// Where the configuration comes from; the same for every command that reads it.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// Configuration file [default: ./rushgate.toml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key, over file and environment; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

impl ConfigArgs {
    /// `key_files`: only who checks tokens needs to be able to read the keys.
    fn load(self, key_files: KeyFiles) -> Result<Config, Failure> {
        let mut sources = Sources { key_files, ..Sources::of_process(self.config, self.set) };
        // It is named like a key and is none.
        sources.env.retain(|(name, _)| name != crash_point::VARIABLE);
        Config::load(&sources).map_err(|errors| Failure::cannot_start(errors.to_string()))
    }
}

/// Parses the process's arguments and runs the command.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Writer(args) => writer::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Activity(args) => activity::run(args),
        Command::Switch(args) => switch::run(args),
        Command::Risk(args) => risk::run(args),
        Command::Reconcile(args) => reconcile::run(args),
        Command::Takeover(args) => takeover::run(args),
        Command::Backfill(args) => backfill::run(args),
        Command::Token(args) => token::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
