//! `rushgate backfill`: settles orders that were only recorded (the switch `orders.mode`), beside the writers and whatever
//! the switch says. Needs the database alone; writers tell Redis.
//!
//! Exit code 0: nothing is left to be settled; 1: some order could not be settled and has failed, or it was stopped before
//! its end; 2: it could not go on. Run again, it goes on with what is left.

use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::data_args::Common;
use super::output::{print, print_json};
use super::production::mysql_options;
use super::startup::runtime;
use super::stop_signals::StopSignals;
use super::{Failure, log};
use crate::config::{Config, KeyFiles, StoreKind};
use crate::orders::{Backfill, Progress};
use crate::protocol::ActivityId;
use crate::store::sql::mysql::MySqlInstallation;

/// Failed orders that are told one by one.
const TOLD_MAX: usize = 20;

/// Arguments of `backfill`.
#[derive(Debug, Args)]
pub(super) struct BackfillArgs {
    /// One activity [default: all]
    #[arg(long, value_name = "ID")]
    activity: Option<u32>,
    /// Orders per second at most [default: as fast as it goes]
    #[arg(long, value_name = "ORDERS", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub(super) fn run(args: BackfillArgs) -> Result<(), Failure> {
    log::start_logging("warn");
    runtime()?.block_on(backfill(args))
}

/// What a run came to.
struct Done {
    progress: Progress,
    /// Orders that were recorded and not settled when it began.
    recorded: u64,
    /// Orders whose own note of that was missing.
    found: u64,
    left: u64,
    took: Duration,
}

async fn backfill(args: BackfillArgs) -> Result<(), Failure> {
    let BackfillArgs { activity, rate, common } = args;
    // Before anything else, so that a signal is not lost.
    let mut stop = StopSignals::new()?;
    let config = common.config.load(KeyFiles::Unopened)?;
    if common.data_dir.is_some() || config.store.kind != StoreKind::Redis {
        return Err(Failure::cannot_start(
            "the embedded store settles what it sells in the same transaction: nothing is ever recorded; \
             store.kind = \"redis\" has the switch orders.mode",
        ));
    }
    let sql = MySqlInstallation::open(mysql_options(&config)?).await;
    let sql = sql.map_err(|error| Failure::cannot_start(error.to_string()))?;
    let activity = activity.map(ActivityId);
    if let Some(id) = activity {
        let known = sql.activity_states().await.map_err(|error| cannot_go_on(&error, None))?;
        if !known.iter().any(|(known, _)| *known == id) {
            return Err(Failure::cannot_start("there is no such activity: rushgate activity list"));
        }
    }
    let done = settle(&sql, &config, activity, rate.unwrap_or(0), common.json, &mut stop).await;
    sql.close().await;
    tell(&done?, common.json)
}

async fn settle(
    sql: &MySqlInstallation,
    config: &Config,
    activity: Option<ActivityId>,
    rate: u32,
    is_quiet: bool,
    stop: &mut StopSignals,
) -> Result<Done, Failure> {
    let began = Instant::now();
    let found = sql.find_recorded(activity).await.map_err(|error| cannot_go_on(&error, None))?;
    let run = Backfill::new(sql.clone(), activity, rate, config.writer.batch_rows_max);
    let recorded = run.left().await.map_err(|error| cannot_go_on(&error, None))?;
    let bar = bar(recorded, is_quiet);
    let told = |progress: &Progress| {
        let failed = u64::try_from(progress.failed.len()).unwrap_or(u64::MAX);
        let done = progress.settled.saturating_add(failed);
        // More came while it ran.
        bar.set_length(recorded.max(done));
        bar.set_position(done);
    };
    let stopped = async {
        let signal = stop.next().await;
        tracing::info!(signal, "stopping after this batch");
    };
    let progress = run.run(told, stopped).await;
    bar.finish_and_clear();
    let progress = progress.map_err(|(progress, error)| cannot_go_on(&error, Some(progress.settled)))?;
    let left =
        sql.recorded_orders(activity).await.map_err(|error| cannot_go_on(&error, Some(progress.settled)))?;
    Ok(Done { progress, recorded, found, left, took: began.elapsed() })
}

fn cannot_go_on(error: &dyn std::fmt::Display, settled: Option<u64>) -> Failure {
    let settled = settled.map_or_else(String::new, |settled| format!("{settled} orders are settled; "));
    Failure::cannot_start(format!("{error}; {settled}run it again: it goes on with what is left"))
}

fn tell(done: &Done, json: bool) -> Result<(), Failure> {
    let Done { progress, recorded, found, left, took } = done;
    let failed = progress.failed.len();
    if json {
        print_json(&json!({
            "recorded": recorded,
            "found": found,
            "settled": progress.settled,
            "failed": progress.failed.iter().map(|one| json!({
                "order": one.order.0,
                "user": one.user.0,
                "activity": one.sku.activity.0,
                "sku": one.sku.sku.0,
                "reason": one.reason,
            })).collect::<Vec<_>>(),
            "left": left,
            "stopped": progress.is_stopped,
            "elapsed_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }))?;
    } else {
        let seconds = took.as_secs_f64();
        print(&format!(
            "{} orders settled, {failed} failed, {left} left, in {seconds:.1} s",
            progress.settled
        ));
        for one in progress.failed.iter().take(TOLD_MAX) {
            print(&format!(
                "  failed: order {} of user {}, SKU {}: {}",
                one.order, one.user, one.sku, one.reason
            ));
        }
        if failed > TOLD_MAX {
            print("  … the others are among the dead letters; --json tells all");
        }
        if progress.is_stopped {
            print("stopped; run it again: it goes on with what is left");
        } else if *left > 0 {
            print(
                "what is left came while it ran: orders.mode is record; run it again when it is settle, or writers do it",
            );
        }
    }
    // All is said already.
    if failed > 0 || progress.is_stopped { Err(Failure::bad_result("")) } else { Ok(()) }
}

/// A bar on standard error; hidden by itself where that is no terminal.
fn bar(length: u64, is_quiet: bool) -> ProgressBar {
    if is_quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    if let Ok(style) =
        ProgressStyle::with_template("settling {bar:40} {human_pos}/{human_len}  {per_sec}  {eta} left")
    {
        bar.set_style(style);
    }
    bar
}
