//! `rushgate-loadgen sale`: one rehearsed sale against a gateway that is already running.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rushgate::config::parse_duration;
use rushgate::protocol::{ActivityId, SkuId};
use rushgate::rehearsal::{
    Mode, Progress, Quantities, RehearsalError, Rehearsed, SalePlan, Silent, TerminalBar, read_still,
    rehearse,
};

use crate::admin::{admins, all_counts, counts_before};
use crate::books::{check_books, source};
use crate::output::{Failure, print};
use crate::target::{KeyArgs, TlsArgs, resolve};

/// Violations told one by one.
const SENTENCES_MAX: usize = 20;

/// Arguments of `sale`.
#[derive(Debug, Args)]
pub(crate) struct SaleArgs {
    /// The gateway; several, separated by commas, share one store
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700", value_delimiter = ',')]
    addr: Vec<String>,
    /// The admin ports of all gateways that serve this sale: the report then tells at which rung of the funnel BUYs ended
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    admin: Vec<String>,
    /// The activity to buy in
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    activity: u32,
    /// The SKU to buy
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    sku: u16,
    /// How many users buy
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,
    /// Id of the first user; the others follow it
    #[arg(long, value_name = "ID", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    first_user: u64,
    /// Connections open at once
    #[arg(long, value_name = "N", default_value_t = 200)]
    connections: usize,
    /// Share the connections between all users, as a back end does; without it each user has one of its own
    #[arg(long)]
    service: bool,
    /// With --service: users at work at once on each connection
    #[arg(long, value_name = "N", default_value_t = 64)]
    in_flight: usize,
    /// Units wanted, as quantity:weight
    #[arg(long, value_name = "Q:W,...", default_value = "1:1")]
    quantities: Quantities,
    /// Share of users who buy again after their answer
    #[arg(long, value_name = "0..1", default_value_t = 0.1)]
    retry_share: f64,
    /// Share of users who send BUY twice at once
    #[arg(long, value_name = "0..1", default_value_t = 0.05)]
    double_share: f64,
    /// How long a user goes on trying (also while the gateway is away)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    patience: Duration,
    /// How long a winner waits for the push of his order
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    push_wait: Duration,
    /// Gateways, each directly (not a balancer), that a share of the users hold one more connection to, only to listen:
    /// whether results are pushed on other gateways than the one that sold
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    listen_addr: Vec<String>,
    /// Share of users who listen there
    #[arg(long, value_name = "0..1", default_value_t = 0.05, requires = "listen_addr")]
    listen_share: f64,
    /// How long the audit waits for writers to settle what was sold
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    settle_patience: Duration,
    /// Decides which users do what
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &SaleArgs) -> Result<(), Failure> {
    let config = args.keys.gateway()?;
    check_books(&config)?;
    let minter = Arc::new(args.keys.minter_for(&config)?);
    let plan = plan(args)?;
    let admins = admins(&args.admin)?;
    let progress: Arc<dyn Progress> =
        if args.json { Arc::new(Silent) } else { Arc::new(TerminalBar::default()) };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::cannot_start(format!("the runtime cannot start: {error}")))?;
    let rehearsed = runtime.block_on(async {
        let source = source(&config).await?;
        let before = counts_before(&admins).await?;
        let rehearsed = rehearse(plan, minter, &source, progress).await;
        let mut rehearsed = rehearsed.map_err(|error| match error {
            RehearsalError::Unaudited(_) => Failure::bad_result(vec![error.to_string()]),
            RehearsalError::Sale(_) | RehearsalError::Books(_) => Failure::cannot_start(error),
        })?;
        if !admins.is_empty() {
            let after = read_still(async || all_counts(&admins).await).await;
            rehearsed.report.funnel.count(&before, &after);
        }
        Ok(rehearsed)
    });
    show(&rehearsed?, args.json)
}

fn show(rehearsed: &Rehearsed, json: bool) -> Result<(), Failure> {
    let Rehearsed { report, verdict } = rehearsed;
    if json {
        let text = serde_json::to_string(report).map_err(Failure::cannot_start)?;
        print(&text);
    } else {
        print(report);
    }
    if report.is_ok() {
        return Ok(());
    }
    let told = verdict.findings.iter().take(SENTENCES_MAX).map(|finding| finding.sentence.clone());
    let mut lines = vec![format!("the audit failed, {} violations:", verdict.violations)];
    lines.extend(told);
    Err(Failure::bad_result(lines))
}

fn plan(args: &SaleArgs) -> Result<SalePlan, Failure> {
    let mut addrs = Vec::new();
    for addr in &args.addr {
        addrs.push(resolve(addr)?);
    }
    let mut listen_addrs = Vec::new();
    for addr in &args.listen_addr {
        listen_addrs.push(resolve(addr)?);
    }
    let mut plan = SalePlan::new(addrs, args.users, ActivityId(args.activity), SkuId(args.sku));
    plan.first_user = args.first_user;
    plan.connections = args.connections;
    plan.mode = if args.service { Mode::Service } else { Mode::App };
    plan.in_flight = args.in_flight;
    plan.quantities = args.quantities.clone();
    plan.retry_share = args.retry_share;
    plan.double_share = args.double_share;
    plan.patience = args.patience;
    plan.push_wait = args.push_wait;
    plan.settle_patience = args.settle_patience;
    plan.listen_share = if listen_addrs.is_empty() { 0.0 } else { args.listen_share };
    plan.tls = args.tls.check()?;
    plan.listen_addrs = listen_addrs;
    plan.seed = args.seed;
    Ok(plan)
}
