//! `flood`, `idle`, `churn` and `storm` as a person runs them: against a gateway that already serves, by exit code and output.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "tests")]

mod counted;
mod served;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rushgate::admission::limits::Rate;
use rushgate::gateway::Settings;
use rushgate::protocol::Status;
use serde_json::Value;
use served::{Served, json, stderr};

fn command(addr: &str, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate-loadgen"));
    command.args(args).args(["--addr", addr, "--data-dir"]).arg(folder);
    command
}

impl Served {
    fn run(&self, args: &[&str]) -> Output {
        command(&self.addr().to_string(), self.folder.path(), args).output().unwrap()
    }

    /// Runs a command that would take long, and kills the gateway as soon as it answers it.
    fn run_and_die(&mut self, args: &[&str], answers: u64) -> Output {
        self.run_and_end(args, answers, Self::kill)
    }

    fn run_and_end(&mut self, args: &[&str], answers: u64, end: impl FnOnce(&mut Self)) -> Output {
        let mut command = command(&self.addr().to_string(), self.folder.path(), args);
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now().checked_add(Duration::from_secs(60)).unwrap();
        while self.answers() < answers {
            assert!(Instant::now() < deadline, "the command asks nothing");
            std::thread::yield_now();
        }
        end(self);
        running.wait_with_output().unwrap()
    }

    fn answers(&self) -> u64 {
        let is_answer = |status: Status| status != Status::TooManyConnections;
        self.gateway.counters().status_counts().filter(|(status, _)| is_answer(*status)).map(|(_, n)| n).sum()
    }
}

fn ok(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    assert_eq!(stderr(output), "");
    json(output)
}

fn bad(output: &Output, words: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(words), "`{words}` is not in `{text}`");
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"))
}

