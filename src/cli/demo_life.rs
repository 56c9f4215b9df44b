//! The part of `rushgate demo` that pays: a payment centre in this process, the port that it tells the shop on, and the
//! tasks that close what is not paid, as `serve` runs them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::Failure;
use super::admin_port::open_admin;
use super::probe::ServeProbe;
use crate::orders::{PaymentSettings, PaymentTasks};
use crate::payment::Keys;
use crate::payment::http::Target;
use crate::rehearsal::{Life, PayCentre, PayFaults};
use crate::store::sql::SqliteStore;

/// The life of a whole sale ends within a minute or so; where the pay-by is long, after so many of them.
const PATIENCE_MIN: Duration = Duration::from_secs(60);
const PAY_BYS_MAX: u32 = 12;

/// Running until it is stopped.
pub(super) struct DemoLife {
    life: Life,
    tasks: Option<PaymentTasks<SqliteStore>>,
}

/// A share from 0 to 1.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a share between 0 and 1, such as 0.7"))
}

impl DemoLife {
    /// Everything on free ports of this machine.
    pub(super) async fn start(
        store: &Arc<SqliteStore>,
        pay_rate: f64,
        pay_by: Duration,
        price_minor: u64,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::cannot_start(format!("the demo's payment centre cannot start: {error}"))
        };
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let probe = Arc::new(ServeProbe::new(None));
        let admin = open_admin(Some(here), "admin.listen", &probe).await?;
        let keys = Keys::random().map_err(failed)?;
        let listener = TcpListener::bind(here).await.map_err(failed)?;
        let centre = PayCentre::start(listener, keys.clone(), vec![target(&admin)?], PayFaults::default())
            .map_err(failed)?;
        let settings = PaymentSettings {
            keys: Some(keys),
            centre: Some(target(&centre.address().to_string())?),
            ask_timeout: Duration::from_secs(1),
            ..PaymentSettings::default()
        };
        let tasks = PaymentTasks::start(Arc::clone(store), settings);
        if let Some(tasks) = &tasks {
            probe.takes_payments(tasks);
        }
        let patience = pay_by.saturating_mul(PAY_BYS_MAX).max(PATIENCE_MIN);
        let life = Life { pay_rate, pay_by, price_minor, centre: Arc::new(centre), patience };
        Ok(Self { life, tasks })
    }

    /// What winners do.
    pub(super) fn life(&self) -> Life {
        self.life.clone()
    }

    /// Ends the tasks; the store may be closed then.
    pub(super) async fn stop(self) {
        if let Some(tasks) = self.tasks {
            tasks.stop().await;
        }
    }
}

fn target(address: &str) -> Result<Target, Failure> {
    format!("http://{address}").parse().map_err(|error| Failure::cannot_start(format!("{error}")))
}
