//! `rushgate activity …`: what operators do to activities, beside a running gateway or without one.

use std::fmt::Write as _;

pub(super) use super::activity_args::ActivityArgs;
use super::activity_args::{ActivityCommand, CreateArgs, StockCommand, Units};
use super::activity_place::{activities, failure};
use super::output::print_or_json as show;
use super::startup::runtime;
use super::times::time_text;
use super::{Failure, allow, log};
use crate::admin::activities::{
    ActivityDetail, ActivityView, Created, NewActivity, Preheated, ReserveView, StockChange,
};
use crate::store::catalog::{ActivityChange, Eligibility};

/// Runs the command.
pub(super) fn run(args: ActivityArgs) -> Result<(), Failure> {
    log::start_logging("warn");
    runtime()?.block_on(dispatch(args.command))
}

async fn dispatch(command: ActivityCommand) -> Result<(), Failure> {
    match command {
        ActivityCommand::Create(args) => create(args).await,
        ActivityCommand::List(common) => {
            let (activities, json) = activities(common)?;
            show(json, &activities.list().await.map_err(failure)?, |list| list_table(list))
        }
        ActivityCommand::Show(one) => {
            let (activities, json) = activities(one.common)?;
            show(json, &activities.show(one.id).await.map_err(failure)?, detail_text)
        }
        ActivityCommand::Preheat(one) => {
            let (activities, json) = activities(one.common)?;
            show(json, &activities.preheat(one.id).await.map_err(failure)?, preheated_text)
        }
        ActivityCommand::Archive(one) => {
            let (activities, json) = activities(one.common)?;
            activities.archive(one.id).await.map_err(failure)?;
            show(json, &serde_json::json!({ "id": one.id, "ended": true }), |_| {
                format!("activity {}: ended; a writer archives it when nothing of it is due any more", one.id)
            })
        }
        ActivityCommand::Open(one) => {
            let (activities, json) = activities(one.common)?;
            activities.open(one.id).await.map_err(failure)?;
            show(json, &serde_json::json!({ "id": one.id, "entry_open": true }), |_| {
                format!("activity {}: entry open", one.id)
            })
        }
        ActivityCommand::Close(one) => {
            let (activities, json) = activities(one.common)?;
            activities.close(one.id).await.map_err(failure)?;
            show(json, &serde_json::json!({ "id": one.id, "entry_open": false }), |_| {
                format!("activity {}: entry closed", one.id)
            })
        }
        ActivityCommand::Set(args) => {
            let (activities, json) = activities(args.common)?;
            let change = ActivityChange {
                rule: args.eligibility.as_deref(),
                allow_list: args.allow_list,
                buy_again_max: args.buy_again_max,
            };
            show(json, &activities.change(args.id, &change).await.map_err(failure)?, |activity| {
                format!("activity {}: {}, {}", activity.id, eligibility_text(activity), again_text(activity))
            })
        }
        ActivityCommand::Allow(args) => allow::run(args).await,
        ActivityCommand::Stock(args) => {
            let (change, json) = change_stock(args.command).await?;
            show(json, &change, StockChange::to_string)
        }
    }
}

async fn change_stock(command: StockCommand) -> Result<(StockChange, bool), Failure> {
    let (change, json) = match command {
        StockCommand::Add(Units { id, sku, amount, common }) => {
            let (activities, json) = activities(common)?;
            (activities.stock_add(id, sku, amount).await, json)
        }
        StockCommand::Remove(Units { id, sku, amount, common }) => {
            let (activities, json) = activities(common)?;
            (activities.stock_remove(id, sku, amount).await, json)
        }
        StockCommand::FromReserve(Units { id, sku, amount, common }) => {
            let (activities, json) = activities(common)?;
            (activities.stock_from_reserve(id, sku, amount).await, json)
        }
    };
    Ok((change.map_err(failure)?, json))
}

async fn create(args: CreateArgs) -> Result<(), Failure> {
    let (activities, json) = activities(args.common)?;
    let new = NewActivity {
        id: args.id,
        name: args.name,
        entry_open: !args.entry_closed,
        opens_at_ms: args.opens,
        closes_at_ms: args.closes,
        per_user_limit: args.per_user_limit,
        buy_again_max: args.buy_again_max,
        pay_within_ms: u64::try_from(args.pay_within.as_millis()).unwrap_or(u64::MAX),
        eligibility: Eligibility { rule: args.eligibility, allow_list: args.allow_list },
        skus: args.sku,
    };
    let created = activities.create_holding(&new, &args.fallback_reserve).await.map_err(failure)?;
    show(json, &created, created_text)
}

