//! `rushgate-loadgen flood`: one kind of request, as many as the wire takes (closed loop) or at a given rate (open loop).
//!
//! Connections are opened on one tokio thread; then every thread runs a [`lane::Lane`] of its own over its share of
//! them, without locks or tasks, and what they counted is added up at the end. The main thread reads the server's CPU
//! time meanwhile ([`crate::cpu`]). A server that goes away ends it. `--wire echo` asks a bare echo server in the place of a
//! gateway: what machine and generator can do ([`wire`]).

mod answers;
mod book;
mod conn;
mod lane;
mod pace;
mod places;
mod report;
mod requests;
mod wire;

use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rushgate::config::parse_duration;
use rushgate::rehearsal::{FunnelReport, read_still};

use self::answers::Answers;
use self::conn::Conn;
use self::lane::{Lane, LaneEnd};
use self::pace::Pace;
use self::report::{FloodReport, JSON_FIELDS};
use self::requests::{Requests, Users};
use self::wire::Wire;
use crate::admin::{admins, all_counts, counts_before};
use crate::cpu::Processes;
use crate::opening::{Opened, runtime};
use crate::output::{Failure, print};
use crate::sources::{Sources, reserve_descriptors};
use crate::target::TargetArgs;
use crate::work::{Asked, Work};

/// Threads need a moment to start; the first request is planned so long after the last connection.
const START_AFTER: Duration = Duration::from_millis(20);

/// Arguments of `flood`.
#[derive(Debug, Args)]
#[command(after_long_help = JSON_FIELDS)]
pub(crate) struct FloodArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// What is spoken
    #[arg(long, value_enum, default_value = "rushgate")]
    wire: Wire,
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
    /// The server's process id (several: all its workers): prints its CPU time for each answer
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// With BUYs: the admin ports of all gateways that they reach, which tell at which rung of the funnel they ended
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    admin: Vec<String>,
    /// Print one JSON object instead of a table; --help tells its fields
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &FloodArgs) -> Result<(), Failure> {
    check(args)?;
    let connections = usize::try_from(args.connections).map_err(Failure::cannot_start)?;
    let (addr, opened) = match args.wire {
        Wire::Rushgate => {
            let target = args.target.check()?;
            reserve_descriptors(connections)?;
            let sources = Sources::for_connections(target.door.addr, connections)?;
            (target.door.addr, wire::open_rushgate(&target, args, sources)?)
        }
        Wire::Echo => {
            let addr = args.target.addr()?;
            reserve_descriptors(connections)?;
            (addr, wire::open_echo(addr, connections, Sources::for_connections(addr, connections)?)?)
        }
    };
    let (admins, runtime) = (admins(&args.admin)?, runtime()?);
    let before = runtime.block_on(counts_before(&admins))?;
    let mut server = Processes::begin(&args.pid)?;
    let mut own = Processes::begin(&[std::process::id()])?;
    let (ends, read_late) = measure(args, lanes(args, opened)?, &mut [&mut server, &mut own])?;
    let mut report = FloodReport::new(args, ends)?;
    report.read_late = read_late;
    report.server_used_ns = server.used_ns();
    report.generator_used_ns = own.used_ns();
    if !admins.is_empty() {
        let after = runtime.block_on(read_still(async || all_counts(&admins).await));
        let mut funnel = FunnelReport { sent: report.written, ..FunnelReport::default() };
        funnel.count(&before, &after);
        report.funnel = Some(funnel);
    }
    show(args, addr, &report)
}

/// What one argument alone cannot tell.
fn check(args: &FloodArgs) -> Result<(), Failure> {
    if args.warmup > Duration::from_secs(600) {
        return Err(Failure::cannot_start("--warmup is more than 10 minutes"));
    }
    if args.threads > args.connections {
        return Err(Failure::cannot_start(format!(
            "{} threads have no use for {} connections; give each thread one at least",
            args.threads, args.connections
        )));
    }
    if !args.admin.is_empty() && (args.wire == Wire::Echo || args.work != Work::Buy) {
        return Err(Failure::cannot_start("--admin counts BUYs; leave it out, or --wire and --work"));
    }
    if args.wire == Wire::Echo && (args.service || args.work != Work::Buy) {
        return Err(Failure::cannot_start(
            "--wire echo sends the BUYs of app connections; leave out --service and --work",
        ));
    }
    Ok(())
}

