//! From configuration to running parts: settings, store, keys, runtime. What cannot start says why and what to do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::Failure;
use crate::admission::identity::{KeyName, MintKey, Minter, Verifier, VerifyKey};
use crate::admission::limits::Rate;
use crate::config::{self, Config, ConnectionsMax};
use crate::gateway::{LookupSettings, RiskSettings, Settings, TlsFiles, TlsSettings, worker_runtime};
use crate::stock;
use crate::store::sql::{OpenOptions, SqliteStore, Synchronous};

/// Descriptors kept for everything that is not a client: the store, the admin port, logs.
const DESCRIPTORS_RESERVED: u64 = 256;

/// A gateway's: one thread, this one, for everything but the connections. These have threads of their own, or, where one
/// core is there for all, live here too.
pub(super) fn gateway_runtime() -> Result<Runtime, Failure> {
    built(worker_runtime())
}

/// A runtime of one thread, this one.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    started(&mut Builder::new_current_thread())
}

/// A runtime with a thread for each core, for commands that play the clients too.
pub(super) fn runtime_of_all_cores() -> Result<Runtime, Failure> {
    started(&mut Builder::new_multi_thread())
}

fn started(builder: &mut Builder) -> Result<Runtime, Failure> {
    built(builder.enable_all().build())
}

fn built(runtime: io::Result<Runtime>) -> Result<Runtime, Failure> {
    runtime.map_err(|error| Failure::cannot_start(format!("cannot start the runtime's threads: {error}")))
}

/// What the gateway is told.
pub(super) fn gateway_settings(config: &Config) -> Result<Settings, Failure> {
    let gateway = &config.gateway;
    let in_flight = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    Ok(Settings {
        listen: gateway.listen,
        proxy_listen: gateway.proxy_listen,
        proxy_from: gateway.proxy_from.clone(),
        tls: tls_settings(&config.tls),
        worker_threads: gateway.worker_threads,
        shares_runtime: false,
        connections_max: connections_max(gateway.connections_max)?,
        in_flight_max: in_flight(gateway.in_flight_max),
        service_in_flight_max: in_flight(gateway.service_in_flight_max),
        frame_bytes_max: gateway.frame_bytes_max,
        outbound_bytes_max: gateway.outbound_bytes_max,
        handshake_timeout: gateway.handshake_timeout,
        frame_timeout: gateway.frame_timeout,
        write_timeout: gateway.write_timeout,
        keepalive: gateway.keepalive,
        drain_timeout: gateway.drain_timeout,
        risk: RiskSettings {
            slow_interval: config.risk.slow_interval,
            explain_slots: config.risk.explain_slots,
        },
        clients: config.client_rules(),
        devices: config.device_rules(),
        behaviour: config.behaviour_rules(),
        lookups: lookup_settings(config),
        stock: stock_settings(&config.stock),
    })
}

fn tls_settings(tls: &config::Tls) -> Option<TlsSettings> {
    // Checked when the configuration was loaded: where it is on there are both.
    let certificate = tls.certificate_file.clone().filter(|_| tls.is_on())?;
    Some(TlsSettings {
        listen: tls.listen,
        proxy_listen: tls.proxy_listen,
        files: TlsFiles {
            certificate,
            private_key: tls.private_key_file.clone()?,
            ticket_keys: tls.ticket_keys_file.clone(),
        },
        handshakes_max: tls.handshakes_max,
    })
}

fn lookup_settings(config: &Config) -> LookupSettings {
    let per_s = config.gateway.archive_lookups_per_s;
    let connections = usize::try_from(config.mysql.connections_max).unwrap_or(usize::MAX);
    LookupSettings {
        keep: config.gateway.result_keep,
        rate: Rate { rate_per_s: per_s, burst: per_s },
        // The heartbeat goes through the same connections.
        in_flight_max: (connections / 4).max(1),
    }
}

fn stock_settings(stock: &config::Stock) -> stock::Settings {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1);
    stock::Settings {
        queue_items_max: stock.queue_items_max,
        batch_items_max: stock.batch_items_max,
        patience_ms: millis(stock.patience),
        unconfirmed_after_ms: millis(stock.unconfirmed_after),
        call_timeout_ms: millis(stock.call_timeout),
        view_lag_ms_max: millis(stock.view_lag_max),
        ..stock::Settings::default()
    }
}

/// As many connections as descriptors allow, after asking the system for as many as it gives.
fn connections_max(setting: ConnectionsMax) -> Result<usize, Failure> {
    let descriptors = rlimit::increase_nofile_limit(u64::MAX)
        .map_err(|error| Failure::cannot_start(format!("cannot read the descriptor limit: {error}")))?;
    let room = usize::try_from(descriptors.saturating_sub(DESCRIPTORS_RESERVED)).unwrap_or(usize::MAX);
    match setting {
        ConnectionsMax::Auto => Ok(room.max(1)),
        ConnectionsMax::Count(count) if count <= room => Ok(count),
        ConnectionsMax::Count(count) => Err(Failure::cannot_start(format!(
            "gateway.connections_max = {count} needs {count} + {DESCRIPTORS_RESERVED} descriptors, but the \
             limit is {descriptors}; raise it (ulimit -n, LimitNOFILE) or set connections_max = \"auto\""
        ))),
    }
}

/// Opens the data folder for serving.
pub(super) async fn open_store(config: &Config) -> Result<Arc<SqliteStore>, Failure> {
    let mut options = OpenOptions::new(&config.store.data_dir);
    options.synchronous = match config.store.synchronous {
        config::Synchronous::Full => Synchronous::Full,
        config::Synchronous::Normal => Synchronous::Normal,
    };
    let store = SqliteStore::open(&options).await;
    store.map(Arc::new).map_err(|error| Failure::cannot_start(error.to_string()))
}

/// Checks tokens by the configured keys; without any, by the development secret in the data folder.
pub(super) fn verifier(config: &Config) -> Result<Verifier, Failure> {
    let settings = config.identity_settings();
    if matches!(settings.key, Some(VerifyKey::DevSecret(_))) {
        tracing::warn!(
            data_dir = %config.store.data_dir.display(),
            "auth.secret_file is not set: tokens are checked with the development secret in the data folder"
        );
    }
    let verifier = Verifier::new(&settings).map_err(|error| Failure::cannot_start(error.to_string()))?;
    let keys: Vec<_> = verifier.key_names().iter().map(KeyName::to_string).collect();
    tracing::info!(keys = keys.join(", "), "tokens are checked with");
    for skipped in verifier.skipped_keys() {
        tracing::info!(skipped, "a key for something else in auth.jwks_file");
    }
    Ok(verifier)
}

/// Signs tokens that [`verifier`] accepts: with the key given, or with the configured secret. They name the key so,
/// or as it is configured.
pub(super) fn minter(
    config: &Config,
    given: Option<MintKey>,
    kid: Option<String>,
) -> Result<Minter, Failure> {
    let kid = kid.or_else(|| config.auth.kid.clone().filter(|_| given.is_none()));
    let settings = config.mint_settings(given).map_err(|error| Failure::cannot_start(error.to_string()))?;
    let minter = Minter::new(&settings).map_err(|error| Failure::cannot_start(error.to_string()))?;
    Ok(minter.with_kid(kid))
}
