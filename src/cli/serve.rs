//! `rushgate serve`: the gateway, until SIGTERM or Ctrl-C; then it drains. A second signal ends it at once.

use std::sync::Arc;

use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output::{print, start_logging};
use super::probe::ServeProbe;
use super::startup::{gateway_settings, open_store, runtime, verifier};
use super::{ConfigArgs, Failure};
use crate::admin::http;
use crate::admission::limits::Limits;
use crate::config::{Config, KeyFiles};
use crate::gateway::{Gateway, Settings};
use crate::store::sql::SqliteStore;

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Check the configuration and end
    #[arg(long)]
    check_config: bool,
    /// Print the effective configuration and end
    #[arg(long)]
    print_config: bool,
}

/// Runs the command.
pub(super) fn run(args: ServeArgs) -> Result<(), Failure> {
    let config = args.config.load(KeyFiles::Tried)?;
    if args.print_config {
        print(&config.print());
        return Ok(());
    }
    if args.check_config {
        print("the configuration is fine");
        return Ok(());
    }
    start_logging("rushgate=info,warn");
    runtime()?.block_on(serve(&config))
}

async fn serve(config: &Config) -> Result<(), Failure> {
    let settings = gateway_settings(config)?;
    // Before anything else, so that a signal during the start is not lost.
    let mut stop = StopSignals::new()?;
    let probe = Arc::new(ServeProbe::default());
    let admin = open_admin(config, &probe).await?;
    let started = tokio::select! {
        started = start(config, settings) => started,
        signal = stop.next() => {
            tracing::info!(signal, "ended before it served");
            return Ok(());
        }
    };
    let (gateway, store) = started?;
    let gateway = probe.serves(gateway);
    if let Some(addr) = gateway.proxy_addr() {
        tracing::info!(%addr, "serves balancers that send PROXY headers");
    }
    print(&format!("rushgate serves on {} (admin: {admin})", gateway.local_addr()));
    let signal = stop.next().await;
    tracing::info!(signal, unfinished = gateway.unfinished(), "draining; a second signal ends at once");
    let answered = tokio::select! {
        answered = gateway.drain() => answered,
        signal = stop.next() => {
            return Err(Failure::bad_result(format!("second signal ({signal}): ended without draining")));
        }
    };
    store.close().await;
    if answered {
        tracing::info!("drained: everything accepted was answered");
        Ok(())
    } else {
        Err(Failure::bad_result("the drain timeout passed before everything accepted was answered"))
    }
}

async fn start(config: &Config, settings: Settings) -> Result<(Gateway, Arc<SqliteStore>), Failure> {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        data_dir = %config.store.data_dir.display(),
        "starting"
    );
    let store = open_store(config).await?;
    let verifier = verifier(config)?;
    let limits = Limits::new(&config.limits_settings());
    let gateway = Gateway::start(settings, limits, verifier, Arc::clone(&store)).await;
    let gateway = gateway.map_err(|error| Failure::cannot_start(error.to_string()))?;
    Ok((gateway, store))
}

/// Opens the admin port, if there is to be one; its address for people.
async fn open_admin(config: &Config, probe: &Arc<ServeProbe>) -> Result<String, Failure> {
    let Some(listen) = config.admin.listen else { return Ok("off".to_owned()) };
    let failed = |error| {
        Failure::cannot_start(format!(
            "cannot listen on {listen}: {error}; stop what uses it, or set admin.listen (\"\" = off)"
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
