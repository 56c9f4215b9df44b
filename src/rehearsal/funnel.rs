//! How far the BUYs of a rehearsed sale came: at which rung of the gateways' funnel each was stopped, or what came of it
//! behind the last.
//!
//! Arithmetic over what the clients sent and were answered, and over what the gateways counted before and after; rungs
//! and outcomes have the names that the gateways give them. Every BUY that was sent is in exactly one line: where a
//! connection breaks, or a gateway's counters die with it, there is a line for what nobody counted. Run by whoever asks
//! the gateways, beside the sale and never in it; a gateway that cannot be asked is left out, and its share is in that
//! line. The audit never looks at any of it.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::time::{Instant, sleep};

use super::history::SaleHistory;
use crate::protocol::Status;

/// The name of the last rung: not stopped.
const PASSED: &str = "passed";
/// Between two looks at counters that may still rise.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Longer than a gateway lets a BUY wait that it has let pass.
const STILL_WITHIN: Duration = Duration::from_secs(10);
/// The longest bar.
const BAR_CHARS: u128 = 30;

/// Counts by name, in the order of the funnel.
pub type Counts = Vec<(String, u64)>;

/// What one gateway has counted since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounts {
    /// Its process number, which no other gateway ever has: counters begin anew with another one.
    pub process: u64,
    /// BUYs by the rung where they ended; `passed` among them.
    pub rungs: Counts,
    /// Those that passed, by what came of them.
    pub passed: Counts,
}

impl GatewayCounts {
    /// Reads what an admin port says at `/metrics`; `None` where it is no gateway's.
    pub fn from_metrics(text: &str) -> Option<Self> {
        let process = text.lines().find_map(|line| line.strip_prefix("rushgate_process "))?;
        let rungs = family(text, "rushgate_buys_total{rung=\"");
        if !rungs.iter().any(|(name, _)| name == PASSED) {
            return None;
        }
        let passed = family(text, "rushgate_buys_passed_total{outcome=\"");
        Some(Self { process: process.trim().parse().ok()?, rungs, passed })
    }

    /// Whether everything that passed was told what came of it.
    fn is_still(&self) -> bool {
        let passed = self.rungs.iter().filter(|(name, _)| name == PASSED);
        passed.map(|(_, count)| *count).fold(0, u64::saturating_add) == sum(&self.passed)
    }

    /// What it has counted since `before`, if that was the same process; else everything.
    fn since(&self, before: Option<&Self>) -> Self {
        let Some(before) = before.filter(|before| before.process == self.process) else {
            return self.clone();
        };
        let rise = |now: &Counts, before: &Counts| {
            let was =
                |name: &str| before.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
            now.iter().map(|(name, count)| (name.clone(), count.saturating_sub(was(name)))).collect()
        };
        Self {
            process: self.process,
            rungs: rise(&self.rungs, &before.rungs),
            passed: rise(&self.passed, &before.passed),
        }
    }
}

fn family(text: &str, begin: &str) -> Counts {
    let count = |line: &str| {
        let (name, count) = line.strip_prefix(begin)?.split_once("\"} ")?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    text.lines().filter_map(count).collect()
}

fn sum(counts: &Counts) -> u64 {
    counts.iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
}

fn add(sums: &mut Counts, more: Counts) {
    for (name, count) in more {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => sums.push((name, count)),
        }
    }
}

/// Asks the gateways until they count nothing more and nothing waits behind the funnel, or ten seconds are over. What
/// `read` gives is one place for each gateway, always in the same order; `None` where it cannot be asked.
pub async fn read_still(
    mut read: impl AsyncFnMut() -> Vec<Option<GatewayCounts>>,
) -> Vec<Option<GatewayCounts>> {
    let deadline = Instant::now().checked_add(STILL_WITHIN);
    let mut before = read().await;
    loop {
        sleep(LOOK_INTERVAL).await;
        let now = read().await;
        let is_still = now == before && now.iter().flatten().all(GatewayCounts::is_still);
        if is_still || deadline.is_none_or(|deadline| Instant::now() >= deadline) {
            return now;
        }
        before = now;
    }
}

/// Where the BUYs of a sale ended. `sent` = the sum of `by_status` + `unanswered`, as the clients saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FunnelReport {
    /// BUYs that the clients sent, each copy.
    pub sent: u64,
    /// Those without an answer: the connection broke, or patience did.
    pub unanswered: u64,
    /// The others, by the status of their answer.
    #[serde(serialize_with = "as_map")]
    pub by_status: Counts,
    /// What the gateways counted of them; absent where none was asked.
    #[serde(flatten)]
    pub counted: Option<Counted>,
}

