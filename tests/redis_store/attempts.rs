//! How often a user may ask the store for units: counted in his shard, exactly, whoever brings what he asks, in one call
//! or in many; and what holders, repetitions and promises have to do with it: nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rushgate::protocol::{ActivityId, OrderState, SkuId, SkuKey, UserId};
use rushgate::stock::calls::{Call, Item, ItemAnswer, Reply, ShardId};
use rushgate::store::redis::{AttemptLimit, Guarded, RedisOpenError, RedisOptions, RedisShards, Release};
use rushgate::store::{ReservationStore, StoreError};
use rushgate_servers::{Persistence, Redis, RespValue};
use tokio::time::Instant;

use crate::installation::{Installation, Process, shard, user_of};
use crate::redis_installation::{RedisInstallation, RedisStore, redis};

const COUNT_MAX: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(20);

fn limit(window: Duration) -> AttemptLimit {
    AttemptLimit { count_max: COUNT_MAX, window }
}

/// The only SKU of an activity.
fn only(activity: usize) -> SkuKey {
    SkuKey { activity: ActivityId(activity as u32), sku: SkuId(1) }
}

fn is_too_often(answer: ItemAnswer) -> bool {
    matches!(answer, ItemAnswer::TooOften { .. })
}

/// About an hour, and not over before the test is.
fn long_window() -> Duration {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let lasts = |window_s: &u64| now_s % window_s < window_s - 60;
    Duration::from_secs([3_600, 3_500, 3_400].into_iter().find(lasts).unwrap())
}

/// An installation whose gateways hold their users to five attempts in a window.
struct Place {
    installation: RedisInstallation,
    window: Duration,
}

impl Place {
    async fn new(window: Duration) -> Self {
        let server = redis().await;
        let options =
            RedisOptions { prefix: server.fresh_prefix(), ..RedisOptions::single(server.address()) };
        Self::with(options, window).await
    }

    async fn with(options: RedisOptions, window: Duration) -> Self {
        let options = RedisOptions { attempts: Some(limit(window)), ..options };
        Self { installation: RedisInstallation::with(options).await, window }
    }

    async fn process(&self) -> Process<RedisStore> {
        Process::start(self.installation.store()).await
    }

    /// Puts so many units of the first so many activities into a shard.
    async fn load(&self, home: ShardId, activities: usize, units: u32) {
        let (shards, generation) = (self.installation.shards(), self.installation.generation().await);
        for activity in 1..=activities {
            let sku = only(activity);
            let loaded =
                shards.load(home, generation, "a load", sku.activity, &[(sku.sku, units.into())]).await;
            assert_eq!(loaded.unwrap(), Guarded::Done(vec![(sku.sku, units)]));
        }
    }

    fn key(&self, home: ShardId) -> String {
        let prefix = &self.installation.options.prefix;
        format!("{prefix}:{{{:02}}}:attempts:{}", home.number(), self.window.as_millis())
    }

    async fn redis(&self, command: &str, home: ShardId, more: &[&[u8]]) -> RespValue {
        let key = self.key(home);
        let command = [&[command.as_bytes(), key.as_bytes()], more].concat();
        redis().await.call(&command).await.unwrap()
    }

    /// The window that the store counts in.
    async fn counts_in(&self, home: ShardId) -> String {
        self.redis("HGET", home, &[b"w"]).await.to_string()
    }

    /// How many attempts of a user the store remembers.
    async fn counted(&self, user: UserId) -> usize {
        let counted = self.redis("HSTRLEN", ShardId::of(user), &[&user.0.to_be_bytes()]).await;
        let RespValue::Integer(bytes) = counted else { panic!("{counted:?}") };
        usize::try_from(bytes).unwrap() / 8
    }
}

/// Buys in activities, one after the other, one call each; the answers.
async fn buys(process: &mut Process<RedisStore>, user: UserId, activities: &[usize]) -> Vec<ItemAnswer> {
    let mut answers = Vec::new();
    for activity in activities {
        answers.push(process.buy(user, only(*activity), 1).await);
    }
    answers
}

