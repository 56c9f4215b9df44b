//! What users were told against each other and against order rows.

use super::fixture::{
    an_order, assert_only, assert_red, event, history, nothing, one_more_unit, order, red, seen, status,
    verdict,
};
use crate::protocol::Status;
use crate::rehearsal::{Asked, Books, BooksError, Check, End, Got, Report, SaleHistory, SalePlan};

#[tokio::test]
async fn a_right_sale_is_ok() {
    let verdict = verdict(nothing, "").await;
    assert_eq!(verdict.sentence(), "ok");
    assert_eq!((verdict.stock, verdict.orders, verdict.stock_left), (3, 3, 0));
    assert_eq!((verdict.oversold, verdict.undersold), (0, 0));
}

#[tokio::test]
async fn a_promise_without_its_order_is_red() {
    let missing = verdict(nothing, "DELETE FROM orders WHERE number = 101").await;
    assert_red(&missing, Check::Promises, "user 1 was told of order 101 by QUEUED, but no such order stands");
    let foreign = verdict(nothing, "UPDATE orders SET user = 9 WHERE number = 101").await;
    assert_red(&foreign, Check::Promises, "in the database it is user 9's");
    let twice = "DROP INDEX orders_number; INSERT INTO orders (shard, activity, user, attempt, number, sku, quantity, \
                 state, pay_by_ms, created_at_ms) SELECT shard, activity, user, 2, number, sku, quantity, 4, 0, 0 \
                 FROM orders WHERE number = 101";
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
async fn whoever_learned_otherwise_that_he_won_must_not_be_told_otherwise_either() {
    // User 3 read RESULT's order at 60.
    let told = |sent_ns: u64, later: Status| {
        move |history: &mut SaleHistory| {
            history.users[2].events.insert(3, status(Asked::Buy, (sent_ns, 80), later));
        }
    };
    for wrong in [Status::SoldOut, Status::Ended, Status::Insufficient, Status::BadBody] {
        let words = format!("user 3 held order 103 and was then told {}", wrong.name());
        assert_only(&verdict(told(70, wrong), "").await, Check::WonThenOtherwise, &words);
    }
    assert_eq!(verdict(told(70, Status::Busy), "").await.sentence(), "ok");
    assert_eq!(verdict(told(55, Status::SoldOut), "").await.sentence(), "ok", "asked before he knew");
    let queued_again = |history: &mut SaleHistory| {
        history.users[2].events.insert(3, order(Asked::Buy, (70, 80), Status::Queued, 103));
    };
    assert_only(&verdict(queued_again, "").await, Check::WonThenOtherwise, "was told QUEUED again");
    // User 1's BUY is lost; the push at 45 says that it won.
    let pushed = |history: &mut SaleHistory| {
        let events = &mut history.users[0].events;
        events[1] = event(Asked::Buy, 30, 40, Got::Unknown);
        events[3] = status(Asked::Buy, (50, 60), Status::SoldOut);
    };
    let words = "user 1 held order 101 and was then told SOLD_OUT";
    assert_only(&verdict(pushed, "").await, Check::WonThenOtherwise, words);
    // The push overtakes the winning BUY's answer: its twin must still not be refused.
    let twin = |history: &mut SaleHistory| {
        let events = &mut history.users[1].events;
        events[1] = status(Asked::Buy, (10, 41), Status::SoldOut);
        events.insert(0, order(Asked::Push, (39, 39), Status::Ok, 102));
    };
    assert_only(&verdict(twin, "").await, Check::WonThenOtherwise, "of two BUYs that user 2 sent at once");
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
    let error = Books::read(&missing, history().activity, crate::protocol::SkuId(1)).await;
    assert!(matches!(error, Err(BooksError::Open { .. })), "{error:?}");
    assert!(!missing.exists(), "the audit makes no files");
    let path = folder.path().join("rushgate.db");
    super::fixture::database(&path, "UPDATE loads SET amounts = '[3]'").await;
    let error = Books::read(&path, history().activity, crate::protocol::SkuId(1)).await;
    assert!(matches!(error, Err(BooksError::Row(_))), "{error:?}");
}

#[tokio::test]
async fn winners_who_heard_no_push_are_counted_but_no_violation() {
    let unpushed = |change: fn(&mut SaleHistory)| async move {
        let found = verdict(change, "").await;
        let mut history = history();
        change(&mut history);
        let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let plan = SalePlan::new(vec![addr], 5, history.activity, history.sku);
        let report = Report::new(&plan, &history, &found);
        assert_eq!((report.audit.as_str(), report.queued), ("ok", 2));
        report.unpushed
    };
    assert_eq!(unpushed(nothing).await, 1, "user 2 heard none; user 3 was not told QUEUED");
    let all_lost = |history: &mut SaleHistory| {
        history.users[0].events.remove(2);
    };
    assert_eq!(unpushed(all_lost).await, 2);
    let twice = |history: &mut SaleHistory| {
        let again = history.users[0].events[2];
        history.users[0].events.insert(2, again);
    };
    assert_eq!(unpushed(twice).await, 1, "one order pushed twice is one user's");
}
