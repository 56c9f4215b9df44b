//! Gateways that share rates, and a store between them, in virtual time. Each gateway is asked as often as a test says
//! and passes what its bucket and its slice give; what has passed is compared with what one bucket would have passed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use super::super::pace::{Pace, update};
use super::{Exchange, ExchangeReply, Offers, RateKey, SharedRates, Slices};
use crate::admission::limits::{IpKey, Rate, Share};
use crate::protocol::ActivityId;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// A request that comes each so many ns comes as often as anybody asks.
const HAMMERING: u64 = MS / 10;

/// One gateway's rates: all of them one.
struct Local {
    pace: RefCell<Pace>,
    state: AtomicU64,
    slices: Slices,
}

impl Local {
    fn new(rate: Rate) -> Self {
        let pace = RefCell::new(Pace::new(rate, Share::WHOLE));
        Self { pace, state: AtomicU64::new(0), slices: Slices::new() }
    }

    fn share(&self, now_ns: u64, gateways: u32) {
        let (rate, share) = (self.pace.borrow().rate(), Share { gateways });
        let changed = self.pace.borrow().changed(now_ns, rate, share);
        self.pace.replace(changed);
    }

    fn passes(&self, now_ns: u64, key: RateKey) -> bool {
        let pace = self.pace.borrow();
        let passed = pace.check(now_ns, &self.state);
        let borrowed = || match key {
            RateKey::Ip(ip) => self.slices.take_ip(now_ns, ip),
            _ => self.slices.global.take(now_ns),
        };
        passed.or_else(|wait_ms| pace.or_borrowed(wait_ms, borrowed)).is_ok()
    }
}

impl SharedRates for Local {
    fn visit(&self, visit: &mut dyn FnMut(RateKey, &super::Slice)) {
        self.slices.visit(visit);
    }

    fn rate(&self, _: RateKey) -> Rate {
        self.pace.borrow().rate()
    }

    fn lend(&self, now_ns: u64, _: RateKey, most: u32) -> u32 {
        update(&self.state, |state| self.pace.borrow().lend(now_ns, state, most))
    }

    fn release(&self, key: RateKey) {
        if let RateKey::Ip(ip) = key {
            self.slices.release(ip);
        }
    }
}

/// What the store's function does.
#[derive(Default)]
struct Store {
    is_away: bool,
    heard_ns: HashMap<usize, u64>,
    wanted: HashMap<RateKey, (u64, u32)>,
    calls: u32,
}

impl Store {
    fn exchange(&mut self, now_ns: u64, gateway: usize, asked: &Offers) -> Option<ExchangeReply> {
        if self.is_away {
            return None;
        }
        self.calls += 1;
        self.heard_ns.insert(gateway, now_ns);
        self.heard_ns.retain(|_, at_ns| *at_ns + 1_500 * MS >= now_ns);
        self.wanted.retain(|_, (at_ns, _)| *at_ns + S >= now_ns);
        let granted = asked.offers.iter().map(|offer| {
            if offer.want > 0 {
                self.wanted.entry(offer.key).or_default().0 = now_ns;
            }
            let Some((_, pool)) = self.wanted.get_mut(&offer.key) else { return 0 };
            *pool = (*pool + offer.give).min(offer.pool_max);
            let granted = offer.want.min(*pool);
            *pool -= granted;
            granted
        });
        let granted = granted.collect();
        let wanted = self.wanted.iter().map(|(key, (_, pool))| (*key, *pool)).collect();
        Some(ExchangeReply { gateways: self.heard_ns.len() as u32, granted, wanted })
    }

    /// It has lost everything.
    fn forget(&mut self) {
        self.heard_ns.clear();
        self.wanted.clear();
    }
}

struct Gateway {
    local: Local,
    gateways: u32,
    exchange: Exchange,
    next_ns: u64,
    is_dead: bool,
    passed: u64,
    refused: u64,
}

struct World {
    now_ns: u64,
    gateways: Vec<Gateway>,
    store: Store,
    random: fastrand::Rng,
    key: RateKey,
}

