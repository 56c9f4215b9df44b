//! `rushgate demo`: a whole sale in one process: activity, gateway, users over real TCP, audit.
//!
//! The gateway is the one that `serve` runs, on a free port; the users know it only by that port, and the audit
//! reads only what they were told and what stands in the database.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::Failure;
use super::demo_life::{DemoLife, parse_share};
use super::log::start_logging;
use super::output::{print, print_json};
use super::startup::{gateway_settings, minter, open_store, runtime_of_all_cores, verifier};
use crate::admin::activities::{Activities, ActivityError, NewActivity, NewSku};
use crate::admission::Cidr;
use crate::admission::identity::Minter;
use crate::admission::limits::Limits;
use crate::config::{Config, IpOverride, Sources, parse_duration};
use crate::gateway::{Gateway, PassedEnding, Rung};
use crate::protocol::{ActivityId, SkuId};
use crate::rehearsal::{
    GatewayCounts, Mode, Progress, RehearsalError, Report, SalePlan, Silent, Source, TerminalBar, read_still,
    rehearse,
};
use crate::store::catalog::Eligibility;

/// Up to so many users each have a connection of their own.
const APP_USERS_MAX: u32 = 20_000;
/// The demo's only article.
const SKU: SkuId = SkuId(1);
const PRICE_MINOR: u64 = 100;
const WINDOW_MS: u64 = 3_600_000;

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// How many users want one unit each
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    users: u32,
    /// How many units there are
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    stock: u32,
    /// Connections open at once
    #[arg(long, default_value_t = 200)]
    connections: usize,
    /// Share the connections among the users, as a shop's back end does (always above 20,000 users)
    #[arg(long)]
    service: bool,
    /// How long a user goes on trying
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    patience: Duration,
    /// Share of the winners who pay, 0 to 1. Unpaid orders are then closed and their units sold again, until all are paid for
    #[arg(long, value_parser = parse_share)]
    pay_rate: Option<f64>,
    /// How long a winner has to pay
    #[arg(long, default_value = "5s", requires = "pay_rate", value_parser = parse_duration)]
    pay_by: Duration,
    /// Where the database is kept; each run adds an activity to it
    #[arg(long, default_value = "rushgate-data/demo")]
    data_dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: DemoArgs) -> Result<(), Failure> {
    start_logging("error");
    let json = args.json;
    let data_dir = args.data_dir.clone();
    let (report, activity) = runtime_of_all_cores()?.block_on(run_demo(args))?;
    if json {
        print_json(&report)?;
    } else {
        print(&format!("{report}\n\n{}", look_further(&data_dir, activity)));
    }
    if report.is_ok() {
        Ok(())
    } else {
        Err(Failure::bad_result(format!("the audit failed: {}", report.audit)))
    }
}

fn look_further(data_dir: &Path, activity: ActivityId) -> String {
    let folder = data_dir.display();
    format!(
        "The orders stand in {folder}/rushgate.db. Look: rushgate activity show {activity} --data-dir {folder}"
    )
}

async fn run_demo(args: DemoArgs) -> Result<(Report, ActivityId), Failure> {
    let config = config(&args.data_dir)?;
    // The folder's lock first: beside another process nothing may be put on sale.
    let store = open_store(&config).await?;
    let minter = Arc::new(minter(&config, None, None)?);
    let limits = Limits::new(&config.limits_settings());
    let gateway = Gateway::start(gateway_settings(&config)?, limits, verifier(&config)?, Arc::clone(&store))
        .await
        .map_err(|error| Failure::cannot_start(error.to_string()))?;
    let paying = match args.pay_rate {
        Some(pay_rate) => Some(DemoLife::start(&store, pay_rate, args.pay_by, PRICE_MINOR).await?),
        None => None,
    };
    let mut plan = plan(&args, gateway.local_addr());
    plan.life = paying.as_ref().map(DemoLife::life);
    plan.prepare().map_err(|error| Failure::cannot_start(error.to_string()))?;
    plan.activity = create_activity(&args).await?;
    plan.seed = u64::from(plan.activity.0);
    if !args.json {
        let kind = match plan.mode {
            Mode::App => "a connection of their own each",
            Mode::Service => "shared (service) connections",
        };
        print(&format!(
            "{} users want {} units: {kind}, {} open at once, gateway on {}",
            args.users,
            args.stock,
            args.connections,
            gateway.local_addr()
        ));
        if let Some(pay_rate) = args.pay_rate {
            print(&format!("{} % of the winners pay; the others have {:?}", pay_rate * 100.0, args.pay_by));
        }
    }
    let activity = plan.activity;
    let before = [Some(counts(&gateway))];
    let mut report = buy_and_audit(plan, minter, &args).await?;
    let after = read_still(async || vec![Some(counts(&gateway))]).await;
    report.funnel.count(&before, &after);
    gateway.drain().await;
    if let Some(paying) = paying {
        paying.stop().await;
    }
    store.close().await;
    Ok((report, activity))
}

