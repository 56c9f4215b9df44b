//! `rushgate-loadgen idle`: authenticated connections that do nothing, and what they cost the gateway in memory.
//!
//! One thread holds all of them. They are kept alive with PINGs, and at the end each has to answer one.

use std::fs;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use clap::Args;
use rushgate::client::Wire;
use rushgate::protocol::frame::REPLY_BYTES_MAX;
use rushgate::protocol::{Opcode, Request, decode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::opening::{Opened, open_all, runtime};
use crate::output::{Failure, print};
use crate::sources::{Sources, reserve_descriptors};
use crate::tally::{Reasons, exact};
use crate::target::{Target, TargetArgs};
use crate::work::{append, opening};

/// How often the held connections are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// For a PING to be taken.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the last PINGs may take, all together.
const LAST_PING_TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE_ID: u32 = 4;
const LAST_ID: u32 = 5;

/// Arguments of `idle`.
#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Connections, one user each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// How long they are held
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3000))]
    seconds: u64,
    /// The gateway's process id: prints its resident memory without and with the connections
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What is known at the end.
#[derive(Debug)]
struct IdleReport {
    connections: u32,
    descriptors: u64,
    opened: u64,
    failed: Reasons,
    open_seconds: f64,
    /// Answered the last PING.
    alive: u64,
    held_seconds: f64,
    resident_before: Option<u64>,
    resident_with: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(args: &IdleArgs) -> Result<(), Failure> {
    let target = args.target.check()?;
    let connections = usize::try_from(args.connections).map_err(Failure::cannot_start)?;
    let descriptors = reserve_descriptors(connections)?;
    let sources = Sources::for_connections(target.door.addr, connections)?;
    let resident_before = args.pid.map(resident_bytes).transpose()?;
    if !args.json {
        print(&format!(
            "{connections} connections need {descriptors} descriptors here, and as many at the gateway"
        ));
    }
    let held = runtime()?.block_on(hold(args, &target, sources));
    let mut report = held?;
    report.descriptors = descriptors;
    report.resident_before = resident_before;
    show(&report, args.json);
    report.judge()
}

async fn hold(args: &IdleArgs, target: &Target, sources: Sources) -> Result<IdleReport, Failure> {
    let mut openings = Vec::new();
    for number in 0..u64::from(args.connections) {
        openings.push(opening(&target.app_token(number)?, None).freeze());
    }
    let began_at = Instant::now();
    let mut held = Vec::new();
    let mut failed = Reasons::default();
    for (_, result) in open_all(&target.door, sources, openings).await {
        match result {
            Ok(opened) => held.push(Some(Held::new(opened))),
            Err(error) if held.is_empty() && failed.total() == 0 => {
                return Err(error.cannot_start(target.door.addr));
            }
            Err(error) => failed.add(error.to_string(), 1),
        }
    }
    let open_seconds = began_at.elapsed().as_secs_f64();
    let opened = u64::try_from(held.len()).unwrap_or(u64::MAX);
    let held_from = Instant::now();
    sit(&mut held, Duration::from_secs(args.seconds), &mut failed).await;
    // Gone in between: the gateway, or its memory is not ours to see any more. The report says so by its absence.
    let resident_with = args.pid.and_then(|pid| resident_bytes(pid).ok());
    let held_seconds = held_from.elapsed().as_secs_f64();
    let alive = ping_all(&mut held, &mut failed).await;
    Ok(IdleReport {
        connections: args.connections,
        descriptors: 0,
        opened,
        failed,
        open_seconds,
        alive,
        held_seconds,
        resident_before: None,
        resident_with,
    })
}

/// Holds them for a time, or until none is left.
async fn sit(held: &mut [Option<Held>], time: Duration, failed: &mut Reasons) {
    let until = Instant::now().checked_add(time).unwrap_or_else(Instant::now);
    // Below half of the keepalive, so that one that is late does not matter.
    let keepalive = held.iter().flatten().map(|held| held.keepalive).min().unwrap_or(Duration::MAX);
    let ping_every = keepalive.checked_div(3).unwrap_or(keepalive).max(LOOK_EVERY);
    let mut ping_at = Instant::now().checked_add(ping_every);
    loop {
        let now = Instant::now();
        let left = until.saturating_duration_since(now);
        if left.is_zero() || held.iter().all(Option::is_none) {
            return;
        }
        sleep(left.min(LOOK_EVERY)).await;
        let is_ping_due = ping_at.is_some_and(|at| at <= Instant::now());
        for slot in held.iter_mut() {
            let Some(one) = slot else { continue };
            let mut result = one.read().map(|_| ());
            if is_ping_due && result.is_ok() {
                result = one.ping(KEEP_ALIVE_ID).await;
            }
            if let Err(reason) = result {
                failed.add(reason, 1);
                *slot = None;
            }
        }
        if is_ping_due {
            ping_at = Instant::now().checked_add(ping_every);
        }
    }
}

/// How many answer.
async fn ping_all(held: &mut [Option<Held>], failed: &mut Reasons) -> u64 {
    let until = Instant::now().checked_add(LAST_PING_TIMEOUT).unwrap_or_else(Instant::now);
    for slot in held.iter_mut() {
        if let Some(one) = slot
            && let Err(reason) = one.ping(LAST_ID).await
        {
            failed.add(reason, 1);
            *slot = None;
        }
    }
    let mut alive = 0_u64;
    for slot in held.iter_mut() {
        let Some(one) = slot else { continue };
        let answered = timeout_at(until, one.answer(LAST_ID)).await;
        match answered.unwrap_or_else(|_| Err("no answer to PING".to_owned())) {
            Ok(()) => alive = alive.saturating_add(1),
            Err(reason) => failed.add(reason, 1),
        }
    }
    alive
}

#[derive(Debug)]
struct Held {
    wire: Wire,
    inbox: BytesMut,
    keepalive: Duration,
}

impl Held {
    fn new(opened: Opened) -> Self {
        Self { wire: opened.wire, inbox: opened.inbox, keepalive: opened.keepalive }
    }

