//! `rushgate writer`: the sidecar writer, until SIGTERM or Ctrl-C; then it finishes what it has read. A second signal
//! ends it at once.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output::{print, start_logging};
use super::startup::runtime_of_all_cores;
use super::writer_probe::WriterProbe;
use super::{ConfigArgs, Failure};
use crate::admin::http;
use crate::config::{Config, KeyFiles, StoreKind};
use crate::orders::{Settings, Stopped, Writer};
use crate::store::crash_point;
use crate::store::failures::{Failures, Say};
use crate::store::redis::{RedisOpenError, RedisOptions, RedisShards};
use crate::store::shared::Keeper;
use crate::store::sql::mysql::{MySqlInstallation, MySqlOpenError, MySqlOptions};

/// Between two tries while a server is not there yet.
const PAUSE_MAX: Duration = Duration::from_secs(2);

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
        print("the configuration is fine");
        return Ok(());
    }
    if config.store.kind != StoreKind::Redis {
        return Err(Failure::cannot_start(
            "store.kind = \"sqlite\" settles its orders itself and needs no writer; for one, set store.kind = \"redis\"",
        ));
    }
    start_logging("rushgate=info,warn");
    crash_point::arm_from_environment().map_err(|error| Failure::cannot_start(error.to_string()))?;
    runtime_of_all_cores()?.block_on(write(&config))
}

async fn write(config: &Config) -> Result<(), Failure> {
    // Before anything else, so that a signal during the start is not lost.
    let mut stop = StopSignals::new()?;
    let probe = Arc::new(WriterProbe::default());
    let admin = open_admin(config, &probe).await?;
    let (redis, sql) = (redis_options(config)?, mysql_options(config)?);
    let started = tokio::select! {
        started = start(redis, sql, settings(config), &probe) => started,
        signal = stop.next() => {
            tracing::info!(signal, "ended before it worked");
            return Ok(());
        }
    };
    let writer = started?;
    print(&format!("rushgate writer {} works (admin: {admin})", writer.process().0));
    let signal = stop.next().await;
    probe.stops();
    tracing::info!(signal, "finishing what was read; a second signal ends at once");
    let stopped = tokio::select! {
        stopped = writer.stop() => stopped,
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
    redis: RedisOptions,
    sql: MySqlOptions,
    settings: Settings,
    probe: &WriterProbe,
) -> Result<Writer, Failure> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
    let redis = tried("Redis", || RedisShards::open(redis.clone()), RedisOpenError::is_temporary).await?;
    let sql =
        tried("the database", || MySqlInstallation::open(sql.clone()), MySqlOpenError::is_temporary).await?;
    let register = || Keeper::register_writer(redis.clone(), sql.clone());
    let (registration, keeper) = tried("registering this process", register, |_| true).await?;
    let state = keeper.state();
    tokio::spawn(keeper.run());
    let process = registration.process.0;
    tracing::info!(process, generation = registration.generation.0, "registered");
    let writer = Writer::start(redis, sql, registration, settings);
    probe.works(writer.counters(), state);
    Ok(writer)
}

/// Tries until it goes well, or cannot go well without somebody's doing.
async fn tried<T, E: Display, F: Future<Output = Result<T, E>>>(
    what: &str,
    attempt: impl Fn() -> F,
    is_temporary: impl Fn(&E) -> bool,
) -> Result<T, Failure> {
    let mut failures = Failures::default();
    let mut pause = Duration::from_millis(100);
    loop {
        match attempt().await {
            Ok(opened) => {
                if let Some(failures) = failures.succeeded() {
                    tracing::info!(what, failures, "there at last");
                }
                return Ok(opened);
            }
            Err(error) if is_temporary(&error) => match failures.failed(Instant::now()) {
                Say::Nothing => {}
                Say::First => tracing::warn!(what, %error, "not there yet; it is tried again"),
                Say::Summary(count) => {
                    tracing::warn!(what, %error, count, "still not there; it is tried again");
                }
            },
            Err(error) => return Err(Failure::cannot_start(error.to_string())),
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
    }
}

fn redis_options(config: &Config) -> Result<RedisOptions, Failure> {
    let password = config.redis_password().map_err(|error| Failure::cannot_start(error.to_string()))?;
    let redis = &config.redis;
    Ok(RedisOptions {
        nodes: redis.nodes_clock_first(),
        cluster: redis.cluster,
        username: redis.username.clone(),
        password,
        prefix: redis.prefix.clone(),
        connect_timeout: redis.connect_timeout,
        call_timeout: redis.call_timeout,
        wait_replicas: redis.replicas_waited_for(),
        wait_timeout: redis.wait_timeout,
    })
}

fn mysql_options(config: &Config) -> Result<MySqlOptions, Failure> {
    let password = config.mysql_password().map_err(|error| Failure::cannot_start(error.to_string()))?;
    let mysql = &config.mysql;
    Ok(MySqlOptions {
        password,
        connections_max: mysql.connections_max,
        connect_timeout: mysql.connect_timeout,
        ..MySqlOptions::new(mysql.host.as_str(), mysql.port, mysql.user.as_str(), mysql.database.as_str())
    })
}

fn settings(config: &Config) -> Settings {
    let writer = &config.writer;
    Settings {
        batch_rows_max: writer.batch_rows_max,
        linger: writer.linger,
        rows_per_s: writer.rows_per_s,
        claim_idle: writer.claim_idle,
        preheat_ahead: writer.preheat_ahead,
        trim_keep: writer.trim_keep,
        ..Settings::default()
    }
}

/// Opens the admin port, if there is to be one; its address for people.
async fn open_admin(config: &Config, probe: &Arc<WriterProbe>) -> Result<String, Failure> {
    let Some(listen) = config.writer.admin_listen else { return Ok("off".to_owned()) };
    let failed = |error| {
        Failure::cannot_start(format!(
            "cannot listen on {listen}: {error}; stop what uses it, or set writer.admin_listen (\"\" = off)"
        ))
    };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let probe = Arc::clone(probe);
    tokio::spawn(async move {
        if let Err(error) = http::serve(listener, probe).await {
            tracing::error!(%error, "the admin port ended");
        }
    });
    Ok(addr.to_string())
}

/// SIGTERM and SIGINT.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::cannot_start(format!("cannot listen for signals: {error}")))
        };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
