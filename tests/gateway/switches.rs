//! Switches as clients and operators meet them on the embedded store: a door that is closed turns everybody away but
//! winners, from memory, and stays closed whatever becomes of the gateway or of what is written in the store.

use std::time::{Duration, Instant};

use rushgate::protocol::{ActivityId, ActivityState, Reply, Request, Status};
use rushgate::store::sql::SwitchFolder;
use rushgate::store::switches::{NewSwitch, SwitchStore};

use super::house::{House, Plan, SALE, SKU, sale};
use super::waiting::closing_ends_who_waits;
use super::wire::{Client, PATIENCE, buy, eventually, result};

const OTHER: u32 = 2002;

/// Two open activities.
fn house() -> House {
    Plan::with(vec![sale(SALE, &[(SKU, 160)], 1), sale(OTHER, &[(SKU, 160)], 1)]).open()
}

/// As a command beside the gateway does.
pub(crate) fn set(house: &House, name: &str, value: &str) -> u64 {
    let data_dir = house.dir.path().join("data");
    let text = |text: &str| text.to_owned();
    let new = NewSwitch { name: text(name), value: text(value), who: text("mia"), why: text("a test") };
    house.operate(async {
        let folder = SwitchFolder::open(&data_dir).await.unwrap();
        folder.set_switch(&new).await.unwrap()
    })
}

/// Returns when the gateway obeys it.
pub(crate) fn obeyed(house: &House, name: &str, value: &str) {
    let version = set(house, name, value);
    eventually("it is obeyed", || house.gateway.switches().borrow().version >= version);
}