/// Two gateways bring what one user wants in twelve activities, at the same time: what he gets is what he may, and
/// everything else is still there. For a cluster too, of which `home` is any shard.
pub async fn what_two_gateways_let_pass_is_exactly_the_limit(options: RedisOptions, home: ShardId) {
    const ACTIVITIES: usize = 12;
    let place = Place::with(options, long_window()).await;
    place.load(home, ACTIVITIES, 100).await;
    let (mut one, mut two) = (place.process().await, place.process().await);
    for user in (0..3).map(|nth| user_of(home, nth)) {
        let (there, back): (Vec<usize>, Vec<usize>) =
            ((1..=ACTIVITIES).collect(), (1..=ACTIVITIES).rev().collect());
        let (by_one, by_two) = tokio::join!(buys(&mut one, user, &there), buys(&mut two, user, &back));
        let all: Vec<ItemAnswer> = by_one.into_iter().chain(by_two).collect();
        let count = |fits: &dyn Fn(&ItemAnswer) -> bool| all.iter().filter(|answer| fits(answer)).count();
        let reserved = count(&|answer| *answer == ItemAnswer::Reserved);
        assert_eq!(reserved, COUNT_MAX as usize, "{all:?}");
        // Whoever holds an order is told so, and nobody else.
        let already = count(&|answer| matches!(answer, ItemAnswer::Already(_)));
        assert_eq!(all.len(), reserved + already + count(&|answer| is_too_often(*answer)), "{all:?}");
        assert!(
            already <= reserved && count(&|answer| is_too_often(*answer)) >= 2 * (ACTIVITIES - 5),
            "{all:?}"
        );
    }
    for activity in 1..=ACTIVITIES {
        let snapshot = place.installation.store().snapshot(home).await.unwrap();
        let of_it = |sku: SkuKey| sku == only(activity);
        let free = snapshot.counters.iter().find(|counters| of_it(counters.sku)).unwrap().free;
        let sold = snapshot.marks.iter().filter(|(_, mark)| of_it(mark.sku)).count();
        assert_eq!(free as usize + sold, 100, "activity {activity}");
    }
}

#[tokio::test]
async fn a_users_attempts_are_counted_over_all_gateways_and_activities() {
    let server = redis().await;
    let options = RedisOptions { prefix: server.fresh_prefix(), ..RedisOptions::single(server.address()) };
    what_two_gateways_let_pass_is_exactly_the_limit(options, shard(11)).await;
}

#[tokio::test]
async fn who_holds_an_order_asks_for_nothing_and_who_finds_nothing_has_asked() {
    let place = Place::new(long_window()).await;
    let (home, user) = (shard(3), user_of(shard(3), 0));
    place.load(home, 3, 10).await;
    let mut process = place.process().await;
    let won = process.item(user, only(1), 1);
    let call = process.reserve(home, vec![won]);
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
    assert_eq!(place.counted(user).await, 1);
    // More than there is: a purchase that comes again and again has asked once, and four of them four times.
    for nth in 1..=4 {
        let greedy = process.item(user, only(2), 11);
        for _ in 0..5 {
            let call = process.reserve(home, vec![greedy]);
            assert_eq!(process.done(&call).await.answers, [ItemAnswer::EmptyHere]);
        }
        assert_eq!(place.counted(user).await, 1 + nth);
    }
    let ItemAnswer::TooOften { retry_after_ms } = process.buy(user, only(3), 1).await else {
        panic!("he has asked five times")
    };
    assert!((1..=place.window.as_millis()).contains(&u128::from(retry_after_ms)), "{retry_after_ms}");
    // Nothing below turns a holder away: not what he asks again, not what was lost on its way, not on another gateway.
    for _ in 0..3 {
        let call = process.reserve(home, vec![won]);
        assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
        for process in [&mut process, &mut place.process().await] {
            let ItemAnswer::Already(mark) = process.buy(user, only(1), 1).await else {
                panic!("he holds one")
            };
            assert_eq!(mark.order, won.order);
        }
    }
    let (shards, generation) = (place.installation.shards(), process.generation);
    let released =
        shards.release(home, generation, won.sku.activity, user, won.order, OrderState::Closed).await;
    assert_eq!(released.unwrap(), Guarded::Done(Release::Released));
    assert_eq!(process.buy(user, only(1), 1).await, ItemAnswer::NotAgain);
    assert_eq!(place.counted(user).await, COUNT_MAX as usize, "who is refused is not counted");
    // Others are not him.
    assert_eq!(process.buy(user_of(home, 1), only(3), 1).await, ItemAnswer::Reserved);
}

