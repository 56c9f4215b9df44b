//! `flood --wire echo` and `--pid` as a person runs them: against a bare echo server, by exit code and output.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "tests"
)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use serde_json::{Value, json};

const FRAME_BYTES: usize = 32;

/// What a server does to what it read before it returns it; `false`: hangs up instead.
type Change = dyn Fn(&mut [u8]) -> bool + Send + Sync;

/// Echoes on a free port until the test ends; what it reads may end anywhere in a frame.
fn echo_server(change: Arc<Change>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let change = Arc::clone(&change);
            thread::spawn(move || echo(stream.unwrap(), &*change));
        }
    });
    addr
}

fn echo(mut stream: TcpStream, change: &Change) {
    // No multiple of a frame: answers arrive in pieces.
    let mut buffer = [0; 3 * FRAME_BYTES + 7];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if !change(&mut buffer[..count]) || stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn honest() -> SocketAddr {
    echo_server(Arc::new(|_: &mut [u8]| true))
}

fn flood(addr: SocketAddr, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate-loadgen"));
    // No gateway's folder: nothing may be read from it.
    command.args([
        "flood",
        "--wire",
        "echo",
        "--json",
        "--data-dir",
        "/nowhere",
        "--addr",
        &addr.to_string(),
    ]);
    command.args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

fn ok(output: &Output) -> Value {
    assert_eq!((output.status.code(), stderr(output)), (Some(0), String::new()));
    report(output)
}

fn bad(output: &Output, code: i32, words: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "`{words}` is not in `{text}`");
}

const COUNTED: [&str; 6] = ["--warmup", "0s", "--seconds", "600", "--requests", "3000"];

#[test]
fn every_echo_is_counted_once_at_any_depth() {
    let addr = honest();
    for (threads, connections, depth) in
        [("1", "1", "1"), ("1", "3", "16"), ("2", "4", "64"), ("1", "1", "4096")]
    {
        let args = ["--threads", threads, "--connections", connections, "--depth", depth];
        let report = ok(&flood(addr, &[&COUNTED[..], &args].concat()));
        assert_eq!(report["by_status"], json!({ "echo": 3_000 }), "{report}");
        assert_eq!([&report["sent"], &report["answered"]], [&json!(3_000), &json!(3_000)], "{report}");
        assert_eq!([&report["errors"], &report["unsent"]], [&json!(0), &json!(0)], "{report}");
        assert_eq!([&report["wire"], &report["open_loop"]], [&json!("echo"), &json!(false)], "{report}");
        assert!(report["p50_us"].as_f64().unwrap() > 0.0, "{report}");
    }
}

#[test]
fn an_open_loop_of_echoes_sends_what_is_planned() {
    let args =
        ["--rate", "5000", "--warmup", "100ms", "--seconds", "1", "--connections", "4", "--depth", "64"];
    let report = ok(&flood(honest(), &args));
    let planned = report["sent"].as_u64().unwrap().checked_add(report["unsent"].as_u64().unwrap());
    assert_eq!(planned, Some(5_000), "{report}");
    assert_eq!(report["offered_per_s"], json!(5_000));
    assert!(report["service_p50_us"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn every_connection_carries_its_share() {
    for rate in [&["--rate", "20000"][..], &[]] {
        let carried: Arc<Mutex<HashMap<ThreadId, usize>>> = Arc::default();
        let by_connection = Arc::clone(&carried);
        let addr = echo_server(Arc::new(move |bytes: &mut [u8]| {
            *by_connection.lock().unwrap().entry(thread::current().id()).or_default() += bytes.len();
            true
        }));
        let shared = ["--connections", "4", "--depth", "8", "--warmup", "0s", "--seconds", "1"];
        let report = ok(&flood(addr, &[&shared[..], rate].concat()));
        let carried: Vec<_> = carried.lock().unwrap().values().map(|bytes| bytes / FRAME_BYTES).collect();
        let all: usize = carried.iter().sum();
        assert_eq!((json!(all), carried.len()), (report["sent"].clone(), 4), "{report}");
        assert!(carried.iter().all(|frames| frames * 4 > all / 4), "{carried:?}");
    }
}

#[test]
fn an_echo_that_is_not_the_request_is_found() {
    for (at, words) in [(20, "differs from its request"), (8, "which is not in flight")] {
        let flip = move |bytes: &mut [u8]| {
            bytes[at] ^= 1;
            true
        };
        let output = flood(echo_server(Arc::new(flip)), &[&COUNTED[..], &["--connections", "1"]].concat());
        bad(&output, 1, words);
        assert_eq!(report(&output)["errors"], json!(1));
    }
    let output = flood(echo_server(Arc::new(|_: &mut [u8]| false)), &COUNTED);
    bad(&output, 1, "the echo server at");
}

#[test]
fn the_servers_cpu_time_is_told_for_each_answer() {
    let pid = std::process::id().to_string();
    let addr = honest();
    let args = ["--connections", "4", "--depth", "4", "--warmup", "0s", "--seconds", "1", "--pid", &pid];
    let report = ok(&flood(addr, &args));
    let (server_ns, answered) =
        (report["server_cpu_ns"].as_f64().unwrap(), report["answered"].as_f64().unwrap());
    assert!(server_ns > 0.0 && report["generator_cpu_ns"].as_f64().unwrap() > 0.0, "{report}");
    let busy = report["generator_busy"].as_f64().unwrap();
    assert!(busy > 0.0 && busy <= 1.0, "{report}");
    // A second of every core there is, and what the clocks are coarse by.
    let cores = f64::from(u32::try_from(thread::available_parallelism().unwrap().get()).unwrap());
    let seconds = report["seconds"].as_f64().unwrap() + 0.1;
    assert!(server_ns * answered <= seconds * cores * 1e9, "{report}");
    let twice = ok(&flood(addr, &[&args[..], &["--pid", &pid]].concat()));
    assert!(twice["server_cpu_ns"].as_f64().unwrap() > 0.0, "{twice}");
    assert_eq!(ok(&flood(addr, &COUNTED))["server_cpu_ns"], Value::Null, "nobody asked");
}

#[test]
fn a_server_process_that_ends_meanwhile_leaves_its_time_unknown() {
    let child: Arc<Mutex<Option<Child>>> =
        Arc::new(Mutex::new(Some(Command::new("sleep").arg("600").spawn().unwrap())));
    let pid = child.lock().unwrap().as_ref().unwrap().id().to_string();
    let end_child = move |_: &mut [u8]| {
        if let Some(mut child) = child.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        true
    };
    let addr = echo_server(Arc::new(end_child));
    let output = flood(addr, &[&COUNTED[..], &["--connections", "1", "--pid", &pid]].concat());
    bad(&output, 1, "a process of --pid ended");
    assert_eq!(report(&output)["server_cpu_ns"], Value::Null);
}

#[test]
fn every_field_of_the_json_object_is_in_the_help() {
    let report = ok(&flood(honest(), &COUNTED));
    let help =
        Command::new(env!("CARGO_BIN_EXE_rushgate-loadgen")).args(["flood", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, fields) = help.split_once("Fields of the JSON object").unwrap();
    for name in report.as_object().unwrap().keys() {
        let quantile = ["p50_us", "p99_us", "p999_us", "max_us"].contains(&name.as_str());
        let told = if quantile { name.trim_end_matches("_us") } else { name };
        assert!(fields.contains(told), "{name} is not in {fields}");
    }
}

#[test]
fn what_cannot_start_says_why() {
    let addr = honest();
    bad(&flood(addr, &["--pid", "4294967295"]), 2, "--pid wants the process id of a server");
    bad(&flood(addr, &["--service"]), 2, "leave out --service");
    bad(&flood(addr, &["--work", "ping"]), 2, "leave out --service and --work");
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    bad(&flood(nobody, &[]), 2, "no echo server answers at 127.0.0.1:1");
}
