//! `rushgate-loadgen flood`: one kind of request, as many as the wire takes (closed loop) or at a given rate (open loop).
//!
//! Connections are opened on one tokio thread; then every thread runs a [`lane::Lane`] of its own over its share of
//! them, without locks or tasks, and what they counted is added up at the end. A gateway that goes away ends it.

mod book;
mod conn;
mod lane;
mod pace;
mod report;

use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use rushgate::config::parse_duration;

use self::conn::Conn;
use self::lane::{Lane, LaneEnd};
use self::pace::Pace;
use self::report::FloodReport;
use crate::opening::{Opened, open_all, runtime};
use crate::output::{Failure, print};
use crate::sources::{Sources, reserve_descriptors};
use crate::target::{Target, TargetArgs};
use crate::work::{Asked, Work, opening};

/// Threads need a moment to start; the first request is planned so long after the last connection.
const START_AFTER: Duration = Duration::from_millis(20);

/// Arguments of `flood`.
#[derive(Debug, Args)]
pub(crate) struct FloodArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// What is asked
    #[arg(long, value_enum, default_value = "buy")]
    work: Work,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    depth: u16,
    /// Open loop: so many requests a second, each at its planned time whatever the answers do
    /// [default: closed loop, as fast as it goes]
    #[arg(long, value_name = "PER_S", value_parser = clap::value_parser!(u64).range(1..=5_000_000))]
    rate: Option<u64>,
    /// Service connections, another user with each request; without it each connection is one user
    #[arg(long)]
    service: bool,
    /// With --service: how many users take turns
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    users: u64,
    /// How long is measured
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3000))]
    seconds: u64,
    /// Runs before that and is not measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    warmup: Duration,
    /// Ends after so many measured requests [default: when the time is over]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Threads; each has its share of the connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &FloodArgs) -> Result<(), Failure> {
    if args.warmup > Duration::from_secs(600) {
        return Err(Failure::cannot_start("--warmup is more than 10 minutes"));
    }
    if args.threads > args.connections {
        return Err(Failure::cannot_start(format!(
            "{} threads have no use for {} connections; give each thread one at least",
            args.threads, args.connections
        )));
    }
    let target = args.target.check()?;
    let connections = usize::try_from(args.connections).map_err(Failure::cannot_start)?;
    reserve_descriptors(connections)?;
    let opened = open_connections(&target, args, connections)?;
    let lanes = lanes(&target, args, opened)?;
    let started_at = Instant::now().checked_add(START_AFTER).unwrap_or_else(Instant::now);
    let threads: Vec<_> = lanes.into_iter().map(|lane| thread::spawn(move || lane.run(started_at))).collect();
    let mut ends = Vec::with_capacity(threads.len());
    for thread in threads {
        let end = thread.join().map_err(|_| Failure::bad_result(vec!["a thread failed".to_owned()]))?;
        ends.push(end.map_err(|error| Failure::bad_result(vec![format!("a thread failed: {error}")]))?);
    }
    show(args, &target, ends)
}

fn show(args: &FloodArgs, target: &Target, ends: Vec<LaneEnd>) -> Result<(), Failure> {
    let report = FloodReport::new(args, ends)?;
    if args.json {
        print(&report.json());
    } else {
        print(&report);
    }
    let complaints = report.complaints(target.addr);
    if complaints.is_empty() { Ok(()) } else { Err(Failure::bad_result(complaints)) }
}

fn open_connections(target: &Target, args: &FloodArgs, connections: usize) -> Result<Vec<Opened>, Failure> {
    let sources = Sources::for_connections(target.addr, connections)?;
    let mut openings = Vec::with_capacity(connections);
    let service = args.service.then(|| target.service_token()).transpose()?;
    for number in 0..u64::from(args.connections) {
        let bytes = match &service {
            Some(token) => opening(token, None),
            None => opening(&target.app_token(number)?, None),
        };
        openings.push(bytes.freeze());
    }
    runtime()?.block_on(open_each(target, sources, openings))
}

/// All or none: a flood over fewer connections than asked for would be another measurement.
async fn open_each(target: &Target, sources: Sources, openings: Vec<Bytes>) -> Result<Vec<Opened>, Failure> {
    let mut opened = Vec::with_capacity(openings.len());
    for (_, result) in open_all(target.addr, sources, openings).await {
        opened.push(result.map_err(|error| error.cannot_start(target.addr))?);
    }
    Ok(opened)
}

/// Deals the connections out, one to each thread in turn.
fn lanes(target: &Target, args: &FloodArgs, opened: Vec<Opened>) -> Result<Vec<Lane>, Failure> {
    let threads = u64::from(args.threads);
    let asked = Asked::new(args.work, target.activity, target.sku);
    let mut dealt: Vec<Vec<Conn>> = Vec::new();
    dealt.resize_with(usize::try_from(threads).map_err(Failure::cannot_start)?, Vec::new);
    for (number, opened) in opened.into_iter().enumerate() {
        if args.work == Work::Buy && args.depth > opened.in_flight_max {
            return Err(Failure::cannot_start(format!(
                "--depth {} is more than the {} BUYs that the gateway takes at once on such a connection",
                args.depth, opened.in_flight_max
            )));
        }
        let fixed = (!args.service).then_some(&asked);
        let conn = Conn::new(opened, args.depth, fixed).map_err(Failure::cannot_start)?;
        if let Some(lane) = number.checked_rem(dealt.len()).and_then(|lane| dealt.get_mut(lane)) {
            lane.push(conn);
        }
    }
    let mut lanes = Vec::with_capacity(dealt.len());
    for (number, conns) in (0_u64..).zip(dealt) {
        let pace = Pace::new(args.rate, number, threads, args.warmup, Duration::from_secs(args.seconds));
        let share = |all: u64| {
            let extra = u64::from(number < all.checked_rem(threads).unwrap_or(0));
            all.checked_div(threads).unwrap_or(all).saturating_add(extra)
        };
        let users = args.service.then(|| lane::Users {
            first: target.user(0).0,
            count: args.users,
            next: args.users.checked_div(threads).unwrap_or(0).saturating_mul(number),
        });
        lanes.push(Lane::new(conns, asked, users, pace, args.requests.map(share))?);
    }
    Ok(lanes)
}