#[tokio::test]
async fn a_call_that_is_repeated_counts_once_and_a_promise_not_at_all() {
    let place = Place::new(long_window()).await;
    let (home, user) = (shard(4), user_of(shard(4), 0));
    place.load(home, 9, 10).await;
    let mut process = place.process().await;
    for activity in 1..=6 {
        let item = process.item(user, only(activity), 1);
        let call = process.reserve(home, vec![item]);
        let answers = process.done(&call).await.answers;
        assert_eq!(is_too_often(answers[0]), activity == 6, "{answers:?}");
        for _ in 0..3 {
            assert_eq!(process.done(&call).await.answers, answers, "the reply that is stored");
        }
    }
    assert_eq!(place.counted(user).await, 5);
    let ordinary = process.item(user, only(7), 1);
    let promised = Item { promised: true, ..process.item(user, only(8), 1) };
    let greedy = process.item(user, only(9), 1);
    let call = process.reserve(home, vec![ordinary, promised, greedy]);
    let answers = process.done(&call).await.answers;
    assert_eq!(answers[1], ItemAnswer::Reserved, "{answers:?}");
    assert!(is_too_often(answers[0]) && is_too_often(answers[2]), "{answers:?}");
    assert_eq!(place.counted(user).await, 5);
}

/// What one call brings is counted item by item, and what several shards' calls bring together is counted shard by
/// shard, as if each had come alone.
#[tokio::test]
async fn items_of_one_call_and_calls_together_are_counted_like_those_that_come_alone() {
    let place = Place::new(long_window()).await;
    let homes = [shard(2), shard(9), shard(15)];
    for home in homes {
        place.load(home, 8, 100).await;
    }
    let mut process = place.process().await;
    // The window has begun in each of them, by somebody else.
    for home in homes {
        assert_eq!(process.buy(user_of(home, 2), only(1), 1).await, ItemAnswer::Reserved);
    }
    let mut calls: Vec<Call> = Vec::new();
    for home in homes {
        let (eager, other) = (user_of(home, 0), user_of(home, 1));
        let items =
            (1..=8).flat_map(|activity| [(eager, activity), (eager, activity), (other, activity.min(3))]);
        let items: Vec<Item> = items.map(|(user, activity)| process.item(user, only(activity), 1)).collect();
        calls.push(process.reserve(home, items));
    }
    assert_eq!(process.store.together(calls.clone()), [calls.clone()]);
    for (home, reply) in homes.into_iter().zip(process.store.call_together(&calls).await) {
        let Ok(Reply::Done(done)) = reply else { panic!("{reply:?}") };
        for (nth, answers) in done.answers.chunks(3).enumerate() {
            let [first, again, other] = answers else { panic!("{answers:?}") };
            assert_eq!(*first == ItemAnswer::Reserved, nth < 5, "{nth}: {first:?}");
            assert_eq!(matches!(again, ItemAnswer::Already(_)), nth < 5, "{nth}: {again:?}");
            assert_eq!(is_too_often(*first), is_too_often(*again));
            let other_is =
                if nth < 3 { matches!(other, ItemAnswer::Reserved) } else { !is_too_often(*other) };
            assert!(other_is, "{nth}: {other:?}");
        }
        assert_eq!(place.counted(user_of(home, 0)).await, 5);
        assert_eq!(place.counted(user_of(home, 1)).await, 3);
    }
    let again = process.store.call_together(&calls).await;
    assert!(again.iter().all(|reply| matches!(reply, Ok(Reply::Done(_)))), "{again:?}");
    assert_eq!(place.counted(user_of(homes[0], 0)).await, 5);
}

