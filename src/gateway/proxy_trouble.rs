//! What is wrong with those who connect to the balancers' port, told to the log without flooding it. One per worker.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whoever connects wrongly does so for every client.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Says at most every [`WARN_INTERVAL`] what is wrong with those who connect; the counters have the rest.
#[derive(Debug, Default)]
pub(super) struct ProxyTrouble {
    /// Monotonic milliseconds.
    quiet_until_ms: AtomicU64,
}

impl ProxyTrouble {
    pub(super) fn tell(&self, now_ms: u64, from: IpAddr, why: &dyn std::fmt::Display) {
        if now_ms < self.quiet_until_ms.load(Ordering::Relaxed) {
            return;
        }
        let pause_ms = u64::try_from(WARN_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        self.quiet_until_ms.store(now_ms.saturating_add(pause_ms), Ordering::Relaxed);
        tracing::warn!(%from, %why, "closed a connection to gateway.proxy_listen");
    }
}
