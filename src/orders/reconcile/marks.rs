//! Marks against orders and the ledger, one by one. Pure.

use super::difference::{Difference, Kind, Remedy, state_name};
use super::evidence::Evidence;
use super::findings::{Findings, Sql};
use crate::protocol::{OrderState, UserId};
use crate::stock::calls::{Mark, ShardId};
use crate::store::redis::ShardBooks;
use crate::store::sql::mysql::PlacedOrder;

/// Every mark of a shard: whose order is where.
pub(super) fn of_shard(evidence: &Evidence, sql: &Sql<'_>, books: &ShardBooks, findings: &mut Findings) {
    let mut marks: Vec<_> = books.marks.iter().collect();
    marks.sort_unstable_by_key(|(user, _)| **user);
    for (user, mark) in marks {
        let row = sql.row(*user, mark.order);
        let place = (books.shard, *user, mark);
        match row {
            _ if !mark.state.is_live() => released(sql, row, place, findings),
            Some(row) if row.mark.state.is_live() => standing(evidence, sql, row, place, findings),
            row => ended(evidence, sql, row, place, findings),
        }
    }
}

/// A mark that holds units, and so which of the figures they are in.
fn hold(
    (shard, _, mark): (ShardId, UserId, &Mark),
    findings: &mut Findings,
    which: fn(&mut super::figures::ShardFigures) -> &mut i64,
) {
    let figures = findings.figures.entry(mark.sku.sku).or_default();
    if let Some(units) = figures.shard(shard).map(which) {
        *units = units.saturating_add(i64::from(mark.quantity));
    }
}

/// A live mark whose order stands.
fn standing(
    evidence: &Evidence,
    sql: &Sql<'_>,
    row: &PlacedOrder,
    place: (ShardId, UserId, &Mark),
    findings: &mut Findings,
) {
    let (_, user, mark) = place;
    if row.mark.state == OrderState::Recorded {
        hold(place, findings, |figures| &mut figures.recorded);
    } else {
        hold(place, findings, |figures| &mut figures.sold);
    }
    if sql.ledger.contains_key(&(mark.order, user)) {
        let said = format!("the order stands as {} and the ledger gives it back", state_name(row.mark.state));
        let difference = Difference::of_order(Kind::LedgerAgainstOrder, place, said, Remedy::Nothing);
        findings.differences.push(difference);
    }
    if (row.mark.sku, row.mark.quantity) != (mark.sku, mark.quantity) {
        let said = format!(
            "the mark holds {} of SKU {}, the order {} of SKU {}",
            mark.quantity, mark.sku.sku, row.mark.quantity, row.mark.sku.sku
        );
        findings.differences.push(Difference::of_order(Kind::OtherUnits, place, said, Remedy::Nothing));
    }
    let (marked, ordered) = (state_name(mark.state), state_name(row.mark.state));
    if mark.state.rank() < row.mark.state.rank() {
        if evidence.unfinished.contains_key(&(user, mark.order)) || evidence.sql.outbox.contains(&mark.order)
        {
            findings.explained.states = findings.explained.states.saturating_add(1);
            return;
        }
        let said = format!("the order is {ordered}, its mark {marked}");
        let remedy = Remedy::TellState(row.mark);
        findings.differences.push(Difference::of_order(Kind::StateBehind, place, said, remedy));
    } else if mark.state.rank() > row.mark.state.rank() {
        let said = format!("the order is {ordered}, its mark {marked} already");
        findings.differences.push(Difference::of_order(Kind::StateAhead, place, said, Remedy::Nothing));
    }
}

/// A live mark whose order is over, or not there.
fn ended(
    evidence: &Evidence,
    sql: &Sql<'_>,
    row: Option<&PlacedOrder>,
    place: (ShardId, UserId, &Mark),
    findings: &mut Findings,
) {
    let (_, user, mark) = place;
    let state = row.map_or("FAILED", |row| state_name(row.mark.state));
    match sql.ledger.get(&(mark.order, user)) {
        Some(ledger) => {
            hold(place, findings, |figures| &mut figures.going_back);
            if ledger.is_done {
                let said = format!(
                    "the order is {state} and its units are said to be back, but its mark holds them"
                );
                findings.differences.push(Difference::of_order(
                    Kind::ReleaseUndone,
                    place,
                    said,
                    Remedy::OweRelease,
                ));
            } else {
                findings.explained.ledger = findings.explained.ledger.saturating_add(1);
            }
        }
        None if row.is_some() => {
            hold(place, findings, |figures| &mut figures.going_back);
            let said =
                format!("the order is {state}, its mark holds its units, and no ledger row gives them back");
            let difference = Difference::of_order(Kind::LedgerRowMissing, place, said, Remedy::OweRelease);
            findings.differences.push(difference);
        }
        None => {
            hold(place, findings, |figures| &mut figures.reserved);
            without_order(evidence, place, findings);
        }
    }
}