/// He asks on and on: in every window as often as he may, and then again when the store says so.
#[tokio::test]
async fn every_window_has_its_own_count_and_nobody_is_let_in_before_it_begins() {
    let place = Place::new(Duration::from_millis(150)).await;
    let (home, user) = (shard(6), user_of(shard(6), 0));
    place.load(home, 1, 1).await;
    let mut process = place.process().await;
    let (begun, mut passed) = (Instant::now(), BTreeMap::<String, usize>::new());
    let mut told: Option<(Instant, Duration)> = None;
    while passed.len() < 4 {
        assert!(begun.elapsed() < PATIENCE, "{passed:?}");
        let asked = Instant::now();
        match process.buy(user, only(1), 2).await {
            ItemAnswer::EmptyHere => {
                let window = place.counts_in(home).await;
                // It has expired if the machine was away for so long.
                if !window.is_empty() {
                    *passed.entry(window).or_default() += 1;
                }
                if let Some((at, retry_after)) = told.take() {
                    // Told in whole milliseconds.
                    assert!(at.elapsed() + Duration::from_millis(2) >= retry_after, "{:?}", at.elapsed());
                }
            }
            ItemAnswer::TooOften { retry_after_ms } => {
                assert!((1..=150).contains(&retry_after_ms), "{retry_after_ms}");
                told.get_or_insert((asked, Duration::from_millis(retry_after_ms.into())));
            }
            other => panic!("{other:?}"),
        }
    }
    passed.pop_last();
    // The machine may have been away for most of a window, but never for all of them.
    assert!(passed.values().all(|count| *count <= 5), "{passed:?}");
    assert!(passed.values().any(|count| *count == 5), "{passed:?}");
}

#[tokio::test]
async fn what_was_counted_goes_with_its_window_and_a_clock_that_goes_back_gives_nothing_away() {
    let place = Place::new(long_window()).await;
    let (home, user) = (shard(8), user_of(shard(8), 0));
    place.load(home, 1, 1).await;
    let mut process = place.process().await;
    for _ in 0..5 {
        assert_eq!(process.buy(user, only(1), 2).await, ItemAnswer::EmptyHere);
    }
    let window: u64 = place.counts_in(home).await.parse().unwrap();
    let window_ms = u64::try_from(place.window.as_millis()).unwrap();
    let expires = place.redis("PEXPIRETIME", home, &[]).await.to_string();
    assert_eq!(expires, ((window + 2) * window_ms).to_string(), "when the next window is over");
    // As if the clock had gone back over the window's beginning.
    place.redis("HINCRBY", home, &[b"w", b"1"]).await;
    let ItemAnswer::TooOften { retry_after_ms } = process.buy(user, only(1), 2).await else {
        panic!("his window has not ended")
    };
    assert!(u64::from(retry_after_ms) > window_ms, "{retry_after_ms}");
    assert_eq!(process.buy(user_of(home, 1), only(1), 2).await, ItemAnswer::EmptyHere);
    assert_eq!(place.redis("HLEN", home, &[]).await, RespValue::Integer(3), "two users and the window");
    // And as if the window were over: nobody of it is remembered.
    place.redis("HINCRBY", home, &[b"w", b"-2"]).await;
    assert_eq!(process.buy(user, only(1), 2).await, ItemAnswer::EmptyHere);
    assert_eq!(place.redis("HLEN", home, &[]).await, RespValue::Integer(2));
    assert_eq!(place.counts_in(home).await, window.to_string());
    assert_eq!((place.counted(user).await, place.counted(user_of(home, 1)).await), (1, 0));
}

