//! What `rushgate reconcile` prints: a table that is read at three in the morning, and what to type next.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::orders::reconcile::{ActivityReport, Difference, Explained, Kind, ShardFigures, SkuFigures};
use crate::stock::calls::ShardId;
use crate::store::sql::mysql::ReserveBooks;

/// Differences that are told one by one.
const TOLD_MAX: usize = 100;

type Outcome = Option<Result<(), String>>;

/// For a person.
pub(super) fn text(report: &ActivityReport, fix: bool) -> String {
    let mut text = headline(report);
    let _ = writeln!(
        text,
        "{:>7}  {:>9}  {:>9}  {:>7}  {:>9}  {:>9}  {:>9}  {:>10}  {:>6}",
        "SKU", "total", "free", "moving", "reserved", "recorded", "sold", "going back", "off"
    );
    for (sku, figures) in &report.skus {
        let total = figures.total();
        let _ = writeln!(text, "{:>7}  {}", sku.0, line(&total));
        for (shard, figures) in ShardId::all().zip(&figures.shards).filter(|(_, one)| one.off != 0) {
            let _ = writeln!(text, "shard {:>2} {}", shard.number(), line(figures));
        }
    }
    for (sku, reserve) in report.skus.iter().filter_map(|(sku, figures)| Some((sku, figures.reserve?))) {
        let ReserveBooks { loaded, free, moving, held } = reserve;
        let _ = writeln!(
            text,
            "SKU {sku} holds back {loaded} from Redis: {free} free, {moving} moving, {held} sold, off {}",
            reserve.off()
        );
    }
    for (difference, outcome) in report.differences.iter().take(TOLD_MAX) {
        let _ = writeln!(text, "{}", told(difference, outcome.as_ref()));
    }
    if let Some(more) = report.differences.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "… and {more} more; --json tells all");
    }
    text.push_str(&next(report, fix));
    text
}

fn headline(report: &ActivityReport) -> String {
    let explained = explained(report.explained);
    let on_its_way = if explained.is_empty() { String::new() } else { format!("; on its way: {explained}") };
    match report.differences.len() {
        0 => format!("activity {}: nothing differs{on_its_way}\n", report.id),
        1 => format!("activity {}: 1 difference{on_its_way}\n", report.id),
        count => format!("activity {}: {count} differences{on_its_way}\n", report.id),
    }
}