/// The defaults, on a free port, with loopback as an explicit exception from the per-IP limit: all of the demo's
/// users come from there.
fn config(data_dir: &Path) -> Result<Config, Failure> {
    let mut config = Config::load(&Sources::default()).map_err(|e| Failure::cannot_start(e.to_string()))?;
    config.gateway.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    data_dir.clone_into(&mut config.store.data_dir);
    let loopback = Cidr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);
    config.limits.per_ip_overrides =
        loopback.map(|cidr| IpOverride { cidr, rate_per_s: 0, burst: 0 }).into_iter().collect();
    Ok(config)
}

/// What the gateway has counted of BUYs.
fn counts(gateway: &Gateway) -> GatewayCounts {
    let counters = gateway.counters();
    let rung = |rung: &Rung| (rung.name().to_owned(), counters.rung_count(*rung));
    let passed = |ending: &PassedEnding| (ending.name().to_owned(), counters.passed_count(*ending));
    GatewayCounts {
        process: gateway.process().0.into(),
        rungs: Rung::ALL.iter().map(rung).collect(),
        passed: PassedEnding::ALL.iter().map(passed).collect(),
    }
}

/// A new activity in the folder, numbered after the ones that are there.
async fn create_activity(args: &DemoArgs) -> Result<ActivityId, Failure> {
    let failed = |error: ActivityError| Failure::cannot_start(error.to_string());
    let activities = Activities::new(&args.data_dir);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let list = activities.list().await.map_err(failed)?;
    let last = list.iter().map(|activity| activity.id).max().unwrap_or(0);
    let id = last.saturating_add(1);
    let sku = NewSku {
        id: SKU.0.into(),
        name: "demo".to_owned(),
        price_minor: PRICE_MINOR,
        stock: args.stock.into(),
    };
    let new = NewActivity {
        id: id.into(),
        name: format!("demo {id}"),
        entry_open: true,
        opens_at_ms: now_ms,
        closes_at_ms: now_ms.saturating_add(WINDOW_MS),
        per_user_limit: 1,
        buy_again_max: 0,
        pay_within_ms: pay_within_ms(args),
        eligibility: Eligibility::default(),
        skus: vec![sku],
    };
    let created = activities.create(&new).await.map_err(failed)?;
    if created.pending_loads.is_empty() {
        Ok(ActivityId(id))
    } else {
        Err(Failure::bad_result("the stock was not loaded within two seconds; is the disk very slow?"))
    }
}

fn pay_within_ms(args: &DemoArgs) -> u64 {
    let pay_by_ms = u64::try_from(args.pay_by.as_millis()).unwrap_or(u64::MAX);
    args.pay_rate.map_or(NewActivity::PAY_WITHIN_MS, |_| pay_by_ms)
}

/// The plan, but for its activity, which does not exist yet.
fn plan(args: &DemoArgs, addr: SocketAddr) -> SalePlan {
    let mut plan = SalePlan::new(vec![addr], args.users, ActivityId(0), SKU);
    plan.connections = args.connections;
    plan.mode = if args.service || args.users > APP_USERS_MAX { Mode::Service } else { Mode::App };
    plan.patience = args.patience;
    plan.descriptors_per_connection = 2;
    plan
}

async fn buy_and_audit(plan: SalePlan, minter: Arc<Minter>, args: &DemoArgs) -> Result<Report, Failure> {
    let progress: Arc<dyn Progress> =
        if args.json { Arc::new(Silent) } else { Arc::new(TerminalBar::default()) };
    let source = Source::Sqlite(args.data_dir.join("rushgate.db"));
    match rehearse(plan, minter, &source, progress).await {
        Ok(rehearsed) => Ok(rehearsed.report),
        Err(RehearsalError::Sale(error)) => Err(Failure::cannot_start(error.to_string())),
        Err(error) => Err(Failure::bad_result(error.to_string())),
    }
}
