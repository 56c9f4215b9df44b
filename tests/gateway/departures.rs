//! Clients that leave with work in the queue: the work completes, whichever way they left, and nothing stays behind.

use std::time::Duration;

use rushgate::protocol::{Request, Status};

use super::bystander::Bystander;
use super::house::{House, Plan, SALE, SKU};
use super::wire::{Client, buy, eventually, result};

const USERS: u64 = 300;

#[derive(Clone, Copy, Debug)]
enum Departure {
    /// Reset, as when the device loses its network.
    Reset,
    /// Closed without a word.
    Close,
    /// The last frame is GOAWAY.
    Goaway,
    /// Sends nothing more and reads nothing.
    HalfClose,
    /// Bytes that are no frame.
    BadFrame,
}

const DEPARTURES: [Departure; 5] =
    [Departure::Reset, Departure::Close, Departure::Goaway, Departure::HalfClose, Departure::BadFrame];

impl Departure {
    /// What it is counted as. An answer may meet a closed socket first, which is then a broken one.
    const fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Reset => &["ending broken"],
            Self::Close | Self::HalfClose => &["ending client", "ending broken"],
            Self::Goaway => &["ending client"],
            Self::BadFrame => &["ending bad_frame"],
        }
    }

    /// Leaves; keeps what has to be kept open for it to look so.
    fn leave(self, mut client: Client) -> Option<Client> {
        match self {
            Self::Reset => {
                client.reset();
                None
            }
            Self::Close => None,
            Self::Goaway => {
                client.send(&Request::Goaway);
                Some(client)
            }
            Self::HalfClose => {
                client.finish_writing();
                Some(client)
            }
            Self::BadFrame => {
                client.write(&[0xFF; 64]);
                Some(client)
            }
        }
    }
}

/// A house in which calls wait for as long as a test likes, and which does not wait long for those who have left.
fn patient(stock: u64) -> House {
    Plan::new(stock)
        .settings(|settings| {
            settings.stock.patience_ms = 600_000;
            settings.stock.unconfirmed_after_ms = 600_000;
            settings.stock.call_timeout_ms = 600_000;
            settings.drain_timeout = Duration::from_millis(200);
        })
        .open()
}

#[test]
fn every_order_of_a_back_end_that_left_stands() {
    for departure in DEPARTURES {
        let house = patient(USERS);
        let bystander = Bystander::watch(house.app(100_000), SALE);
        house.gate.shut();
        let mut back_end = house.service();
        for user in 1..=USERS {
            back_end.send_for(user, &buy(SALE, SKU, 1));
        }
        eventually("all wait", || house.count("rung passed") == USERS);
        eventually("all are counted", || house.gateway.unfinished() as u64 == USERS);
        let kept = departure.leave(back_end);
        eventually("its connection is gone", || house.gateway.connections() == 1);
        let ended: u64 = departure.endings().iter().map(|ending| house.count(ending)).sum();
        assert_eq!(ended, 1, "{departure:?}: {:?}", house.counts());
        assert_eq!(house.sold(), (0, 0));
        house.gate.open();
        eventually("every order stands", || house.sold() == (USERS, USERS));
        eventually("nothing is left", || house.gateway.unfinished() == 0);
        assert_eq!(house.count("QUEUED"), USERS, "{departure:?}: each answered once, though nobody hears it");
        // Each of them is told so by another connection.
        let mut other = house.service();
        for user in [1, USERS / 2, USERS] {
            assert_eq!(other.ask_for(user, &result(SALE)).status, Status::Ok, "{departure:?}");
            assert_eq!(other.ask_for(user, &buy(SALE, SKU, 1)).status, Status::Already, "{departure:?}");
        }
        assert_eq!(other.ask_for(USERS + 1, &buy(SALE, SKU, 1)).status, Status::SoldOut);
        bystander.unharmed();
        drop(kept);
    }
}

#[test]
fn who_leaves_and_comes_back_over_and_over_buys_once() {
    let house = patient(50);
    house.gate.shut();
    for turn in 0..50 {
        let mut client = house.app(1);
        client.send(&buy(SALE, SKU, 2));
        eventually("it waits", || house.count("rung passed") == turn + 1);
        drop(DEPARTURES[usize::try_from(turn).unwrap() % DEPARTURES.len()].leave(client));
    }
    house.gate.open();
    eventually("nothing is left", || house.gateway.unfinished() == 0);
    assert_eq!(house.sold(), (2, 1));
    assert_eq!((house.count("QUEUED"), house.count("ALREADY")), (1, 49));
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, 1)).order().quantity, 2);
    eventually("all are gone", || house.gateway.connections() == 0);
}
