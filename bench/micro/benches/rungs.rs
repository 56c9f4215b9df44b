//! The rungs of the funnel, each by itself: rate limits over a million users, who has an order, what is left.
//!
//! Rungs that nothing outside the gateway can ask are in the wakes.
#![allow(missing_docs, clippy::expect_used, reason = "benches")]

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use rushgate::admission::limits::{Held, Limits, LimitsSettings, Rate};
use rushgate::protocol::{OrderNumber, OrderState, SkuKey, UserId};
use rushgate::stock::calls::{Gen, Mark, ProcessNumber, ShardId, SkuCounters, Snapshot};
use rushgate::stock::{Board, Buyers, Left, Settings, Stock};
use rushgate_micro::requests::{SALE, SKU};

const USERS: u64 = 1_000_000;
/// Who has an order.
const BUYERS: u64 = 10_000;
const THE_SKU: SkuKey = SkuKey { activity: SALE, sku: SKU };

fn rates(criterion: &mut Criterion) {
    let never = Rate { rate_per_s: 1_000_000_000, burst: 1_000_000_000 };
    let limits = Limits::new(&LimitsSettings {
        global: never,
        per_ip: never,
        per_user: never,
        result_per_user: never,
        keys_max: 2_000_000,
        ..LimitsSettings::default()
    });
    let rates = limits.rates();
    for number in 0..USERS {
        limits.check(&rates, 1, address(number), user(number)).expect("no limit is reached");
        limits.check_result(&rates, 1, user(number)).expect("no limit is reached");
    }
    let mut group = criterion.benchmark_group("limits");
    let (mut now_ns, held) = (1_u64, Held::new());
    group.bench_function("held", |bench| {
        bench.iter(|| {
            now_ns = now_ns.saturating_add(1_000);
            limits.check_held(&rates, now_ns, &held, address(1), user(1))
        });
    });
    let mut number = 0;
    let mut next = || {
        // Coprime to the number of users: all of them, far from each other.
        number = u64::wrapping_add(number, 618_033) % USERS;
        number
    };
    group.bench_function("by_user_and_address_of_1m", |bench| {
        bench.iter(|| {
            let number = next();
            now_ns = now_ns.saturating_add(1_000);
            limits.check(&rates, now_ns, address(number), user(number))
        });
    });
    group.bench_function("by_user_of_1m", |bench| {
        bench.iter(|| {
            now_ns = now_ns.saturating_add(1_000);
            limits.check(&rates, now_ns, None, user(next()))
        });
    });
    group.bench_function("result_by_user_of_1m", |bench| {
        bench.iter(|| {
            now_ns = now_ns.saturating_add(1_000);
            limits.check_result(&rates, now_ns, user(next()))
        });
    });
    group.finish();
}

fn standings(criterion: &mut Criterion) {
    let (_, buyers) = sold_out();
    let mut group = criterion.benchmark_group("buyers");
    let mut number = 0;
    let mut next = |below: u64| {
        number = u64::wrapping_add(number, 618_033);
        number.checked_rem(below).unwrap_or(0)
    };
    assert!(buyers.standing(SALE, user(0)).is_some() && buyers.standing(SALE, user(BUYERS)).is_none());
    group.bench_function("present", |bench| {
        bench.iter(|| buyers.standing(SALE, user(next(BUYERS))));
    });
    group.bench_function("absent", |bench| {
        bench.iter(|| buyers.standing(SALE, user(next(USERS).saturating_add(BUYERS))));
    });
    group.finish();
}

fn stock(criterion: &mut Criterion) {
    let (board, _) = sold_out();
    let slot = board.slot(THE_SKU);
    assert_eq!(board.left(&slot, 1), Left::Exactly(0));
    criterion.bench_function("board/left", |bench| {
        bench.iter(|| board.left(black_box(&slot), black_box(1)));
    });
}

/// What an engine publishes once it has seen every shard: nothing left, and who bought.
fn sold_out() -> (Arc<Board>, Arc<Buyers>) {
    let (board, buyers) = (Arc::new(Board::default()), Arc::new(Buyers::default()));
    let (process, generation) = (ProcessNumber(1), Gen(1));
    let (for_engine, on_board) = (Arc::clone(&buyers), Arc::clone(&board));
    let mut engine = Stock::<u64>::new(Settings::default(), process, generation, for_engine, on_board, 1);
    for shard in ShardId::ALL {
        let marks = (0..BUYERS).map(|number| (user(number), mark(number)));
        engine.on_snapshot(
            1,
            &Snapshot {
                shard,
                generation,
                seq: 1,
                counters: vec![SkuCounters {
                    sku: THE_SKU,
                    free: 0,
                    out: Vec::new(),
                    brought_in: Vec::new(),
                }],
                marks: marks.filter(|(user, _)| ShardId::of(*user) == shard).collect(),
            },
        );
        engine.on_current(shard, 1);
    }
    (board, buyers)
}

const fn mark(number: u64) -> Mark {
    Mark {
        order: OrderNumber(number),
        sku: THE_SKU,
        quantity: 1,
        attempt: 1,
        state: OrderState::PendingPayment,
        pay_by_ms: 0,
    }
}

const fn user(number: u64) -> UserId {
    UserId(number.saturating_add(1))
}

/// In 10.0.0.0/8.
const fn address(number: u64) -> IpAddr {
    let [_, _, _, _, _, b, c, d] = number.to_be_bytes();
    IpAddr::V4(std::net::Ipv4Addr::new(10, b, c, d))
}

criterion_group!(benches, rates, standings, stock);
criterion_main!(benches);
