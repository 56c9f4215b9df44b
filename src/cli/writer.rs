//! `rushgate writer`: the sidecar writer, until SIGTERM or Ctrl-C; then it finishes what it has read. A second signal
//! ends it at once.

use std::sync::Arc;

use clap::Args;

use super::admin_port::open_admin;
use super::log::{LogControl, ProcessLog};
use super::obedience::LogFollower;
use super::output::{ended_by_fault, print};
use super::payments::payment_settings;
use super::production::{open_mysql, open_redis, patiently};
use super::startup::runtime_of_all_cores;
use super::stop_signals::StopSignals;
use super::writer_probe::WriterProbe;
use super::{ConfigArgs, Failure};
use crate::config::{Config, KeyFiles, Payment, StoreKind};
use crate::orders::{PaymentSettings, Settings, Stopped, Writer};
use crate::store::crash_point;
use crate::store::shared::Keeper;
use crate::store::watched;

/// Arguments of `writer`.
#[derive(Debug, Args)]
pub(super) struct WriterArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Check the configuration and end
    #[arg(long)]
    check_config: bool,
    /// Print the names of the crash points and end
    #[arg(long, hide = true)]
    crash_points: bool,
}

/// Runs the command.
pub(super) fn run(args: WriterArgs) -> Result<(), Failure> {
    if args.crash_points {
        print(&crash_point::ALL.join("\n"));
        return Ok(());
    }
    let config = args.config.load(KeyFiles::Unopened)?;
    if args.check_config {
        settings(&config)?;
        print("the configuration is fine");
        return Ok(());
    }
    if config.store.kind != StoreKind::Redis {
        return Err(Failure::cannot_start(
            "store.kind = \"sqlite\" settles its orders itself and needs no writer; for one, set store.kind = \"redis\"",
        ));
    }
    let (log, control) = ProcessLog::start(&config.log, "rushgate=info,warn")?;
    crash_point::arm_from_environment().map_err(|error| Failure::cannot_start(error.to_string()))?;
    runtime_of_all_cores()?.block_on(write(&config, &log, control))
}

async fn write(config: &Config, log: &ProcessLog, control: LogControl) -> Result<(), Failure> {
    // Before anything else, so that a signal during the start is not lost.
    let mut stop = StopSignals::new()?;
    let probe = Arc::new(WriterProbe::new(log.counts()));
    let admin = open_admin(config.writer.admin_listen, "writer.admin_listen", &probe).await?;
    let started = tokio::select! {
        started = start(config, &probe, log, control) => started,
        signal = stop.next() => {
            tracing::info!(signal, "ended before it worked");
            return Ok(());
        }
    };
    let writer = started?;
    print(&format!("rushgate writer {} works (admin: {admin})", writer.process().0));
    let signal = tokio::select! {
        signal = stop.next() => signal,
        task = watched::broken() => return Err(ended_by_fault(task)),
    };
    probe.stops();
    tracing::info!(signal, "finishing what was read; a second signal ends at once");
    let stopped = tokio::select! {
        stopped = writer.stop() => stopped,
        task = watched::broken() => return Err(ended_by_fault(task)),
        signal = stop.next() => {
            return Err(Failure::bad_result(format!(
                "second signal ({signal}): ended at once; what was read goes to another writer"
            )));
        }
    };
    match stopped {
        Stopped::Done => {
            tracing::info!("everything that was read is settled and acknowledged");
            Ok(())
        }
        Stopped::LeftBehind => Err(Failure::bad_result(
            "not everything that was read could be settled in time; another writer takes it over",
        )),
    }
}

async fn start(
    config: &Config,
    probe: &WriterProbe,
    log: &ProcessLog,
    control: LogControl,
) -> Result<Writer, Failure> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
    let settings = settings(config)?;
    let (sql, redis) = (open_mysql(config).await?, open_redis(config).await?);
    tokio::spawn(LogFollower::begin(redis.clone(), control).await.run());
    let register = || Keeper::register_writer(redis.clone(), sql.clone());
    let (registration, keeper) = patiently(register, |_| true).await?;
    let state = keeper.state();
    tokio::spawn(watched::vital("the keeper", keeper.run()));
    let process = registration.process.0;
    log.is_of("writer", process);
    tracing::info!(process, generation = registration.generation.0, "registered");
    let writer = Writer::start(redis, sql, registration, settings);
    probe.works(writer.counters(), state, writer.notices());
    Ok(writer)
}

fn settings(config: &Config) -> Result<Settings, Failure> {
    let writer = &config.writer;
    Ok(Settings {
        batch_rows_max: writer.batch_rows_max,
        linger: writer.linger,
        rows_per_s: writer.rows_per_s,
        claim_idle: writer.claim_idle,
        preheat_ahead: writer.preheat_ahead,
        trim_keep: writer.trim_keep,
        payments: of_writer(&config.payment)?,
        ..Settings::default()
    })
}

fn of_writer(payment: &Payment) -> Result<PaymentSettings, Failure> {
    let settings = payment_settings(payment)?;
    if settings.centre.is_none() {
        tracing::info!(
            "payment.centre_url names no payment centre: orders that are not paid in time stay open"
        );
    }
    Ok(settings)
}
