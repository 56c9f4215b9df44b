//! A sound installation passes the audit, and each way to break it is told.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey};

use super::*;
use crate::redis_side::Mark;
use crate::told::{Asked, Heard};

const PENDING: u8 = 2;

/// 20 units of SKU 1, ten in each of two shards; one was moved from shard 1 to shard 0. User 5 bought two in shard 0,
/// user 6 one in shard 1; user 7 wanted one and gave up.
struct World {
    told: Told,
    shards: Vec<ShardSide>,
    sql: SqlSide,
    results: BTreeMap<usize, BTreeMap<u64, Option<Order>>>,
    promise: Promise,
}

fn order(number: u64, quantity: u16, state: OrderState) -> Order {
    let sku = SkuKey { activity: ActivityId(7), sku: SkuId(1) };
    Order { number: OrderNumber(number), sku, quantity, state, attempt: 1, pay_by_ms: 0 }
}

fn heard(status: Status, order: Option<Order>) -> Heard {
    Heard { asked: Asked::Buy, status: Some(status.code()), order, place: 0 }
}

fn winner(number: u64, quantity: u16) -> UserTold {
    let order = order(number, quantity, OrderState::Reserved);
    UserTold {
        sku: 1,
        quantity,
        gateway: Some(0),
        heard: vec![heard(Status::Queued, Some(order))],
        end: Outcome::Won(order),
    }
}

fn loser(status: Status) -> UserTold {
    let end =
        if status == Status::Busy { Outcome::GaveUp(status.code()) } else { Outcome::Refused(status.code()) };
    UserTold { sku: 1, quantity: 1, gateway: None, heard: vec![heard(status, None)], end }
}

fn mark(order: u64, quantity: u16) -> Mark {
    Mark { order, sku: 1, quantity, attempt: 1, state: PENDING }
}

fn row(user: u64, quantity: u64, shard: usize) -> OrderRow {
    OrderRow { user, sku: 1, quantity, attempt: 1, state: PENDING, shard, is_of_reserve: false }
}

fn world() -> World {
    let shard =
        |free: i64, out: &[(usize, u64)], brought_in: &[(usize, u64)], user: u64, mark: Mark| ShardSide {
            is_open: true,
            counters: BTreeMap::from([(
                1,
                Counters {
                    free,
                    out: out.iter().copied().collect(),
                    brought_in: brought_in.iter().copied().collect(),
                    loaded: 10,
                },
            )]),
            marks: BTreeMap::from([(user, mark)]),
            is_delivered: true,
            ..ShardSide::default()
        };
    let results = BTreeMap::from([
        (5, Some(order(50, 2, OrderState::PendingPayment))),
        (6, Some(order(60, 1, OrderState::PendingPayment))),
        (7, None),
    ]);
    World {
        told: Told {
            users: BTreeMap::from([(5, winner(50, 2)), (6, winner(60, 1)), (7, loser(Status::Busy))]),
        },
        shards: vec![shard(9, &[], &[(1, 1)], 5, mark(50, 2)), shard(8, &[(0, 1)], &[], 6, mark(60, 1))],
        sql: SqlSide {
            orders: BTreeMap::from([(50, row(5, 2, 0)), (60, row(6, 1, 1))]),
            stock: BTreeMap::from([(1, (17, 3))]),
            loaded: BTreeMap::from([((1, 0), 10), ((1, 1), 10)]),
            ..SqlSide::default()
        },
        results: BTreeMap::from([(0, results)]),
        promise: Promise::default(),
    }
}

fn audited(world: &World) -> Audited {
    audit(&Evidence {
        planned: &[20],
        told: &world.told,
        shards: &world.shards,
        sql: &world.sql,
        results: &world.results,
        promise: &world.promise,
        money: None,
    })
}

#[track_caller]
fn tells<R>(break_it: impl FnOnce(&mut World) -> R, kind: &str) {
    let mut world = world();
    break_it(&mut world);
    let violations = audited(&world).violations;
    assert!(violations.iter().any(|violation| violation.starts_with(kind)), "{kind}: {violations:#?}");
}

fn user(world: &mut World, user: u64) -> &mut UserTold {
    world.told.users.get_mut(&user).unwrap()
}

#[test]
fn a_sound_installation_has_no_violation() {
    let audited = audited(&world());
    assert_eq!(audited.violations, Vec::<String>::new());
    assert_eq!((audited.promised, audited.kept, audited.units_sold), (2, 2, 3));
}

