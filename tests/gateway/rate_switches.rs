//! Rates that operators change while clients come: what is set is in force, and neither a free burst nor a lockout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rushgate::protocol::{Request, Status};

use super::house::{House, Plan, SALE, SKU, rate, sale};
use super::switches::{obeyed, set};
use super::wire::{Client, buy, eventually, result};

const OTHER: u32 = 2002;

fn unknown() -> Request<'static> {
    buy(9, SKU, 1)
}

/// How many of so many pass a limit.
fn passed(client: &mut Client, tries: usize, request: &Request<'_>) -> usize {
    (0..tries).filter(|_| client.ask(request).status != Status::RateLimited).count()
}

#[test]
fn every_rate_can_be_set_switched_off_and_given_back_to_the_configuration() {
    // So slow that nothing comes while it is counted.
    let house = Plan::new(5).limits(|limits| limits.per_user = rate(1, 1000)).open();
    let mut client = house.app(1);
    assert_eq!(passed(&mut client, 30, &unknown()), 30);
    for (name, rung) in [
        ("limits.global", "rung rate_global"),
        ("limits.per_user", "rung rate_user"),
        ("limits.per_connection", "rung rate_connection"),
    ] {
        let before = house.count(rung);
        obeyed(&house, name, "1:10");
        let some = passed(&mut client, 40, &unknown());
        assert!((10..=12).contains(&some), "{name}: {some}");
        assert_eq!(house.count(rung) - before, 40 - some as u64, "{name}");
        obeyed(&house, name, "off");
        assert_eq!(passed(&mut client, 40, &unknown()), 40, "{name}");
        obeyed(&house, name, "1:10");
        let some = passed(&mut client, 40, &unknown());
        assert!(some <= 5, "{name}: back on it stands where it stood, and what came since: {some}");
        obeyed(&house, name, "default");
        let due = if name == "limits.per_user" { 0..=5 } else { 40..=40 };
        let some = passed(&mut client, 40, &unknown());
        assert!(due.contains(&some), "{name}: {some}");
        obeyed(&house, "limits.per_user", "off");
    }
    obeyed(&house, "limits.result_per_user", "1:3");
    let some = passed(&mut client, 10, &result(SALE));
    assert!((3..=4).contains(&some), "{some}");
    obeyed(&house, "limits.result_per_user", "default");
    obeyed(&house, "limits.result_per_user", "100000:100000");
    eventually("it fills up", || passed(&mut client, 10, &result(SALE)) == 10);
}

#[test]
fn an_addresses_rate_is_set_but_not_that_of_an_override() {
    let house = Plan::new(5)
        .limits(|limits| {
            limits.per_ip = rate(1, 1);
            limits.per_ip_overrides.clear();
        })
        .open();
    let mut client = house.app(1);
    assert!(passed(&mut client, 20, &unknown()) <= 2);
    obeyed(&house, "limits.per_ip", "1000000:50");
    eventually("it fills up", || passed(&mut client, 20, &unknown()) == 20);
    let house = Plan::new(5).open();
    obeyed(&house, "limits.per_ip", "1:1");
    assert_eq!(passed(&mut house.app(1), 50, &unknown()), 50, "this address is exempt by an override");
}

#[test]
fn the_rate_of_an_activity_is_its_own_and_stands_through_catalogue_changes_and_a_restart() {
    let house = Plan::with(vec![sale(SALE, &[(SKU, 160)], 1), sale(OTHER, &[(SKU, 160)], 1)]).open();
    obeyed(&house, &format!("limits.activity/{SALE}"), "1:30");
    let began = Instant::now();
    let mut back_end = house.service();
    let mut told = |users: std::ops::Range<u64>, activity| {
        let asked = users.map(|user| back_end.ask_for(user, &buy(activity, SKU, 1)).status);
        asked.filter(|status| *status == Status::Queued).count()
    };
    let sold = told(100..140, SALE);
    assert!((30..=31).contains(&sold), "{sold}");
    assert_eq!(told(100..140, OTHER), 40);
    // The catalogue is read anew: nothing starts again.
    let made = sale(3003, &[(SKU, 50)], 1);
    house.operate(house.admin.create(&made)).unwrap();
    eventually("it is known", || told(200..201, 3003) == 1);
    let sold = sold + told(140..180, SALE);
    let due = 31 + began.elapsed().as_secs();
    assert!(sold as u64 <= due, "{sold}, at most {due}");
    let (folder, _) = house.stop();
    let house = Plan::with(Vec::new()).open_in(folder);
    let mut back_end = house.service();
    let limited = (300..340)
        .filter(|user| back_end.ask_for(*user, &buy(SALE, SKU, 1)).status == Status::RateLimited)
        .count();
    assert!((9..=10).contains(&limited), "the switch is in force from the first client on: {limited}");
    obeyed(&house, &format!("limits.activity/{SALE}"), "default");
    assert_eq!(back_end.ask_for(400, &buy(SALE, SKU, 1)).status, Status::Queued);
}

#[test]
fn what_is_no_rate_is_ignored_and_the_rate_in_force_stays() {
    let house = Plan::new(5).open();
    let mut client = house.app(1);
    obeyed(&house, "limits.global", "1:5");
    assert!((5..=6).contains(&passed(&mut client, 20, &unknown())));
    for odd in ["", "0:5", "5", "5:0", "5:5:5", "-1:5", "05:5", "4294967296:1", "10000001:1", "on", "1 : 5"] {
        obeyed(&house, "limits.global", odd);
        assert!(passed(&mut client, 20, &unknown()) <= 3, "{odd:?}");
    }
    assert_eq!(house.gateway.switches().borrow().ignored.len(), 1);
    obeyed(&house, "limits.global", "default");
    assert_eq!(passed(&mut client, 20, &unknown()), 20);
}

/// Sets a limit again and again, ten times a second, as long as somebody works.
fn flipped(house: &House, values: &[&str], work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (nth, value) in values.iter().cycle().enumerate() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let due = Instant::now() + Duration::from_millis(100);
                set(house, "limits.global", value);
                assert!(nth < 10_000);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        work();
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn flipped_ten_times_a_second_under_load_no_more_pass_than_the_rates_and_nobody_is_locked_out() {
    // Slow and fast, small and great: the greatest rate there was bounds what passes, and the smallest what waits.
    let house = Plan::new(5).limits(|limits| limits.global = rate(50, 5)).open();
    let mut clients: Vec<Client> = (1..=4).map(|id| house.app(id)).collect();
    let (mut passes, mut waited_longest) = (0_u64, Duration::ZERO);
    let began = Instant::now();
    flipped(&house, &["50:5", "200:40", "50:1", "120:20"], || {
        let mut last = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            for client in &mut clients {
                if client.ask(&unknown()).status != Status::RateLimited {
                    passes += 1;
                    waited_longest = waited_longest.max(last.elapsed());
                    last = Instant::now();
                }
            }
        }
    });
    let within_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
    assert!(passes <= within_ms * 200 / 1000 + 41, "{passes} in {within_ms} ms");
    assert!(passes >= 3_000 * 50 / 1000 / 2, "{passes} in {within_ms} ms");
    assert!(waited_longest < Duration::from_secs(1), "{waited_longest:?}");
}