fn created_text(created: &Created) -> String {
    let mut text = format!("created\n{}", list_table(std::slice::from_ref(&created.activity)));
    if !created.pending_loads.is_empty() {
        let _ = write!(
            text,
            "{} loads are pending: {} applies them",
            created.pending_loads.len(),
            created.applied_by
        );
    }
    if let Some(at_ms) = created.preheat_at_ms {
        let (id, at) = (created.activity.id, time_text(at_ms));
        let _ = write!(text, "a writer loads the stock at {at}, or now: rushgate activity preheat {id}");
    }
    text
}

fn preheated_text(preheated: &Preheated) -> String {
    match preheated.pending_loads.len() {
        0 => format!("activity {}: the stock is loaded", preheated.id),
        loads => format!(
            "activity {}: {loads} loads are pending: the running or the next writer applies them",
            preheated.id
        ),
    }
}

fn list_table(activities: &[ActivityView]) -> String {
    if activities.is_empty() {
        return "no activities yet; make one: rushgate activity create --help".to_owned();
    }
    let mut text = format!(
        "{:>10}  {:<24}  {:<6}  {:<20}  {:<20}  {:>5}  {:>12}\n",
        "id", "name", "entry", "opens", "closes", "SKUs", "stock total"
    );
    for activity in activities {
        let stock = activity.skus.iter().map(|sku| u64::from(sku.stock_total)).fold(0, u64::saturating_add);
        let _ = writeln!(
            text,
            "{:>10}  {:<24}  {:<6}  {:<20}  {:<20}  {:>5}  {stock:>12}",
            activity.id,
            activity.name,
            if activity.entry_open { "open" } else { "closed" },
            time_text(activity.opens_at_ms),
            time_text(activity.closes_at_ms),
            activity.skus.len(),
        );
    }
    text
}

fn eligibility_text<S>(activity: &ActivityView<S>) -> String {
    let rule = activity.eligibility.as_str();
    match (rule, activity.allow_list) {
        ("", false) => "for everybody".to_owned(),
        ("", true) => "for users on its allow-list".to_owned(),
        (rule, false) => format!("for users with {rule}"),
        (rule, true) => format!("for users on its allow-list with {rule}"),
    }
}

fn again_text<S>(activity: &ActivityView<S>) -> String {
    match activity.buy_again_max {
        0 => "nobody buys twice".to_owned(),
        1 => "once more after a closed order".to_owned(),
        times => format!("{times} times more after closed orders"),
    }
}

fn detail_text(activity: &ActivityDetail) -> String {
    let mut text = format!(
        "activity {} {:?}: entry {}, {} to {}, at most {} per user, {}, {}\n{:>6}  {:<20}  {:>12}  {:>10}  {:>10}  {:>10}  \
         {:>10}  orders\n",
        activity.id,
        activity.name,
        if activity.entry_open { "open" } else { "closed" },
        time_text(activity.opens_at_ms),
        time_text(activity.closes_at_ms),
        activity.per_user_limit,
        again_text(activity),
        eligibility_text(activity),
        "SKU",
        "name",
        "price",
        "total",
        "free",
        "moving",
        "sold",
    );
    for sku in &activity.skus {
        let orders: Vec<String> =
            sku.orders.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let _ = writeln!(
            text,
            "{:>6}  {:<20}  {:>12}  {:>10}  {:>10}  {:>10}  {:>10}  {}",
            sku.id,
            sku.name,
            sku.price_minor,
            sku.total,
            sku.free,
            sku.in_transit,
            sku.sold,
            if orders.is_empty() { "none".to_owned() } else { orders.join(", ") },
        );
        if sku.recorded > 0 {
            let _ = writeln!(text, "        recorded, to be settled: {}", sku.recorded);
        }
        if let Some(ReserveView { total, free, sold }) = sku.reserve {
            let _ = writeln!(text, "        fallback reserve: {total}, {free} free, {sold} sold");
        }
        for load in &sku.pending_loads {
            let _ = writeln!(text, "        pending: {} {} ({})", load.kind, load.units, load.id);
        }
    }
    text
}
