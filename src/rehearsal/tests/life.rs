//! The books of a sale whose winners paid, or did not: user 1 has paid, user 2's order was closed and its unit given back,
//! user 3 has still time.

use std::path::Path;

use super::fixture::{database, nothing, red, verdict};
use crate::protocol::{ActivityId, SkuId};
use crate::rehearsal::living::close_books;
use crate::rehearsal::{Books, Check, LifeReport, Verdict};

const LIVED: &str = "
    UPDATE orders SET state = 3 WHERE number = 101;
    INSERT INTO payments VALUES ('p-1', 101, 100, 1, 2, 0, 1, 1);
    UPDATE orders SET state = 4 WHERE number = 102;
    INSERT INTO ledger VALUES (102, 1, 1, 1, 1, 1);
    UPDATE stock SET free = free + 1 WHERE shard = 1;";

async fn closed(sql: &str) -> (LifeReport, Verdict) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rushgate.db");
    database(Path::new(&path), &format!("{LIVED} {sql}")).await;
    let books = Books::read(&path, ActivityId(1), SkuId(1)).await.unwrap();
    let mut verdict = Verdict::default();
    (close_books(&books, SkuId(1), 0, &mut verdict), verdict)
}

#[tokio::test]
async fn what_was_paid_closed_and_left_adds_up() {
    let (report, verdict) = closed("").await;
    let expected =
        LifeReport { paid: 1, pending: 1, closed: 1, restocked: 1, conserved: true, ..LifeReport::default() };
    assert_eq!((report, red(&verdict)), (expected, vec![]));
    // Money that came after the close is told, and changes nothing else.
    let late = "UPDATE orders SET state = 6 WHERE number = 102; \
                INSERT INTO payments VALUES ('p-2', 102, 100, 1, 3, 1, 1, 1);";
    let (report, _) = closed(late).await;
    assert_eq!((report.closed, report.refund_due, report.conserved), (1, 1, true));
}

#[tokio::test]
async fn books_that_do_not_add_up_are_red() {
    for wrong in [
        "DELETE FROM ledger",
        "INSERT INTO ledger VALUES (103, 5, 1, 1, 1, 1)",
        "UPDATE ledger SET quantity = 2",
        "UPDATE stock SET free = free + 1 WHERE shard = 1",
        "UPDATE orders SET state = 3 WHERE number = 103",
        "UPDATE payments SET state = 1",
        "INSERT INTO payments VALUES ('p-2', 101, 100, 1, 2, 0, 1, 1)",
    ] {
        let (report, verdict) = closed(wrong).await;
        assert!(!report.conserved, "{wrong}");
        assert_eq!(red(&verdict), [Check::Conservation], "{wrong}");
    }
}

#[tokio::test]
async fn a_closed_order_is_no_sale_and_may_be_told_of_as_such() {
    let closed = verdict(nothing, LIVED).await;
    assert_eq!(red(&closed), [], "{closed:#?}");
    // A unit that is left over because it was never sold is red all the same.
    let unsold =
        verdict(nothing, "DELETE FROM orders WHERE number = 102; UPDATE stock SET free = 1 WHERE shard = 1")
            .await;
    assert!(red(&unsold).contains(&Check::Exact), "{unsold:#?}");
}
