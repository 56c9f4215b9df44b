//! `rushgate-loadgen sale` as a person runs it: against a gateway that already serves, by its exit code and output.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "tests"
)]

mod counted;
mod served;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use counted::{adds_up, count, serve_counts};
use rushgate::admin::activities::Activities;
use rushgate::admission::limits::Rate;
use rushgate::gateway::Settings;
use served::{Served, json, stderr};
use tempfile::TempDir;
use tokio::runtime::Runtime;

impl Served {
    /// Dies, and leaves its folder.
    fn die(mut self) -> TempDir {
        self.kill();
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    fn sale(&self, args: &[&str]) -> Output {
        sale(&self.addr().to_string(), self.folder.path(), args)
    }

    /// An admin port of its gateway.
    fn admin(&self) -> String {
        let runtime = self.runtime.as_ref().unwrap();
        runtime.block_on(serve_counts(&self.gateway)).to_string()
    }

    fn activities(&self) -> Activities {
        Activities::new(self.folder.path())
    }
}

fn sale(addr: &str, folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate-loadgen"));
    command.args(["sale", "--addr", addr, "--data-dir"]).arg(folder).args(args);
    command.output().unwrap()
}

fn assert_figures(output: &Output, expected: &[(&str, u64)]) {
    let report = json(output);
    assert_eq!(output.status.code(), Some(0), "{report} {}", stderr(output));
    for (name, value) in expected {
        assert_eq!(report[name], *value, "{name} in {report}");
    }
    assert_eq!(report["audit"], "ok");
    for name in ["oversold", "undersold", "unresolved", "errors", "unconfirmed"] {
        assert_eq!(report[name], 0, "{name} in {report}");
    }
}

#[test]
fn more_users_than_units_on_connections_of_their_own() {
    let served = Served::start(20);
    let output = served.sale(&["--users", "300", "--connections", "50", "--json"]);
    let expected = [("users", 300), ("stock", 20), ("orders", 20), ("queued", 20), ("sold_out", 280)];
    assert_figures(&output, &expected);
    assert_eq!((&json(&output)["mode"], &json(&output)["connections"]), (&"app".into(), &50.into()));
    let again = served.sale(&["--users", "300", "--connections", "50", "--json"]);
    let winners_again = json(&again)["already"].as_u64().unwrap();
    assert_figures(&again, &[("orders", 20), ("queued", 0), ("learned", 20), ("sold_out", 280)]);
    assert!(winners_again >= 20, "the same users hold the same orders");
    let others = served.sale(&["--users", "10", "--first-user", "1000", "--json"]);
    assert_figures(&others, &[("stock", 0), ("orders", 0), ("sold_out", 10)]);
}

#[test]
fn everything_sells_on_shared_connections_and_a_table_says_so() {
    let served = Served::start(500);
    let args = ["--users", "500", "--connections", "4", "--service", "--retry-share", "0.5"];
    let output = served.sale(&args);
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{table} {}", stderr(&output));
    for line in
        ["users                     500", "orders                    500", "audit                      ok"]
    {
        assert!(table.contains(line), "{line} is not in\n{table}");
    }
    assert_eq!(stderr(&output), "", "no bar where there is no terminal");
}

#[test]
fn quantities_above_one_are_all_or_nothing() {
    let served = Served::start(100);
    let args =
        ["--users", "200", "--service", "--connections", "4", "--quantities", "1:60,2:30,5:10", "--json"];
    let output = served.sale(&args);
    assert_figures(&output, &[("users", 200), ("stock", 100), ("stock_left", 0)]);
    assert!(json(&output)["orders"].as_u64().unwrap() < 100);
}

#[test]
fn a_gateway_that_dies_and_comes_back_on_its_port_loses_nothing() {
    // This gateway lets a quarter of the users buy and hardly anybody after them: however quick the machine is, the
    // sale is not over before it dies, and while the machine looks at the orders BUYs are under way.
    let served = Served::start_with(2_000, Rate { rate_per_s: 1, burst: 1_500 });
    let (addr, folder) = (served.addr().to_string(), served.folder.path().to_path_buf());
    let selling = std::thread::spawn(move || {
        sale(
            &addr,
            &folder,
            &["--users", "6000", "--service", "--connections", "8", "--in-flight", "4", "--json"],
        )
    });
    let reading = Runtime::new().unwrap();
    while reading.block_on(orders(served.folder.path())) < 100 && !selling.is_finished() {
        std::thread::yield_now();
    }
    assert!(!selling.is_finished(), "it ended early: {}", stderr(&selling.join().unwrap()));
    let listen = served.addr();
    let _served = Served::start_in(served.die(), 0, Settings { listen, ..Settings::default() }, Rate::OFF);
    let output = selling.join().unwrap();
    assert_figures(&output, &[("users", 6_000), ("stock", 2_000), ("orders", 2_000), ("stock_left", 0)]);
}

#[test]
fn the_rungs_add_up_to_what_was_sent_with_every_limit_in_the_way() {
    // So few BUYs a second that most are turned away by it, again and again.
    let served = Served::start_with(20, Rate { rate_per_s: 200, burst: 50 });
    let admin = served.admin();
    let output = served.sale(&["--users", "200", "--connections", "50", "--admin", &admin, "--json"]);
    let report = json(&output);
    let funnel = adds_up(&report);
    assert_eq!(output.status.code(), Some(0), "{report} {}", stderr(&output));
    assert_eq!((count(funnel, "uncounted"), count(funnel, "unanswered")), (0, 0), "{report}");
    assert!(count(&funnel["rungs"], "rate_global") > 0, "{report}");
    assert_eq!(
        count(&funnel["rungs"], "rate_global"),
        count(&funnel["by_status"], "RATE_LIMITED"),
        "{report}"
    );
    assert_eq!(count(&funnel["passed"], "queued"), 20, "{report}");
    // In the table, a line for each rung; without an admin port, for each status.
    let sale = |args: &[&str]| {
        let output = served.sale(&[&["--users", "10", "--first-user", "1000"], args].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let has = |table: &str, name: &str| table.lines().any(|line| line.starts_with(&format!("{name} ")));
    let table = sale(&["--admin", &admin]);
    assert!(has(&table, "rate_global") && has(&table, "uncounted") && !has(&table, "SOLD_OUT"), "{table}");
    let table = sale(&[]);
    assert!(has(&table, "SOLD_OUT") && table.contains("the gateways' admin ports tell the rungs"), "{table}");
}

#[test]
fn buys_that_break_off_with_their_gateway_have_a_line_of_their_own() {
    let served = Served::start_with(1_000, Rate { rate_per_s: 1, burst: 800 });
    let (addr, admin, folder) =
        (served.addr().to_string(), served.admin(), served.folder.path().to_path_buf());
    let selling = std::thread::spawn(move || {
        let args = [
            "--users",
            "2000",
            "--service",
            "--connections",
            "8",
            "--patience",
            "3s",
            "--admin",
            &admin,
            "--json",
        ];
        sale(&addr, &folder, &args)
    });
    let reading = Runtime::new().unwrap();
    while reading.block_on(orders(served.folder.path())) < 100 && !selling.is_finished() {
        std::thread::yield_now();
    }
    // With its counters, for ever.
    let _folder = served.die();
    let report = json(&selling.join().unwrap());
    let funnel = &report["funnel"];
    let by_status: u64 = counted::sum(&funnel["by_status"]);
    assert_eq!(by_status + count(funnel, "unanswered"), count(funnel, "sent"), "{report}");
    assert_eq!(
        (count(funnel, "uncounted"), count(funnel, "unasked")),
        (count(funnel, "sent"), 1),
        "{report}"
    );
}

#[test]
fn an_admin_port_that_does_not_answer_is_told_before_the_sale() {
    let served = Served::start(10);
    for wrong in ["127.0.0.1:1", &served.addr().to_string()] {
        let output = served.sale(&["--users", "1", "--admin", wrong]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("--admin names the admin.listen"), "{}", stderr(&output));
    }
}

async fn orders(folder: &Path) -> usize {
    let database = folder.join("rushgate.db");
    let read = rushgate::rehearsal::Books::read(
        &database,
        rushgate::protocol::ActivityId(1),
        rushgate::protocol::SkuId(1),
    );
    read.await.unwrap().orders.len()
}

#[test]
fn what_cannot_start_says_the_next_step_and_ends_with_2() {
    let served = Served::start(10);
    let cannot = |output: Output, words: &str| {
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "`{words}` is not in `{text}`");
        assert!(output.stdout.is_empty());
    };
    let empty = tempfile::tempdir().unwrap();
    cannot(sale(&served.addr().to_string(), empty.path(), &["--json"]), "there is no database");
    cannot(sale("127.0.0.1:1", served.folder.path(), &[]), "start one with `rushgate serve`");
    cannot(sale("nowhere", served.folder.path(), &[]), "write it like 127.0.0.1:7700");
    cannot(served.sale(&["--activity", "9"]), "create one with `rushgate activity create`");
    cannot(served.sale(&["--sku", "9"]), "activity 1 has no SKU 9");
    cannot(served.sale(&["--audience", "other"]), "use the secret and the audience of the gateway");
    cannot(served.sale(&["--users", "0"]), "0 is not in 1..");
    cannot(served.sale(&["--quantities", "0:1"]), "write it like 1:90,2:10");
    cannot(served.sale(&["--retry-share", "2"]), "retry share 2 is not between 0 and 1");
    cannot(served.sale(&["--users", "4000000", "--connections", "4000000"]), "connections fit");
    let runtime = Runtime::new().unwrap();
    runtime.block_on(served.activities().close(1)).unwrap();
    let ended = || {
        stderr(&served.sale(&["--users", "1", "--patience", "1s"]))
            .contains("has ended or its entry is closed")
    };
    // The gateway notices an operator's change within a moment.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !ended() {
        assert!(std::time::Instant::now() < deadline, "the closed entry was not noticed");
    }
}

#[test]
fn a_sale_that_does_not_add_up_ends_with_1_and_says_where() {
    let served = Served::start(10);
    let sold = served.sale(&["--users", "5", "--json"]);
    assert_figures(&sold, &[("orders", 5), ("stock_left", 5)]);
    // Other data than this gateway's: what its clients are told stands nowhere.
    let other = Served::start(10);
    let secret = served.folder.path().join("auth.secret");
    let secret = secret.to_str().unwrap();
    let output = sale(
        &served.addr().to_string(),
        other.folder.path(),
        &["--users", "5", "--secret-file", secret, "--json"],
    );
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert!(report["audit"].as_str().unwrap().contains("no such order stands in the database"), "{report}");
    assert!(stderr(&output).contains("the audit failed"), "{}", stderr(&output));
}