impl World {
    fn new(rate: Rate, count: usize, seed: u64) -> Self {
        let gateway = |_| Gateway {
            local: Local::new(rate),
            gateways: 1,
            exchange: Exchange::new(),
            next_ns: 0,
            is_dead: false,
            passed: 0,
            refused: 0,
        };
        let mut world = Self {
            now_ns: 0,
            gateways: (0..count).map(gateway).collect(),
            store: Store::default(),
            random: fastrand::Rng::with_seed(seed),
            key: RateKey::Global,
        };
        // All are there before anybody asks.
        for _ in 0..2 {
            (0..count).for_each(|nth| world.tick(nth));
        }
        world
    }

    fn tick(&mut self, nth: usize) {
        let (now_ns, gateway) = (self.now_ns, &mut self.gateways[nth]);
        let asked = gateway.exchange.next(now_ns, &gateway.local);
        match self.store.exchange(now_ns, nth, &asked) {
            Some(reply) => gateway.exchange.answered(now_ns, &asked, reply, &gateway.local),
            None => gateway.exchange.failed(),
        }
        let gateways = gateway.exchange.gateways();
        if gateways != gateway.gateways {
            gateway.gateways = gateways;
            gateway.local.share(now_ns, gateways);
        }
        let due_ms = gateway.exchange.due_in_ms();
        gateway.next_ns = now_ns + self.random.u64(due_ms * 4 / 5..=due_ms * 6 / 5) * MS;
    }

    /// Runs on for so long; each gateway is asked once in so many ns, on average. Passed in this time, by gateway.
    fn run(&mut self, for_ns: u64, intervals_ns: &[u64]) -> Vec<u64> {
        let before: Vec<_> = self.gateways.iter().map(|gateway| gateway.passed).collect();
        let end_ns = self.now_ns + for_ns;
        let mut next: Vec<u64> = intervals_ns
            .iter()
            .map(|interval| self.now_ns.saturating_add(self.random.u64(0..*interval)))
            .collect();
        while self.now_ns < end_ns {
            self.now_ns += HAMMERING;
            for nth in 0..self.gateways.len() {
                if self.gateways[nth].is_dead {
                    continue;
                }
                while next[nth] <= self.now_ns {
                    let gateway = &mut self.gateways[nth];
                    if gateway.local.passes(self.now_ns, self.key) {
                        gateway.passed += 1;
                    } else {
                        gateway.refused += 1;
                    }
                    let interval = intervals_ns[nth];
                    // About as irregular as people are.
                    next[nth] +=
                        if interval > HAMMERING { self.random.u64(1..2 * interval) } else { interval };
                }
                if self.gateways[nth].next_ns <= self.now_ns {
                    self.tick(nth);
                }
            }
        }
        self.gateways.iter().zip(before).map(|(gateway, before)| gateway.passed - before).collect()
    }

    /// Nobody asks.
    fn rest(&mut self, for_ns: u64) {
        self.run(for_ns, &vec![u64::MAX / 4; self.gateways.len()]);
    }
}

const RATE: Rate = Rate { rate_per_s: 1_000, burst: 200 };

#[track_caller]
fn is_about(passed: u64, due: u64) {
    assert!(passed * 100 >= due * 97 && passed * 100 <= due * 101, "{passed}, not about {due}");
}

/// Never more than one bucket would have passed.
#[track_caller]
fn is_below(passed: u64, rate: Rate, for_ns: u64) {
    let most = u64::from(rate.burst) + u64::from(rate.rate_per_s) * for_ns / S;
    assert!(passed <= most + 1, "{passed} of {most}");
}

#[test]
fn all_hammering_gateways_together_pass_the_rate() {
    for count in [1, 2, 3, 5, 20] {
        for seed in 0..3 {
            let mut world = World::new(RATE, count, seed);
            let first: u64 = world.run(S, &vec![HAMMERING; count]).iter().sum();
            is_below(first, RATE, S);
            let passed = world.run(10 * S, &vec![HAMMERING; count]);
            is_about(passed.iter().sum(), 10_000);
            let (least, most) = (passed.iter().min().unwrap(), passed.iter().max().unwrap());
            assert!(most - least <= 200, "each has its share: {passed:?}");
        }
    }
}

