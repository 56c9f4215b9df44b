//! `rushgate-loadgen storm`: many clients connect all at once, are cut, and come back all at once; then once more
//! with the reference client's jitter.
//!
//! One thread, a task for each client while it connects. A client that fails tries again (that is counted) until
//! the time of its wave is over. The cut is this side's: all sockets close together, as when a network in between breaks.

mod report;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use rushgate::client::{Backoff, Wire};
use rushgate::config::parse_duration;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::report::{Wave, listen_drops};
use crate::opening::{OPEN_TIMEOUT, OpenError, open, runtime};
use crate::output::{Failure, print};
use crate::sources::{Sources, reserve_descriptors};
use crate::target::{Target, TargetArgs};
use crate::work::{Asked, Work, opening};

/// What a client without jitter waits after a failure.
const RETRY_WITHOUT_JITTER: Duration = Duration::from_millis(200);

/// Arguments of `storm`.
#[derive(Debug, Args)]
pub(crate) struct StormArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Clients, one user and one connection each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: u32,
    /// What each asks behind AUTH; it is served when this is answered
    #[arg(long, value_enum, default_value = "result")]
    work: Work,
    /// From the cut to the first client that comes back
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pause: Duration,
    /// How long the clients of a wave go on trying
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    patience: Duration,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What every client of every wave knows.
#[derive(Debug)]
struct Storm {
    target: Target,
    sources: Sources,
    openings: Vec<Bytes>,
    patience: Duration,
}

/// How one client fared.
#[derive(Debug)]
struct Served {
    wire: Option<Wire>,
    /// From the wave's start to the answer.
    after: Duration,
    status: Option<u16>,
    failures: Vec<OpenError>,
}

/// Runs the command.
pub(crate) fn run(args: &StormArgs) -> Result<(), Failure> {
    if args.patience > Duration::from_secs(600) || args.pause > Duration::from_secs(600) {
        return Err(Failure::cannot_start("--patience and --pause are 10 minutes at most"));
    }
    let target = args.target.check()?;
    let clients = usize::try_from(args.clients).map_err(Failure::cannot_start)?;
    let descriptors = reserve_descriptors(clients)?;
    let sources = Sources::for_connections(target.door.addr, clients)?;
    let asked = Asked::new(args.work, target.activity, target.sku);
    let mut openings = Vec::with_capacity(clients);
    for number in 0..u64::from(args.clients) {
        openings.push(opening(&target.app_token(number)?, Some(&asked)).freeze());
    }
    if !args.json {
        print(&format!("{clients} clients need {descriptors} descriptors here, and as many at the gateway"));
    }
    let storm = Arc::new(Storm { target, sources, openings, patience: args.patience });
    let waves = runtime()?.block_on(waves(&storm, args))?;
    if args.json {
        let waves: Vec<Value> = waves.iter().map(Wave::json).collect();
        print(&serde_json::json!({ "clients": args.clients, "work": args.work.name(), "waves": waves }));
    }
    let bad: Vec<String> = waves.iter().filter_map(Wave::complaint).collect();
    if bad.is_empty() { Ok(()) } else { Err(Failure::bad_result(bad)) }
}

/// A wave that serves nobody is the last: the gateway is gone.
async fn waves(storm: &Arc<Storm>, args: &StormArgs) -> Result<Vec<Wave>, Failure> {
    let token = storm.target.app_token(0)?;
    let probe = open(&storm.target.door, None, &opening(&token, None), false, OPEN_TIMEOUT).await;
    drop(probe.map_err(|error| error.cannot_start(storm.target.door.addr))?);
    let mut waves = Vec::new();
    for (name, has_jitter) in [("connect", false), ("reconnect", false), ("reconnect", true)] {
        if !waves.is_empty() {
            sleep(args.pause).await;
        }
        let (wave, streams) = wave(storm, name, has_jitter).await?;
        if !args.json {
            print(&wave);
        }
        let is_served = wave.is_anybody_served();
        waves.push(wave);
        // The cut: all of them close here.
        drop(streams);
        if !is_served {
            break;
        }
    }
    Ok(waves)
}

async fn wave(
    storm: &Arc<Storm>,
    name: &'static str,
    has_jitter: bool,
) -> Result<(Wave, Vec<Wire>), Failure> {
    let clients = storm.openings.len();
    let mut wave = Wave::new(name, has_jitter, clients)?;
    let mut streams = Vec::with_capacity(clients);
    let drops_before = listen_drops();
    let began_at = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        tasks.spawn(client(Arc::clone(storm), number, began_at, has_jitter));
    }
    while let Some(served) = tasks.join_next().await {
        let served = served.map_err(|_| Failure::bad_result(vec!["a task failed".to_owned()]))?;
        wave.count(&served);
        streams.extend(served.wire);
    }
    wave.listen_drops = drops_before.zip(listen_drops()).map(|(before, after)| after.saturating_sub(before));
    Ok((wave, streams))
}

/// Connects until it is served or the wave's time is over.
async fn client(storm: Arc<Storm>, number: usize, began_at: Instant, has_jitter: bool) -> Served {
    let until = began_at.checked_add(storm.patience).unwrap_or(began_at);
    let mut backoff = Backoff::of_connections();
    let mut served = Served { wire: None, after: Duration::ZERO, status: None, failures: Vec::new() };
    let Some(bytes) = storm.openings.get(number) else { return served };
    if has_jitter {
        sleep(backoff.next_wait(0)).await;
    }
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match open(&storm.target.door, storm.sources.of(number), bytes, true, left).await {
            Ok(opened) => {
                served.after = began_at.elapsed();
                served.status = opened.first_status;
                served.wire = Some(opened.wire);
                return served;
            }
            Err(error) => served.failures.push(error),
        }
        let wait = if has_jitter { backoff.next_wait(0) } else { RETRY_WITHOUT_JITTER };
        let again_at = Instant::now().checked_add(wait).unwrap_or(until);
        if again_at >= until {
            return served;
        }
        sleep_until(again_at).await;
    }
}
