//! `rushgate-loadgen churn`: connect, HELLO, AUTH and BUY in one write, the answer, GOAWAY, close; over and over.
//!
//! One thread; each connection at once is a task. The gateway closes first, as the protocol has it, so that no
//! local port has to rest and the run can go on for as long as it likes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use clap::Args;
use hdrhistogram::Histogram;
use rushgate::protocol::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::opening::{OPEN_TIMEOUT, Opened, open, runtime};
use crate::output::{Failure, print};
use crate::sources::{Sources, reserve_descriptors};
use crate::tally::{ByStatus, Reasons, exact, histogram, per_second, quantile_us, tenths_us};
use crate::target::{Target, TargetArgs};
use crate::work::{Asked, Work, append, opening};

/// How long the gateway has to close after the last frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// A failed round is not repeated at once.
const FAILED_PAUSE: Duration = Duration::from_millis(20);
/// After so many failures for each connection at once, with no success between them, the gateway is gone.
const FAILURES_MAX: u64 = 20;

/// Arguments of `churn`.
#[derive(Debug, Args)]
pub(crate) struct ChurnArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Connections at once
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// How many users take turns
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    users: u64,
    /// How long
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3000))]
    seconds: u64,
    /// Ends after so many rounds [default: when the time is over]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What all tasks share: `rounds` begun = answered + failed.
#[derive(Debug)]
struct Count {
    rounds: u64,
    failures_in_a_row: u64,
    /// From connecting to the answer.
    latency_ns: Histogram<u64>,
    by_status: ByStatus,
    failed: Reasons,
    /// Answered, but the gateway did not close as it should.
    not_closed: Reasons,
}

#[derive(Debug)]
struct Churn {
    target: Target,
    asked: Asked,
    users: u64,
    rounds_max: u64,
    failures_max: u64,
    until: Instant,
    count: Mutex<Count>,
}

/// Runs the command.
pub(crate) fn run(args: &ChurnArgs) -> Result<(), Failure> {
    let target = args.target.check()?;
    let connections = usize::try_from(args.connections).map_err(Failure::cannot_start)?;
    reserve_descriptors(connections)?;
    let sources = Sources::for_connections(target.door.addr, connections)?;
    let count = Count {
        rounds: 0,
        failures_in_a_row: 0,
        latency_ns: histogram()?,
        by_status: ByStatus::default(),
        failed: Reasons::default(),
        not_closed: Reasons::default(),
    };
    let runtime = runtime()?;
    let (churn, seconds) = runtime.block_on(async {
        let token = target.app_token(0)?;
        let probe = open(&target.door, None, &opening(&token, None), false, OPEN_TIMEOUT).await;
        drop(probe.map_err(|error| error.cannot_start(target.door.addr))?);
        let began_at = Instant::now();
        let churn = Arc::new(Churn {
            asked: Asked::new(Work::Buy, target.activity, target.sku),
            target,
            users: args.users,
            rounds_max: args.rounds.unwrap_or(u64::MAX),
            failures_max: u64::from(args.connections).saturating_mul(FAILURES_MAX),
            until: began_at.checked_add(Duration::from_secs(args.seconds)).unwrap_or(began_at),
            count: Mutex::new(count),
        });
        let mut tasks = JoinSet::new();
        for number in 0..connections {
            tasks.spawn(turn(Arc::clone(&churn), sources, number));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|_| Failure::bad_result(vec!["a task failed".to_owned()]))??;
        }
        Ok::<_, Failure>((churn, began_at.elapsed().as_secs_f64()))
    })?;
    let count = churn.lock();
    show(&count, args, seconds);
    judge(&count, &churn)
}

/// One connection after the other, until the time or the count is over.
async fn turn(churn: Arc<Churn>, sources: Sources, number: usize) -> Result<(), Failure> {
    while let Some(round) = churn.begin() {
        let user = round.checked_rem(churn.users).unwrap_or(0);
        let bytes = opening(&churn.target.app_token(user)?, Some(&churn.asked));
        let began_at = Instant::now();
        match open(&churn.target.door, sources.of(number), &bytes, true, OPEN_TIMEOUT).await {
            Ok(opened) => {
                churn.answered(&opened, began_at.elapsed());
                if let Err(reason) = goodbye(opened).await {
                    churn.lock().not_closed.add(reason, 1);
                }
            }
            Err(error) => {
                churn.failed(error.to_string());
                sleep(FAILED_PAUSE).await;
            }
        }
    }
    Ok(())
}

