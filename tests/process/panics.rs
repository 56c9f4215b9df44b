//! Faults of the program itself in a gateway: a call that panics is repeated, a gateway without its stock task ends.

use rushgate::protocol::Status;

use super::house::{House, SALE, SKU, Serving};
use super::wire::{buy, eventually, result};

fn panicking(house: &House, point: &str) -> Serving {
    let mut command =
        house.command(&["serve", "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen=127.0.0.1:0"]);
    command.env("RUSHGATE_CRASH_POINT", format!("panic:{point}"));
    house.start(command)
}

#[test]
fn a_call_that_panics_is_told_and_repeated_under_its_number() {
    for point in ["gateway.before_call", "gateway.after_reply"] {
        let house = House::with_sale(5);
        let serving = panicking(&house, point);
        let mut app = house.app(&serving, 1);
        app.ask(&buy(SALE, SKU, 1));
        eventually("he has his order", || app.ask(&result(SALE)).status == Status::Ok);
        assert_eq!(serving.metric("rushgate_panics_total"), 1);
        let log = serving.log();
        assert!(log.contains("task=\"a call to the store\""), "{log}");
        assert_eq!(house.figures(), (5, 4, 1, 1));
    }
}

#[test]
fn a_gateway_whose_stock_task_panics_ends_and_the_next_one_knows_what_it_sold() {
    let house = House::with_sale(5);
    let mut serving = panicking(&house, "gateway.before_queued");
    let mut app = house.app(&serving, 1);
    app.send(&buy(SALE, SKU, 1));
    assert_eq!(serving.ended().code(), Some(1), "{}", serving.log());
    let log = serving.log();
    assert!(log.contains("a fault of this program: the stock task has panicked"), "{log}");
    assert!(log.lines().any(|line| line.contains("ERROR") && line.contains("gateway=")), "{log}");
    let serving = house.serve(&[]);
    assert_eq!(house.app(&serving, 1).ask(&result(SALE)).status, Status::Ok);
}
