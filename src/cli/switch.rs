//! `rushgate switch …`: what the person on call changes while a sale runs.

use std::fmt::Write as _;
use std::time::Duration;

use super::data_args::Common;
use super::output::{print, print_json, print_or_json};
use super::production::{mysql_options, redis_options};
use super::startup::runtime;
use super::stop_signals::StopSignals;
pub(super) use super::switch_args::SwitchArgs;
use super::switch_args::{SetArgs, SwitchCommand};
use super::times::time_text;
use super::{Failure, log};
use crate::admin::switches::{SetDone, SetRequest, SwitchPlace, SwitchView, set, views};
use crate::admission::switches::SwitchKind;
use crate::config::{Config, KeyFiles, StoreKind};
use crate::store::StoreError;
use crate::store::failures::{Failures, Say};
use crate::store::modes::is_kept_in_sql;
use crate::store::redis::RedisShards;
use crate::store::shared::InstallationSwitches;
use crate::store::sql::SwitchFolder;
use crate::store::sql::mysql::MySqlInstallation;
use crate::store::switches::SwitchStore;

/// One wait for changes.
const WAIT: Duration = Duration::from_secs(1);
/// For what the database has.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a failure.
const BACK_OFF: Duration = Duration::from_millis(500);

/// Runs the command.
pub(super) fn run(args: SwitchArgs) -> Result<(), Failure> {
    log::start_logging("warn");
    runtime()?.block_on(dispatch(args.command))
}

async fn dispatch(command: SwitchCommand) -> Result<(), Failure> {
    match command {
        SwitchCommand::List(common) => {
            let (place, json) = place(common, Needs::Everything).await?;
            let switches = place.switches().await.map_err(failed)?;
            print_or_json(json, &views(switches), |views| list_text(views))
        }
        SwitchCommand::Set(SetArgs { name, value, why, who, common }) => {
            let needs = if is_kept_in_sql(&name) { Needs::Database } else { Needs::Everything };
            let (place, json) = place(common, needs).await?;
            let done = set(&place, SetRequest { name, value, who, why }).await;
            let done = done.map_err(|error| Failure::bad_result(error.to_string()))?;
            print_or_json(json, &done, |SetDone { name, value, version }| {
                format!("{name} = {value} (version {version})")
            })
        }
        SwitchCommand::Watch(common) => {
            // Before anything else, so that a signal is not lost.
            let mut stop = StopSignals::new()?;
            let (place, json) = place(common, Needs::Everything).await?;
            tokio::select! {
                ended = watch(&place, json) => ended,
                _ = stop.next() => Ok(()),
            }
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: StoreError) -> Failure {
    Failure::bad_result(error.to_string())
}

/// What of an installation a command works on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Everything,
    /// What is set while Redis is away.
    Database,
}

/// Where the switches are. A server that is down is not waited for: whoever wants to close a door has to know.
async fn place(common: Common, needs: Needs) -> Result<(SwitchPlace, bool), Failure> {
    let json = common.json;
    let folder = if let Some(data_dir) = common.data_dir {
        data_dir
    } else {
        let config = common.config.load(KeyFiles::Unopened)?;
        if config.store.kind == StoreKind::Redis {
            return Ok((servers(&config, needs).await?, json));
        }
        config.store.data_dir
    };
    let folder = SwitchFolder::open(&folder).await;
    let folder = folder.map_err(|error| Failure::cannot_start(error.to_string()))?;
    Ok((SwitchPlace::Folder(folder), json))
}

async fn servers(config: &Config, needs: Needs) -> Result<SwitchPlace, Failure> {
    let sql = MySqlInstallation::open(mysql_options(config)?).await;
    let sql = sql.map_err(|error| Failure::cannot_start(error.to_string()))?;
    if needs == Needs::Database {
        return Ok(SwitchPlace::Database(sql));
    }
    let redis = RedisShards::open(redis_options(config)?).await;
    let redis = redis.map_err(|error| {
        let also = "stock.mode and orders.mode are in the database and can be set all the same";
        Failure::cannot_start(format!("{error}; {also}"))
    })?;
    let both = InstallationSwitches::new(redis, sql).patient(PATIENCE);
    Ok(SwitchPlace::Installation(Box::new(both)))
}

/// Prints every change from now on. Trouble is told, and ends nothing.
async fn watch(place: &SwitchPlace, json: bool) -> Result<(), Failure> {
    let mut after = place.switches().await.map_err(failed)?.version();
    let mut failures = Failures::default();
    loop {
        match place.switch_changes(after, WAIT).await {
            Ok(changes) => {
                if let Some(failures) = failures.succeeded() {
                    tracing::warn!(failures, "switches can be read again");
                }
                for change in changes {
                    after = after.max(change.version);
                    let view = SwitchView::from(change);
                    if json {
                        print_json(&view)?;
                    } else {
                        print(&line(&view));
                    }
                }
            }
            Err(error) => {
                match failures.failed(std::time::Instant::now()) {
                    Say::Nothing => {}
                    Say::First => tracing::warn!(%error, "switches cannot be read; it is tried again"),
                    Say::Summary(count) => tracing::warn!(%error, count, "switches still cannot be read"),
                }
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

fn list_text(views: &[SwitchView]) -> String {
    let mut text = String::new();
    for view in views {
        text.push_str(&line(view));
        text.push('\n');
    }
    if views.is_empty() {
        text.push_str("nothing was ever set\n");
    }
    text.push_str("\nto set (else as in brackets):\n");
    for kind in SwitchKind::ALL {
        let (spelling, values, default) = (kind.spelling(), kind.values(), kind.default_value());
        let _ = writeln!(text, "  {spelling:<24}  {values} [{default}]");
    }
    text
}

fn line(view: &SwitchView) -> String {
    let SwitchView { name, value, version, at_ms, who, why, ignored } = view;
    let at = time_text(*at_ms);
    let mut line = format!("{name:<20}  {value:<8}  {at}  {version:>13}  {who}: {why}");
    if let Some(ignored) = ignored {
        let _ = write!(line, "  (not obeyed: {ignored})");
    }
    line
}
