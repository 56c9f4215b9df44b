//! Units: created, lost, sold twice, kept back.

use super::fixture::{
    an_order, assert_only, assert_red, event, nothing, one_more_unit, order, red, seen, verdict, verdict_on,
};
use crate::protocol::{OrderNumber, Status};
use crate::rehearsal::{Asked, Check, CountedStock, End, Got, SaleHistory};

#[tokio::test]
async fn units_of_users_outside_the_sale_are_not_its_stock() {
    let sql = one_more_unit(7) + "UPDATE stock SET free = 0;" + &an_order(7, 999, 1, 900);
    let verdict = verdict(nothing, &sql).await;
    assert_eq!((verdict.sentence().as_str(), verdict.stock, verdict.orders), ("ok", 3, 3));
}

#[tokio::test]
async fn a_database_that_counts_otherwise_is_red() {
    for (available, sold) in [(1, 3), (0, 2), (0, 4), (-1, 3)] {
        let counted = Some(CountedStock { available, sold });
        let verdict = verdict_on(|books| books.counted = counted).await;
        assert_only(&verdict, Check::Conservation, &format!("{sold} units sold and {available} available"));
    }
    let counted = Some(CountedStock { available: 0, sold: 3 });
    assert_eq!(verdict_on(|books| books.counted = counted).await.sentence(), "ok");
}

#[tokio::test]
async fn what_writers_left_undone_is_red() {
    let verdict = verdict_on(|books| books.unsettled = Some("7 events are not settled".to_owned())).await;
    assert_only(&verdict, Check::Settled, "7 events are not settled");
}

#[tokio::test]
async fn a_deduction_skipped_is_red() {
    let verdict = verdict(nothing, "UPDATE stock SET free = 1 WHERE shard = 0").await;
    assert_red(
        &verdict,
        Check::Conservation,
        "shard 0 has 1 free units; loads, moves and its orders of 1 units",
    );
    assert_red(&verdict, Check::Conservation, "are not the 3 loaded");
}

#[tokio::test]
async fn a_move_counted_twice_is_red() {
    let sql =
        "UPDATE transfers SET brought_in = 2 WHERE shard = 5; UPDATE stock SET free = 1 WHERE shard = 5";
    let verdict = verdict(nothing, sql).await;
    assert_red(&verdict, Check::Conservation, "2 units arrived in shard 5 from shard 2, but only 1 left it");
}

#[tokio::test]
async fn a_unit_between_shards_is_not_lost_but_a_missing_row_is() {
    let sql = one_more_unit(7)
        + "UPDATE stock SET free = 0 WHERE shard = 7; INSERT INTO transfers VALUES (7, 1, 1, 8, 1, 0)";
    let everybody_won = |history: &mut SaleHistory| history.users.truncate(3);
    let in_transit = verdict(everybody_won, &sql).await;
    assert_eq!((in_transit.sentence().as_str(), in_transit.stock_left), ("ok", 1));
    let missing = verdict(nothing, "DELETE FROM stock WHERE shard = 9").await;
    assert_only(&missing, Check::Conservation, "shard 9 has no row of free units");
}

#[tokio::test]
async fn more_units_sold_than_loaded_is_red() {
    let told = |history: &mut SaleHistory| {
        history.users[3].end = End::Won(OrderNumber(104));
        history.users[3].events = vec![
            order(Asked::Buy, (1, 2), Status::Queued, 104),
            order(Asked::FinalResult, (1000, 1010), Status::Ok, 104),
        ];
    };
    let verdict = verdict(told, &an_order(7, 4, 1, 104)).await;
    assert_eq!(verdict.oversold, 1);
    assert_eq!(verdict.findings[0].check, Check::Oversold, "the worst comes first");
    assert_red(&verdict, Check::Oversold, "4 units were sold and only 3 were loaded");
    assert!(verdict.sentence().ends_with("more)"), "{}", verdict.sentence());
}

#[tokio::test]
async fn a_unit_left_while_somebody_was_sent_away_is_red() {
    let sold_out = verdict(nothing, &one_more_unit(7)).await;
    assert_eq!((sold_out.undersold, sold_out.stock_left), (1, 1));
    assert_eq!(red(&sold_out), [Check::Undersold, Check::Exact]);
    assert_red(&sold_out, Check::Undersold, "1 units are left although 1 users who wanted 1 of them");
    let busy = |history: &mut SaleHistory| {
        for user in &mut history.users[3..] {
            user.end = End::GaveUp(Status::Busy.code());
        }
    };
    assert_eq!(verdict(busy, &one_more_unit(7)).await.undersold, 1);
}

/// Every way to go away without an order.
fn empty_handed_ends() -> Vec<End> {
    let refused =
        [Status::SoldOut, Status::Ended, Status::UnknownSku, Status::OverLimit, Status::NotEligible];
    let mut ends: Vec<End> = refused.into_iter().map(|status| End::Refused(status.code())).collect();
    let gave_up = [Status::Busy, Status::Insufficient, Status::Unconfirmed];
    ends.extend(gave_up.into_iter().map(|status| End::GaveUp(status.code())));
    ends.extend([End::Fault(Status::BadBody.code()), End::Unknown, End::Unreachable]);
    ends
}

