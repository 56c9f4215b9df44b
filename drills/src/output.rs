//! Arguments, the run over drills and seeds, printing and the exit code.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use rushgate_servers::MariaDb;
use serde_json::json;
use tokio::time::Instant;

use crate::drills::Drill;
use crate::error::{DrillError, Result};
use crate::report::{Run, table};
use crate::shop::Premises;

/// Runs of one drill and seed whose fault hurts nobody.
const ATTEMPTS_MAX: u32 = 3;
/// One run of a drill: many times what it takes on a busy machine.
const DRILL_MAX: Duration = Duration::from_secs(180);

/// Injects faults into a running installation and audits what is left.
///
/// Exit codes: 0 no violation; 1 at least one, each with the command that replays it; 2 it could not run.
#[derive(Debug, Parser)]
#[command(name = "rushgate-drills", version)]
pub(crate) struct Arguments {
    /// How often each drill runs, each time with the next seed
    #[arg(default_value_t = 1)]
    runs: u64,
    /// Only these; may be repeated
    #[arg(long = "drill", value_enum, value_name = "NAME")]
    drills: Vec<Drill>,
    /// The first run's seed; it decides who buys what and when the fault comes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fewer users and shorter outages, for the tests
    #[arg(long)]
    quick: bool,
    /// The rushgate binary [default: beside this one]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Writes every run to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints the logs' ends of runs with violations
    #[arg(long)]
    logs: bool,
}

/// Runs what was asked for.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match run_all(arguments) {
        Ok(runs) => {
            print(&format!("\n{}", table(&runs)));
            let violated = runs.iter().filter(|run| !run.violations.is_empty()).count();
            if violated == 0 {
                return ExitCode::SUCCESS;
            }
            tell(&format!("{violated} of {} runs broke a promise", runs.len()));
            ExitCode::from(1)
        }
        Err(error) => {
            tell(&error.to_string());
            ExitCode::from(2)
        }
    }
}

fn run_all(arguments: &Arguments) -> Result<Vec<Run>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(DrillError::io("starting the runtime"))?;
    runtime.block_on(async {
        let binary = match &arguments.binary {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()
                .map_err(DrillError::io("asking for this program's path"))?
                .with_file_name("rushgate"),
        };
        if !binary.is_file() {
            return Err(DrillError::Malformed(format!(
                "there is no {}; run scripts/drills",
                binary.display()
            )));
        }
        let mariadb = MariaDb::start().await?;
        let premises = Arc::new(Premises { binary, mariadb, is_quick: arguments.quick });
        let drills = if arguments.drills.is_empty() { Drill::all() } else { arguments.drills.clone() };
        let mut runs = Vec::new();
        for nth in 0..arguments.runs {
            for drill in &drills {
                let seed = arguments.seed.wrapping_add(nth);
                let run = one(&premises, *drill, seed, arguments.logs).await;
                print(&run.line());
                runs.push(run);
            }
        }
        if let Some(path) = &arguments.json {
            let text = json!({ "runs": runs.iter().map(Run::json).collect::<Vec<_>>() }).to_string();
            std::fs::write(path, text).map_err(DrillError::io(format!("writing {}", path.display())))?;
        }
        Ok(runs)
    })
}

/// A drill that could not be carried out counts as a violation: what recovers badly often ends so. One whose fault hurt
/// nobody is tried again: on a busy machine a sale may be over before the fault comes.
async fn one(premises: &Arc<Premises>, drill: Drill, seed: u64, logs: bool) -> Run {
    let begun = Instant::now();
    let mut run = Run {
        drill,
        seed,
        is_quick: premises.is_quick,
        violations: Vec::new(),
        promised: 0,
        kept: 0,
        units_sold: 0,
        unconfirmed: 0,
        pushed: 0,
        figures: None,
        closed_ms: None,
        notes: Vec::new(),
        took: begun.elapsed(),
    };
    let mut attempts = 1;
    let ended = loop {
        let running = Box::pin(drill.run(premises, seed, logs));
        match tokio::time::timeout(DRILL_MAX, running).await {
            Err(_) => {
                break Err(DrillError::Late { what: "the drill did not end".to_owned(), waited: DRILL_MAX });
            }
            Ok(Err(DrillError::NothingLost)) if attempts < ATTEMPTS_MAX => attempts += 1,
            Ok(ended) => break ended,
        }
    };
    match ended {
        Ok(ended) => {
            let audited = ended.audited;
            run.violations = audited.violations;
            (run.promised, run.kept, run.units_sold) = (audited.promised, audited.kept, audited.units_sold);
            (run.unconfirmed, run.pushed) = (audited.unconfirmed, audited.pushed);
            run.figures = audited.figures;
            (run.closed_ms, run.notes) = (ended.closed_ms, ended.notes);
        }
        Err(error) => run.violations.push(format!("could not be carried out: {error}")),
    }
    run.took = begun.elapsed();
    run
}

/// Prints to stdout. A reader that went away ends the printing, not the program.
fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}

/// Tells stderr, if there is one.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "rushgate-drills: {text}");
}
