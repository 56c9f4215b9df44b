//! `rushgate-loadgen paycenter`: a stand-in for the payment centre, with faults at given rates, until it is stopped.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rushgate::config::parse_duration;
use rushgate::payment::Keys;
use rushgate::payment::http::Target;
use rushgate::rehearsal::{PayCentre, PayFaults};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::opening::runtime;
use crate::output::{Failure, print};

/// Arguments of `paycenter`.
#[derive(Debug, Args)]
pub(crate) struct PaycenterArgs {
    /// Where it listens; `payment.centre_url` names it with `http://` before it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7790")]
    listen: SocketAddr,
    /// The writers that are told of payments: their admin ports
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7702", value_delimiter = ',')]
    writers: Vec<Target>,
    /// The key that both sides sign with (`payment.key_file`)
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// One more key that is accepted
    #[arg(long, value_name = "FILE")]
    other_key_file: Option<PathBuf>,
    /// Longest time until a question is answered
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration)]
    answer_delay: Duration,
    /// Longest time until a writer is told of a payment
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration)]
    notice_delay: Duration,
    /// Share of questions answered with an error, half of them after closing
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = rate)]
    error_rate: f64,
    /// Share of orders that it says it does not know
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = rate)]
    unknown_rate: f64,
    /// Share of orders that are paid right after they were closed
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = rate)]
    late_rate: f64,
    /// Share of notices that are told twice
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = rate)]
    repeat_rate: f64,
    /// Share of notices that a forged one comes before
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = rate)]
    forge_rate: f64,
    /// Share of payments of another amount than was asked
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = rate)]
    wrong_amount_rate: f64,
    /// Decides who is hit
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&rate) { Ok(rate) } else { Err("not from 0 to 1".to_owned()) }
}

impl PaycenterArgs {
    const fn faults(&self) -> PayFaults {
        PayFaults {
            seed: self.seed,
            answer_delay_max: self.answer_delay,
            notice_delay_max: self.notice_delay,
            error_rate: self.error_rate,
            unknown_rate: self.unknown_rate,
            late_rate: self.late_rate,
            repeat_rate: self.repeat_rate,
            forge_rate: self.forge_rate,
            wrong_amount_rate: self.wrong_amount_rate,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &PaycenterArgs) -> Result<(), Failure> {
    let keys = Keys::read(&args.key_file, args.other_key_file.as_deref()).map_err(Failure::cannot_start)?;
    runtime()?.block_on(serve(args, keys))
}

async fn serve(args: &PaycenterArgs, keys: Keys) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::cannot_start)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::cannot_start)?;
    let listening = TcpListener::bind(args.listen).await;
    let listener = listening
        .map_err(|error| Failure::cannot_start(format!("cannot listen on {}: {error}", args.listen)))?;
    let centre = PayCentre::start(listener, keys, args.writers.clone(), args.faults())
        .map_err(Failure::cannot_start)?;
    print(&format!("the payment centre works: http://{}", centre.address()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    print(&centre.stats());
    Ok(())
}