fn by_status(report: &Value) -> u64 {
    report["by_status"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// What holds for every flood.
fn assert_adds_up(report: &Value) {
    assert_eq!(by_status(report), number(report, "answered"), "{report}");
    let ended = number(report, "answered").checked_add(number(report, "errors")).unwrap();
    assert_eq!(ended, number(report, "sent"), "{report}");
    let times = ["p50_us", "p99_us", "p999_us", "max_us", "service_p50_us", "service_p99_us"];
    let [p50, p99, p999, max, service_p50, service_p99] =
        times.map(|name| report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report}")));
    assert!(p50 <= p99 && p99 <= p999 && p999 <= max && service_p50 <= service_p99, "{report}");
    // What was never sent has an age and no service time.
    assert!(number(report, "unsent") > 0 || (service_p50 <= p50 && service_p99 <= p99), "{report}");
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    assert!(report["achieved_per_s"].as_f64().unwrap() > 0.0);
}

const COUNTED: [&str; 7] = ["flood", "--json", "--warmup", "0s", "--seconds", "600", "--requests"];

#[test]
fn a_flood_in_the_closed_loop_counts_every_answer() {
    let served = Served::start(5);
    for (threads, connections, depth) in [("1", "1", "1"), ("1", "4", "16"), ("3", "8", "64")] {
        let args = ["2000", "--threads", threads, "--connections", connections, "--depth", depth];
        let report = ok(&served.run(&[&COUNTED[..], &args].concat()));
        assert_adds_up(&report);
        assert_eq!((number(&report, "sent"), number(&report, "answered")), (2_000, 2_000));
        assert_eq!((number(&report, "errors"), number(&report, "unsent")), (0, 0));
        assert_eq!((&report["open_loop"], &report["offered_per_s"]), (&false.into(), &Value::Null));
        assert_eq!((&report["work"], report["depth"].to_string()), (&"buy".into(), depth.to_owned()));
        assert_eq!(report["connections"].to_string(), connections);
    }
}

#[test]
fn a_flood_tells_at_which_rung_its_buys_ended() {
    let served = Served::start_with(5, Rate { rate_per_s: 1_000, burst: 100 });
    let admin = served.runtime.as_ref().unwrap().block_on(counted::serve_counts(&served.gateway)).to_string();
    for (warmup, connections) in [("0s", "4"), ("100ms", "8")] {
        let args = [
            "flood",
            "--requests",
            "5000",
            "--seconds",
            "600",
            "--warmup",
            warmup,
            "--connections",
            connections,
        ];
        let report = ok(&served.run(&[&args[..], &["--depth", "4", "--admin", &admin, "--json"]].concat()));
        assert_adds_up(&report);
        let funnel = &report["funnel"];
        let (rungs, written) = (&funnel["rungs"], number(funnel, "written"));
        assert!(written >= 5_000 && (warmup != "0s" || written == 5_000), "{report}");
        assert_eq!((counted::sum(rungs), number(funnel, "uncounted")), (written, 0), "{report}");
        assert!(number(rungs, "rate_global") > 0 && number(funnel, "waiting") == 0, "{report}");
        if warmup == "0s" {
            let limited = number(rungs, "rate_global").checked_add(number(rungs, "rate_user")).unwrap();
            assert_eq!(limited, number(&report["by_status"], "RATE_LIMITED"), "{report}");
        }
    }
    let table = served.run(&["flood", "--requests", "50", "--warmup", "0s", "--admin", &admin]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.lines().any(|line| line.starts_with("rate_global ")), "{table}");
    let refused = served.run(&["flood", "--work", "ping", "--admin", &admin]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

#[test]
fn a_flood_on_service_connections_names_another_user_each_time() {
    let served = Served::start(5);
    for (work, expected) in [
        ("buy", vec![("QUEUED", 5), ("SOLD_OUT", 295)]),
        ("result", vec![("NO_ORDER", 295), ("OK", 5)]),
        ("activity", vec![("OK", 300)]),
        ("ping", vec![("OK", 300)]),
    ] {
        let args =
            ["300", "--service", "--users", "300", "--connections", "3", "--depth", "4", "--work", work];
        let report = ok(&served.run(&[&COUNTED[..], &args].concat()));
        assert_adds_up(&report);
        assert_eq!((&report["mode"], &report["work"]), (&"service".into(), &work.into()));
        let expected: serde_json::Map<_, _> =
            expected.into_iter().map(|(name, count)| (name.to_owned(), Value::from(count))).collect();
        assert_eq!(report["by_status"], Value::from(expected), "{work}");
    }
}

#[test]
fn an_open_loop_tells_what_it_offered_and_leaves_nothing_planned_out() {
    let served = Served::start(5);
    for threads in ["1", "2"] {
        let args =
            ["flood", "--json", "--work", "ping", "--warmup", "0s", "--seconds", "1", "--rate", "2000"];
        let report = ok(&served.run(&[&args[..], &["--threads", threads, "--connections", "8"]].concat()));
        assert_adds_up(&report);
        assert_eq!((&report["open_loop"], &report["offered_per_s"]), (&true.into(), &2_000.into()));
        // One second at that rate, whether the machine was quick enough or not.
        assert_eq!(number(&report, "sent").checked_add(number(&report, "unsent")), Some(2_000), "{report}");
    }
}

#[test]
fn a_flood_prints_a_table_for_people() {
    let served = Served::start(5);
    let args = ["flood", "--warmup", "0s", "--requests", "100", "--connections", "2", "--work", "ping"];
    let output = served.run(&args);
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{table} {}", stderr(&output));
    for line in
        ["work                             ping", "OK                                100", "latency p99.9 µs"]
    {
        assert!(table.contains(line), "{line} is not in\n{table}");
    }
}

#[test]
fn a_gateway_that_goes_away_ends_every_command_with_1() {
    let long = ["--seconds", "600", "--json"];
    let mut served = Served::start(5);
    let flood = ["flood", "--work", "ping", "--warmup", "0s", "--connections", "4", "--depth", "2"];
    let output = served.run_and_die(&[&flood[..], &long].concat(), 1_000);
    bad(&output, "went away");
    assert_adds_up(&json(&output));
    let mut served = Served::start(5);
    let output =
        served.run_and_die(&[&["flood", "--work", "ping", "--rate", "5000"][..], &long].concat(), 1_000);
    bad(&output, "went away");
    let mut served = Served::start(5);
    // HELLO and AUTH of each of them.
    let output = served.run_and_die(&[&["idle", "--connections", "20"][..], &long].concat(), 40);
    bad(&output, "0 of 20 connections stood to the end");
    let mut served = Served::start(5);
    let output = served.run_and_die(&[&["churn", "--connections", "2"][..], &long].concat(), 300);
    bad(&output, "went away");
}

#[test]
fn a_gateway_that_drains_ends_a_flood_with_1_and_every_request_answered() {
    let mut served = Served::start(5);
    let args =
        ["flood", "--work", "ping", "--warmup", "0s", "--connections", "4", "--seconds", "600", "--json"];
    let output = served.run_and_end(&args, 1_000, |served| {
        assert!(served.runtime.as_ref().unwrap().block_on(served.gateway.drain()));
    });
    bad(&output, "went away; connections: ");
    let report = json(&output);
    assert_adds_up(&report);
    assert_eq!(number(&report, "errors"), 0, "{report}");
}

#[test]
fn idle_connections_are_counted_and_weighed() {
    let served = Served::start(5);
    let pid = std::process::id().to_string();
    let report = ok(&served.run(&["idle", "--connections", "50", "--seconds", "0", "--json", "--pid", &pid]));
    for (name, expected) in [("connections", 50), ("opened", 50), ("alive", 50), ("descriptors", 114)] {
        assert_eq!(number(&report, name), expected, "{name} in {report}");
    }
    assert!(number(&report, "resident_before_bytes") > 0 && number(&report, "resident_with_bytes") > 0);
    assert!(report["bytes_per_connection"].is_number(), "{report}");
    let table = served.run(&["idle", "--connections", "2", "--seconds", "0"]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(text.starts_with("2 connections need 66 descriptors"), "{text}");
    assert!(!text.contains("resident"), "nobody asked: {text}");
}

#[test]
fn churn_counts_its_rounds() {
    let served = Served::start(5);
    let args = ["churn", "--connections", "4", "--rounds", "100", "--seconds", "600", "--json"];
    let report = ok(&served.run(&args));
    assert_eq!((number(&report, "rounds"), number(&report, "answered"), by_status(&report)), (100, 100, 100));
    assert_eq!(report["by_status"], serde_json::json!({ "QUEUED": 5, "SOLD_OUT": 95 }));
    assert_eq!((number(&report, "errors"), &report["not_closed"]), (0, &serde_json::json!({})));
    for name in ["rounds_per_s", "p50_us", "p99_us", "p999_us", "max_us", "seconds"] {
        assert!(report[name].as_f64().unwrap() > 0.0, "{name} in {report}");
    }
}

#[test]
fn a_storm_serves_everybody_three_times() {
    let served = Served::start(5);
    let report = ok(&served.run(&["storm", "--clients", "60", "--pause", "0s", "--json"]));
    let waves = report["waves"].as_array().unwrap();
    let names: Vec<_> = waves.iter().map(|wave| (wave["wave"].as_str().unwrap(), &wave["jitter"])).collect();
    let (without, with) = (Value::from(false), Value::from(true));
    assert_eq!(names, [("connect", &without), ("reconnect", &without), ("reconnect", &with)]);
    for wave in waves {
        assert_eq!((number(wave, "served"), number(wave, "clients"), number(wave, "errors")), (60, 60, 0));
        assert_eq!(wave["by_status"], serde_json::json!({ "NO_ORDER": 60 }));
        assert!(wave["seconds"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_storm_that_does_not_fit_the_gateway_says_so() {
    let settings = Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        connections_max: 10,
        ..Settings::default()
    };
    let served = Served::start_in(tempfile::tempdir().unwrap(), 5, settings, Rate::OFF);
    let args = ["storm", "--clients", "30", "--pause", "0s", "--patience", "1s", "--json"];
    let output = served.run(&args);
    bad(&output, "failed attempts");
    for wave in json(&output)["waves"].as_array().unwrap() {
        assert!(number(wave, "served") <= 10 && number(wave, "errors") > 0, "{wave}");
    }
}

#[test]
fn what_cannot_start_says_the_next_step_and_ends_with_2() {
    let served = Served::start(5);
    let cannot = |output: Output, words: &str| {
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "`{words}` is not in `{text}`");
        assert!(output.stdout.is_empty());
    };
    let empty = tempfile::tempdir().unwrap();
    for name in ["flood", "idle", "churn", "storm"] {
        let args = [name, "--json"];
        cannot(
            command(&served.addr().to_string(), empty.path(), &args).output().unwrap(),
            "no tokens can be made",
        );
        cannot(
            command("127.0.0.1:1", served.folder.path(), &args).output().unwrap(),
            "start one with `rushgate serve`",
        );
        cannot(
            command("nowhere", served.folder.path(), &args).output().unwrap(),
            "write it like 127.0.0.1:7700",
        );
        cannot(
            served.run(&[name, "--audience", "other", "--json"]),
            "use the secret and the audience of the gateway",
        );
    }
    cannot(served.run(&["flood", "--depth", "65"]), "more than the 64 BUYs");
    cannot(served.run(&["flood", "--depth", "1025", "--service"]), "more than the 1024 BUYs");
    cannot(served.run(&["flood", "--threads", "3", "--connections", "2"]), "give each thread one at least");
    cannot(served.run(&["flood", "--rate", "0"]), "0 is not in 1..");
    cannot(served.run(&["flood", "--work", "sell"]), "possible values");
    cannot(served.run(&["idle", "--pid", "4294967295"]), "cannot read /proc/4294967295/status");
}

#[test]
fn what_does_not_fit_the_descriptor_limit_is_refused() {
    let served = Served::start(5);
    let (addr, folder) = (served.addr().to_string(), served.folder.path().to_str().unwrap().to_owned());
    for args in [
        ["flood", "--connections"],
        ["idle", "--connections"],
        ["churn", "--connections"],
        ["storm", "--clients"],
    ] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 100 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_rushgate-loadgen")]);
        let output =
            limited.args(args).args(["50", "--addr", &addr, "--data-dir", &folder]).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("need 114 descriptors, but the limit is 100; at most 36"), "{text}");
    }
}
