//! What holds after every step, and what holds at the end.

use std::collections::{BTreeMap, BTreeSet};

use super::books::{Books, Kept};
use super::centre::{AtCentre, Till};
use super::shards::Shards;
use crate::payment::{Cause, PaymentState, RefundCause};
use crate::protocol::{OrderNumber, OrderState, SkuKey, UserId};

/// What was given before the sale.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) units: BTreeMap<SkuKey, u64>,
    pub(super) reserve: u64,
}

/// What users were told to be theirs.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    pub(super) told: BTreeMap<OrderNumber, UserId>,
    /// Known to nobody who lives.
    pub(super) excused: BTreeSet<OrderNumber>,
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap()
}

/// free = loaded + in − out − live marks, per shard; and all of it is what was given.
fn shards(shards: &Shards, given: &Given) {
    for (sku, units) in &given.units {
        let (mut free, mut moving, mut live, mut loaded) = (0, 0, 0, 0);
        for (nth, shard) in shards.all.iter().enumerate() {
            let counters = &shard.counters[sku];
            let marks = shard.marks.values().filter(|mark| mark.sku == *sku && mark.state.is_live());
            let here: i64 = marks.map(|mark| i64::from(mark.quantity)).sum();
            let sum = |pairs: &BTreeMap<_, u64>| signed(pairs.values().sum());
            let (out, brought_in) = (sum(&counters.out), sum(&counters.brought_in));
            let formula = counters.loaded + brought_in - out - here;
            assert!(
                counters.free == formula && counters.free >= 0,
                "{sku} in shard {nth}: {counters:?}, {here} live"
            );
            (free, moving) = (free + counters.free, moving + out - brought_in);
            (live, loaded) = (live + here, loaded + counters.loaded);
        }
        assert_eq!((loaded, free + moving + live), (signed(*units), signed(*units)), "{sku} in Redis");
    }
}

/// available = given − live orders; what is held back likewise; one live order for a user; a ledger row for each that is over.
fn rows(books: &Books, given: &Given) {
    let (mut live, mut of_reserve, mut holders) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for (order, row) in &books.orders {
        let units = if row.is_of_reserve { &mut of_reserve } else { &mut live };
        if row.mark.state.is_live() {
            *units.entry(row.mark.sku).or_insert(0) += u64::from(row.mark.quantity);
            assert!(holders.insert(row.user), "user {} holds two orders", row.user);
        }
        let is_ledgered = books.ledger.contains_key(&(*order, row.user));
        let is_owed = !row.is_of_reserve && !row.mark.state.is_live();
        assert_eq!(is_ledgered, is_owed, "the ledger of {row:?}");
    }
    for (sku, units) in &given.units {
        let sold = live.get(sku).copied().unwrap_or(0);
        assert_eq!(books.available[sku] + sold, *units, "{sku} in SQL");
        let sold = of_reserve.get(sku).copied().unwrap_or(0);
        assert_eq!(books.reserve[sku] + sold, given.reserve, "{sku} held back");
    }
}

/// A PAID order has one payment, a `REFUND_DUE` one at least a late one, any other none.
fn payments(books: &Books, till: &Till) {
    let mut by_order: BTreeMap<OrderNumber, Vec<&Kept>> = BTreeMap::new();
    for kept in books.payments.values() {
        assert!(till.taken.contains_key(kept.payment.id.as_str()), "{kept:?} comes from nowhere");
        by_order.entry(kept.payment.order).or_default().push(kept);
    }
    for (order, row) in &books.orders {
        let payments = by_order.remove(order).unwrap_or_default();
        let applied = payments.iter().filter(|kept| kept.state == PaymentState::Applied).count();
        let late = PaymentState::RefundDue(RefundCause::OrderClosed);
        let is_late = payments.iter().any(|kept| kept.state == late);
        let is_paid = row.mark.state == OrderState::Paid;
        assert_eq!(applied, usize::from(is_paid), "{row:?} with {payments:?}");
        assert_eq!(is_late, row.mark.state == OrderState::RefundDue, "{row:?} with {payments:?}");
    }
    for (order, payments) in by_order {
        let is_paid = payments.iter().any(|kept| kept.state == PaymentState::Applied);
        assert!(!is_paid, "a payment has paid {order}, which has no row");
    }
    for past in &books.history {
        let is_early = past.cause == Cause::TimedOut && past.at_ms < past.pay_by_ms;
        let is_known =
            past.cause != Cause::TimedOut || matches!(till.orders.get(&past.order), Some(AtCentre::Closed));
        assert!(!is_early && is_known, "{past:?} was closed too early, or by nobody");
    }
}