/// What gateways counted during a sale, all of them together. `sent` + `of_others` = the sum of `rungs` + `uncounted`;
/// `passed` among the rungs = the sum of `passed` + `waiting`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// By the rung where they ended, cheapest first; those not stopped at the end, as `passed`.
    #[serde(serialize_with = "as_map")]
    pub rungs: Counts,
    /// Those that passed, by what came of them.
    #[serde(serialize_with = "as_map")]
    pub passed: Counts,
    /// Passed, and nothing has come of it yet.
    pub waiting: u64,
    /// Sent, but counted by no gateway that could be asked: lost with a broken connection, or counted by one that died.
    pub uncounted: u64,
    /// Counted, but not sent by this sale: other clients bought meanwhile.
    pub of_others: u64,
    /// Gateways that could not be asked, before or after.
    pub unasked: u64,
}

fn as_map<S: Serializer>(counts: &Counts, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().map(|(name, count)| (name, count)))
}

impl FunnelReport {
    /// What the clients know.
    pub fn new(history: &SaleHistory) -> Self {
        let buys = &history.buys;
        let named = |(status, count): (&u16, &u64)| {
            let name = Status::from_wire(*status)
                .map_or_else(|| format!("{status:#06x}"), |known| known.name().to_owned());
            (name, *count)
        };
        let by_status: Counts = buys.by_status.iter().map(named).collect();
        let unanswered = buys.sent.saturating_sub(sum(&by_status));
        Self { sent: buys.sent, unanswered, by_status, counted: None }
    }

    /// Adds what the gateways know, each at the same place before and after.
    pub fn count(&mut self, before: &[Option<GatewayCounts>], after: &[Option<GatewayCounts>]) {
        let mut counted = Counted::default();
        for (place, now) in after.iter().enumerate() {
            let before = before.get(place).and_then(Option::as_ref);
            // One that was away before the sale has counted what it has counted: of it, or of others.
            let Some(now) = now else {
                counted.unasked = counted.unasked.saturating_add(1);
                continue;
            };
            let GatewayCounts { rungs, passed, .. } = now.since(before);
            add(&mut counted.rungs, rungs);
            add(&mut counted.passed, passed);
        }
        // Wherever a gateway of another version has put it.
        let (last, others): (Counts, Counts) =
            counted.rungs.into_iter().partition(|(name, _)| name == PASSED);
        counted.waiting = sum(&last).saturating_sub(sum(&counted.passed));
        counted.rungs = others.into_iter().chain(last).collect();
        let total = sum(&counted.rungs);
        counted.uncounted = self.sent.saturating_sub(total);
        counted.of_others = total.saturating_sub(self.sent);
        self.counted = Some(counted);
    }
}

/// One line: a name, how many, their share of all, and a bar as long as that.
fn line(f: &mut fmt::Formatter<'_>, name: &str, count: u64, all: u64, note: &str) -> fmt::Result {
    let all = u128::from(all.max(1));
    let of_all = |whole: u128| u128::from(count).saturating_mul(whole);
    let share = of_all(10_000).checked_div(all).unwrap_or_default();
    let (percent, rest) = (share.checked_div(100).unwrap_or_default(), share % 100);
    let bar = "#".repeat(usize::try_from(of_all(BAR_CHARS).div_ceil(all).min(BAR_CHARS)).unwrap_or_default());
    let text = format!("{name:<18} {count:>12} {percent:>5}.{rest:02} %  {bar}{note}");
    write!(f, "\n{}", text.trim_end())
}

impl fmt::Display for FunnelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<18} {:>12} {:>10}", "BUYs", "ended there", "share")?;
        let Some(counted) = &self.counted else {
            for (name, count) in &self.by_status {
                line(f, name, *count, self.sent, "")?;
            }
            line(f, "unanswered", self.unanswered, self.sent, "")?;
            line(f, "sent", self.sent, self.sent, "")?;
            return write!(f, "\n(by their answers; the gateways' admin ports tell the rungs)");
        };
        let all = self.sent.saturating_add(counted.of_others);
        for (name, count) in &counted.rungs {
            line(f, name, *count, all, "")?;
        }
        for (name, count) in counted.passed.iter().filter(|(_, count)| *count > 0) {
            line(f, &format!("  {name}"), *count, all, "")?;
        }
        if counted.waiting > 0 {
            line(f, "  waiting", counted.waiting, all, "")?;
        }
        line(
            f,
            "uncounted",
            counted.uncounted,
            all,
            if counted.uncounted > 0 { "  lost with a connection or a gateway" } else { "" },
        )?;
        if counted.of_others > 0 {
            line(f, "of other clients", counted.of_others, all, "  among those above")?;
        }
        if counted.unasked > 0 {
            write!(f, "\n{} gateways could not be asked", counted.unasked)?;
        }
        line(f, "sent", self.sent, all, "")
    }
}