#[test]
fn stock_that_does_not_add_up_is_told() {
    let free = |world: &mut World, shard: usize, by: i64| {
        world.shards[shard].counters.get_mut(&1).unwrap().free += by;
    };
    tells(|world| free(world, 0, 1), "stock of a shard");
    tells(|world| free(world, 1, -1), "stock in total");
    tells(|world| world.shards[0].counters.get_mut(&1).unwrap().loaded = 11, "stock of a shard");
    tells(|world| world.shards[1].counters.get_mut(&1).unwrap().out.clear(), "stock of a shard");
    tells(|world| world.sql.stock.insert(1, (18, 3)), "stock in SQL");
    tells(|world| world.sql.stock.insert(1, (17, 4)), "stock in SQL");
}

/// Three units are held back beside the twenty; user 7 has bought one of them.
fn with_a_reserve(world: &mut World) {
    world.promise.held_back.insert(1, 3);
    world.sql.reserve.insert(1, 2);
    world.sql.orders.insert(70, OrderRow { is_of_reserve: true, ..row(7, 1, 0) });
    world.told.users.insert(7, winner(70, 1));
    world.results.get_mut(&0).unwrap().insert(7, Some(order(70, 1, OrderState::PendingPayment)));
}

#[test]
fn a_reserve_that_does_not_add_up_is_told() {
    let mut sound = world();
    with_a_reserve(&mut sound);
    // He had bought of Redis as well, which ended FAILED.
    sound.sql.orders.insert(71, OrderRow { state: FAILED, ..row(7, 1, 0) });
    user(&mut sound, 7).heard.push(heard(Status::Queued, Some(order(71, 1, OrderState::Reserved))));
    assert_eq!(audited(&sound).violations, Vec::<String>::new());
    let tells = |break_it: &dyn Fn(&mut World), kind| {
        tells(
            |world| {
                with_a_reserve(world);
                break_it(world);
            },
            kind,
        );
    };
    tells(&|world| *world.sql.reserve.get_mut(&1).unwrap() += 1, "reserve");
    tells(&|world| world.sql.orders.get_mut(&70).unwrap().is_of_reserve = false, "reserve");
    tells(&|world| world.sql.orders.retain(|number, _| *number != 70), "told");
    tells(&|world| world.sql.orders.get_mut(&70).unwrap().user = 6, "one live order");
}

#[test]
fn marks_that_are_no_orders_and_orders_that_are_no_marks_are_told() {
    tells(|world| world.sql.orders.remove(&60), "marks and orders");
    tells(|world| world.shards[1].marks.clear(), "marks and orders");
    tells(|world| world.shards[1].marks.get_mut(&6).unwrap().state = 1, "marks and orders");
    tells(|world| world.sql.orders.insert(61, row(6, 1, 1)), "one live order");
}

#[test]
fn promises_that_are_not_kept_are_told() {
    tells(|world| world.sql.orders.remove(&50), "told");
    tells(|world| world.sql.orders.get_mut(&50).unwrap().state = FAILED, "told");
    tells(|world| world.sql.orders.get_mut(&50).unwrap().quantity = 1, "told");
    tells(
        |world| user(world, 7).heard.push(heard(Status::Queued, Some(order(70, 1, OrderState::Reserved)))),
        "told",
    );
    tells(|world| user(world, 7).end = Outcome::Unknown, "unanswered");
    tells(|world| world.sql.dead_letters = 1, "1 dead letters");
}

#[test]
fn what_only_a_dead_gateway_knew_may_be_lost_and_nothing_else() {
    let lose = |world: &mut World, place: u64| {
        user(world, 6).heard[0].place = place;
        world.sql.orders.remove(&60);
        world.promise.died = Some((0, 10));
    };
    let mut before = world();
    lose(&mut before, 9);
    assert!(!audited(&before).violations.iter().any(|violation| violation.starts_with("told")));
    // Nor is it wrong what he is told afterwards.
    user(&mut before, 6).heard.push(heard(Status::SoldOut, None));
    user(&mut before, 6).heard[1].place = 12;
    assert!(!audited(&before).violations.iter().any(|violation| violation.starts_with("refused")));
    tells(|world| lose(world, 10), "told");
    tells(
        |world| {
            lose(world, 9);
            user(world, 6).gateway = Some(1);
        },
        "told",
    );
}

#[test]
fn refused_users_who_hold_orders_and_false_refusals_are_told() {
    tells(|world| world.told.users.insert(6, loser(Status::SoldOut)), "refused");
    tells(|world| user(world, 5).heard.push(heard(Status::SoldOut, None)), "refused");
    tells(|world| world.told.users.insert(7, loser(Status::SoldOut)), "sold out");
}

#[test]
fn a_gateway_that_answers_otherwise_than_sql_is_told() {
    tells(|world| world.results.get_mut(&0).unwrap().insert(5, None), "RESULT");
    tells(|world| world.results.get_mut(&0).unwrap().remove(&5), "RESULT");
    let stale = Some(order(50, 2, OrderState::Reserved));
    tells(|world| world.results.get_mut(&0).unwrap().insert(5, stale), "RESULT");
}