/// A live mark that SQL knows nothing of.
fn without_order(evidence: &Evidence, place: (ShardId, UserId, &Mark), findings: &mut Findings) {
    let (_, user, mark) = place;
    if evidence.unfinished.contains_key(&(user, mark.order)) {
        findings.explained.backlog = findings.explained.backlog.saturating_add(1);
        return;
    }
    let said = format!(
        "the shard holds it as {}, the database has no order, no record is on its way",
        state_name(mark.state)
    );
    let remedy = if mark.state == OrderState::Reserved { Remedy::AppendRecord } else { Remedy::RestoreOrder };
    findings.differences.push(Difference::of_order(Kind::MarkWithoutOrder, place, said, remedy));
}

/// A mark that holds nothing any more.
fn released(
    sql: &Sql<'_>,
    row: Option<&PlacedOrder>,
    place: (ShardId, UserId, &Mark),
    findings: &mut Findings,
) {
    let (_, user, mark) = place;
    let Some(row) = row.filter(|row| !row.mark.state.is_live()) else { return };
    if !sql.ledger.contains_key(&(mark.order, user)) {
        let said = format!(
            "the order is {} and no ledger row says that its units went back",
            state_name(row.mark.state)
        );
        let difference = Difference::of_order(Kind::LedgerRowMissing, place, said, Remedy::OweRelease);
        findings.differences.push(difference);
    }
}

/// Every order that ought to have a mark: of a user's orders the last that did not fail.
pub(super) fn of_orders(evidence: &Evidence, sql: &Sql<'_>, findings: &mut Findings) {
    let is_last = |order: &&PlacedOrder| {
        order.mark.state.is_live()
            || sql.last_attempts.get(&order.user).is_none_or(|last| order.mark.attempt >= *last)
    };
    for order in evidence.sql.orders.iter().filter(is_last) {
        let Some(books) = evidence.shards.get(order.shard.index()) else { continue };
        let found = books.marks.get(&order.user);
        let is_live = order.mark.state.is_live();
        let said = match found {
            // One that failed never needed a mark; others keep theirs for good.
            None if is_live || order.mark.state != OrderState::Failed => {
                format!("the order is {}, and the user has no mark", state_name(order.mark.state))
            }
            Some(found) if is_live && found.order != order.mark.order => {
                format!(
                    "the order is {}, the user's mark is of order {}",
                    state_name(order.mark.state),
                    found.order
                )
            }
            Some(found) if is_live && !found.state.is_live() => {
                let (ordered, marked) = (state_name(order.mark.state), state_name(found.state));
                format!(
                    "the order is {ordered}, its mark is {marked}: its units went back without the database's word"
                )
            }
            _ => continue,
        };
        // In the ledger: it counts as released, which is told of its mark already.
        let is_released = sql.ledger.contains_key(&(order.mark.order, order.user));
        let is_free = found.is_none_or(|found| !found.state.is_live());
        let remedy = if is_free && !(is_released && is_live) {
            Remedy::WriteMark(order.mark)
        } else {
            Remedy::Nothing
        };
        let takes = is_live && remedy != Remedy::Nothing;
        let place = (order.shard, order.user, &order.mark);
        let without = Difference::of_order(Kind::OrderWithoutMark, place, said, remedy);
        let (sku, units) = (order.mark.sku.sku, i64::from(order.mark.quantity));
        findings.differences.push(if takes { without.changing(order.shard, sku, units) } else { without });
    }
}

/// Every reservation that a feed tells: a mark was written with it.
pub(super) fn of_records(evidence: &Evidence, sql: &Sql<'_>, findings: &mut Findings) {
    let unfinished = evidence.unfinished.iter().map(|((user, _), mark)| (*user, *mark));
    let mut records: Vec<_> = unfinished.chain(evidence.recorded.iter().copied()).collect();
    records.sort_unstable_by_key(|(user, mark)| (*user, mark.order));
    records.dedup_by_key(|(user, mark)| (*user, mark.order));
    for (user, mark) in records {
        let shard = ShardId::of(user);
        let Some(books) = evidence.shards.get(shard.index()) else { continue };
        let is_known = sql.rows.contains_key(&mark.order) || sql.ledger.contains_key(&(mark.order, user));
        let has_mark = books.marks.get(&user).is_some_and(|found| found.attempt >= mark.attempt);
        if is_known || has_mark {
            continue;
        }
        let said = "the feed tells of its reservation, and the user has no mark of it".to_owned();
        let (place, remedy) = ((shard, user, &mark), Remedy::WriteMark(mark));
        let without = Difference::of_order(Kind::RecordWithoutMark, place, said, remedy);
        findings.differences.push(without.changing(shard, mark.sku.sku, mark.quantity.into()));
    }
}
