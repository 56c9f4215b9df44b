//! A server in a static is gone soon after the process that started it, however that ended.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rushgate_servers::{Persistence, Redis};
use tokio::sync::OnceCell;

static REDIS: OnceCell<Redis> = OnceCell::const_new();
/// Set in the process that this test starts: its own binary, run again.
const HOW_TO_END: &str = "RUSHGATE_SERVERS_TEST_ENDS_BY";

/// A zombie has ended; when it is reaped is up to the machine's init.
fn is_running(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, state)| !state.starts_with(" Z"))
}

#[tokio::test]
async fn a_server_in_a_static_ends_with_its_process() {
    if let Ok(how) = std::env::var(HOW_TO_END) {
        let redis = REDIS.get_or_try_init(|| Redis::start(Persistence::Always)).await.unwrap();
        println!("started {} {}", redis.process_id().unwrap(), redis.data_dir().display());
        match how.as_str() {
            "abort" => std::process::abort(),
            "panic" => panic!("as told"),
            _ => return,
        }
    }
    for how in ["return", "panic", "abort"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_server_in_a_static_ends_with_its_process", "--nocapture"])
            .env(HOW_TO_END, how)
            .output()
            .unwrap();
        assert_eq!(output.status.success(), how == "return");
        let said = String::from_utf8(output.stdout).unwrap();
        let (_, after) = said.split_once("started ").expect("the server did not start");
        let (id, folder) = after.lines().next().unwrap().split_once(' ').unwrap();
        let begun = Instant::now();
        while is_running(id) || Path::new(folder).exists() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{how}: {id} and {folder} are left");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
