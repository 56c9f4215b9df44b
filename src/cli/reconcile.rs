//! `rushgate reconcile`: compares Redis with the database and its ledger, and corrects what differs if it is asked to.
//!
//! Exit code 0: nothing differs but what is on its way; 1: something differs, corrected or not; 2: it could not tell.

use std::sync::Mutex;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::data_args::Common;
use super::output::{print, print_json};
use super::production::{mysql_options, redis_options};
use super::reconcile_report::{json, text};
use super::startup::runtime;
use super::{Failure, log};
use crate::config::{KeyFiles, StoreKind};
use crate::orders::reconcile::{Reconciliation, Request, Stage, Watch};
use crate::protocol::ActivityId;
use crate::store::redis::RedisShards;
use crate::store::sql::mysql::MySqlInstallation;

/// Arguments of `reconcile`.
#[derive(Debug, Args)]
pub(super) struct ReconcileArgs {
    /// One activity [default: all that are in Redis]
    #[arg(long, value_name = "ID")]
    activity: Option<u32>,
    /// Correct what differs, by differences and through the ledger
    #[arg(long)]
    fix: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub(super) fn run(args: ReconcileArgs) -> Result<(), Failure> {
    log::start_logging("warn");
    runtime()?.block_on(reconcile(args))
}

fn cannot_tell(error: impl std::fmt::Display) -> Failure {
    Failure::cannot_start(format!("{error}; whether the books are right cannot be told; run it again"))
}

async fn reconcile(args: ReconcileArgs) -> Result<(), Failure> {
    let config = args.common.config.load(KeyFiles::Unopened)?;
    if args.common.data_dir.is_some() || config.store.kind != StoreKind::Redis {
        return Err(Failure::cannot_start(
            "the embedded store has one set of books and nothing to compare; store.kind = \"redis\" has two",
        ));
    }
    // A server that is down is not waited for: whoever asks has to know.
    let sql = MySqlInstallation::open(mysql_options(&config)?).await;
    let sql = sql.map_err(|error| Failure::cannot_start(error.to_string()))?;
    let redis = RedisShards::open(redis_options(&config)?).await;
    let redis = redis.map_err(|error| Failure::cannot_start(error.to_string()))?;
    let request = Request { activity: args.activity.map(ActivityId), fix: args.fix };
    let reconciliation = Reconciliation::new(redis, sql.clone());
    let Some(activities) = reconciliation.activities(request).await.map_err(cannot_tell)? else {
        return Err(Failure::cannot_start("there is no such activity: rushgate activity list"));
    };
    let bar = if args.common.json { Bar::default() } else { Bar::shown() };
    let mut reports = Vec::new();
    for id in activities {
        let report = reconciliation.activity(id, args.fix, &bar).await.map_err(cannot_tell)?;
        if !args.common.json {
            bar.clear();
            print(&text(&report, args.fix));
        }
        reports.push(report);
    }
    sql.close().await;
    if args.common.json {
        print_json(&json(&reports))?;
    } else if reports.is_empty() {
        print("no activity is in Redis: nothing to compare");
    }
    if reports.iter().all(|report| report.differences.is_empty()) {
        Ok(())
    } else {
        // All is said already.
        Err(Failure::bad_result(""))
    }
}

/// A bar on standard error; hidden by itself where that is no terminal.
#[derive(Default)]
struct Bar(Mutex<Option<ProgressBar>>);

impl Bar {
    fn shown() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{msg:>14} {bar:40} {human_pos}/{human_len}  {elapsed}")
        {
            bar.set_style(style);
        }
        Self(Mutex::new(Some(bar)))
    }

    fn with(&self, act: impl FnOnce(&ProgressBar)) {
        let bar = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bar) = bar.as_ref() {
            act(bar);
        }
    }

    fn clear(&self) {
        self.with(|bar| bar.set_draw_target(ProgressDrawTarget::stderr()));
        self.with(ProgressBar::finish_and_clear);
    }
}

impl Watch for Bar {
    fn at(&self, stage: Stage, done: u64, total: u64) {
        self.with(|bar| {
            bar.set_message(match stage {
                Stage::Shards => "shards",
                Stage::Feeds => "feeds",
                Stage::Database => "database",
                Stage::Mending => "correcting",
            });
            bar.set_length(total);
            bar.set_position(done);
        });
    }
}
