//! Decides what differs: marks against orders, sums against their parts. Pure: no I/O, no clock.

use std::collections::{BTreeMap, HashMap};

use super::difference::{Difference, Kind, Remedy, plural};
use super::evidence::Evidence;
use super::findings::{Findings, Sql};
use super::marks;
use super::reserve;
use crate::protocol::{OrderState, SkuId};
use crate::stock::calls::ShardId;
use crate::store::redis::{AppliedLoad, ShardBooks};

pub(super) fn compare(evidence: &Evidence) -> Findings {
    let sql = Sql::of(evidence);
    let mut findings = Findings::default();
    for (sku, stock) in &evidence.sql.stock {
        let figures = findings.figures.entry(*sku).or_default();
        (figures.sql_available, figures.sql_sold, figures.sql_loaded) =
            (stock.available, stock.sold, stock.loaded);
    }
    for books in &evidence.shards {
        stock(books, &mut findings);
        marks::of_shard(evidence, &sql, books, &mut findings);
    }
    marks::of_orders(evidence, &sql, &mut findings);
    marks::of_records(evidence, &sql, &mut findings);
    loads(evidence, &mut findings);
    moves(evidence, &mut findings);
    findings
}

/// Adds what the sums say, once everything is written that was found missing: a shard's own, and SQL's. They are exact
/// whenever they are taken; what was found missing has to be certain.
pub(super) fn add_up(evidence: &Evidence, findings: &mut Findings) {
    units(findings);
    counted(evidence, findings);
    reserve::add_up(evidence, findings);
}

/// What a shard says of its stock.
fn stock(books: &ShardBooks, findings: &mut Findings) {
    for (sku, known) in &books.skus {
        let Some(figures) = findings.figures.entry(*sku).or_default().shard(books.shard) else { continue };
        figures.free = known.free;
        let sum = |units: &BTreeMap<ShardId, u64>| {
            units.values().fold(0_u64, |sum, some| sum.saturating_add(*some))
        };
        let signed = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        figures.moved_out = signed(sum(&known.out)).saturating_sub(signed(sum(&known.brought_in)));
    }
    for (sku, amount) in books.loads.iter().flat_map(|load| &load.amounts) {
        if let Some(figures) = findings.figures.entry(*sku).or_default().shard(books.shard) {
            figures.loaded = figures.loaded.saturating_add(*amount);
        }
    }
}

/// Loads as SQL has them recorded, by shard and id.
type Recorded = BTreeMap<(ShardId, String), Option<BTreeMap<SkuId, i64>>>;

fn recorded(evidence: &Evidence) -> Recorded {
    let mut recorded = Recorded::new();
    for share in &evidence.sql.loads {
        let key = (share.shard, share.load_id.clone());
        let amounts = recorded.entry(key).or_insert_with(|| Some(BTreeMap::new()));
        match (amounts.as_mut(), share.applied) {
            (Some(amounts), Some(units)) => drop(amounts.insert(share.sku, units)),
            _ => *amounts = None,
        }
    }
    recorded
}

fn loads(evidence: &Evidence, findings: &mut Findings) {
    let mut recorded = recorded(evidence);
    for books in &evidence.shards {
        for load in &books.loads {
            let Some(known) = recorded.remove(&(books.shard, load.id.clone())) else {
                let said = format!("load {} is applied, the database knows none of this id", load.id);
                unknown_load(books.shard, load, said, findings);
                continue;
            };
            let Some(known) = known else {
                findings.explained.loads = findings.explained.loads.saturating_add(1);
                continue;
            };
            let amounts: BTreeMap<SkuId, i64> = load.amounts.iter().copied().collect();
            if amounts != known {
                let said = format!("load {} is applied with other amounts than the database has", load.id);
                unknown_load(books.shard, load, said, findings);
            }
        }
    }
    for ((shard, id), amounts) in recorded {
        let Some(amounts) = amounts else {
            findings.explained.loads = findings.explained.loads.saturating_add(1);
            continue;
        };
        let load = AppliedLoad { id, amounts: amounts.into_iter().collect() };
        forgotten_load(shard, load, findings);
    }
}

fn forgotten_load(shard: ShardId, load: AppliedLoad, findings: &mut Findings) {
    let units = load.amounts.iter().fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount));
    let changes = load.amounts.iter().map(|(sku, amount)| (shard, *sku, amount.saturating_neg())).collect();
    let sku = load.amounts.first().map(|(sku, _)| *sku);
    findings.differences.push(Difference {
        kind: Kind::LoadForgotten,
        shard: Some(shard),
        sku,
        user: None,
        order: None,
        units,
        stage: 0,
        sentence: format!(
            "the database says that load {} is applied, the shard does not remember it",
            load.id
        ),
        remedy: Remedy::RememberLoad(load),
        changes,
    });
}

fn unknown_load(shard: ShardId, load: &AppliedLoad, sentence: String, findings: &mut Findings) {
    let units = load.amounts.iter().fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount));
    let sku = load.amounts.first().map_or(SkuId(0), |(sku, _)| *sku);
    let difference = Difference::of_units(Kind::LoadUnknown, (shard, sku), units, sentence, Remedy::Nothing);
    findings.differences.push(difference);
}