#[tokio::test]
async fn a_key_of_somebody_elses_is_named_and_stops_only_its_shard() {
    let place = Place::new(long_window()).await;
    let (wrong, right) = (shard(1), shard(2));
    place.load(wrong, 1, 10).await;
    place.load(right, 1, 10).await;
    place.redis("SET", wrong, &[b"mine"]).await;
    let mut process = place.process().await;
    let calls: Vec<Call> = [wrong, right]
        .into_iter()
        .map(|home| {
            let item = process.item(user_of(home, 0), only(1), 1);
            process.reserve(home, vec![item])
        })
        .collect();
    for _ in 0..2 {
        let outcomes = process.store.call_together(&calls).await;
        let named = |outcome: &Result<Reply, StoreError>| matches!(outcome, Err(StoreError::Corrupt(said)) if said.contains(&place.key(wrong)));
        assert!(named(&outcomes[0]) && outcomes[1].is_ok(), "{outcomes:?}");
        assert!(named(&process.store.call(&calls[0]).await));
    }
    let snapshot = place.installation.shards().snapshot(wrong).await.unwrap();
    assert_eq!((snapshot.marks.len(), snapshot.counters[0].free), (0, 10), "nothing was changed");
    place.redis("DEL", wrong, &[]).await;
    assert_eq!(process.done(&calls[0]).await.answers, [ItemAnswer::Reserved]);
}

/// Commands that Redis has executed so far, those in functions included.
async fn commands(redis: &Redis) -> BTreeMap<String, u64> {
    let said = redis.cli(&["INFO", "commandstats"]).await.unwrap();
    let calls = said.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().unwrap()))
    });
    // Asking is not to be asked about.
    calls.filter(|(name, _)| name != "info").collect()
}

/// What commands one call of one item costs.
async fn cost(redis: &Redis, process: &mut Process<RedisStore>, user: UserId) -> BTreeMap<String, u64> {
    let before = commands(redis).await;
    assert_eq!(process.buy(user, only(1), 1).await, ItemAnswer::Reserved);
    let after = commands(redis).await;
    let rise = |(name, count): (&String, &u64)| (name.clone(), count - before.get(name).unwrap_or(&0));
    after.iter().map(rise).filter(|(_, rise)| *rise > 0).collect()
}

#[tokio::test]
async fn the_limit_costs_two_commands_a_call_and_nothing_where_it_is_off() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let off = RedisOptions::single(redis.address());
    let place = Place::with(off.clone(), long_window()).await;
    let (home, key) = (shard(5), place.key(shard(5)));
    place.load(home, 1, 100).await;
    let mut limited = place.process().await;
    let shards = RedisShards::open(off).await.unwrap();
    let free = Arc::new(RedisStore { shards, processes: Arc::default() });
    let mut free = Process::start(free).await;
    free.number.0 += 1_000;
    // The first call of each is stored, the first of a window writes more.
    for nth in 0..4 {
        cost(&redis, if nth % 2 == 0 { &mut free } else { &mut limited }, user_of(home, nth)).await;
    }
    let without = cost(&redis, &mut free, user_of(home, 4)).await;
    let mut with = cost(&redis, &mut limited, user_of(home, 5)).await;
    for added in ["hmget", "hset"] {
        *with.get_mut(added).unwrap() -= 1;
    }
    assert_eq!(with, without);
    redis.call(&["DEL", key.as_str()]).await.unwrap();
    cost(&redis, &mut free, user_of(home, 6)).await;
    assert_eq!(redis.cli(&["EXISTS", &key]).await.unwrap(), "0");
}

#[tokio::test]
async fn a_limit_that_lets_nobody_ask_and_a_window_without_length_are_refused() {
    let single = RedisOptions::single(redis().await.address());
    for (count_max, window) in [(0, Duration::from_secs(1)), (1, Duration::from_micros(999))] {
        let options = RedisOptions { attempts: Some(AttemptLimit { count_max, window }), ..single.clone() };
        let error = RedisShards::open(options).await.unwrap_err();
        assert!(matches!(&error, RedisOpenError::Settings(why) if why.contains("attempts")), "{error}");
    }
}
