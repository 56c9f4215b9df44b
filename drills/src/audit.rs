//! What has to be equal when everything has recovered: stock per SKU and shard, marks and orders, and what everybody
//! was told. Pure; reads nothing.

mod money;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use rushgate::client::Outcome;
use rushgate::protocol::{Order, Status};

use crate::redis_side::{Counters, ShardSide};
use crate::sql_side::{OrderRow, SqlSide, is_live};
use crate::told::{Told, UserTold};

pub(crate) use money::{Figures, Money, closed_rightly};

/// `OrderState::Failed` on the wire.
const FAILED: u8 = 5;
/// Violations of one kind that are told one by one.
const SHOWN_MAX: usize = 5;

/// What the drill's fault may cost by the promise table; everything else is a violation.
#[derive(Clone, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a fault may cost; they do not make states"
)]
pub(crate) struct Promise {
    /// What only this gateway, which died, had told before so much was told, may be FAILED or lost: Redis lost it too.
    pub(crate) died: Option<(usize, u64)>,
    /// That gateway lives on: what of it is not kept has to be FAILED.
    pub(crate) is_failed_explicitly: bool,
    /// Orders that the drill itself closed.
    pub(crate) closed: BTreeSet<u64>,
    /// Units may have come back on sale after somebody was told `SOLD_OUT`: the shard lost what was promised to nobody.
    pub(crate) may_come_back: bool,
    /// Loads that operators added during the drill, by SKU.
    pub(crate) added: BTreeMap<u16, i64>,
    /// Units that are held back from Redis, by SKU.
    pub(crate) held_back: BTreeMap<u16, i64>,
    /// Feed entries that the drill itself made unreadable.
    pub(crate) dead_letters: u64,
    /// The activity is archived: Redis holds a tombstone alone.
    pub(crate) is_archived: bool,
}

impl Promise {
    /// Whether that order of a user may be FAILED or lost.
    fn may_be_lost(&self, told: &UserTold, number: u64) -> bool {
        let by_the_dead = |(gateway, place)| told.gateway == Some(gateway) && told.told_at(number) < place;
        self.died.is_some_and(by_the_dead)
    }
}

/// Both sides and the clients.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) planned: &'a [u32],
    pub(crate) told: &'a Told,
    pub(crate) shards: &'a [ShardSide],
    pub(crate) sql: &'a SqlSide,
    /// What each gateway answers at the end, by gateway and user.
    pub(crate) results: &'a BTreeMap<usize, BTreeMap<u64, Option<Order>>>,
    pub(crate) promise: &'a Promise,
    /// Where orders are paid.
    pub(crate) money: Option<&'a Money<'a>>,
}

/// What the audit found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audited {
    pub(crate) violations: Vec<String>,
    /// Order numbers that users were told to be theirs.
    pub(crate) promised: u64,
    /// Those that stand.
    pub(crate) kept: u64,
    pub(crate) units_sold: u64,
    pub(crate) unconfirmed: u64,
    pub(crate) pushed: u64,
    /// Where orders are paid.
    pub(crate) figures: Option<Figures>,
}

impl Audited {
    /// Tells at most a few of a kind.
    pub(crate) fn add(&mut self, kind: &str, found: Vec<String>) {
        let more = found.len().saturating_sub(SHOWN_MAX);
        self.violations.extend(found.into_iter().take(SHOWN_MAX).map(|what| format!("{kind}: {what}")));
        if more > 0 {
            self.violations.push(format!("{kind}: and {more} more"));
        }
    }
}