fn moves(evidence: &Evidence, findings: &mut Findings) {
    let mut left = evidence.left.clone();
    for books in &evidence.shards {
        for (sku, known) in &books.skus {
            for (source, arrived) in &known.brought_in {
                let left = left.remove(&(*sku, *source, books.shard)).unwrap_or_default();
                one_pair(*sku, (*source, books.shard), (left, *arrived), findings);
            }
        }
    }
    let mut rest: Vec<_> = left.into_iter().collect();
    rest.sort_unstable();
    for ((sku, source, target), left) in rest {
        one_pair(sku, (source, target), (left, 0), findings);
    }
}

fn one_pair(
    sku: SkuId,
    (source, target): (ShardId, ShardId),
    (left, arrived): (u64, u64),
    findings: &mut Findings,
) {
    let (from, to) = (source.number(), target.number());
    if let Some(units) = left.checked_sub(arrived).filter(|units| *units > 0) {
        findings.explained.moving = findings.explained.moving.saturating_add(units);
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        let sentence = format!("{units} {} left shard {from} and nobody brings them in here", plural(units));
        let remedy = Remedy::BringIn { source, units: left };
        let at = (target, sku);
        let half = Difference::of_units(Kind::MoveHalfDone, at, units, sentence, remedy);
        // Of the same pair, and no further at the second look.
        let stage = arrived.wrapping_mul(16).wrapping_add(u64::from(from));
        findings.differences.push(Difference { stage, ..half });
    } else if let Some(units) = arrived.checked_sub(left).filter(|units| *units > 0) {
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        let sentence = format!("shard {to} has {units} {} from here that never left", plural(units));
        let remedy = Remedy::RaiseOut { target, units: arrived };
        let many = Difference::of_units(Kind::MovedTooMany, (source, sku), units, sentence, remedy);
        let many = many.changing(source, sku, units);
        findings.differences.push(Difference { stage: u64::from(to), ..many });
    }
}

/// What each shard's own sum says, once everything is written that was found missing.
fn units(findings: &mut Findings) {
    let mut pending: HashMap<(ShardId, SkuId), i64> = HashMap::new();
    for (shard, sku, by) in findings.differences.iter().flat_map(|one| &one.changes) {
        let sum = pending.entry((*shard, *sku)).or_default();
        *sum = sum.saturating_add(*by);
    }
    let mut found = Vec::new();
    for (sku, figures) in &mut findings.figures {
        for (shard, figures) in ShardId::all().zip(&mut figures.shards) {
            let pending = pending.get(&(shard, *sku)).copied().unwrap_or_default();
            figures.off = figures.excess().saturating_add(pending);
            if figures.off != 0 {
                let many = if figures.off > 0 { "many" } else { "few" };
                let off = figures.off.unsigned_abs();
                let sentence = format!(
                    "{off} {} too {many}: {} free, where loads, moves and marks leave {}",
                    plural(figures.off),
                    figures.free,
                    figures.free.saturating_sub(figures.off)
                );
                let remedy = Remedy::AddUnits(figures.off.saturating_neg());
                let at = (shard, *sku);
                found.push(Difference::of_units(Kind::Units, at, figures.off, sentence, remedy));
            }
        }
    }
    findings.differences.append(&mut found);
}

/// What SQL counts against what its rows add up to.
fn counted(evidence: &Evidence, findings: &mut Findings) {
    let mut held: HashMap<SkuId, i64> = HashMap::new();
    // Units of recorded orders are deducted when they are settled.
    let is_counted = |state: OrderState| state.is_live() && state != OrderState::Recorded;
    for order in evidence.sql.orders.iter().filter(|order| is_counted(order.mark.state)) {
        let sum = held.entry(order.mark.sku.sku).or_default();
        *sum = sum.saturating_add(i64::from(order.mark.quantity));
    }
    // A row that is written anew takes its units along.
    let restored = findings.differences.iter().filter(|one| one.remedy == Remedy::RestoreOrder);
    let restored = restored.filter(|one| one.stage != OrderState::Recorded as u64);
    for one in restored {
        let sum = held.entry(one.sku.unwrap_or(SkuId(0))).or_default();
        *sum = sum.saturating_add(one.units);
    }
    for (sku, stock) in &evidence.sql.stock {
        let held = held.get(sku).copied().unwrap_or_default();
        let left = stock.loaded.saturating_sub(held);
        if (stock.available, stock.sold) == (left, held) {
            continue;
        }
        let sentence = format!(
            "the database counts {} available and {} sold; its loads and orders add up to {left} and {held}",
            stock.available, stock.sold
        );
        let remedy = if left < 0 { Remedy::Nothing } else { Remedy::CountStock };
        let units = stock.available.saturating_sub(left);
        let difference =
            Difference::of_units(Kind::CountedStock, (ShardId::ALL[0], *sku), units, sentence, remedy);
        findings.differences.push(Difference { shard: None, ..difference });
    }
}
