//! A sound life after the queue passes the audit, and each way to break it is told.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::audit::Promise;
use crate::pay_side::{HistoryRow, LedgerRow};
use crate::redis_side::{Mark, ShardSide};
use crate::sql_side::SqlSide;
use crate::told::Told;

/// Order 50 is paid, 60 was closed in time, 70 was paid after its close.
struct World {
    sql: SqlSide,
    side: PaySide,
    taken: Taken,
    shards: Vec<ShardSide>,
    payments: u64,
}

fn row(user: u64, state: u8) -> OrderRow {
    OrderRow { user, sku: 1, quantity: 2, attempt: 1, state, shard: 0, is_of_reserve: false }
}

fn mark(order: u64, state: u8) -> Mark {
    Mark { order, sku: 1, quantity: 2, attempt: 1, state }
}

fn payment(id: &str, number: u64, state: u8, cause: u8) -> PaymentRow {
    PaymentRow { id: id.to_owned(), number, amount_minor: 2 * PRICE_MINOR, state, cause }
}

fn step(number: u64, from: u8, to: u8, cause: u8) -> HistoryRow {
    HistoryRow { number, from, to, cause, at_ms: 2_000, pay_by_ms: 1_000 }
}

fn ledger(number: u64, user: u64) -> LedgerRow {
    LedgerRow { number, user, quantity: 2, is_done: true }
}

fn world() -> World {
    let orders = [(50, row(5, PAID)), (60, row(6, CLOSED)), (70, row(7, REFUND_DUE))];
    let marks = [(5, mark(50, PAID)), (6, mark(60, CLOSED)), (7, mark(70, REFUND_DUE))];
    World {
        sql: SqlSide { orders: BTreeMap::from(orders), ledger: vec![60, 70], ..SqlSide::default() },
        side: PaySide {
            payments: vec![payment("a", 50, APPLIED, 0), payment("b", 70, TO_BE_GIVEN_BACK, ORDER_CLOSED)],
            history: vec![
                step(50, PENDING, PAID, 4),
                step(60, PENDING, CLOSED, TIMED_OUT),
                step(70, PENDING, CLOSED, ASKED_FOR),
                step(70, CLOSED, REFUND_DUE, 5),
            ],
            ledger: vec![ledger(60, 6), ledger(70, 7)],
        },
        taken: Taken { paid: BTreeMap::from([(50, 2 * PRICE_MINOR)]), refused: [60].into() },
        shards: vec![ShardSide { marks: BTreeMap::from(marks), ..ShardSide::default() }],
        payments: 2,
    }
}

fn audited(world: &World) -> Audited {
    let money = Money { side: &world.side, taken: &world.taken, payments: world.payments };
    let mut audited = Audited::default();
    let evidence = Evidence {
        planned: &[20],
        told: &Told::default(),
        shards: &world.shards,
        sql: &world.sql,
        results: &BTreeMap::new(),
        promise: &Promise::default(),
        money: Some(&money),
    };
    audit(&evidence, &mut audited);
    audited
}

#[track_caller]
fn tells<R>(break_it: impl FnOnce(&mut World) -> R, kind: &str) {
    let mut world = world();
    break_it(&mut world);
    let violations = audited(&world).violations;
    assert!(violations.iter().any(|violation| violation.starts_with(kind)), "{kind}: {violations:#?}");
}

fn set(world: &mut World, number: u64, state: u8) {
    world.sql.orders.get_mut(&number).unwrap().state = state;
}

#[test]
fn a_sound_life_has_no_violation() {
    let audited = audited(&world());
    assert_eq!(audited.violations, Vec::<String>::new());
    let figures = Figures { paid: 1, closed: 2, restocked: 4, refund_due: 1 };
    assert_eq!(audited.figures, Some(figures));
    assert_eq!(closed_rightly(&world().side).collect::<Vec<_>>(), [60, 70]);
}

#[test]
fn orders_and_payments_that_do_not_fit_are_told() {
    tells(|world| set(world, 50, PENDING), "paid or closed");
    tells(|world| world.side.payments.push(payment("c", 50, APPLIED, 0)), "paid or closed");
    tells(|world| world.side.payments[0].amount_minor = 1, "paid or closed");
    tells(|world| set(world, 70, CLOSED), "paid or closed");
    tells(|world| set(world, 60, REFUND_DUE), "paid or closed");
    tells(|world| world.side.payments.remove(0), "paid or closed");
    tells(|world| world.payments = 3, "payment");
    tells(|world| world.side.payments[1].state = 1, "payment");
    tells(|world| world.taken.paid.insert(60, 1), "payment");
    tells(|world| world.taken.refused.insert(50), "payment");
    let closed_though_paid = |world: &mut World| {
        set(world, 50, REFUND_DUE);
        world.side.payments[0] = payment("a", 50, TO_BE_GIVEN_BACK, ORDER_CLOSED);
    };
    tells(closed_though_paid, "payment");
    tells(|world| world.sql.orders.remove(&50), "payment");
}

#[test]
fn units_that_come_back_twice_or_never_are_told() {
    tells(|world| world.side.ledger.push(ledger(60, 9)), "restock");
    tells(|world| world.side.ledger.pop(), "restock");
    tells(|world| world.side.ledger[0].is_done = false, "restock");
    tells(|world| world.side.ledger[0].quantity = 1, "restock");
    tells(|world| world.side.ledger.push(ledger(50, 5)), "restock");
    tells(|world| world.sql.orders.get_mut(&60).unwrap().is_of_reserve = true, "restock");
}

#[test]
fn steps_back_and_closes_before_the_time_are_told() {
    tells(|world| world.side.history[1].at_ms = 999, "history");
    tells(|world| world.side.history.push(step(60, CLOSED, PAID, 4)), "history");
    tells(|world| world.side.history.push(step(50, PENDING, CLOSED, ASKED_FOR)), "history");
    tells(|world| world.shards[0].marks.get_mut(&6).unwrap().state = FAILED, "mark");
}