    async fn ping(&mut self, id: u32) -> Result<(), String> {
        let mut out = BytesMut::new();
        append(&mut out, id, &Request::Ping { client_time: 0 });
        let written = async {
            self.wire.write_all(&out).await?;
            self.wire.flush().await
        };
        // A PING is far smaller than an idle socket's buffer.
        let written = timeout(PING_TIMEOUT, written).await;
        let written = written.map_err(|_| "a PING was not taken".to_owned())?;
        written.map_err(|error| format!("broken ({})", error.kind()))
    }

    /// Takes what is there; the greatest request id that was answered.
    fn read(&mut self) -> Result<u32, String> {
        loop {
            let mut cx = Context::from_waker(Waker::noop());
            match pin!(self.wire.read_buf(&mut self.inbox)).poll(&mut cx) {
                Poll::Ready(Ok(0)) => return Err("closed by the gateway".to_owned()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(format!("broken ({})", error.kind())),
                Poll::Pending => return self.heard(),
            }
        }
    }

    fn heard(&mut self) -> Result<u32, String> {
        let mut greatest = 0;
        while let Some((frame, frame_bytes)) =
            decode(&self.inbox, REPLY_BYTES_MAX).map_err(|error| format!("bad frame ({error})"))?
        {
            if frame.request_id == 0 && frame.opcode == Opcode::Error as u8 {
                return Err(format!("told {}", crate::work::status_name(frame.status)));
            }
            greatest = greatest.max(frame.request_id);
            self.inbox.advance(frame_bytes);
        }
        Ok(greatest)
    }

    async fn answer(&mut self, id: u32) -> Result<(), String> {
        while self.heard()? != id {
            match self.wire.read_buf(&mut self.inbox).await {
                Ok(0) => return Err("closed by the gateway".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("broken ({})", error.kind())),
            }
        }
        Ok(())
    }
}

/// What a process holds in memory.
fn resident_bytes(pid: u32) -> Result<u64, Failure> {
    let file = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&file)
        .map_err(|error| Failure::cannot_start(format!("--pid {pid}: cannot read {file}: {error}")))?;
    let kib = text.lines().find_map(|line| {
        let line = line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?;
        line.trim().parse::<u64>().ok()
    });
    let kib =
        kib.ok_or_else(|| Failure::cannot_start(format!("--pid {pid}: {file} names no resident memory")))?;
    Ok(kib.saturating_mul(1024))
}

impl IdleReport {
    /// Growth for each connection that stands.
    fn bytes_per_connection(&self) -> Option<f64> {
        let grown = exact(self.resident_with?) - exact(self.resident_before?);
        (self.alive > 0).then(|| (grown / exact(self.alive)).round())
    }

    fn judge(&self) -> Result<(), Failure> {
        if self.alive == u64::from(self.connections) {
            return Ok(());
        }
        let mut lines = Vec::new();
        if self.alive == 0 {
            lines.push("the gateway went away".to_owned());
        }
        lines.push(format!(
            "{} of {} connections stood to the end: {}",
            self.alive,
            self.connections,
            self.failed.line()
        ));
        Err(Failure::bad_result(lines))
    }
}

fn show(report: &IdleReport, json: bool) {
    if json {
        print(&json!({
            "connections": report.connections,
            "descriptors": report.descriptors,
            "opened": report.opened,
            "open_seconds": report.open_seconds,
            "alive": report.alive,
            "failed": report.failed.json(),
            "held_seconds": report.held_seconds,
            "resident_before_bytes": report.resident_before,
            "resident_with_bytes": report.resident_with,
            "bytes_per_connection": report.bytes_per_connection(),
        }));
        return;
    }
    let mut lines = vec![
        format!("{:<24} {:>14}", "opened", report.opened),
        format!("{:<24} {:>14.3}", "seconds to open", report.open_seconds),
        format!("{:<24} {:>14.3}", "seconds held", report.held_seconds),
        format!("{:<24} {:>14}", "alive at the end", report.alive),
    ];
    if let (Some(before), Some(with)) = (report.resident_before, report.resident_with) {
        lines.push(format!("{:<24} {:>10} KiB", "resident without", before / 1024));
        lines.push(format!("{:<24} {:>10} KiB", "resident with", with / 1024));
    }
    if let Some(bytes) = report.bytes_per_connection() {
        lines.push(format!("{:<24} {bytes:>12} B", "per connection"));
    }
    print(&lines.join("\n"));
}
