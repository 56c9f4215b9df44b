use std::collections::BTreeSet;

use super::fixture::{an_order, event, one_more_unit, order, seen, status, verdict};
use crate::protocol::{OrderNumber, Status};
use crate::rehearsal::{Asked, Books, BooksError, Check, End, Got, SaleHistory, Verdict};

fn nothing(_: &mut SaleHistory) {}

/// The checks that turned red.
fn red(verdict: &Verdict) -> Vec<Check> {
    let names: BTreeSet<String> =
        verdict.findings.iter().map(|finding| format!("{:?}", finding.check)).collect();
    let mut checks: Vec<Check> = Vec::new();
    for finding in &verdict.findings {
        if !checks.contains(&finding.check) {
            checks.push(finding.check);
        }
    }
    assert_eq!(names.len(), checks.len());
    checks
}

/// That check turned red, and said so with these words.
fn assert_red(verdict: &Verdict, check: Check, words: &str) {
    let found = verdict.findings.iter().any(|found| found.check == check && found.sentence.contains(words));
    assert!(found, "{check:?} with `{words}` is not in {verdict:#?}");
}

/// That check alone turned red.
fn assert_only(verdict: &Verdict, check: Check, words: &str) {
    assert_eq!(red(verdict), [check], "{verdict:#?}");
    assert_red(verdict, check, words);
}

#[tokio::test]
async fn a_right_sale_is_ok() {
    let verdict = verdict(nothing, "").await;
    assert_eq!(verdict.sentence(), "ok");
    assert_eq!((verdict.stock, verdict.orders, verdict.stock_left), (3, 3, 0));
    assert_eq!((verdict.oversold, verdict.undersold), (0, 0));
}

#[tokio::test]
async fn units_of_users_outside_the_sale_are_not_its_stock() {
    let sql = one_more_unit(7) + "UPDATE stock SET free = 0;" + &an_order(7, 999, 1, 900);
    let verdict = verdict(nothing, &sql).await;
    assert_eq!((verdict.sentence().as_str(), verdict.stock, verdict.orders), ("ok", 3, 3));
}

#[tokio::test]
async fn a_promise_without_its_order_is_red() {
    let missing = verdict(nothing, "DELETE FROM orders WHERE number = 101").await;
    assert_red(&missing, Check::Promises, "user 1 was told of order 101 by QUEUED, but no such order stands");
    let foreign = verdict(nothing, "UPDATE orders SET user = 9 WHERE number = 101").await;
    assert_red(&foreign, Check::Promises, "in the database it is user 9's");
    let twice = "DROP INDEX orders_number; INSERT INTO orders SELECT shard, activity, user, 2, number, sku, \
                 quantity, 4, 0, 0 FROM orders WHERE number = 101";
    let twice = verdict(nothing, twice).await;
    assert_red(&twice, Check::Promises, "2 orders with that number stand in the database");
}

#[tokio::test]
async fn an_order_that_says_something_else_is_red() {
    let already = |history: &mut SaleHistory| {
        let mut other = seen(101);
        other.quantity = 2;
        history.users[0].events[3].got = Got::Order(Status::Already.code(), other);
    };
    assert_only(
        &verdict(already, "").await,
        Check::Promises,
        "by ALREADY, but with 2 of SKU 1; in the database it is 1",
    );
    let wanted = |history: &mut SaleHistory| history.users[0].quantity = 2;
    assert_only(&verdict(wanted, "").await, Check::Promises, "2 of SKU 1 had been asked for");
}

#[tokio::test]
async fn an_order_nobody_was_told_of_is_red_unless_the_user_cannot_know() {
    let sql = one_more_unit(7) + "UPDATE stock SET free = 0;" + &an_order(7, 4, 1, 104);
    let refused = verdict(nothing, &sql).await;
    assert_only(&refused, Check::Unpromised, "order 104 of user 4 stands in the database, but nobody told");
    let unknown = |history: &mut SaleHistory| {
        history.users[3].end = End::Unknown;
        history.users[3].events = vec![event(Asked::Buy, 1, 2, Got::Unknown)];
    };
    assert_eq!(verdict(unknown, &sql).await.sentence(), "ok");
    let denied = |history: &mut SaleHistory| {
        unknown(history);
        history.users[3].events.push(status(Asked::FinalResult, (5, 6), Status::NoOrder));
    };
    let denied = verdict(denied, &sql).await;
    assert_eq!(red(&denied), [Check::Unpromised, Check::Results]);
    assert_red(&denied, Check::Results, "RESULT told user 4 of no order, but order 104 stands");
}

