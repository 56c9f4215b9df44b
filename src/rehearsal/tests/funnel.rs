//! Where BUYs ended, added up.

use crate::protocol::Status;
use crate::rehearsal::{Buys, Counts, FunnelReport, GatewayCounts, SaleHistory};

use super::fixture::history;

const METRICS: &str = "# HELP rushgate_buys_total BUYs
# TYPE rushgate_buys_total counter
rushgate_buys_total{rung=\"frame\"} 1
rushgate_buys_total{rung=\"rate_user\"} 40
rushgate_buys_total{rung=\"passed\"} 9
rushgate_buys_passed_total{outcome=\"queued\"} 5
rushgate_buys_passed_total{outcome=\"busy\"} 3
rushgate_replies_total{status=\"BUSY\"} 77
rushgate_process 12
";

fn counts(list: &[(&str, u64)]) -> Counts {
    list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[allow(clippy::unnecessary_wraps, reason = "what could not be asked is none")]
fn gateway(process: u64, rungs: &[(&str, u64)], passed: &[(&str, u64)]) -> GatewayCounts {
    GatewayCounts { process, rungs: counts(rungs), passed: counts(passed) }
}

fn report(sent: u64, by_status: &[(Status, u64)]) -> FunnelReport {
    let by_status = by_status.iter().map(|(status, count)| (status.code(), *count)).collect();
    FunnelReport::new(&SaleHistory { buys: Buys { sent, by_status }, ..history() })
}

fn sum(counts: &Counts) -> u64 {
    counts.iter().map(|(_, count)| count).sum()
}

/// What is said of every report.
#[track_caller]
fn adds_up(report: &FunnelReport) {
    assert_eq!(report.sent, sum(&report.by_status) + report.unanswered, "{report:?}");
    let Some(counted) = &report.counted else { return };
    assert_eq!(report.sent + counted.of_others, sum(&counted.rungs) + counted.uncounted, "{report:?}");
    let (last, passed) = counted.rungs.last().unwrap();
    assert_eq!((last.as_str(), *passed), ("passed", sum(&counted.passed) + counted.waiting), "{report:?}");
}

#[test]
fn metrics_are_read_and_what_is_no_gateways_is_not() {
    let read = GatewayCounts::from_metrics(METRICS).unwrap();
    let rungs = [("frame", 1), ("rate_user", 40), ("passed", 9)];
    assert_eq!(read, gateway(12, &rungs, &[("queued", 5), ("busy", 3)]));
    for other in ["", "<html>", "rushgate_process 3\n", &METRICS.replace("rushgate_process 12", "")] {
        assert_eq!(GatewayCounts::from_metrics(other), None);
    }
}

#[test]
fn without_gateways_the_answers_are_told_and_what_had_none() {
    let report = report(10, &[(Status::Queued, 3), (Status::SoldOut, 5)]);
    adds_up(&report);
    assert_eq!(report.unanswered, 2);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["by_status"]["SOLD_OUT"], &json["sent"]), (&5.into(), &10.into()));
    assert!(json.get("rungs").is_none());
    let table = report.to_string();
    assert!(table.contains("unanswered                    2    20.00 %  ######"), "{table}");
    assert!(table.contains("admin ports tell the rungs"), "{table}");
}

#[test]
fn several_gateways_are_added_up_and_what_they_had_counted_before_is_not_in_it() {
    let before = [
        gateway(1, &[("rate_user", 100), ("passed", 7)], &[("queued", 7)]),
        gateway(2, &[("rate_user", 1), ("passed", 0)], &[("queued", 0)]),
    ]
    .map(Some);
    let after = [
        gateway(1, &[("rate_user", 130), ("passed", 10)], &[("queued", 9)]),
        // Of another version: with a rung more.
        gateway(2, &[("rate_user", 3), ("passed", 5), ("risk", 4)], &[("queued", 1), ("sold_out", 4)]),
    ]
    .map(Some);
    let mut report = report(44, &[(Status::Queued, 44)]);
    report.count(&before, &after);
    adds_up(&report);
    let counted = report.counted.clone().unwrap();
    assert_eq!(counted.rungs, counts(&[("rate_user", 32), ("risk", 4), ("passed", 8)]));
    assert_eq!(counted.passed, counts(&[("queued", 3), ("sold_out", 4)]));
    assert_eq!((counted.waiting, counted.uncounted, counted.of_others), (1, 0, 0));
    let table = report.to_string();
    for line in [
        "rate_user                    32    72.72 %",
        "  queued                      3     6.81 %",
        "sent                         44   100.00 %",
    ] {
        assert!(table.contains(line), "{line} is not in\n{table}");
    }
}

#[test]
fn what_was_lost_what_others_sent_and_what_a_dead_gateway_took_along_have_lines_of_their_own() {
    let was = Some(gateway(1, &[("passed", 50)], &[("queued", 50)]));
    // It died and has a successor at its address: what it counted in the sale is not known any more.
    let mut report = report(30, &[(Status::Queued, 20)]);
    report.count(std::slice::from_ref(&was), &[Some(gateway(9, &[("passed", 20)], &[("queued", 20)]))]);
    adds_up(&report);
    assert_eq!(report.counted.as_ref().map(|counted| counted.uncounted), Some(10));
    assert!(report.to_string().contains("lost with a connection or a gateway"), "{report}");
    // It is gone.
    report.count(std::slice::from_ref(&was), &[None]);
    let counted = report.counted.clone().unwrap();
    assert_eq!((counted.uncounted, counted.unasked), (30, 1));
    assert!(report.to_string().contains("1 gateways could not be asked"), "{report}");
    // Somebody else buys, too.
    report.count(&[was], &[Some(gateway(1, &[("passed", 95)], &[("queued", 95)]))]);
    adds_up(&report);
    assert_eq!(report.counted.as_ref().map(|counted| counted.of_others), Some(15));
    assert!(report.to_string().contains("of other clients"), "{report}");
}
