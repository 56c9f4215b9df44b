//! The funnel made visible: at which rung BUYs were stopped, in numbers that add up to what was sent, to the last one.

use rushgate::gateway::{PassedEnding, Rung};
use rushgate::protocol::Status;
use rushgate::rehearsal::GatewayCounts;
use serde_json::Value;

use super::house::{House, SALE, SKU};
use super::wire::buy;

fn count(counts: &Value, name: &str) -> u64 {
    counts[name].as_u64().unwrap_or_else(|| panic!("no {name} in {counts}"))
}

fn sum(counts: &Value) -> u64 {
    counts.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

#[track_caller]
fn demo(args: &[&str]) -> Value {
    let house = House::new();
    let printed = house.done(&[&["demo", "--json", "--data-dir", "demo"], args].concat());
    let report: Value = serde_json::from_str(&printed).unwrap();
    let funnel = &report["funnel"];
    let (rungs, passed, sent) = (&funnel["rungs"], &funnel["passed"], count(funnel, "sent"));
    // Every rung has its line, the last of them those who passed.
    assert_eq!(rungs.as_object().unwrap().len(), Rung::ALL.len(), "{rungs}");
    assert_eq!(sum(rungs), sent, "{report}");
    assert_eq!(count(rungs, "passed"), sum(passed), "{report}");
    assert_eq!(sum(&funnel["by_status"]), sent, "{report}");
    for nothing in ["unanswered", "waiting", "uncounted", "of_others", "unasked"] {
        assert_eq!(count(funnel, nothing), 0, "{nothing} in {report}");
    }
    assert!(sent >= count(&report, "users") + count(&report, "retries"), "{report}");
    assert_eq!(count(passed, "queued"), count(&report, "queued"), "{report}");
    report
}

#[test]
fn a_demos_funnel_adds_up_to_what_its_users_sent() {
    let report = demo(&["--users", "800", "--stock", "200", "--connections", "50"]);
    assert!(count(&report["funnel"]["rungs"], "stock") > 200, "{report}");
    assert!(count(&report["funnel"]["rungs"], "duplicate") > 0, "winners who try again: {report}");
    let everything_sells = demo(&["--users", "300", "--stock", "300", "--service", "--connections", "4"]);
    assert_eq!(count(&everything_sells["funnel"]["passed"], "queued"), 300, "{everything_sells}");
}

#[test]
fn a_demo_prints_a_line_and_a_bar_for_every_rung() {
    let house = House::new();
    let few = ["--users", "100", "--stock", "5", "--connections", "10"];
    let table = house.done(&[&["demo", "--data-dir", "demo"], &few[..]].concat());
    for rung in Rung::ALL {
        let begins = format!("{:<18} ", rung.name());
        assert!(table.lines().any(|line| line.starts_with(&begins)), "{} is not in\n{table}", rung.name());
    }
    assert!(table.lines().any(|line| line.starts_with("stock ") && line.ends_with('#')), "{table}");
    assert!(table.lines().any(|line| line.starts_with("sent ") && line.contains("100.00 %")), "{table}");
}

#[test]
fn metrics_tell_every_rung_and_what_came_of_those_who_passed() {
    let house = House::with_sale(5);
    let serving = house.serve(&[]);
    let read = || GatewayCounts::from_metrics(&serving.get("/metrics").1).unwrap();
    let names = |counts: &[(String, u64)]| counts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let before = read();
    assert_eq!(names(&before.rungs), Rung::ALL.iter().map(|rung| rung.name()).collect::<Vec<_>>());
    assert_eq!(names(&before.passed), PassedEnding::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    let mut client = house.app(&serving, 1);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    let after = read();
    assert_eq!(after.process, serving.metric("rushgate_process"));
    let rise = |before: &[(String, u64)], after: &[(String, u64)]| -> Vec<(String, u64)> {
        let rise = before.iter().zip(after).map(|((name, was), (_, is))| (name.clone(), is - was));
        rise.filter(|(_, rise)| *rise > 0).collect()
    };
    assert_eq!(rise(&before.rungs, &after.rungs), [("duplicate".to_owned(), 1), ("passed".to_owned(), 1)]);
    assert_eq!(rise(&before.passed, &after.passed), [("queued".to_owned(), 1)]);
}

#[test]
fn a_demo_whose_winners_pay_or_not_ends_with_every_unit_paid_for_and_balanced_books() {
    let stock = 12;
    let report = demo(&[
        "--users",
        "300",
        "--stock",
        "12",
        "--connections",
        "20",
        "--pay-rate",
        "0.5",
        "--pay-by",
        "1s",
    ]);
    let counts =
        ["paid", "pending", "closed", "restocked", "resold", "refund_due"].map(|name| count(&report, name));
    let [paid, pending, closed, restocked, resold, refund_due] = counts;
    assert_eq!((paid, pending, refund_due), (stock, 0, 0), "{report}");
    assert!(closed > 0, "one in 4,096 runs has nobody who does not pay: {report}");
    assert_eq!((closed, closed), (restocked, resold), "{report}");
    assert_eq!(
        (report["conserved"].as_bool(), report["audit"].as_str()),
        (Some(true), Some("ok")),
        "{report}"
    );
    let house = House::new();
    let wrong = house.refused_by_usage(&["demo", "--pay-rate", "1.5"]);
    assert!(wrong.contains("is not a share between 0 and 1"), "{wrong}");
}
