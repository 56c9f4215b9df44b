//! `rushgate serve`: the gateway, until SIGTERM or Ctrl-C; then it drains. A second signal ends it at once.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;

use super::admin_port::open_admin;
use super::log::{LogControl, ProcessLog};
use super::obedience::until_drain;
use super::output::{ended_by_fault, print};
use super::payments::payment_settings;
use super::probe::ServeProbe;
use super::production::open_shared_store;
use super::startup::{gateway_runtime, gateway_settings, open_store, verifier};
use super::stop_signals::StopSignals;
use super::{ConfigArgs, Failure};
use crate::admin::risk::RiskPlace;
use crate::admin::switches::SwitchPlace;
use crate::admission::limits::Limits;
use crate::config::{Config, KeyFiles, StoreKind};
use crate::gateway::{Gateway, Settings, StartError};
use crate::orders::{PaymentSettings, PaymentTasks};
use crate::store::crash_point;
use crate::store::shared::{KeeperState, SharedStore};
use crate::store::sql::SqliteStore;
use crate::store::{GatewayStore, StoreError, watched};

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
    let (log, control) = ProcessLog::start(&config.log, "rushgate=info,warn")?;
    crash_point::arm_from_environment().map_err(|error| Failure::cannot_start(error.to_string()))?;
    gateway_runtime()?.block_on(serve(&config, (&log, &control)))
}

/// A store that a gateway serves from, and what is to be done when it has drained.
trait ServedStore: GatewayStore {
    /// Whether its servers are somewhere else: a start that they interrupt is begun anew.
    const IS_REMOTE: bool;

    fn leave(&self) -> impl Future<Output = ()> + Send;

    /// How heartbeat and recoveries stand, where there are any.
    fn keeper_state(&self) -> Option<watch::Receiver<KeeperState>>;

    /// Where the admin port sets switches.
    fn switch_place(self: &Arc<Self>) -> SwitchPlace;

    /// Where the admin port changes risk lists.
    fn risk_place(self: &Arc<Self>) -> RiskPlace;

    /// What is told the tasks of payments; `None`: a writer has them.
    fn payment_settings(config: &Config) -> Result<Option<PaymentSettings>, Failure>;

    /// Starts them, if there is a key.
    fn start_payments(self: &Arc<Self>, settings: PaymentSettings) -> Option<PaymentTasks<SqliteStore>>;
}

impl ServedStore for SqliteStore {
    const IS_REMOTE: bool = false;

    async fn leave(&self) {
        self.close().await;
    }

    fn keeper_state(&self) -> Option<watch::Receiver<KeeperState>> {
        None
    }

    fn switch_place(self: &Arc<Self>) -> SwitchPlace {
        SwitchPlace::Served(Arc::clone(self))
    }

    fn risk_place(self: &Arc<Self>) -> RiskPlace {
        RiskPlace::Served(Arc::clone(self))
    }

    fn payment_settings(config: &Config) -> Result<Option<PaymentSettings>, Failure> {
        payment_settings(&config.payment).map(Some)
    }

    fn start_payments(self: &Arc<Self>, settings: PaymentSettings) -> Option<PaymentTasks<SqliteStore>> {
        PaymentTasks::start(Arc::clone(self), settings)
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

    fn switch_place(self: &Arc<Self>) -> SwitchPlace {
        SwitchPlace::Installation(Box::new(self.switch_store()))
    }

    fn risk_place(self: &Arc<Self>) -> RiskPlace {
        RiskPlace::Redis(self.redis().clone())
    }

    fn payment_settings(_: &Config) -> Result<Option<PaymentSettings>, Failure> {
        Ok(None)
    }

    fn start_payments(self: &Arc<Self>, _: PaymentSettings) -> Option<PaymentTasks<SqliteStore>> {
        None
    }
}

async fn serve(config: &Config, log: (&ProcessLog, &LogControl)) -> Result<(), Failure> {
    let has_one_core = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    let settings = Settings { shares_runtime: has_one_core, ..gateway_settings(config)? };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), store = config.store.kind.name(), "starting");
    match config.store.kind {
        StoreKind::Sqlite => Box::pin(serve_from(config, log, settings, || open_store(config))).await,
        StoreKind::Redis => Box::pin(serve_from(config, log, settings, || open_shared_store(config))).await,
    }
}

async fn serve_from<S: ServedStore, F: Future<Output = Result<Arc<S>, Failure>>>(
    config: &Config,
    (log, control): (&ProcessLog, &LogControl),
    settings: Settings,
    open: impl Fn() -> F,
) -> Result<(), Failure> {
    // Before anything else, so that a signal during the start is not lost.
    let mut stop = StopSignals::new()?;
    let payments = S::payment_settings(config)?;
    let probe = Arc::new(ServeProbe::new(Some(log.counts())));
    let admin = open_admin(config.admin.listen, "admin.listen", &probe).await?;
    let started = tokio::select! {
        started = start(config, settings, open) => started,
        signal = stop.next() => {
            tracing::info!(signal, "ended before it served");
            return Ok(());
        }
    };
    let (gateway, store) = started?;
    log.is_of("gateway", gateway.process().0);
    let gateway = probe.serves(gateway, store.keeper_state(), store.switch_place(), store.risk_place());
    let payments = payments.and_then(|settings| store.start_payments(settings));
    if let Some(payments) = &payments {
        probe.takes_payments(payments);
    }
    if let Some(addr) = gateway.proxy_addr() {
        tracing::info!(%addr, "serves balancers that send PROXY headers");
    }
    print(&format!("rushgate serves on {} (admin: {admin})", gateway.local_addr()));
    let reason = tokio::select! {
        signal = stop.next() => signal.to_owned(),
        asked_by = until_drain(&gateway, control) => asked_by,
        task = watched::broken() => return Err(ended_by_fault(task)),
    };
    tracing::info!(reason, unfinished = gateway.unfinished(), "draining; a second signal ends at once");
    let answered = tokio::select! {
        answered = gateway.drain() => answered,
        task = watched::broken() => return Err(ended_by_fault(task)),
        signal = stop.next() => {
            return Err(Failure::bad_result(format!("second signal ({signal}): ended without draining")));
        }
    };
    if let Some(payments) = payments {
        payments.stop().await;
    }
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
