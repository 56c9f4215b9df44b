//! `rushgate serve`: the gateway, until SIGTERM or Ctrl-C; then it drains. A second signal ends it at once.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;

use super::admin_port::open_admin;
use super::output::{print, start_logging};
use super::probe::ServeProbe;
use super::production::open_shared_store;
use super::startup::{gateway_settings, open_store, runtime, verifier};
use super::stop_signals::StopSignals;
use super::{ConfigArgs, Failure};
use crate::admission::limits::Limits;
use crate::config::{Config, KeyFiles, StoreKind};
use crate::gateway::{Gateway, Settings, StartError};
use crate::store::catalog::Catalogue;
use crate::store::crash_point;
use crate::store::shared::{KeeperState, SharedStore};
use crate::store::sql::SqliteStore;
use crate::store::{ReservationStore, StoreError};

/// Before a start that was interrupted is begun anew.
const START_PAUSE: Duration = Duration::from_millis(500);

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
    crash_point::arm_from_environment().map_err(|error| Failure::cannot_start(error.to_string()))?;
    runtime()?.block_on(serve(&config))
}

/// A store that a gateway serves from, and what is to be done when it has drained.
trait ServedStore: ReservationStore + Catalogue {
    /// Whether its servers are somewhere else: a start that they interrupt is begun anew.
    const IS_REMOTE: bool;

    fn leave(&self) -> impl Future<Output = ()> + Send;

    /// How heartbeat and recoveries stand, where there are any.
    fn keeper_state(&self) -> Option<watch::Receiver<KeeperState>>;
}

impl ServedStore for SqliteStore {
    const IS_REMOTE: bool = false;

    async fn leave(&self) {
        self.close().await;
    }

    fn keeper_state(&self) -> Option<watch::Receiver<KeeperState>> {
        None
    }
}

impl ServedStore for SharedStore {
    const IS_REMOTE: bool = true;

    async fn leave(&self) {
        // Else a recovery would wait for this gateway until its heartbeat is old.
        if let Err(error) = self.retire().await {
            tracing::warn!(%error, "could not be signed off; that is noticed within seconds");
        }
    }

    fn keeper_state(&self) -> Option<watch::Receiver<KeeperState>> {
        Some(Self::keeper_state(self))
    }
}

async fn serve(config: &Config) -> Result<(), Failure> {
    let settings = gateway_settings(config)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), store = config.store.kind.name(), "starting");
    match config.store.kind {
        StoreKind::Sqlite => serve_from(config, settings, || open_store(config)).await,
        StoreKind::Redis => serve_from(config, settings, || open_shared_store(config)).await,
    }
}

async fn serve_from<S: ServedStore, F: Future<Output = Result<Arc<S>, Failure>>>(
    config: &Config,
    settings: Settings,
    open: impl Fn() -> F,
) -> Result<(), Failure> {
    // Before anything else, so that a signal during the start is not lost.
    let mut stop = StopSignals::new()?;
    let probe = Arc::new(ServeProbe::default());
    let admin = open_admin(config.admin.listen, "admin.listen", &probe).await?;
    let started = tokio::select! {
        started = start(config, settings, open) => started,
        signal = stop.next() => {
            tracing::info!(signal, "ended before it served");
            return Ok(());
        }
    };
    let (gateway, store) = started?;
    let gateway = probe.serves(gateway, store.keeper_state());
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
    store.leave().await;
    if answered {
        tracing::info!("drained: everything accepted was answered");
        Ok(())
    } else {
        Err(Failure::bad_result("the drain timeout passed before everything accepted was answered"))
    }
}

async fn start<S: ServedStore, F: Future<Output = Result<Arc<S>, Failure>>>(
    config: &Config,
    settings: Settings,
    open: impl Fn() -> F,
) -> Result<(Gateway, Arc<S>), Failure> {
    loop {
        let store = open().await?;
        let verifier = verifier(config)?;
        let limits = Limits::new(&config.limits_settings());
        match Gateway::start(settings.clone(), limits, verifier, Arc::clone(&store)).await {
            Ok(gateway) => return Ok((gateway, store)),
            Err(StartError::Store(StoreError::Unavailable(reason))) if S::IS_REMOTE => {
                tracing::warn!("interrupted while it started, beginning anew: {reason}");
                store.leave().await;
                tokio::time::sleep(START_PAUSE).await;
            }
            Err(error) => return Err(Failure::cannot_start(error.to_string())),
        }
    }
}
