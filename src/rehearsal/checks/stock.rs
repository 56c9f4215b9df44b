//! Units: none created, none lost, none sold twice, none kept back.

use crate::protocol::UserId;
use crate::rehearsal::books::SHARDS;
use crate::rehearsal::evidence::Evidence;
use crate::rehearsal::history::{End, UserHistory};
use crate::rehearsal::verdict::{Check, Verdict, count, unsigned};

use super::describe_end;

/// Not more units sold than loaded.
pub(in crate::rehearsal) fn oversold(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let (sold, total) = (evidence.books.sold_units(evidence.history.sku), evidence.books.total());
    verdict.oversold = unsigned(sold.saturating_sub(total));
    if verdict.oversold > 0 {
        verdict.find(Check::Oversold, format!("{sold} units were sold and only {total} were loaded"));
    }
}

/// `free = loaded + brought in − moved out − live orders` in every shard, nothing arrives that did not leave, and
/// everything adds up to what was loaded.
pub(in crate::rehearsal) fn conservation(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let books = evidence.books;
    for shard in 0..SHARDS {
        shard_adds_up(evidence, shard, verdict);
    }
    for transfer in &books.transfers {
        let (from, to) = (transfer.peer, transfer.shard);
        let left = books.transfers.iter().find(|other| (other.shard, other.peer) == (from, to));
        let left = left.map_or(0, |other| other.moved_out);
        if transfer.brought_in > left {
            let arrived = transfer.brought_in;
            verdict.find(
                Check::Conservation,
                format!("{arrived} units arrived in shard {to} from shard {from}, but only {left} left it"),
            );
        }
    }
    let (sold, free) = (books.sold_units(evidence.history.sku), books.free_units());
    let (in_transit, total) = (books.in_transit(), books.total());
    if sold.saturating_add(free).saturating_add(in_transit) != total {
        verdict.find(
            Check::Conservation,
            format!(
                "{sold} units sold, {free} free and {in_transit} between shards are not the {total} loaded"
            ),
        );
    }
}

/// Writers left nothing undone: otherwise everything else that is found may be a matter of time.
pub(in crate::rehearsal) fn settled(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    if let Some(unsettled) = &evidence.books.unsettled {
        verdict.find(Check::Settled, unsettled.clone());
    }
}

/// The database's own count of the stock says the same as loads and orders.
pub(in crate::rehearsal) fn counted(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let Some(counted) = evidence.books.counted else { return };
    let (held, total) = (evidence.books.sold_units(evidence.history.sku), evidence.books.total());
    let available = total.saturating_sub(held);
    if (counted.sold, counted.available) != (held, available) {
        verdict.find(
            Check::Conservation,
            format!(
                "the database counts {} units sold and {} available; loads of {total} and orders of {held} units \
                 leave {available}",
                counted.sold, counted.available
            ),
        );
    }
}

fn shard_adds_up(evidence: &Evidence<'_>, shard: usize, verdict: &mut Verdict) {
    let books = evidence.books;
    let sku = evidence.history.sku.0;
    let mut expected = books.loaded.get(shard).copied().unwrap_or(0);
    for transfer in books.transfers.iter().filter(|transfer| transfer.shard == shard) {
        expected = expected.saturating_add(transfer.brought_in).saturating_sub(transfer.moved_out);
    }
    let here = books.orders.iter().filter(|row| row.shard == shard && row.sku == sku && row.is_live());
    let held = here.fold(0_i64, |sum, row| sum.saturating_add(i64::from(row.quantity)));
    expected = expected.saturating_sub(held);
    match books.free.get(shard).copied().flatten() {
        None if books.total() == 0 => {}
        None => verdict.find(Check::Conservation, format!("shard {shard} has no row of free units")),
        Some(free) if free == expected => {}
        Some(free) => verdict.find(
            Check::Conservation,
            format!(
                "shard {shard} has {free} free units; loads, moves and its orders of {held} units leave {expected}"
            ),
        ),
    }
}

/// Units that are still there although users wanted them who hold no order: filled up with the smallest wishes
/// first, so that more than none means that at least one more user could have been served.
pub(in crate::rehearsal) fn undersold(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let left = verdict.stock_left.saturating_sub(returned_units(evidence));
    let mut wishes: Vec<_> = empty_handed(evidence).collect();
    wishes.sort_by_key(|(_, told)| told.quantity);
    let (mut sellable, mut users) = (0_u64, 0_u64);
    for (_, told) in &wishes {
        let with_it = sellable.saturating_add(u64::from(told.quantity));
        if with_it > left {
            break;
        }
        (sellable, users) = (with_it, users.saturating_add(1));
    }
    verdict.undersold = sellable;
    if let (1.., Some((user, told))) = (sellable, wishes.first()) {
        let end = describe_end(told);
        verdict.find(
            Check::Undersold,
            format!(
                "{left} units are left although {users} users who wanted {sellable} of them were sent away; \
                 user {user}, for one: {end}"
            ),
        );
    }
}

