//! A gateway in this process, and what a command printed; for every test of the binary.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rushgate::admin::activities::{Activities, NewActivity, NewSku};
use rushgate::admission::identity::{IdentitySettings, Verifier, VerifyKey};
use rushgate::admission::limits::{Limits, LimitsSettings, Rate};
use rushgate::gateway::{Gateway, Settings};
use rushgate::store::catalog::Eligibility;
use rushgate::store::sql::{OpenOptions, SqliteStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A gateway on a free port with activity 1, on a runtime of its own so that it goes on while the test waits.
pub(crate) struct Served {
    pub(crate) folder: TempDir,
    pub(crate) runtime: Option<Runtime>,
    pub(crate) gateway: Arc<Gateway>,
}

impl Served {
    pub(crate) fn start(stock: u64) -> Self {
        Self::start_with(stock, Rate::OFF)
    }

    /// All BUYs together are limited to this rate.
    pub(crate) fn start_with(stock: u64, buys: Rate) -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = Settings { listen, ..Settings::default() };
        Self::start_in(tempfile::tempdir().unwrap(), stock, settings, buys)
    }

    pub(crate) fn start_in(folder: TempDir, stock: u64, settings: Settings, buys: Rate) -> Self {
        let runtime = Runtime::new().unwrap();
        let gateway = runtime.block_on(async {
            if stock > 0 {
                Activities::new(folder.path()).create(&activity(stock)).await.unwrap();
            }
            serve(folder.path(), settings, buys).await
        });
        Self { folder, runtime: Some(runtime), gateway: Arc::new(gateway) }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.gateway.local_addr()
    }

    /// Ends it as the death of its process would: nothing is told to anybody, tasks and sockets just end. Returns
    /// when they have, and with them the hold on the folder.
    pub(crate) fn kill(&mut self) {
        self.gateway.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(60));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

fn activity(stock: u64) -> NewActivity {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let now_ms = u64::try_from(now_ms).unwrap();
    NewActivity {
        id: 1,
        name: "test".to_owned(),
        entry_open: true,
        opens_at_ms: now_ms,
        closes_at_ms: now_ms.saturating_add(3_600_000),
        per_user_limit: 5,
        buy_again_max: 0,
        pay_within_ms: NewActivity::PAY_WITHIN_MS,
        eligibility: Eligibility::default(),
        skus: vec![NewSku { id: 1, name: "unit".to_owned(), price_minor: 100, stock }],
    }
}

async fn serve(folder: &Path, settings: Settings, buys: Rate) -> Gateway {
    let store = Arc::new(SqliteStore::open(&OpenOptions::new(folder)).await.unwrap());
    let limits = Limits::new(&LimitsSettings {
        global: buys,
        per_user: Rate { rate_per_s: 20, burst: 40 },
        result_per_user: Rate { rate_per_s: 10, burst: 20 },
        keys_max: 100_000,
        ..LimitsSettings::default()
    });
    let verifier =
        Verifier::new(&IdentitySettings::new(VerifyKey::DevSecret(folder.to_path_buf()), "rushgate"));
    Gateway::start(settings, limits, verifier.unwrap(), store).await.unwrap()
}

/// The one JSON object on stdout.
pub(crate) fn json(output: &Output) -> Value {
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(stdout.trim().lines().count(), 1, "{stdout}{}", stderr(output));
    serde_json::from_str(&stdout).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