#[tokio::test]
async fn a_unit_left_is_red_whatever_the_others_were_told() {
    for end in empty_handed_ends() {
        for quantities in [[1, 1], [1, 2]] {
            let told = |history: &mut SaleHistory| {
                for (user, quantity) in history.users[3..].iter_mut().zip(quantities) {
                    (user.end, user.quantity) = (end, quantity);
                }
            };
            let verdict = verdict(told, &one_more_unit(7)).await;
            assert_eq!(red(&verdict), [Check::Undersold, Check::Exact], "{end:?} {quantities:?} {verdict:?}");
            assert_eq!(verdict.undersold, 1, "{end:?} {quantities:?}");
        }
    }
}

#[tokio::test]
async fn an_outcome_that_stayed_unknown_but_is_an_order_is_not_undersold() {
    let unknown = |history: &mut SaleHistory| {
        history.users.truncate(4);
        history.users[3].end = End::Unknown;
        history.users[3].events = vec![event(Asked::Buy, 1, 2, Got::Unknown)];
    };
    let sql = one_more_unit(7) + "UPDATE stock SET free = 0;" + &an_order(7, 4, 1, 104);
    let more = "INSERT INTO loads VALUES (3, 'third', 1, 1, 1, 1, 2, 1, '[0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0]', 1, 1); \
                UPDATE stock SET free = 1 WHERE shard = 8;";
    let verdict = verdict(unknown, &(sql + more)).await;
    assert_eq!((verdict.sentence().as_str(), verdict.stock_left, verdict.undersold), ("ok", 1, 0));
}

#[tokio::test]
async fn with_larger_quantities_only_what_would_have_fitted_is_undersold() {
    let want = |quantities: [u16; 2], end: End| {
        move |history: &mut SaleHistory| {
            for (user, quantity) in history.users[3..].iter_mut().zip(quantities) {
                (user.end, user.quantity) = (end, quantity);
            }
        }
    };
    let insufficient = End::GaveUp(Status::Insufficient.code());
    let fits_nobody = verdict(want([2, 2], insufficient), &one_more_unit(7)).await;
    assert_eq!((fits_nobody.sentence().as_str(), fits_nobody.stock_left), ("ok", 1));
    let fits_one = verdict(want([2, 1], End::Refused(Status::Ended.code())), &one_more_unit(7)).await;
    assert_red(&fits_one, Check::Undersold, "1 units are left although 1 users who wanted 1 of them");
    assert_red(&fits_one, Check::Undersold, "user 5, for one: the last answer was ENDED");
    assert_red(
        &fits_one,
        Check::Exact,
        "3 orders leave 1 of 4 units, but user 5 wanted 1 and got none: the last answer was ENDED",
    );
    // All or nothing: 2 and 3 fit into 5 units, 4 does not after 3.
    let five_more = "INSERT INTO loads VALUES (2, 'second', 1, 1, 1, 5, 2, 5, '[5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]', 1, 1); \
                     UPDATE stock SET free = 5 WHERE shard = 0;";
    assert_eq!(verdict(want([2, 3], insufficient), five_more).await.undersold, 5);
    assert_eq!(verdict(want([3, 4], insufficient), five_more).await.undersold, 3);
}

#[tokio::test]
async fn what_the_rules_refuse_is_not_undersold() {
    let over_the_limit = |quantity: u16| {
        move |history: &mut SaleHistory| {
            for user in &mut history.users[3..] {
                (user.end, user.quantity) = (End::Refused(Status::OverLimit.code()), quantity);
            }
        }
    };
    let six_more = "INSERT INTO loads VALUES (2, 'second', 1, 1, 1, 6, 2, 6, '[6,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]', 1, 1); \
                    UPDATE stock SET free = 6 WHERE shard = 0;";
    assert_eq!(verdict(over_the_limit(6), six_more).await.sentence(), "ok");
    assert_eq!(verdict(over_the_limit(5), six_more).await.undersold, 5, "the limit is 5");
    // User 4 holds another SKU's order: he cannot have this one as well.
    let other_sku = |history: &mut SaleHistory| {
        history.users.truncate(4);
        let mut other = seen(104);
        other.sku = crate::protocol::SkuId(2);
        history.users[3].end = End::Won(OrderNumber(104));
        history.users[3].events = vec![
            event(Asked::Buy, 1, 2, Got::Order(Status::Already.code(), other)),
            event(Asked::FinalResult, 5, 6, Got::Order(Status::Ok.code(), other)),
        ];
    };
    let sql = one_more_unit(7) + &an_order(7, 4, 1, 104) + "UPDATE orders SET sku = 2 WHERE number = 104;";
    assert_eq!(verdict(other_sku, &sql).await.sentence(), "ok");
}

#[tokio::test]
async fn fewer_orders_than_units_and_users_is_red_and_says_how_the_users_ended() {
    let ended = |history: &mut SaleHistory| {
        for user in &mut history.users[3..] {
            user.end = End::Refused(Status::Ended.code());
        }
    };
    let verdict = verdict(ended, &one_more_unit(7)).await;
    assert_red(
        &verdict,
        Check::Exact,
        "3 orders stand where 4 units and 5 users make 4: 3 users won, 2 were refused",
    );
}