#[test]
fn one_alone_uses_what_the_others_leave() {
    for (count, key) in [
        (2, RateKey::Global),
        (5, RateKey::Global),
        (20, RateKey::Global),
        (5, RateKey::Ip(IpKey::new(0, "192.0.2.1".parse().unwrap()))),
    ] {
        let mut world = World::new(RATE, count, 7);
        world.key = key;
        let mut intervals = vec![u64::MAX / 4; count];
        intervals[0] = HAMMERING;
        let first: u64 = world.run(2 * S, &intervals).iter().sum();
        is_below(first, RATE, 2 * S);
        assert!(first > 1_500, "{first} in the first two seconds");
        let passed: u64 = world.run(10 * S, &intervals).iter().sum();
        is_about(passed, 10_000);
        // Afterwards it is another's turn; what was borrowed is gone with it.
        world.rest(2 * S);
        intervals.swap(0, 1);
        let passed: u64 = world.run(10 * S, &intervals).iter().sum();
        is_below(passed, RATE, 10 * S);
        assert!(passed > 9_500, "{passed}");
    }
}

#[test]
fn who_stays_below_his_share_is_refused_nothing_while_another_hammers() {
    let mut world = World::new(RATE, 2, 7);
    // Nine tenths of 500 a second.
    let intervals = [HAMMERING, S / 450];
    world.run(2 * S, &intervals);
    let refused = world.gateways[1].refused;
    let passed = world.run(10 * S, &intervals);
    is_about(passed.iter().sum(), 10_000);
    let asked = passed[1] + world.gateways[1].refused - refused;
    assert!(passed[1] * 100 >= asked * 99, "{passed:?} of {asked}");
}

#[test]
fn without_the_store_each_has_its_share_and_when_it_is_back_nothing_bursts() {
    for loses_data in [false, true] {
        let mut world = World::new(RATE, 3, 7);
        let intervals = [HAMMERING, HAMMERING, u64::MAX / 4];
        world.run(3 * S, &intervals);
        world.store.is_away = true;
        // What was borrowed may still be used; then two shares of three are left.
        let first: u64 = world.run(S, &intervals).iter().sum();
        assert!(first < 1_000, "{first}");
        let away = world.run(10 * S, &intervals);
        is_about(away.iter().sum(), 6_667);
        world.store.is_away = false;
        if loses_data {
            world.store.forget();
        }
        let mut passed: u64 = 0;
        for nth in 1..=20 {
            passed += world.run(S / 10, &intervals).iter().sum::<u64>();
            // The third has its bucket full, and nobody else anything.
            assert!(passed <= nth * 100 + 70, "{passed} after {nth} tenths of a second");
        }
        let back: u64 = world.run(10 * S, &intervals).iter().sum();
        is_about(back, 10_000);
    }
}

#[test]
fn a_gateway_that_dies_leaves_its_share_to_the_others_within_seconds() {
    let mut world = World::new(RATE, 4, 7);
    let intervals = [HAMMERING; 4];
    world.run(2 * S, &intervals);
    world.gateways[3].is_dead = true;
    let first: u64 = world.run(4 * S, &intervals).iter().sum();
    assert!((3_000..=4_010).contains(&first), "{first}");
    is_about(world.run(10 * S, &intervals).iter().sum(), 10_000);
    assert_eq!(world.gateways[0].gateways, 3);
}

