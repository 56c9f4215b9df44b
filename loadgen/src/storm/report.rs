//! How a wave of clients was served.

use std::fmt;
use std::fs;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::Served;
use crate::output::Failure;
use crate::tally::{ByStatus, Reasons, histogram, quantile_us, tenths_us};

/// `clients` = `served` + those that were not; `failed` counts attempts.
#[derive(Debug)]
pub(super) struct Wave {
    name: &'static str,
    has_jitter: bool,
    clients: usize,
    served: usize,
    /// From the wave's start to the last client's answer.
    all_served_after: Duration,
    after_ns: Histogram<u64>,
    by_status: ByStatus,
    failed: Reasons,
    /// Connections that this machine's listeners dropped meanwhile for want of backlog; none where it is not told.
    pub(super) listen_drops: Option<u64>,
}

impl Wave {
    pub(super) fn new(name: &'static str, has_jitter: bool, clients: usize) -> Result<Self, Failure> {
        Ok(Self {
            name,
            has_jitter,
            clients,
            served: 0,
            all_served_after: Duration::ZERO,
            after_ns: histogram()?,
            by_status: ByStatus::default(),
            failed: Reasons::default(),
            listen_drops: None,
        })
    }

    pub(super) fn count(&mut self, served: &Served) {
        for failure in &served.failures {
            self.failed.add(failure.to_string(), 1);
        }
        if served.wire.is_none() {
            return;
        }
        self.served = self.served.saturating_add(1);
        self.all_served_after = self.all_served_after.max(served.after);
        self.after_ns.saturating_record(u64::try_from(served.after.as_nanos()).unwrap_or(u64::MAX));
        if let Some(status) = served.status {
            self.by_status.add(status, 1);
        }
    }

    pub(super) const fn is_anybody_served(&self) -> bool {
        self.served > 0
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "wave": self.name,
            "jitter": self.has_jitter,
            "clients": self.clients,
            "served": self.served,
            "seconds": self.all_served_after.as_secs_f64(),
            "p50_us": quantile_us(&self.after_ns, 0.5),
            "p99_us": quantile_us(&self.after_ns, 0.99),
            "max_us": tenths_us(self.after_ns.max()),
            "by_status": self.by_status.json(),
            "errors": self.failed.total(),
            "failed": self.failed.json(),
            "listen_drops": self.listen_drops,
        })
    }

    /// What is wrong with it.
    pub(super) fn complaint(&self) -> Option<String> {
        let title = self.title();
        if self.served == 0 {
            Some(format!("{title}: nobody was served, the gateway went away: {}", self.failed.line()))
        } else if self.served < self.clients || self.failed.total() > 0 {
            Some(format!(
                "{title}: {} of {} clients served, failed attempts: {}",
                self.served,
                self.clients,
                self.failed.line()
            ))
        } else {
            None
        }
    }

    fn title(&self) -> String {
        format!("{} {} jitter", self.name, if self.has_jitter { "with" } else { "without" })
    }
}

impl fmt::Display for Wave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title())?;
        writeln!(f, "  {:<22} {:>14}", "served", format!("{}/{}", self.served, self.clients))?;
        writeln!(f, "  {:<22} {:>14.3}", "all served after s", self.all_served_after.as_secs_f64())?;
        writeln!(f, "  {:<22} {:>14.1}", "p50 µs", quantile_us(&self.after_ns, 0.5))?;
        writeln!(f, "  {:<22} {:>14.1}", "p99 µs", quantile_us(&self.after_ns, 0.99))?;
        for (name, count) in self.by_status.named() {
            writeln!(f, "  {name:<22} {count:>14}")?;
        }
        if let Some(drops) = self.listen_drops {
            writeln!(f, "  {:<22} {drops:>14}", "dropped by a listener")?;
        }
        write!(f, "  {:<22} {:>14}", "failed attempts", self.failed.total())
    }
}

/// The kernel's count of connections that found no room in a listener's backlog; of the whole machine.
pub(super) fn listen_drops() -> Option<u64> {
    let text = fs::read_to_string("/proc/net/netstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == "ListenOverflows")?.1.parse().ok()
}
