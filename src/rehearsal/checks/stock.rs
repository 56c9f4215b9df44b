//! Units: none created, none lost, none sold twice, none kept back.

use crate::protocol::Status;
use crate::rehearsal::books::SHARDS;
use crate::rehearsal::evidence::Evidence;
use crate::rehearsal::history::{End, UserHistory};
use crate::rehearsal::verdict::{Check, Verdict, count, unsigned};

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

/// Units that are still there although users wanted them who were sent away: filled up with the smallest wishes
/// first. Units of closed orders came back later and do not count.
pub(in crate::rehearsal) fn undersold(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let sku = evidence.history.sku.0;
    let closed = evidence.books.orders.iter().filter(|row| row.sku == sku && !row.is_live());
    let returned = closed.fold(0_u64, |sum, row| sum.saturating_add(u64::from(row.quantity)));
    let left = verdict.stock_left.saturating_sub(returned);
    let mut wishes: Vec<u64> = evidence
        .history
        .users
        .iter()
        .filter(|user| was_sent_away(user))
        .map(|user| u64::from(user.quantity))
        .collect();
    wishes.sort_unstable();
    let mut sellable = 0_u64;
    let mut users = 0_u64;
    for wish in wishes {
        let with_it = sellable.saturating_add(wish);
        if with_it > left {
            break;
        }
        (sellable, users) = (with_it, users.saturating_add(1));
    }
    verdict.undersold = sellable;
    if sellable > 0 {
        verdict.find(
            Check::Undersold,
            format!(
                "{left} units are left although {users} users who wanted {sellable} of them were sent away"
            ),
        );
    }
}

/// Sent away for want of stock: told `SOLD_OUT`, or told to come back until patience ended.
fn was_sent_away(user: &UserHistory) -> bool {
    match user.end {
        End::Refused(status) => status == Status::SoldOut.code(),
        End::GaveUp(_) => true,
        End::Won(_) | End::Fault(_) | End::Unknown | End::Unreachable => false,
    }
}

/// Where everybody wants one unit, the number of orders is known beforehand.
pub(in crate::rehearsal) fn exact(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let users = &evidence.history.users;
    if users.iter().any(|user| user.quantity != 1) {
        return;
    }
    let expected = verdict.stock.min(count(users.len()));
    if verdict.orders == expected {
        return;
    }
    let of = |wanted: fn(&End) -> bool| users.iter().filter(|user| wanted(&user.end)).count();
    let (won, gave_up) = (of(|end| matches!(end, End::Won(_))), of(|end| matches!(end, End::GaveUp(_))));
    let refused = of(|end| matches!(end, End::Refused(_) | End::Fault(_)));
    let unknown = of(|end| matches!(end, End::Unknown | End::Unreachable));
    let (orders, stock) = (verdict.orders, verdict.stock);
    verdict.find(
        Check::Exact,
        format!(
            "{orders} orders stand where {stock} units and {} users make {expected}: {won} users won, \
             {refused} were refused, {gave_up} gave up, {unknown} cannot know",
            users.len()
        ),
    );
}