fn explained(explained: Explained) -> String {
    let Explained { backlog, ledger, states, loads, moving } = explained;
    let parts = [
        (backlog, "reservations not settled yet"),
        (ledger, "orders to be given back"),
        (states, "states to be told"),
        (loads, "shares of loads to be recorded"),
        (moving, "units between shards"),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    parts.join(", ")
}

fn line(figures: &ShardFigures) -> String {
    let ShardFigures { loaded, free, moved_out, reserved, recorded, sold, going_back, off } = figures;
    let off = if *off == 0 { "0".to_owned() } else { format!("{off:+}") };
    format!(
        "{loaded:>9}  {free:>9}  {moved_out:>7}  {reserved:>9}  {recorded:>9}  {sold:>9}  {going_back:>10}  {off:>6}"
    )
}

/// Where it is, for a person.
fn place(one: &Difference) -> String {
    let mut place =
        one.shard.map_or_else(|| "database".to_owned(), |shard| format!("shard {}", shard.number()));
    if let Some(sku) = one.sku {
        let _ = write!(place, ", SKU {sku}");
    }
    if let (Some(order), Some(user)) = (one.order, one.user) {
        let _ = write!(place, ", order {order} of user {user}");
    }
    place
}

fn told(one: &Difference, outcome: Option<&Result<(), String>>) -> String {
    let became = match outcome {
        Some(Ok(())) => format!("corrected: {}", one.remedy_text()),
        Some(Err(why)) => format!("not corrected: {why}"),
        None => format!("with --fix: {}", one.remedy_text()),
    };
    format!("  {}: {}\n    {became}", place(one), one.sentence)
}

/// What to type next.
fn next(report: &ActivityReport, fix: bool) -> String {
    let (id, all) = (report.id, report.differences.len());
    let mendable = report.differences.iter().filter(|(one, _)| one.is_mendable()).count();
    let corrected = report.differences.iter().filter(|(_, outcome)| matches!(outcome, Some(Ok(())))).count();
    let again = format!("rushgate reconcile --activity {id}");
    match (all, fix) {
        (0, _) => String::new(),
        (_, false) if mendable == 0 => {
            "next: nothing is corrected by itself here; look at each, with the page for those on call in the README\n"
                .to_owned()
        }
        (_, false) => format!("next: {again} --fix   corrects {mendable} of {all}; no other is touched\n"),
        (_, true) if corrected == all => {
            format!("next: {again}   once writers have had a few seconds; it should find nothing\n")
        }
        (_, true) => format!("next: {again} --fix   {corrected} of {all} are corrected; see above what is left\n"),
    }
}

/// For a machine.
pub(super) fn json(reports: &[ActivityReport]) -> Value {
    let count = |is: fn(&(Difference, Outcome)) -> bool| -> usize {
        reports.iter().map(|report| report.differences.iter().filter(|one| is(one)).count()).sum()
    };
    json!({
        "clean": reports.iter().all(|report| report.differences.is_empty()),
        "differences": count(|_| true),
        "corrected": count(|(_, outcome)| matches!(outcome, Some(Ok(())))),
        "activities": reports.iter().map(activity).collect::<Vec<_>>(),
    })
}

fn activity(report: &ActivityReport) -> Value {
    let Explained { backlog, ledger, states, loads, moving } = report.explained;
    json!({
        "id": report.id.0,
        "skus": report.skus.iter().map(|(sku, figures)| sku_json(sku.0, figures)).collect::<Vec<_>>(),
        "explained": {
            "backlog": backlog, "ledger": ledger, "states": states, "loads": loads, "moving": moving,
        },
        "differences":
            report.differences.iter().map(|(one, outcome)| difference(one, outcome.as_ref())).collect::<Vec<_>>(),
    })
}

fn sku_json(sku: u16, figures: &SkuFigures) -> Value {
    let shards = ShardId::all()
        .zip(&figures.shards)
        .map(|(shard, one)| figures_json(one, [("shard", json!(shard.number()))]))
        .collect();
    let database = json!({
        "loaded": figures.sql_loaded, "available": figures.sql_available, "sold": figures.sql_sold,
    });
    let reserve = figures.reserve.map(|reserve| {
        let ReserveBooks { loaded, free, moving, held } = reserve;
        json!({ "total": loaded, "free": free, "moving": moving, "sold": held, "off": reserve.off() })
    });
    let shards = Value::Array(shards);
    let more = [("sku", json!(sku)), ("shards", shards), ("database", database), ("reserve", json!(reserve))];
    figures_json(&figures.total(), more)
}

fn figures_json<const N: usize>(figures: &ShardFigures, more: [(&str, Value); N]) -> Value {
    let ShardFigures { loaded, free, moved_out, reserved, recorded, sold, going_back, off } = *figures;
    let units = [
        ("total", loaded),
        ("free", free),
        ("moving", moved_out),
        ("reserved", reserved),
        ("recorded", recorded),
        ("sold", sold),
        ("going_back", going_back),
        ("off", off),
    ];
    let units = units.map(|(name, units)| (name, json!(units)));
    more.into_iter().chain(units).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn difference(one: &Difference, outcome: Option<&Result<(), String>>) -> Value {
    json!({
        "class": one.kind.class(),
        "kind": Kind::name(one.kind),
        "shard": one.shard.map(ShardId::number),
        "sku": one.sku.map(|sku| sku.0),
        "order": one.order.map(|order| order.0),
        "user": one.user.map(|user| user.0),
        "units": one.units,
        "sentence": one.sentence,
        "remedy": one.remedy_text(),
        "mendable": one.is_mendable(),
        "corrected": matches!(outcome, Some(Ok(()))),
        "why_not": outcome.and_then(|outcome| outcome.as_ref().err()),
    })
}