#[tokio::test]
async fn two_live_orders_or_two_numbers_for_one_user_are_red() {
    let sql = "DROP INDEX orders_live;".to_owned()
        + &one_more_unit(7)
        + "UPDATE stock SET free = 0;"
        + &an_order(7, 1, 2, 105);
    assert_red(&verdict(nothing, &sql).await, Check::OnePerUser, "user 1 holds 2 live orders");
    let two_numbers = |history: &mut SaleHistory| {
        history.users[0].events[3] = order(Asked::Buy, (50, 60), Status::Already, 102);
    };
    let two_numbers = verdict(two_numbers, "").await;
    assert_red(&two_numbers, Check::OnePerUser, "user 1 was told of two orders, 101 and 102");
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

#[tokio::test]
async fn a_winner_told_otherwise_is_red() {
    let told = |later: Status| {
        move |history: &mut SaleHistory| {
            history.users[0].events[3] = status(Asked::Buy, (50, 60), later);
        }
    };
    for harmless in [Status::Busy, Status::RateLimited, Status::GoingAway, Status::Unconfirmed] {
        assert_eq!(verdict(told(harmless), "").await.sentence(), "ok", "{harmless:?}");
    }
    for wrong in [Status::SoldOut, Status::Ended, Status::Blocked, Status::Insufficient, Status::BadBody] {
        let words = format!("user 1 held order 101 and was then told {}", wrong.name());
        assert_only(&verdict(told(wrong), "").await, Check::WonThenOtherwise, &words);
    }
    let queued_again = |history: &mut SaleHistory| {
        history.users[0].events[3] = order(Asked::Buy, (50, 60), Status::Queued, 101);
    };
    assert_only(&verdict(queued_again, "").await, Check::WonThenOtherwise, "was told QUEUED again");
    let no_order = |history: &mut SaleHistory| {
        history.users[0].events[3] = status(Asked::Result, (50, 60), Status::NoOrder);
    };
    assert_only(&verdict(no_order, "").await, Check::WonThenOtherwise, "was then told NO_ORDER");
}

#[tokio::test]
async fn of_two_buys_at_once_the_loser_must_not_be_refused_for_good() {
    let told = |other: Status| {
        move |history: &mut SaleHistory| {
            history.users[1].events[1] = status(Asked::Buy, (10, 41), other);
        }
    };
    assert_eq!(verdict(told(Status::Busy), "").await.sentence(), "ok");
    let refused = verdict(told(Status::SoldOut), "").await;
    assert_only(&refused, Check::WonThenOtherwise, "of two BUYs that user 2 sent at once one won order 102");
    let before = |history: &mut SaleHistory| {
        history.users[1].events[1] = status(Asked::Buy, (5, 10), Status::SoldOut);
    };
    assert_eq!(verdict(before, "").await.sentence(), "ok", "refused before it asked again");
}

#[tokio::test]
async fn a_winner_whom_result_does_not_confirm_is_red() {
    let unasked = |history: &mut SaleHistory| {
        history.users[2].events.pop();
    };
    let words = "user 3 won order 103, but RESULT did not confirm it after the sale";
    assert_only(&verdict(unasked, "").await, Check::Results, words);
    let other = |history: &mut SaleHistory| {
        let mut other = seen(103);
        other.quantity = 3;
        history.users[2].events[3].got = Got::Order(Status::Ok.code(), other);
    };
    assert_only(
        &verdict(other, "").await,
        Check::Results,
        "user 3 was told of order 103 by RESULT, but with 3",
    );
}

#[tokio::test]
async fn a_push_that_differs_is_red() {
    let other = |history: &mut SaleHistory| {
        let mut other = seen(101);
        other.quantity = 2;
        history.users[0].events[2].got = Got::Order(Status::Ok.code(), other);
    };
    assert_only(
        &verdict(other, "").await,
        Check::Pushes,
        "user 1 was told of order 101 by a push, but with 2",
    );
}

#[tokio::test]
async fn a_database_that_is_not_there_or_holds_nonsense_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.db");
    let error = Books::read(&missing, super::fixture::history().activity, crate::protocol::SkuId(1)).await;
    assert!(matches!(error, Err(BooksError::Open { .. })), "{error:?}");
    assert!(!missing.exists(), "the audit makes no files");
    let path = folder.path().join("rushgate.db");
    super::fixture::database(&path, "UPDATE loads SET amounts = '[3]'").await;
    let error = Books::read(&path, super::fixture::history().activity, crate::protocol::SkuId(1)).await;
    assert!(matches!(error, Err(BooksError::Row(_))), "{error:?}");
}
