//! `rushgate-loadgen handshakes`: TLS handshakes, one after the other on so many connections, and what one costs the gateway.
//!
//! Runs on one tokio thread. Each connection is closed when its handshake is done. The main thread reads the server's CPU
//! time before and after; what accepting and closing take is in it.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::BytesMut;
use clap::Args;
use rushgate::protocol::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::cpu::Processes;
use crate::opening::{OPEN_TIMEOUT, connect, runtime};
use crate::output::{Failure, print};
use crate::sources::{Sources, reserve_descriptors};
use crate::tally::{exact, histogram, per_second, quantile_us};
use crate::target::{Door, DoorArgs};
use crate::work::append;

/// Arguments of `handshakes`.
#[derive(Debug, Args)]
pub(crate) struct HandshakesArgs {
    #[command(flatten)]
    door: DoorArgs,
    /// How many at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// How long is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3000))]
    seconds: u64,
    /// Each with the ticket of the one before; without it each is a full one
    #[arg(long)]
    resumed: bool,
    /// The gateway's process id: prints its CPU time for each handshake
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Print one JSON object instead of a table: `handshakes_per_s`, `server_cpu_us`, `p50_us`, `p99_us`, `failed`
    #[arg(long)]
    json: bool,
}

/// What one of the connections has counted.
#[derive(Debug)]
struct Count {
    latencies_ns: hdrhistogram::Histogram<u64>,
    failed: u64,
}

/// Runs the command.
pub(crate) fn run(args: &HandshakesArgs) -> Result<(), Failure> {
    let mut door = args.door.check()?;
    let Some(tls) = &door.tls else {
        return Err(Failure::cannot_start(
            "handshakes are TLS's: --tls says for what name the certificate is",
        ));
    };
    if !args.resumed {
        door.tls = Some(tls.without_tickets());
    }
    let connections = usize::try_from(args.connections).map_err(Failure::cannot_start)?;
    reserve_descriptors(connections)?;
    let sources = Sources::for_connections(door.addr, connections)?;
    let mut server = Processes::begin(&args.pid)?;
    let (total, seconds, server_used_ns) = runtime()?.block_on(async {
        // The first is a full one anyway, and tells whether there can be any.
        shake(&door, sources, 0, args.resumed)
            .await
            .map_err(|why| Failure::cannot_start(format!("no TLS at {}: {why}", door.addr)))?;
        server.begin_again();
        let began_at = Instant::now();
        let until = began_at.checked_add(Duration::from_secs(args.seconds)).unwrap_or(began_at);
        let mut tasks = JoinSet::new();
        for number in 0..connections {
            tasks.spawn(one_after_the_other(door.clone(), sources, number, args.resumed, until));
        }
        let mut total = Count { latencies_ns: histogram()?, failed: 0 };
        while let Some(ended) = tasks.join_next().await {
            let count = ended.map_err(|_| Failure::bad_result(vec!["a task failed".to_owned()]))??;
            total.failed = total.failed.saturating_add(count.failed);
            total.latencies_ns.add(count.latencies_ns).map_err(Failure::cannot_start)?;
        }
        Ok::<_, Failure>((total, began_at.elapsed().as_secs_f64(), server.used_ns()))
    })?;
    show(args, &total, seconds, server_used_ns);
    if total.failed > 0 {
        return Err(Failure::bad_result(vec![format!("{} handshakes failed", total.failed)]));
    }
    Ok(())
}

async fn one_after_the_other(
    door: Door,
    sources: Sources,
    number: usize,
    resumed: bool,
    until: Instant,
) -> Result<Count, Failure> {
    let mut count = Count { latencies_ns: histogram()?, failed: 0 };
    while Instant::now() < until {
        let began_at = Instant::now();
        match shake(&door, sources, number, resumed).await {
            Ok(()) => {
                let took_ns = u64::try_from(began_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
                count.latencies_ns.saturating_record(took_ns);
            }
            Err(_) => count.failed = count.failed.saturating_add(1),
        }
    }
    Ok(count)
}

/// One connection: TCP, TLS, and closed. Where the next is to be resumed, its ticket is waited for.
async fn shake(door: &Door, sources: Sources, number: usize, resumed: bool) -> Result<(), String> {
    let shaking = async {
        let stream = connect(door.addr, sources.of(number)).await.map_err(|error| error.to_string())?;
        let Some(tls) = &door.tls else { return Ok(()) };
        let mut wire = tls.connect(stream).await.map_err(|error| error.to_string())?;
        if resumed {
            // The ticket comes behind the handshake, before anything else: GOAWAY is answered by a close.
            let mut last = BytesMut::new();
            append(&mut last, 0, &Request::Goaway);
            let closing = async {
                wire.write_all(&last).await?;
                wire.flush().await?;
                while wire.read_buf(&mut last).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            closing.await.map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    timeout(OPEN_TIMEOUT, shaking).await.unwrap_or_else(|_| Err("not in time".to_owned()))
}

fn show(args: &HandshakesArgs, total: &Count, seconds: f64, server_used_ns: Option<u64>) {
    let done = total.latencies_ns.len();
    let rate = per_second(done, seconds);
    let cpu_us = server_used_ns.filter(|_| done > 0).map(|used_ns| exact(used_ns) / exact(done) / 1000.0);
    let (p50_us, p99_us) = (quantile_us(&total.latencies_ns, 0.5), quantile_us(&total.latencies_ns, 0.99));
    if args.json {
        print(&json!({
            "handshakes": done, "handshakes_per_s": rate.round(), "server_cpu_us": cpu_us, "p50_us": p50_us,
            "p99_us": p99_us, "failed": total.failed, "resumed": args.resumed,
        }));
        return;
    }
    let kind = if args.resumed { "resumed" } else { "full" };
    let mut text = format!(
        "handshakes       {done:>10}   {kind}\nhandshakes per s {rate:>10.0}\np50              {p50_us:>10.0} µs\n\
         p99              {p99_us:>10.0} µs\nfailed           {:>10}",
        total.failed
    );
    if let Some(cpu_us) = cpu_us {
        let _ = write!(text, "\nserver CPU each  {cpu_us:>10.1} µs");
    }
    print(&text);
}
