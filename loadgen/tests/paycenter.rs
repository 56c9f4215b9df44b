//! `rushgate-loadgen paycenter` as a person runs it: by exit code and output.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "tests")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rushgate::payment::http::{Target, post};
use rushgate::payment::{Asked, Keys, ask_body, read_asked};
use rushgate::protocol::OrderNumber;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(10);

fn command(key_file: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate-loadgen"));
    command.args(["paycenter", "--listen", "127.0.0.1:0", "--key-file"]).arg(key_file).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn it_takes_money_closes_what_is_not_paid_and_tells_what_happened() {
    let folder = tempfile::TempDir::new().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, "a key that is long enough for a test").unwrap();
    let keys = Keys::read(&key_file, None).unwrap();
    // Nobody listens where its writers should be: it goes on telling them.
    let mut running = Running(command(&key_file, &["--writers", "http://127.0.0.1:1"]).spawn().unwrap());
    let mut stdout = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let url = line.trim_end().strip_prefix("the payment centre works: ").unwrap().to_owned();
    let target: Target = url.parse().unwrap();
    let orders = [OrderNumber(1 << 40), OrderNumber(7)];
    let pay = format!("{{\"order\":\"{}\",\"amount_minor\":5}}", orders[0]);
    let paid = post(&target, "/pay", &keys, 1, pay, PATIENCE).await.unwrap();
    assert_eq!((paid.0, &paid.1[..]), (200, &b"{\"state\":\"paid\"}"[..]));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now_ms = u64::try_from(now.as_millis()).unwrap();
    let stale = post(&target, "/close", &keys, 1, ask_body(&orders), PATIENCE).await.unwrap();
    assert_eq!(stale.0, 401);
    let (status, body) = post(&target, "/close", &keys, now_ms, ask_body(&orders), PATIENCE).await.unwrap();
    let said = read_asked(&orders, &body).unwrap();
    assert!(
        status == 200 && matches!(&said[0].1, Asked::Paid(payment) if payment.amount_minor == 5),
        "{said:?}"
    );
    assert_eq!(said[1].1, Asked::Closed);
    let killed = Command::new("kill").args(["-TERM", &running.0.id().to_string()]).status().unwrap();
    assert!(killed.success() && running.0.wait().unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let stats: Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(
        (&stats["orders_paid"], &stats["orders_closed"], &stats["refused"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert!(stats["told"].as_u64() >= Some(1), "{stats}");
}

#[test]
fn a_bad_key_or_rate_is_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, "short").unwrap();
    let output = command(&key_file, &[]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("has 5 bytes"), "{error}");
    let output = command(&key_file, &["--late-rate", "1.5"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("not from 0 to 1"), "{error}");
    let output = command(&key_file, &["--writers", "https://x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
