//! What is accepted is counted as unfinished from the moment that it is, without a gap: a drain waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rushgate::gateway::Rung;

use super::house::{Plan, SALE, SKU};
use super::wire::{buy, eventually, request};

#[test]
fn what_waits_is_counted_all_the_time() {
    const USERS: u64 = 20_000;
    const BURST: u64 = 500;
    let house = Plan::new(USERS)
        .settings(|settings| {
            settings.service_in_flight_max = 20_000;
            settings.stock.queue_items_max = 20_000;
            settings.stock.patience_ms = 600_000;
            settings.stock.unconfirmed_after_ms = 600_000;
            settings.stock.call_timeout_ms = 600_000;
        })
        .open();
    house.gate.shut();
    let mut back_end = house.service();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Nothing is answered while the gate is shut.
                let passed = house.gateway.counters().rung_count(Rung::Passed);
                let unfinished = house.gateway.unfinished() as u64;
                assert!(unfinished >= passed, "{unfinished} unfinished of {passed} accepted");
            }
        });
        // In bursts, each of which the stock task takes up at once.
        for burst in 0..USERS / BURST {
            let users = burst * BURST + 1..=(burst + 1) * BURST;
            let id = |user: u64| u32::try_from(user).unwrap() + 100;
            let bytes: Vec<u8> =
                users.flat_map(|user| request(id(user), Some(user), &buy(SALE, SKU, 1))).collect();
            back_end.write(&bytes);
            let passed = || house.gateway.counters().rung_count(Rung::Passed);
            eventually("all wait", || passed() == (burst + 1) * BURST || watching.is_finished());
        }
        stop.store(true, Ordering::Relaxed);
        watching.join().unwrap();
    });
    house.gate.open();
    eventually("nothing is left", || house.gateway.unfinished() == 0);
    assert_eq!(house.sold(), (USERS, USERS));
}