pub(crate) fn audit(evidence: &Evidence<'_>) -> Audited {
    let mut audited = Audited::default();
    if !evidence.promise.is_archived {
        audited.add("stock of a shard", shard_formula(evidence));
        audited.add("stock in total", totals(evidence));
        audited.add("marks and orders", marks_and_orders(evidence));
    }
    audited.add("stock in SQL", sql_stock(evidence));
    audited.add("reserve", reserve(evidence));
    audited.add("one live order", one_live_order(evidence));
    let (mut promised, mut kept) = (0, 0);
    audited.add("told", promises(evidence, &mut promised, &mut kept));
    (audited.promised, audited.kept) = (promised, kept);
    audited.add("refused", refused(evidence));
    audited.add("sold out", false_sold_out(evidence));
    audited.add("RESULT", results(evidence));
    audited.add("unanswered", unanswered(evidence));
    money::audit(evidence, &mut audited);
    if evidence.sql.dead_letters != evidence.promise.dead_letters {
        audited.violations.push(format!("{} dead letters", evidence.sql.dead_letters));
    }
    let live = evidence.sql.orders.values().filter(|order| order.is_live());
    audited.units_sold = live.map(|order| order.quantity).sum();
    let heard = || evidence.told.users.values().flat_map(|user| &user.heard);
    audited.unconfirmed = count(heard().filter(|heard| heard.is(Status::Unconfirmed)).count());
    audited.pushed = count(heard().filter(|heard| heard.asked == crate::told::Asked::Nothing).count());
    audited
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

fn live_units(shard: &ShardSide, sku: u16) -> i64 {
    let live = shard.marks.values().filter(|mark| mark.is_live() && mark.sku == sku);
    live.map(|mark| i64::from(mark.quantity)).sum()
}

fn sum(peers: &BTreeMap<usize, u64>) -> i64 {
    peers.values().map(|units| i64::try_from(*units).unwrap_or(i64::MAX)).sum()
}

/// free = loaded + in - out - live marks, per SKU and shard; loaded is what SQL says it is.
fn shard_formula(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (nth, shard) in evidence.shards.iter().enumerate() {
        for (sku, counters) in &shard.counters {
            let Counters { free, out, brought_in, loaded } = counters;
            let live = live_units(shard, *sku);
            let (came, went) = (sum(brought_in), sum(out));
            if *free != loaded + came - went - live || *free < 0 {
                wrong.push(format!(
                    "SKU {sku} in shard {nth}: free {free}, but loaded {loaded} + in {came} - out {went} - live {live}"
                ));
            }
            let by_sql = evidence.sql.loaded.get(&(*sku, nth)).copied().unwrap_or(0);
            if *loaded != by_sql {
                wrong.push(format!("SKU {sku} in shard {nth}: loaded {loaded}, SQL loaded {by_sql}"));
            }
        }
    }
    wrong
}

/// stock = free + moving + sold, and it is the stock that operators gave.
fn totals(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (units, sku) in evidence.planned.iter().zip(1_u16..) {
        let given = i64::from(*units) + evidence.promise.added.get(&sku).copied().unwrap_or(0);
        let (mut free, mut moving, mut live, mut loaded) = (0, 0, 0, 0);
        for shard in evidence.shards {
            live += live_units(shard, sku);
            let Some(counters) = shard.counters.get(&sku) else { continue };
            free += counters.free;
            moving += sum(&counters.out) - sum(&counters.brought_in);
            loaded += counters.loaded;
        }
        if loaded != given || free + moving + live != given {
            wrong.push(format!(
                "SKU {sku}: {given} given, {loaded} loaded, but free {free} + moving {moving} + sold {live}"
            ));
        }
    }
    wrong
}

/// Every live mark is one live order, and the other way round.
fn marks_and_orders(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut live_marks = BTreeSet::new();
    for (nth, shard) in evidence.shards.iter().enumerate() {
        for (user, mark) in &shard.marks {
            let order = evidence.sql.orders.get(&mark.order);
            let same = |order: &OrderRow| {
                order.user == *user
                    && order.sku == mark.sku
                    && order.quantity == u64::from(mark.quantity)
                    && order.attempt == u64::from(mark.attempt)
                    && order.shard == nth
                    && order.state == mark.state
            };
            if mark.is_live() {
                live_marks.insert(mark.order);
            }
            let is_ledgered = !mark.is_live() && evidence.sql.ledger.contains(&mark.order);
            if !is_ledgered && !order.is_some_and(same) {
                wrong.push(format!("user {user} in shard {nth}: {mark:?}, SQL has {order:?}"));
            }
        }
    }
    for (number, order) in &evidence.sql.orders {
        if order.is_live() && !order.is_of_reserve && !live_marks.contains(number) {
            wrong.push(format!("order {number} {order:?} has no live mark"));
        }
    }
    wrong
}

/// available = total - units of live orders.
fn sql_stock(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (units, sku) in evidence.planned.iter().zip(1_u16..) {
        let given = i64::from(*units) + evidence.promise.added.get(&sku).copied().unwrap_or(0);
        let live = evidence.sql.orders.values().filter(|order| order.is_live() && order.sku == sku);
        let live = live.filter(|order| !order.is_of_reserve);
        let live: u64 = live.map(|order| order.quantity).sum();
        let (available, sold) = evidence.sql.stock.get(&sku).copied().unwrap_or_default();
        let signed = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        if signed(available) != given - signed(live) || sold != live {
            wrong.push(format!(
                "SKU {sku}: {given} given, available {available}, sold {sold}, live orders {live}"
            ));
        }
    }
    wrong
}

/// What is held back is free there or sold there, and nowhere else.
fn reserve(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (_, sku) in evidence.planned.iter().zip(1_u16..) {
        let given = evidence.promise.held_back.get(&sku).copied().unwrap_or(0);
        let free = evidence.sql.reserve.get(&sku).copied().unwrap_or(0);
        let of_sku = |order: &&OrderRow| order.is_of_reserve && order.is_live() && order.sku == sku;
        let sold: u64 = evidence.sql.orders.values().filter(of_sku).map(|order| order.quantity).sum();
        if free + i64::try_from(sold).unwrap_or(i64::MAX) != given {
            wrong.push(format!("SKU {sku}: {given} held back, but free {free} + sold {sold}"));
        }
    }
    wrong
}

fn one_live_order(evidence: &Evidence<'_>) -> Vec<String> {
    let mut by_user: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (number, order) in &evidence.sql.orders {
        if order.is_live() {
            by_user.entry(order.user).or_default().push(*number);
        }
    }
    let several = by_user.iter().filter(|(_, orders)| orders.len() > 1);
    several.map(|(user, orders)| format!("user {user} holds {orders:?}")).collect()
}

/// Every number that a user was told is one order of his, or an explicit FAILED where the promise allows it.
fn promises(evidence: &Evidence<'_>, promised: &mut u64, kept: &mut u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let of_reserve = evidence.sql.orders.values().filter(|order| order.is_of_reserve);
    let has_of_reserve: BTreeSet<u64> = of_reserve.map(|order| order.user).collect();
    for (user, told) in &evidence.told.users {
        for number in told.promised() {
            *promised += 1;
            let may_be_lost = evidence.promise.may_be_lost(told, number);
            let Some(order) = evidence.sql.orders.get(&number) else {
                if may_be_lost && !evidence.promise.is_failed_explicitly {
                    continue;
                }
                wrong.push(format!(
                    "user {user} was told of order {number}, SQL knows none: {}",
                    history(told)
                ));
                continue;
            };
            if order.user != *user || order.sku != told.sku || order.quantity != u64::from(told.quantity) {
                wrong.push(format!("user {user} was told of order {number}, SQL has {order:?}"));
            }
            let is_kept = order.is_live() || evidence.promise.closed.contains(&number);
            if is_kept {
                *kept += 1;
            // Who buys in both worlds ends with one, and the other FAILED.
            } else if order.state != FAILED || !(may_be_lost || has_of_reserve.contains(user)) {
                wrong.push(format!("user {user} was told of order {number}, now in state {}", order.state));
            }
        }
    }
    wrong
}

/// Nobody who was refused holds an order, and no winner was told `SOLD_OUT`.
fn refused(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let holders: BTreeMap<u64, u64> = evidence
        .sql
        .orders
        .iter()
        .filter(|(_, order)| order.is_live())
        .map(|(number, order)| (order.user, *number))
        .collect();
    for (user, told) in &evidence.told.users {
        let holds = holders.get(user);
        let last_refusal = told.heard.iter().rposition(|heard| heard.is(Status::SoldOut));
        let is_told_after = |at: usize| told.heard.iter().skip(at).any(|heard| heard.order.is_some());
        // One whose order may be lost buys as if he never had, one whose order has failed buys again.
        let counts =
            |order: Order| is_live(order.state as u8) && !evidence.promise.may_be_lost(told, order.number.0);
        let is_told_before =
            |at: usize| told.heard.iter().take(at).any(|heard| heard.order.is_some_and(counts));
        if let Some(at) = last_refusal
            && ((holds.is_some() && !is_told_after(at)) || is_told_before(at))
        {
            wrong.push(format!("user {user} was told SOLD_OUT and holds {holds:?}: {}", history(told)));
        } else if told.ended_refused() && holds.is_some() {
            wrong.push(format!("user {user} was refused and holds {holds:?}: {}", history(told)));
        }
    }
    wrong
}

/// With units left at the end and none that came back, nobody may have been told that there were none.
fn false_sold_out(evidence: &Evidence<'_>) -> Vec<String> {
    let came_back = evidence.promise.may_come_back || !evidence.sql.ledger.is_empty();
    if came_back || evidence.promise.is_archived {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (_, sku) in evidence.planned.iter().zip(1_u16..) {
        let free: i64 = evidence
            .shards
            .iter()
            .filter_map(|shard| shard.counters.get(&sku))
            .map(|counters| counters.free)
            .sum();
        let told =
            evidence.told.users.values().filter(|told| told.sku == sku && told.was(Status::SoldOut)).count();
        if free > 0 && told > 0 {
            wrong.push(format!("SKU {sku}: {told} users were told so, and {free} units are left"));
        }
    }
    wrong
}

/// Every gateway knows what SQL has.
fn results(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut live = BTreeMap::new();
    for (number, order) in &evidence.sql.orders {
        if order.is_live() {
            live.insert(order.user, (*number, order.state));
        }
    }
    for (gateway, results) in evidence.results {
        for (user, result) in results {
            let said = result.filter(|order| is_live(order.state as u8));
            let said = said.map(|order| (order.number.0, order.state as u8));
            let holds = live.get(user).copied();
            if said != holds {
                wrong.push(format!("gateway {gateway} says {said:?} to user {user}, SQL has {holds:?}"));
            }
        }
        let silent = asked(evidence.told).into_iter().filter(|user| !results.contains_key(user)).count();
        if silent > 0 {
            wrong.push(format!("gateway {gateway} did not know what {silent} users hold"));
        }
    }
    wrong
}

fn unanswered(evidence: &Evidence<'_>) -> Vec<String> {
    let users = evidence.told.users.iter();
    let without = users
        .filter(|(_, told)| matches!(told.end, Outcome::Unknown | Outcome::Unreachable | Outcome::Fault(_)));
    without.map(|(user, told)| format!("user {user} ended as {:?}: {}", told.end, history(told))).collect()
}

/// Whom to ask for results at the end: who may hold something, and some of the others.
pub(crate) fn asked(told: &Told) -> Vec<u64> {
    let may_hold = |told: &UserTold| {
        !matches!(told.end, Outcome::Refused(_)) || told.heard.iter().any(|heard| heard.order.is_some())
    };
    let users = told.users.iter();
    users.filter(|(user, told)| may_hold(told) || *user % 10 == 0).map(|(user, _)| *user).collect()
}

fn history(told: &UserTold) -> String {
    let one = |heard: &crate::told::Heard| {
        let status = heard.status.map_or("nothing".to_owned(), |status| {
            Status::from_wire(status).map_or(format!("{status:#06x}"), |status| status.name().to_owned())
        });
        let order =
            heard.order.map(|order| format!(" {} {:?}", order.number.0, order.state)).unwrap_or_default();
        format!("{:?}:{status}{order}", heard.asked)
    };
    told.heard.iter().map(one).collect::<Vec<_>>().join(", ")
}
