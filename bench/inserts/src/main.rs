//! `rushgate-inserts`: the rows and transactions that winners cost, written by a bare loop.
//!
//! One thread, one connection, prepared statements of many rows. It reads nothing, decides nothing, answers
//! nobody: what is left is what SQLite and the disk take for the rows that the gateway's group commit writes.

mod rows;
mod run;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::run::Settings;

/// Inserts orders in batches, as fast as it goes, and prints one JSON object.
///
/// The database has to be there already, with the activity (`rushgate activity create`), and nobody may serve it.
/// Exit code 1: a transaction failed; 2: it could not start.
#[derive(Debug, Parser)]
#[command(name = "rushgate-inserts", version)]
struct Args {
    /// The data folder with rushgate.db
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The activity that is bought in
    #[arg(long, value_name = "ID", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    activity: u32,
    /// Orders in one transaction
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// How long is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3000))]
    seconds: u64,
    /// Runs before that and is not measured, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    warmup_ms: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let settings = Settings {
        database: args.data_dir.join("rushgate.db"),
        activity: args.activity,
        batch: args.batch,
        measured: Duration::from_secs(args.seconds),
        warmup: Duration::from_millis(args.warmup_ms),
    };
    match run::run(&settings) {
        Ok(report) => match writeln!(io::stdout().lock(), "{report}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(1),
        },
        Err(error) => {
            // Nowhere to report to if stderr is gone.
            let _ = writeln!(io::stderr().lock(), "rushgate-inserts: {error}");
            ExitCode::from(if error.is_before_start() { 2 } else { 1 })
        }
    }
}