/// No unit is back on sale whose order is not over in SQL (rule 14), and no more is promised than there is.
fn both(books: &Books, shards: &Shards, given: &Given) {
    let mut held: BTreeMap<SkuKey, BTreeMap<OrderNumber, u64>> = BTreeMap::new();
    for (user, mark) in shards.all.iter().flat_map(|shard| &shard.marks) {
        if mark.state.is_live() {
            held.entry(mark.sku).or_default().insert(mark.order, mark.quantity.into());
        } else {
            assert!(books.ledger.contains_key(&(mark.order, *user)), "{mark:?} was given back by nobody");
        }
    }
    let live = books.orders.iter().filter(|(_, row)| !row.is_of_reserve && row.mark.state.is_live());
    for (order, row) in live {
        held.entry(row.mark.sku).or_default().insert(*order, row.mark.quantity.into());
    }
    // While the shards are closed they may have come back older.
    for (sku, orders) in held.iter().filter(|_| shards.is_open) {
        let units: u64 = orders.values().sum();
        assert!(units <= given.units[sku], "{units} of {sku} are sold, {} were given", given.units[sku]);
    }
}

fn promises(books: &Books, shards: &Shards, promises: &Promises) {
    if !shards.is_open {
        return;
    }
    for (order, user) in &promises.told {
        let in_sql = books.orders.contains_key(order) || books.ledger.contains_key(&(*order, *user));
        let in_redis = shards.mark(*user).is_some_and(|mark| mark.order == *order);
        assert!(
            in_sql || in_redis || promises.excused.contains(order),
            "order {order} of user {user} is lost"
        );
    }
}

/// After every step.
pub(super) fn always(books: &Books, redis: &Shards, till: &Till, told: &Promises, given: &Given) {
    if redis.is_open {
        shards(redis, given);
    }
    rows(books, given);
    payments(books, till);
    both(books, redis, given);
    promises(books, redis, told);
}

/// What is not over yet, in words.
pub(super) fn unfinished(books: &Books, redis: &Shards, till: &Till, told: &Promises) -> Vec<String> {
    let entries: usize = redis.all.iter().map(|shard| shard.feed.len() + shard.pending.len()).sum();
    let unpaid = books.orders.values().filter(|row| row.mark.state == OrderState::PendingPayment).count();
    let parked = books.payments.values().filter(|kept| kept.state == PaymentState::Parked).count();
    // That of an order which nobody knows any more waits for ever.
    let cancels =
        books.cancels.iter().filter(|(order, (_, is_done))| !is_done && !told.excused.contains(order));
    let checks = [
        (!redis.serves(), "the shards are closed".to_owned()),
        (entries > 0, format!("{entries} entries")),
        (unpaid > 0, format!("{unpaid} orders wait for their payment")),
        (parked > 0, format!("{parked} payments are parked")),
        (!till.to_tell.is_empty(), format!("{} notices", till.to_tell.len())),
        (!books.due_releases().is_empty(), format!("releases {:?}", books.due_releases())),
        (!books.due_marks().is_empty(), format!("marks {:?}", books.due_marks())),
        (cancels.clone().count() > 0, format!("cancels {:?}", cancels.collect::<Vec<_>>())),
    ];
    checks.into_iter().filter_map(|(is_so, what)| is_so.then_some(what)).collect()
}

/// Both sides agree, and no money is anywhere but with its order or owed back.
pub(super) fn at_the_end(books: &Books, redis: &Shards, till: &Till) {
    for (user, mark) in redis.all.iter().flat_map(|shard| &shard.marks) {
        let row = books.orders.get(&mark.order);
        let same = row.is_some_and(|row| row.user == *user && row.mark.state == mark.state);
        // What SQL refused without a row of its own, or has failed and a later number holds.
        let is_refused =
            !mark.state.is_live() && books.ledger.contains_key(&(mark.order, *user)) && row.is_none();
        assert!(same || is_refused, "{mark:?} of user {user}, SQL has {row:?}");
    }
    for row in books.orders.values().filter(|row| row.mark.state.is_live() && !row.is_of_reserve) {
        let mark = redis.mark(row.user);
        assert!(mark.is_some_and(|mark| mark.order == row.mark.order), "{row:?} has the mark {mark:?}");
    }
    for (id, payment) in &till.taken {
        let kept = &books.payments[id];
        assert!(kept.payment == *payment && kept.state != PaymentState::Parked, "{kept:?}");
    }
    let is_paid_there = |order: &OrderNumber| matches!(till.orders.get(order), Some(AtCentre::Paid(_)));
    for (order, row) in books.orders.iter().filter(|(order, _)| is_paid_there(order)) {
        // It was paid before it was closed there: unless somebody asked for the close here, it is paid here.
        let was_asked = books.history.iter().any(|past| past.order == *order && past.cause == Cause::Asked);
        let is_right = matches!(row.mark.state, OrderState::Paid | OrderState::Failed) || was_asked;
        assert!(is_right, "{row:?} was paid at the payment centre");
    }
}
