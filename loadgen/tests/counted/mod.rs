//! An admin port that tells what a gateway of the test has counted of BUYs, as a serving process does.
#![allow(clippy::unwrap_used, missing_docs, dead_code, reason = "tests, each of which uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;

use rushgate::admin::http;
use rushgate::admin::probe::Probe;
use rushgate::gateway::{Gateway, PassedEnding, Rung};
use serde_json::Value;
use tokio::net::TcpListener;

#[derive(Debug)]
struct BuyCounts(Arc<Gateway>);

impl Probe for BuyCounts {
    fn not_ready(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn metrics(&self) -> String {
        let counters = self.0.counters();
        let rung = |rung: &Rung| {
            format!("rushgate_buys_total{{rung=\"{}\"}} {}\n", rung.name(), counters.rung_count(*rung))
        };
        let passed = |one: &PassedEnding| {
            let count = counters.passed_count(*one);
            format!("rushgate_buys_passed_total{{outcome=\"{}\"}} {count}\n", one.name())
        };
        let process = format!("rushgate_process {}\n", self.0.process().0);
        Rung::ALL.iter().map(rung).chain(PassedEnding::ALL.iter().map(passed)).chain([process]).collect()
    }
}

/// Serves on a free port as long as the runtime lives.
pub(crate) async fn serve_counts(gateway: &Arc<Gateway>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(http::serve(listener, Arc::new(BuyCounts(Arc::clone(gateway)))));
    addr
}

pub(crate) fn count(counts: &Value, name: &str) -> u64 {
    counts[name].as_u64().unwrap_or_else(|| panic!("no {name} in {counts}"))
}

pub(crate) fn sum(counts: &Value) -> u64 {
    counts.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// The funnel of a report, whose numbers add up.
#[track_caller]
pub(crate) fn adds_up(report: &Value) -> &Value {
    let funnel = &report["funnel"];
    let sent = count(funnel, "sent");
    assert_eq!(sum(&funnel["by_status"]).checked_add(count(funnel, "unanswered")), Some(sent), "{report}");
    assert_eq!(sum(&funnel["rungs"]).checked_add(count(funnel, "uncounted")), Some(sent), "{report}");
    assert_eq!(count(&funnel["rungs"], "passed"), sum(&funnel["passed"]), "{report}");
    for nothing in ["waiting", "of_others", "unasked"] {
        assert_eq!(count(funnel, nothing), 0, "{nothing} in {report}");
    }
    funnel
}