fn state(client: &mut Client, activity: u32) -> ActivityState {
    match client.ask(&Request::Activity { activity: ActivityId(activity) }).reply {
        Reply::Activity { info, .. } => info.state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_closed_entry_turns_away_all_but_winners_from_memory_until_it_is_open_again() {
    let house = house();
    let (mut winner, mut loser) = (house.app(1), house.app(2));
    let order = winner.ask(&buy(SALE, SKU, 1)).order().number;
    obeyed(&house, "entry", "closed");
    let arrived = house.gate.arrived();
    for _ in 0..3 {
        // Also for an activity that nobody knows.
        for activity in [SALE, OTHER, 9] {
            assert_eq!(loser.ask(&buy(activity, SKU, 1)).status, Status::Ended);
        }
        assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
        assert_eq!(winner.ask(&result(SALE)).order().number, order);
    }
    assert_eq!([SALE, OTHER].map(|activity| state(&mut loser, activity)), [ActivityState::Ended; 2]);
    assert_eq!((house.count("rung switches"), house.count("rung duplicate")), (9, 3));
    assert_eq!(house.gate.arrived(), arrived, "the store was not asked");
    obeyed(&house, "entry", "open");
    assert_eq!(state(&mut loser, SALE), ActivityState::Open);
    assert_eq!(loser.ask(&buy(9, SKU, 1)).status, Status::UnknownActivity);
    assert_eq!(loser.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}

#[test]
fn an_activity_sells_while_its_own_entry_that_of_all_and_the_catalogues_are_open() {
    let house = house();
    let mut buyer = house.app(1);
    let mut told = |activity| buyer.ask(&buy(activity, SKU, 9)).status;
    // More than one may have: told only by an entry that is open.
    assert_eq!([SALE, OTHER].map(&mut told), [Status::OverLimit; 2]);
    obeyed(&house, &format!("entry/{SALE}"), "closed");
    assert_eq!([SALE, OTHER].map(&mut told), [Status::Ended, Status::OverLimit]);
    obeyed(&house, "entry", "closed");
    obeyed(&house, &format!("entry/{SALE}"), "open");
    assert_eq!([SALE, OTHER].map(&mut told), [Status::Ended; 2]);
    house.operate(house.admin.close(u64::from(SALE))).unwrap();
    obeyed(&house, "entry", "open");
    eventually("the catalogue's is closed", || told(SALE) == Status::Ended);
    assert_eq!(told(OTHER), Status::OverLimit);
    obeyed(&house, &format!("entry/{SALE}"), "closed");
    house.operate(house.admin.open(u64::from(SALE))).unwrap();
    // What is made while doors are closed is behind them as well.
    obeyed(&house, "entry/3003", "closed");
    house.operate(house.admin.create(&sale(3003, &[(SKU, 5)], 1))).unwrap();
    eventually("it is known", || told(3003) == Status::Ended);
    assert_eq!([SALE, OTHER, 3003].map(&mut told), [Status::Ended, Status::OverLimit, Status::Ended]);
    obeyed(&house, "entry/3003", "open");
    obeyed(&house, &format!("entry/{SALE}"), "open");
    assert_eq!([SALE, OTHER, 3003].map(&mut told), [Status::OverLimit; 3]);
}

#[test]
fn who_waits_behind_a_door_that_is_closed_is_told_ended_and_who_is_at_the_store_is_not() {
    closing_ends_who_waits(|house| {
        set(house, "entry", "closed");
    });
}

#[test]
fn behind_a_closed_door_nobody_is_turned_away_for_good_while_it_is_not_known_who_has_won() {
    let house = Plan::new(160).settings(|settings| settings.stock.view_lag_ms_max = 300).open();
    let (mut winner, mut other) = (house.app(1), house.app(2));
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    obeyed(&house, "entry", "closed");
    eventually("it knows who has won", || other.ask(&buy(SALE, SKU, 1)).status == Status::Ended);
    house.gate.hear(false);
    eventually("it knows no longer", || other.ask(&buy(SALE, SKU, 1)).status == Status::Busy);
    let told = other.ask(&buy(SALE, SKU, 1));
    assert_eq!(told.status, Status::Busy);
    assert!((1_000..=2_000).contains(&told.hint_ms), "{}", told.hint_ms);
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    // The other rungs below have no better idea of who has won.
    obeyed(&house, "entry", "open");
    assert_eq!(other.ask(&buy(SALE, SKU, 9)).status, Status::Busy);
    house.gate.hear(true);
    eventually("it knows again", || other.ask(&buy(SALE, SKU, 9)).status == Status::OverLimit);
    obeyed(&house, "entry", "closed");
    eventually("it is closed", || other.ask(&buy(SALE, SKU, 1)).status == Status::Ended);
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn a_closed_door_is_closed_after_a_restart_before_the_first_client_comes() {
    let house = house();
    obeyed(&house, &format!("entry/{SALE}"), "closed");
    let (folder, _) = house.stop();
    let house = Plan::with(Vec::new()).open_in(folder);
    let mut first = house.app(1);
    assert_eq!(first.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    assert_eq!(first.ask(&buy(OTHER, SKU, 1)).status, Status::Queued);
}

#[test]
fn what_is_no_switch_is_ignored_and_counted_once_and_what_was_in_force_stays() {
    let house = house();
    let mut buyer = house.app(1);
    obeyed(&house, "entry", "closed");
    // As a newer version writes, or somebody's hand: the store takes any text.
    obeyed(&house, "entry", "clsed");
    obeyed(&house, "stock", "database");
    obeyed(&house, "log_level", "loud");
    assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    let switches = house.gateway.switches().borrow().clone();
    let names: Vec<&str> = switches.ignored.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["entry", "log_level", "stock"]);
    let why = switches.ignored[0].to_string();
    assert_eq!(why, "entry cannot be set to \"clsed\"; it is open or closed");
    assert_eq!((house.count("switch_ignored"), house.count("switch_obeyed")), (3, 4));
    obeyed(&house, "entry", "open");
    assert_eq!(house.gateway.switches().borrow().ignored.len(), 2);
    assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}

#[test]
fn a_door_that_flaps_sells_to_the_last_unit_and_not_one_more() {
    let house = Plan::new(160).open();
    let mut buyers: Vec<Client> = (1..=200).map(|id| house.app(id)).collect();
    let mut queued = 0;
    for (nth, client) in buyers.iter_mut().enumerate() {
        if nth % 10 == 0 {
            set(&house, "entry", if nth % 20 == 0 { "closed" } else { "open" });
        }
        loop {
            match client.ask(&buy(SALE, SKU, 1)).status {
                Status::Queued => queued += 1,
                Status::SoldOut => {}
                Status::Ended => {
                    set(&house, "entry", "open");
                    continue;
                }
                other => panic!("{other:?}"),
            }
            break;
        }
    }
    assert_eq!((queued, house.sold()), (160, (160, 160)));
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are for whoever runs it with --nocapture")]
fn every_flip_that_another_process_makes_is_obeyed() {
    let house = house();
    let mut client = house.app(1);
    let data_dir = house.dir.path().join("data");
    let folder = house.operate(SwitchFolder::open(&data_dir)).unwrap();
    let mut times: Vec<Duration> = Vec::new();
    for nth in 0..50 {
        let (value, due) = if nth % 2 == 0 { ("closed", Status::Ended) } else { ("open", Status::OverLimit) };
        let text = |text: &str| text.to_owned();
        let new =
            NewSwitch { name: text("entry"), value: text(value), who: text("mia"), why: text("a flip") };
        let began = Instant::now();
        house.operate(folder.set_switch(&new)).unwrap();
        while client.ask(&buy(SALE, SKU, 9)).status != due {
            assert!(began.elapsed() < PATIENCE, "never {due:?}");
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!(
        "{} flips, SQLite: p50 {:?}, max {:?}",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
    assert!(times[times.len() - 1] < Duration::from_secs(2), "{times:?}");
    house.operate(async { drop(folder) });
}
