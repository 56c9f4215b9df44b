//! `rushgate-loadgen sale` on the production form: two gateways behind HAProxy, one Redis, one MariaDB, one writer.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "tests"
)]

mod counted;
mod shop;

use std::fs;
use std::process::Output;

use counted::{adds_up, count};
use serde_json::Value;
use shop::Shop;

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_figures(output: &Output, expected: &[(&str, u64)]) -> Value {
    let report = report(output);
    assert_eq!(output.status.code(), Some(0), "{report} {}", stderr(output));
    for (name, value) in expected {
        assert_eq!(report[name], *value, "{name} in {report}");
    }
    assert_eq!(report["audit"], "ok");
    for name in ["oversold", "undersold", "unresolved", "errors", "stock_left"] {
        assert_eq!(report[name], 0, "{name} in {report}");
    }
    // On a machine that is too busy to renew a heartbeat for two seconds, some learn it after an UNCONFIRMED.
    let winners = report["queued"].as_u64().unwrap() + report["learned"].as_u64().unwrap();
    assert_eq!(report["orders"], winners, "{report}");
    report
}

#[test]
fn two_gateways_sell_every_unit_once_and_push_results_on_the_one_that_did_not_sell() {
    let shop = Shop::open(300);
    let gateways = shop.gateways();
    let listening = ["--listen-addr", &gateways, "--listen-share", "0.5", "--push-wait", "30s", "--json"];
    let args = [&["--users", "3000", "--connections", "60"], &listening[..]].concat();
    let (output, reports) = std::thread::scope(|scope| {
        let selling = scope.spawn(|| shop.sale(&args));
        let reports = shop.reconciled_until(|| selling.is_finished());
        (selling.join().unwrap(), reports)
    });
    // Nothing differs and nothing is corrected while it sells, settles and pulls units from shard to shard.
    for report in &reports {
        assert_eq!(report.differences, [], "{report:?}");
    }
    assert!(reports.len() > 1, "it was over at once");
    let figures = [("users", 3_000), ("stock", 300), ("orders", 300), ("sold_out", 2_700)];
    let told = assert_figures(&output, &figures);
    let listened = told["listening"].as_u64().unwrap();
    assert!(listened > 20, "of the winners half should listen: {told}");
    assert_eq!(told["pushed_elsewhere"], listened, "{told}");
    assert_eq!(told["unpushed"], 0, "{told}");
    // Again, through a back end's connections: the same users hold the same orders.
    let args = ["--users", "3000", "--service", "--connections", "4", "--listen-share", "0.01"];
    let again = shop.sale(&[&args[..], &listening[..2], &["--json"]].concat());
    assert_figures(&again, &[("orders", 300), ("queued", 0), ("learned", 300), ("sold_out", 2_700)]);
}

#[test]
fn two_gateways_count_together_every_buy_that_was_sent() {
    let shop = Shop::open(200);
    let admins = shop.admins();
    let args = ["--users", "2000", "--connections", "60", "--admin", &admins, "--json"];
    let report = assert_figures(&shop.sale(&args), &[("users", 2_000), ("orders", 200)]);
    let funnel = adds_up(&report);
    assert_eq!(count(funnel, "uncounted"), 0, "{report}");
    assert!(count(&funnel["rungs"], "stock") > 0 && count(&funnel["rungs"], "duplicate") > 0, "{report}");
    // What they had counted before is not in it; nothing passes any more.
    let again =
        shop.sale(&["--users", "2000", "--service", "--connections", "4", "--admin", &admins, "--json"]);
    let again = assert_figures(&again, &[("orders", 200), ("queued", 0)]);
    assert_eq!(count(&adds_up(&again)["passed"], "queued"), 0, "{again}");
}

#[test]
fn a_unit_too_many_in_redis_or_in_the_database_is_red() {
    let shop = Shop::open(50);
    let wrong = |words: &str| {
        let output = shop.sale(&["--users", "100", "--json"]);
        let told = report(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    assert_figures(&shop.sale(&["--users", "100", "--json"]), &[("orders", 50), ("stock", 50)]);
    shop.sql("UPDATE sku_stock SET available = available + 1");
    wrong("the database counts 50 units sold and 1 available");
    shop.sql("UPDATE sku_stock SET available = available - 1");
    let free = shop.redis("{03}:1:stock", &["HINCRBY"], &["free:1", "1"]);
    assert_eq!(free, "1");
    wrong("shard 3 has 1 free units");
}

#[test]
fn the_audit_waits_for_a_writer_and_says_so_where_there_is_none() {
    let mut shop = Shop::open(50);
    shop.stop_writer();
    let output = shop.sale(&["--users", "100", "--settle-patience", "1s", "--push-wait", "100ms", "--json"]);
    let told = report(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!((&told["queued"], &told["orders"]), (&50.into(), &0.into()), "{told}");
    let audit = told["audit"].as_str().unwrap();
    assert!(
        audit.contains("events are not settled, 1s after the sale; see whether a writer runs"),
        "{audit}"
    );
    shop.start_writer();
    let again = shop.sale(&["--users", "100", "--json"]);
    assert_figures(&again, &[("orders", 50), ("queued", 0), ("learned", 50), ("sold_out", 50)]);
}

#[test]
fn a_database_that_is_gone_after_the_sale_is_a_bad_result() {
    let shop = Shop::open(5);
    let args = ["--users", "10", "--settle-patience", "1s", "--push-wait", "100ms", "--json"];
    let output = std::thread::scope(|scope| {
        let selling = scope.spawn(|| shop.sale(&args));
        // It has looked at the database before it connects, and the activity has not opened yet.
        while shop.connections() == 0 && !selling.is_finished() {
            std::thread::yield_now();
        }
        shop.sql("RENAME TABLE sku_stock TO gone");
        selling.join().unwrap()
    });
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("the sale is over, but cannot be audited"), "{told}");
}

#[test]
fn what_cannot_be_audited_is_told_before_the_sale() {
    let shop = Shop::open(5);
    let cannot = |args: &[&str], words: &str| {
        let output = shop.sale(&[&["--users", "1"], args].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "`{words}` is not in `{text}`");
        assert!(output.stdout.is_empty());
        text
    };
    cannot(&["--listen-addr", "127.0.0.1:1"], "at least two gateways, each once");
    cannot(&["--listen-share", "0.5"], "--listen-addr");
    let write = |file: &str, text: &str| fs::write(shop.folder.path().join(file), text).unwrap();
    write("password", "hunter2");
    let refused = cannot(&[], "check [mysql] in the configuration");
    assert!(!refused.contains("hunter2"), "a password is printed: {refused}");
    write("rushgate.toml", "[store]\nkind = \"redis\"\n[redis]\nnodes = [\"127.0.0.1:1\"]\n");
    cannot(&["--secret-file", "secret"], "127.0.0.1:1");
    write("rushgate.toml", "[store]\nkind = \"abacus\"\n");
    cannot(&[], "store.kind");
}
