//! `rushgate serve`: the gateway, until SIGTERM or Ctrl-C; then it drains. A second signal ends it at once.

use std::sync::Arc;

use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output::{print, start_logging};
use super::startup::{gateway_settings, open_store, runtime, verifier};
use super::{ConfigArgs, Failure};
use crate::admin::http;
use crate::admission::limits::Limits;
use crate::config::Config;
use crate::gateway::Gateway;

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
    let config = args.config.load()?;
    if args.print_config {
        print(&config.print());
        return Ok(());
    }
    if args.check_config {
        print("the configuration is fine");
        return Ok(());
    }
    start_logging("rushgate=info,warn");
    runtime(config.gateway.worker_threads)?.block_on(serve(&config))
}

async fn serve(config: &Config) -> Result<(), Failure> {
    let settings = gateway_settings(config)?;
    // Before anything else, so that a signal during the start is not lost.
    let mut stop = StopSignals::new()?;
    let admin = match config.admin.listen {
        None => None,
        Some(listen) => Some(TcpListener::bind(listen).await.map_err(|error| {
            Failure::cannot_start(format!(
                "cannot listen on {listen}: {error}; stop what uses it, or set admin.listen (\"\" = off)"
            ))
        })?),
    };
    let store = open_store(config).await?;
    let verifier = verifier(config)?;
    let limits = Limits::new(&config.limits_settings());
    let gateway = Gateway::start(settings, limits, verifier, Arc::clone(&store))
        .await
        .map_err(|error| Failure::cannot_start(error.to_string()))?;
    let gateway = Arc::new(gateway);
    let admin_addr = admin.as_ref().and_then(|listener| listener.local_addr().ok());
    if let Some(listener) = admin {
        let probe = Arc::clone(&gateway);
        tokio::spawn(async move {
            if let Err(error) = http::serve(listener, probe).await {
                tracing::error!(%error, "the admin port ended");
            }
        });
    }
    let admin_text = admin_addr.map_or_else(|| "off".to_owned(), |addr| addr.to_string());
    print(&format!("rushgate serves on {} (admin: {admin_text})", gateway.local_addr()));
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
