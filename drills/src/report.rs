//! The table at the end, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::Figures;
use crate::drills::Drill;

/// One run of one drill.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) drill: Drill,
    pub(crate) seed: u64,
    /// With fewer users and shorter outages.
    pub(crate) is_quick: bool,
    pub(crate) violations: Vec<String>,
    pub(crate) promised: u64,
    pub(crate) kept: u64,
    pub(crate) units_sold: u64,
    pub(crate) unconfirmed: u64,
    pub(crate) pushed: u64,
    /// Where orders are paid.
    pub(crate) figures: Option<Figures>,
    /// How long shards were closed, the longest time.
    pub(crate) closed_ms: Option<u64>,
    /// What else it measured.
    pub(crate) notes: Vec<String>,
    pub(crate) took: Duration,
}

impl Run {
    /// The line that is printed when it has ended.
    pub(crate) fn line(&self) -> String {
        let Self { drill, seed, violations, promised, kept, units_sold, unconfirmed, pushed, .. } = self;
        let verdict =
            if violations.is_empty() { "ok".to_owned() } else { format!("{} VIOLATIONS", violations.len()) };
        let mut line = format!(
            "{:<28} seed {seed:<6} {verdict:<14} promises kept {kept} of {promised}, {units_sold} units sold, \
             {unconfirmed} UNCONFIRMED, {pushed} pushed, {:.1} s",
            drill.name(),
            self.took.as_secs_f64(),
        );
        if let Some(closed_ms) = self.closed_ms {
            let _ = write!(line, ", shards closed {closed_ms} ms");
        }
        if let Some(Figures { paid, closed, restocked, refund_due }) = self.figures {
            let _ = write!(
                line,
                "\n    {paid} paid, {closed} closed, {restocked} units restocked, {refund_due} refund due"
            );
        }
        for note in &self.notes {
            let _ = write!(line, "\n    {note}");
        }
        for violation in violations {
            let _ = write!(line, "\n    VIOLATION {violation}");
        }
        if !violations.is_empty() {
            let quick = if self.is_quick { " --quick" } else { "" };
            let _ =
                write!(line, "\n    replay: scripts/drills 1 --drill {} --seed {seed}{quick}", drill.name());
        }
        line
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "drill": self.drill.name(), "seed": self.seed, "violations": self.violations,
            "promised": self.promised, "kept": self.kept, "units_sold": self.units_sold,
            "unconfirmed": self.unconfirmed, "pushed": self.pushed, "closed_ms": self.closed_ms,
            "paid": self.figures.map(|figures| figures.paid), "closed": self.figures.map(|figures| figures.closed),
            "restocked": self.figures.map(|figures| figures.restocked),
            "refund_due": self.figures.map(|figures| figures.refund_due),
            "notes": self.notes, "seconds": self.took.as_secs_f64(),
        })
    }
}

/// The table: one row per drill.
pub(crate) fn table(runs: &[Run]) -> String {
    let mut by_drill: BTreeMap<Drill, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        by_drill.entry(run.drill).or_default().push(run);
    }
    let mut text = String::from(
        "| drill | runs | violations | promises kept | UNCONFIRMED | time closed, ms (median, max) |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    for (drill, runs) in by_drill {
        let sum = |of: fn(&Run) -> u64| runs.iter().map(|run| of(run)).sum::<u64>();
        let violations: usize = runs.iter().map(|run| run.violations.len()).sum();
        let mut closed: Vec<u64> = runs.iter().filter_map(|run| run.closed_ms).collect();
        closed.sort_unstable();
        let closed = match (closed.get(closed.len() / 2), closed.last()) {
            (Some(median), Some(max)) => format!("{median}, {max}"),
            _ => "–".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {violations} | {} of {} | {} | {closed} |",
            drill.name(),
            runs.len(),
            sum(|run| run.kept),
            sum(|run| run.promised),
            sum(|run| run.unconfirmed),
        );
    }
    text
}