/// Runs every lane to its end, and reads the clocks of `processes` when the warm-up is over; how much later that was,
/// because this thread had to wait for a core.
fn measure(
    args: &FloodArgs,
    lanes: Vec<Lane>,
    processes: &mut [&mut Processes],
) -> Result<(Vec<LaneEnd>, Duration), Failure> {
    let started_at = Instant::now().checked_add(START_AFTER).unwrap_or_else(Instant::now);
    let (running, ended) = channel::<()>();
    let start = |lane: Lane| {
        let running = running.clone();
        thread::spawn(move || {
            let end = lane.run(started_at);
            drop(running);
            end
        })
    };
    let threads: Vec<_> = lanes.into_iter().map(start).collect();
    drop(running);
    let measured_from = started_at.checked_add(args.warmup).unwrap_or(started_at);
    // Nothing is ever sent: it is disconnected once all have ended, which may be before the warm-up does.
    let waited = ended.recv_timeout(measured_from.saturating_duration_since(Instant::now()));
    if waited == Err(RecvTimeoutError::Timeout) {
        for processes in processes.iter_mut() {
            processes.begin_again();
        }
    }
    let read_late = Instant::now().saturating_duration_since(measured_from);
    let mut ends = Vec::with_capacity(threads.len());
    for thread in threads {
        let end = thread.join().map_err(|_| Failure::bad_result(vec!["a thread failed".to_owned()]))?;
        ends.push(end.map_err(|error| Failure::bad_result(vec![format!("a thread failed: {error}")]))?);
    }
    Ok((ends, read_late))
}

fn show(args: &FloodArgs, addr: SocketAddr, report: &FloodReport) -> Result<(), Failure> {
    if args.json {
        print(&report.json());
    } else {
        print(report);
    }
    let complaints = report.complaints(addr);
    if complaints.is_empty() { Ok(()) } else { Err(Failure::bad_result(complaints)) }
}

/// Deals the connections out, one to each thread in turn.
fn lanes(args: &FloodArgs, opened: Vec<Opened>) -> Result<Vec<Lane>, Failure> {
    let threads = u64::from(args.threads);
    let mut dealt: Vec<Vec<Conn>> = Vec::new();
    dealt.resize_with(usize::try_from(threads).map_err(Failure::cannot_start)?, Vec::new);
    for (number, opened) in opened.into_iter().enumerate() {
        if args.work == Work::Buy && args.depth > opened.in_flight_max {
            return Err(Failure::cannot_start(format!(
                "--depth {} is more than the {} BUYs that the gateway takes at once on such a connection",
                args.depth, opened.in_flight_max
            )));
        }
        let conn = Conn::new(opened, args.depth, args.rate.is_some()).map_err(Failure::cannot_start)?;
        if let Some(lane) = number.checked_rem(dealt.len()).and_then(|lane| dealt.get_mut(lane)) {
            lane.push(conn);
        }
    }
    let (activity, sku) = args.target.article();
    let asked = Asked::new(args.work, activity, sku);
    let mut lanes = Vec::with_capacity(dealt.len());
    for (number, conns) in (0_u64..).zip(dealt) {
        let pace = Pace::new(args.rate, number, threads, args.warmup, Duration::from_secs(args.seconds));
        let share = |all: u64| {
            let extra = u64::from(number < all.checked_rem(threads).unwrap_or(0));
            all.checked_div(threads).unwrap_or(all).saturating_add(extra)
        };
        let users = args.service.then(|| Users {
            first: args.target.first_user().0,
            count: args.users,
            next: args.users.checked_div(threads).unwrap_or(0).saturating_mul(number),
        });
        let requests = Requests::new(&asked, args.depth, users);
        let answers = Answers::new(args.wire, args.depth, &requests);
        lanes.push(Lane::new(conns, requests, answers, pace, args.requests.map(share))?);
    }
    Ok(lanes)
}