/// Users who went away without an order that the activity's rules allow, whatever they were told: whoever was refused
/// may have been refused wrongly, and whoever cannot know, or reached no gateway, should have been sold to as well.
/// Not those of whom an order row tells: they got what they wanted, or had their turn.
fn empty_handed<'a>(evidence: &'a Evidence<'_>) -> impl Iterator<Item = (UserId, &'a UserHistory)> {
    let limit = evidence.books.per_user_limit.unwrap_or(u16::MAX);
    evidence.history.iter().filter(move |(user, told)| {
        !matches!(told.end, End::Won(_)) && told.quantity <= limit && evidence.of_user(*user).is_empty()
    })
}

/// Units of closed orders: they came back later, when nobody asked any more.
fn returned_units(evidence: &Evidence<'_>) -> u64 {
    let sku = evidence.history.sku.0;
    let closed = evidence.books.orders.iter().filter(|row| row.sku == sku && !row.is_live());
    closed.fold(0, |sum, row| sum.saturating_add(u64::from(row.quantity)))
}

/// As many orders as the stock allows, by loads and orders alone, whatever the rows of free units say.
///
/// Where everybody wants one unit, the number is known beforehand. With larger quantities it depends on who came
/// first, but what the orders leave is less than anybody wanted who went away empty-handed.
pub(in crate::rehearsal) fn exact(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let sale_orders = || evidence.live_orders().filter(|(_, takes_part)| *takes_part).map(|(order, _)| order);
    let are_ones = evidence.history.users.iter().all(|user| user.quantity == 1);
    if are_ones && sale_orders().all(|order| order.quantity == 1) {
        exact_orders(evidence, verdict);
        return;
    }
    let sold = sale_orders().fold(0_u64, |sum, order| sum.saturating_add(u64::from(order.quantity)));
    let left = verdict.stock.saturating_sub(sold).saturating_sub(returned_units(evidence));
    let smallest = empty_handed(evidence).min_by_key(|(_, told)| told.quantity);
    let Some((user, told)) = smallest.filter(|(_, told)| u64::from(told.quantity) <= left) else { return };
    let (orders, stock, wanted, end) = (verdict.orders, verdict.stock, told.quantity, describe_end(told));
    verdict.find(
        Check::Exact,
        format!(
            "{orders} orders leave {left} of {stock} units, but user {user} wanted {wanted} and got none: {end}"
        ),
    );
}

fn exact_orders(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let sku = evidence.history.sku.0;
    // One order per user and activity: whoever holds another SKU's cannot have this one; nor can he whose was closed.
    let is_out = |user| {
        let rows = evidence.of_user(user);
        rows.iter().any(|row| row.is_live() && row.sku != sku)
            || rows.iter().any(|row| row.is_closed()) && !rows.iter().any(|row| row.is_live())
    };
    let buyers = evidence.history.iter().filter(|(user, _)| !is_out(*user)).count();
    let expected = verdict.stock.min(count(buyers));
    // What was closed may have come back when nobody asked any more.
    let closed = evidence.books.orders.iter().filter(|row| row.sku == sku && row.is_closed());
    let least = expected.saturating_sub(closed.fold(0, |sum, row| sum.saturating_add(row.quantity.into())));
    if (least..=expected).contains(&verdict.orders) {
        return;
    }
    let users = &evidence.history.users;
    let of = |wanted: fn(&End) -> bool| users.iter().filter(|user| wanted(&user.end)).count();
    let (won, gave_up) = (of(|end| matches!(end, End::Won(_))), of(|end| matches!(end, End::GaveUp(_))));
    let refused = of(|end| matches!(end, End::Refused(_) | End::Fault(_)));
    let unknown = of(|end| matches!(end, End::Unknown | End::Unreachable));
    let (orders, stock) = (verdict.orders, verdict.stock);
    verdict.find(
        Check::Exact,
        format!(
            "{orders} orders stand where {stock} units and {buyers} users make {expected}: {won} users won, \
             {refused} were refused, {gave_up} gave up, {unknown} cannot know"
        ),
    );
}