/// Sends the last frame and waits for the gateway to close.
async fn goodbye(mut opened: Opened) -> Result<(), String> {
    let mut last = BytesMut::new();
    append(&mut last, 0, &Request::Goaway);
    let closing = async {
        opened.wire.write_all(&last).await?;
        opened.wire.flush().await?;
        while opened.wire.read_buf(&mut opened.inbox).await? > 0 {
            opened.inbox.clear();
        }
        Ok(())
    };
    match timeout(CLOSE_TIMEOUT, closing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(std::io::Error::kind(&error).to_string()),
        Err(_) => Err("not closed by the gateway in time".to_owned()),
    }
}

impl Churn {
    fn lock(&self) -> MutexGuard<'_, Count> {
        // Each statement on the counts leaves them sound.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next round, if there is one.
    fn begin(&self) -> Option<u64> {
        let mut count = self.lock();
        let is_over = Instant::now() >= self.until
            || count.rounds >= self.rounds_max
            || count.failures_in_a_row >= self.failures_max;
        if is_over {
            return None;
        }
        let round = count.rounds;
        count.rounds = round.saturating_add(1);
        Some(round)
    }

    fn answered(&self, opened: &Opened, latency: Duration) {
        let mut count = self.lock();
        count.failures_in_a_row = 0;
        count.latency_ns.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        if let Some(status) = opened.first_status {
            count.by_status.add(status, 1);
        }
    }

    fn failed(&self, reason: String) {
        let mut count = self.lock();
        count.failures_in_a_row = count.failures_in_a_row.saturating_add(1);
        count.failed.add(reason, 1);
    }
}

fn judge(count: &Count, churn: &Churn) -> Result<(), Failure> {
    let mut lines = Vec::new();
    if count.failures_in_a_row >= churn.failures_max {
        lines.push(format!("the gateway at {} went away", churn.target.door.addr));
    }
    if count.failed.total() > 0 {
        lines.push(format!(
            "{} of {} rounds failed: {}",
            count.failed.total(),
            count.rounds,
            count.failed.line()
        ));
    }
    if count.not_closed.total() > 0 {
        lines.push(format!(
            "{} connections ended badly: {}",
            count.not_closed.total(),
            count.not_closed.line()
        ));
    }
    if lines.is_empty() { Ok(()) } else { Err(Failure::bad_result(lines)) }
}

fn show(count: &Count, args: &ChurnArgs, seconds: f64) {
    let (latency, answered) = (&count.latency_ns, count.by_status.total());
    if args.json {
        print(&json!({
            "connections": args.connections,
            "rounds": count.rounds,
            "answered": answered,
            "rounds_per_s": per_second(answered, seconds),
            "p50_us": quantile_us(latency, 0.5),
            "p99_us": quantile_us(latency, 0.99),
            "p999_us": quantile_us(latency, 0.999),
            "max_us": tenths_us(latency.max()),
            "by_status": count.by_status.json(),
            "errors": count.failed.total(),
            "failed": count.failed.json(),
            "not_closed": count.not_closed.json(),
            "seconds": seconds,
        }));
        return;
    }
    let mut lines = vec![
        format!("{:<24} {:>14}", "connections at once", args.connections),
        format!("{:<24} {:>14}", "rounds", count.rounds),
        format!("{:<24} {:>14.1}", "rounds/s", exact(answered) / seconds.max(1e-9)),
        format!("{:<24} {:>14.3}", "seconds", seconds),
        format!("{:<24} {:>14.1}", "connect-answer p50 µs", quantile_us(latency, 0.5)),
        format!("{:<24} {:>14.1}", "connect-answer p99 µs", quantile_us(latency, 0.99)),
        format!("{:<24} {:>14.1}", "connect-answer max µs", tenths_us(latency.max())),
    ];
    lines.extend(count.by_status.named().into_iter().map(|(name, count)| format!("{name:<24} {count:>14}")));
    lines.push(format!("{:<24} {:>14}", "failed", count.failed.total()));
    print(&lines.join("\n"));
}
