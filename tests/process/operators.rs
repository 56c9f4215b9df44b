//! The operator's commands beside a serving process: what they change is on sale at once, on connections that are
//! open already.

use rushgate::protocol::{ActivityId, ActivityState, Reply, Request, Status};

use super::house::{House, SALE, SKU};
use super::wire::{Client, buy, eventually};

fn state(client: &mut Client) -> Option<ActivityState> {
    match client.ask(&Request::Activity { activity: ActivityId(SALE) }).reply {
        Reply::Activity { info, .. } => Some(info.state),
        _ => None,
    }
}

#[test]
fn create_close_open_and_stock_take_effect_on_a_live_connection() {
    let house = House::new();
    let serving = house.serve(&["limits.result_per_user.rate_per_s=0"]);
    let (mut winner, mut loser) = (house.app(&serving, 1), house.app(&serving, 2));
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::UnknownActivity);

    house.done(&[
        "activity",
        "create",
        "--id",
        "7",
        "--name",
        "a sale",
        "--sku",
        "1:1:999",
        "--entry-closed",
    ]);
    eventually("the activity is known", || state(&mut winner) == Some(ActivityState::Ended));
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    house.done(&["activity", "open", "7"]);
    eventually("the entry is open", || state(&mut winner) == Some(ActivityState::Open));
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(loser.ask(&buy(SALE, SKU, 1)).status, Status::SoldOut);

    let added = house.done(&["activity", "stock", "add", "7", "1", "2"]);
    assert!(added.contains("applied 2 of 2"), "{added}");
    eventually("it is on sale", || loser.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    // One unit is left; no more than that can be taken away.
    let taken = house.done(&["activity", "stock", "remove", "7", "1", "5"]);
    assert!(taken.contains("applied 1 of 5"), "{taken}");
    let mut late = house.app(&serving, 3);
    eventually("it is gone", || late.ask(&buy(SALE, SKU, 1)).status == Status::SoldOut);

    house.done(&["activity", "close", "7"]);
    eventually("the entry is closed", || state(&mut late) == Some(ActivityState::Ended));
    assert_eq!(late.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(house.figures(), (2, 0, 2, 2));
}

#[test]
fn what_is_refused_changes_nothing_and_exits_with_1() {
    let house = House::with_sale(5);
    let _serving = house.serve(&[]);
    for (args, gist) in [
        (&["activity", "create", "--id", "7", "--name", "again", "--sku", "1:1:1"][..], "7"),
        (&["activity", "create", "--id", "8", "--name", "", "--sku", "0:1:1"], "problems"),
        (&["activity", "open", "9"], "no activity 9"),
        (&["activity", "stock", "add", "7", "2", "5"], "no SKU 2"),
        (&["activity", "stock", "add", "7", "1", "0"], "0"),
    ] {
        let output = house.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}: {error}");
        assert!(error.contains(gist), "{args:?}: {error}");
    }
    assert_eq!(house.figures(), (5, 5, 0, 0));
}