#[test]
fn addresses_have_no_slices_any_more_when_they_are_not_wanted_or_nobody_is_left_to_lend() {
    for is_dead in [false, true] {
        let mut world = World::new(RATE, 2, 7);
        world.key = RateKey::Ip(IpKey::new(0, "192.0.2.1".parse().unwrap()));
        let slices = |world: &World| {
            let mut slices = 0;
            world.gateways[0].local.slices.visit(&mut |key, _| slices += u32::from(key == world.key));
            slices
        };
        world.run(S, &[HAMMERING, u64::MAX / 4]);
        assert_eq!(slices(&world), 1);
        world.gateways[1].is_dead = is_dead;
        if is_dead {
            world.run(4 * S, &[HAMMERING, u64::MAX / 4]);
        } else {
            world.rest(S);
        }
        assert_eq!(slices(&world), 0);
    }
}

/// One activity's rate, as long as the activity is there.
#[derive(Default)]
struct OneActivity {
    is_archived: Cell<bool>,
    slice: super::Slice,
}

impl SharedRates for OneActivity {
    fn visit(&self, visit: &mut dyn FnMut(RateKey, &super::Slice)) {
        if !self.is_archived.get() {
            visit(RateKey::Activity(ActivityId(7)), &self.slice);
        }
    }

    fn rate(&self, _: RateKey) -> Rate {
        if self.is_archived.get() { Rate::OFF } else { RATE }
    }

    fn lend(&self, _: u64, _: RateKey, _: u32) -> u32 {
        0
    }

    fn release(&self, _: RateKey) {}
}

#[test]
fn what_was_borrowed_for_an_activity_that_is_archived_is_given_up() {
    let (mut exchange, rates) = (Exchange::new(), OneActivity::default());
    let (mut now_ns, mut due_ms) = (0, Vec::new());
    for round in 0..20 {
        rates.is_archived.set(round >= 5);
        if round < 5 {
            rates.slice.take(now_ns);
        }
        let asked = exchange.next(now_ns, &rates);
        let granted = asked.offers.iter().map(|offer| offer.want).collect();
        exchange.answered(now_ns, &asked, ExchangeReply { gateways: 2, granted, wanted: vec![] }, &rates);
        due_ms.push(exchange.due_in_ms());
        now_ns += 100 * MS;
    }
    assert_eq!((due_ms[4], due_ms[5..].iter().copied().min()), (100, Some(250)), "{due_ms:?}");
}

#[test]
fn a_gateway_that_joins_is_counted_at_once() {
    let mut world = World::new(RATE, 2, 7);
    world.run(3 * S, &[HAMMERING; 2]);
    let mut joining = World::new(RATE, 1, 8).gateways;
    world.gateways.append(&mut joining);
    world.tick(2);
    assert_eq!(world.gateways[2].gateways, 3);
    // It comes with its part of the burst.
    let first: u64 = world.run(S, &[HAMMERING; 3]).iter().sum();
    assert!(first <= 1_000 + 70 + 40, "{first}");
    is_about(world.run(10 * S, &[HAMMERING; 3]).iter().sum(), 10_000);
}

#[test]
fn few_a_second_are_shared_as_exactly_as_many() {
    for (rate_per_s, burst) in [(1, 1), (2, 4), (10, 10), (50, 20)] {
        let rate = Rate { rate_per_s, burst };
        let mut world = World::new(rate, 3, 7);
        let intervals = [MS, u64::MAX / 4, u64::MAX / 4];
        world.run(10 * S, &intervals);
        let passed: u64 = world.run(100 * S, &intervals).iter().sum();
        let due = u64::from(rate_per_s) * 100;
        assert!(passed <= due + 1, "{passed} of {due}");
        assert!(passed * 100 >= due * 90, "{passed} of {due}");
    }
}

#[test]
fn the_store_is_asked_a_bounded_number_of_times() {
    let mut world = World::new(RATE, 3, 7);
    world.store.calls = 0;
    world.rest(10 * S);
    assert!((90..=150).contains(&world.store.calls), "{} calls of three who rest", world.store.calls);
    world.store.calls = 0;
    world.run(10 * S, &[HAMMERING; 3]);
    assert!((250..=380).contains(&world.store.calls), "{} calls of three who are asked", world.store.calls);
    world.rest(10 * S);
    world.store.calls = 0;
    world.rest(10 * S);
    assert!(world.store.calls <= 150, "{} calls", world.store.calls);
}
