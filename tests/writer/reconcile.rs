//! `rushgate reconcile`: finds and repairs what a hand did to Redis and SQL, and leaves alone what is right.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use rushgate::stock::calls::{BringIn, CallBody, Item, Mark, ShardId};
use rushgate::store::catalog::Catalogue;
use rushgate::store::redis::{MendAt, Mended};
use rushgate::store::sql::NewLoad;
use rushgate::store::sql::mysql::{CloseOutcome, MySqlStore};
use rushgate_servers::{Persistence, RedisCluster, RedisSettings};
use serde_json::{Value, json};

use super::child::WriterProcess;
use super::house::{SKU, World, eventually, shared_mariadb, shared_redis};

/// Units of each activity; each user buys one.
const STOCK: u32 = 640;
const USERS: u64 = 40;
/// Of these one order is closed before any damage is done.
const CLOSED: UserId = UserId(2);
/// Whom damage is done to.
const VICTIM: UserId = UserId(7);

const fn sku(activity: u32) -> SkuKey {
    SkuKey { activity: ActivityId(activity), sku: SkuId(1) }
}

/// Runs the command.
async fn run(config: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate"));
    command.arg("reconcile").arg("--config").arg(config).args(arguments).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Runs it with --fix, and kills it when it has made its first correction.
async fn broken_off(config: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate"));
    command.arg("reconcile").arg("--config").arg(config).arg("--fix").env_clear();
    command.env("RUST_LOG", "info").stdout(Stdio::null()).stderr(Stdio::piped());
    let killed = move || {
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let made = log.lines().map(Result::unwrap).find(|line| line.contains("corrected"));
        child.kill().unwrap();
        child.wait().unwrap();
        made.expect("it made no correction");
    };
    tokio::task::spawn_blocking(killed).await.unwrap();
}

/// Its exit code and what it says.
async fn run_json(config: &Path, arguments: &[&str]) -> (i32, Value) {
    let Output { status, stdout, stderr } = run(config, &[arguments, &["--json"]].concat()).await;
    let said = String::from_utf8_lossy(&stderr);
    let code = status.code().unwrap();
    assert!(code < 2, "{said}");
    (code, serde_json::from_slice(&stdout).unwrap_or_else(|error| panic!("{error}: {said}")))
}

impl World {
    async fn reconcile(&self, arguments: &[&str]) -> (i32, Value) {
        run_json(&self.config(""), arguments).await
    }

    fn key(&self, shard: ShardId, rest: &str) -> String {
        format!("{}:{{{:02}}}:{rest}", self.prefix, shard.number())
    }

    /// A hand in Redis: a script with one key.
    async fn lua(&self, script: &str, key: &str, arguments: &[&str]) {
        let command = [&["EVAL", script, "1", key], arguments].concat();
        let said = shared_redis().await.cli(&command).await.unwrap();
        assert!(!said.contains("ERR"), "{said}");
    }

    /// A hand in SQL.
    async fn hand(&self, statement: &str) {
        let statement = format!("USE {}; {statement}", self.database.name);
        shared_mariadb().await.sql(&statement).await.unwrap();
    }

    async fn free_by(&self, activity: u32, user: UserId, units: i64) {
        let (shard, units) = (ShardId::of(user), units.to_string());
        let key = self.key(shard, &format!("{activity}:stock"));
        shared_redis().await.cli(&["HINCRBY", &key, "free:1", &units]).await.unwrap();
    }

    async fn write_mark(&self, activity: u32, user: UserId, order: OrderNumber, state: OrderState) {
        let script = "return redis.call('HSET', KEYS[1], struct.pack('>I8', ARGV[1]), \
                      struct.pack('>I8I2I2BB', ARGV[2], 1, 1, 1, ARGV[3]))";
        let key = self.key(ShardId::of(user), &format!("{activity}:buyers"));
        let arguments = [user.to_string(), order.to_string(), (state as u8).to_string()];
        self.lua(script, &key, &arguments.each_ref().map(String::as_str)).await;
    }

    /// Raises cumulative units of a pair by hand; `field` is out:1 or in:1.
    async fn raise(&self, activity: u32, (shard, peer): (ShardId, ShardId), field: &str, units: u64) {
        let script = "return redis.call('HSET', KEYS[1], ARGV[1], struct.pack('>BI8', ARGV[2], ARGV[3]))";
        let key = self.key(shard, &format!("{activity}:stock"));
        let (peer, units) = (peer.number().to_string(), units.to_string());
        self.lua(script, &key, &[field, &peer, &units]).await;
    }

    async fn order_of(&self, activity: u32, user: UserId) -> Mark {
        self.sql.order_of(user, ActivityId(activity)).await.unwrap().unwrap()
    }

    async fn reserve_in(&mut self, activity: u32, users: impl IntoIterator<Item = u64>) {
        for user in users.into_iter().map(UserId) {
            let order = self.next_order();
            let item = Item { user, sku: sku(activity), order, quantity: 1, attempt: 1, promised: false };
            self.reserve_items(ShardId::of(user), vec![item]).await;
        }
    }

    async fn close(&self, activity: u32, user: UserId) {
        let order = self.order_of(activity, user).await.order;
        assert_eq!(self.sql.close_order(order, "not paid").await.unwrap(), CloseOutcome::Closed);
    }

    async fn nothing_owed(&self) {
        self.drained().await;
        eventually("nothing is owed", || async { self.sql.due_releases(0, 1).await.unwrap().is_empty() })
            .await;
    }
}

/// What is found of a damage: kind, units, user.
type Found = (&'static str, i64, Option<UserId>);

/// Damage that only works while no writer does.
async fn harm_behind_the_writers_back(world: &mut World) -> Vec<(u32, Vec<Found>)> {
    // A lost event: reserved, and its record is gone before any writer has read it.
    world.reserve_in(1, [USERS + 1]).await;
    let shard = ShardId::of(UserId(USERS + 1));
    let lose = "local read = redis.call('XREADGROUP', 'GROUP', 'settle', 'thief', 'STREAMS', KEYS[1], '>')\n\
                for _, entry in ipairs(read[1][2]) do\n\
                redis.call('XACK', KEYS[1], 'settle', entry[1])\n\
                redis.call('XDEL', KEYS[1], entry[1]) end";
    world.lua(lose, &world.key(shard, "feed"), &[]).await;
    // A row of the ledger that was never applied, but says so.
    world.close(2, VICTIM).await;
    world.hand("UPDATE ledger SET done = 1").await;
    // One that is gone.
    world.close(3, VICTIM).await;
    world.hand("DELETE FROM ledger WHERE done = 0").await;
    vec![
        (1, vec![("mark_without_order", 1, Some(UserId(USERS + 1)))]),
        (2, vec![("release_undone", 1, Some(VICTIM))]),
        (3, vec![("ledger_row_missing", 1, Some(VICTIM))]),
    ]
}

/// Damage done while a writer works.
async fn harm(world: &World) -> Vec<(u32, Vec<Found>)> {
    let mut found = Vec::new();
    // A deduction done twice, in SQL.
    world
        .hand(
            "UPDATE sku_stock SET available = available - 1, sold = sold + 1 WHERE activity = 4 AND sku = 1",
        )
        .await;
    found.push((4, vec![("counted_stock", -1, None)]));
    // A mark deleted.
    let forget = "return redis.call('HDEL', KEYS[1], struct.pack('>I8', ARGV[1]))";
    let buyers = |activity: u32| world.key(ShardId::of(VICTIM), &format!("{activity}:buyers"));
    world.lua(forget, &buyers(5), &[&VICTIM.to_string()]).await;
    found.push((5, vec![("order_without_mark", 1, Some(VICTIM))]));
    // An order's row deleted.
    world.hand(&format!("DELETE FROM orders WHERE activity = 6 AND user = {VICTIM}")).await;
    found.push((6, vec![("mark_without_order", 1, Some(VICTIM))]));
    // A sub-key raised, and one lowered (a deduction done twice, in Redis).
    world.free_by(8, VICTIM, 1).await;
    found.push((8, vec![("units", 1, None)]));
    world.free_by(9, VICTIM, -1).await;
    found.push((9, vec![("units", -1, None)]));
    // A move half done.
    let (source, target) = (ShardId::of(VICTIM), ShardId::ALL[(ShardId::of(VICTIM).index() + 1) % 16]);
    world.free_by(10, VICTIM, -3).await;
    world.raise(10, (source, target), "out:1", 3).await;
    found.push((10, vec![("move_half_done", 3, None)]));
    // A mark of a user without any order, that no unit was taken for.
    let stranger = UserId(1_000_000);
    world.write_mark(11, stranger, OrderNumber(999_999), OrderState::Reserved).await;
    found.push((11, vec![("mark_without_order", 1, Some(stranger)), ("units", 1, None)]));
    // A release applied twice.
    world.free_by(12, CLOSED, 1).await;
    found.push((12, vec![("units", 1, None)]));
    // A unit given back without the database's word.
    let order = world.order_of(13, VICTIM).await.order;
    world.write_mark(13, VICTIM, order, OrderState::Closed).await;
    world.free_by(13, VICTIM, 1).await;
    // Written again, it needs the unit that is free now.
    found.push((13, vec![("order_without_mark", 1, Some(VICTIM)), ("units", 1, None)]));
    // A load forgotten.
    let loads = "for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do\n\
                 if string.sub(field, 1, 5) == 'load:' then redis.call('HDEL', KEYS[1], field) end end";
    world.lua(loads, &world.key(ShardId::ALL[3], "14:stock"), &[]).await;
    found.push((14, vec![("load_forgotten", i64::from(2 * STOCK / 16), None)]));
    // Units that came and never left.
    world.raise(15, (target, source), "in:1", 2).await;
    shared_redis().await.cli(&["HINCRBY", &world.key(target, "15:stock"), "free:1", "2"]).await.unwrap();
    found.push((15, vec![("moved_too_many", 2, None), ("units", 2, None)]));
    // An order that is paid, which its shard was never told.
    world.hand(&format!("UPDATE orders SET state = 3 WHERE activity = 16 AND user = {VICTIM}")).await;
    found.push((16, vec![("state_behind", 1, Some(VICTIM))]));
    found
}

fn as_json(found: &[Found]) -> Value {
    let one = |(kind, units, user): &Found| json!([kind, units, user.map(|user| user.0)]);
    found.iter().map(one).collect()
}

fn differences(activity: &Value) -> Value {
    let one = |one: &Value| json!([one["kind"], one["units"], one["user"]]);
    activity["differences"].as_array().unwrap().iter().map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_damage_is_found_by_name_and_repaired_and_nothing_else_is_touched() {
    let mut world = World::new().await;
    for activity in (1..=16).filter(|id| *id != 7) {
        world.sell_in(ActivityId(activity), STOCK).await;
        world.reserve_in(activity, 1..=USERS).await;
    }
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    for activity in (1..=16).filter(|id| *id != 7) {
        world.close(activity, CLOSED).await;
    }
    world.nothing_owed().await;
    let (code, healthy) = world.reconcile(&["--fix"]).await;
    assert_eq!((code, &healthy["clean"], &healthy["corrected"]), (0, &json!(true), &json!(0)), "{healthy}");
    writer.stopped();
    let mut due = harm_behind_the_writers_back(&mut world).await;
    let writer = WriterProcess::working(&world, "");
    due.extend(harm(&world).await);
    world.nothing_owed().await;
    eventually("the writer sees it itself", || async { writer.metric("rushgate_units_off") > 0 }).await;
    assert!(writer.log().contains("units do not add up"), "{}", writer.log());

    // Without --fix it only tells, also the second time.
    for _ in 0..2 {
        let (code, told) = world.reconcile(&[]).await;
        assert_eq!((code, &told["corrected"]), (1, &json!(0)));
        for (activity, found) in told["activities"].as_array().unwrap().iter().zip(&due) {
            assert_eq!(activity["id"], json!(found.0));
            assert_eq!(differences(activity), as_json(&found.1), "activity {}: {activity}", found.0);
        }
    }
    let shown = run(&world.config(""), &["--activity", "11"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    for says in [
        "activity 11: 2 differences",
        "order 999999 of user 1000000",
        "reconcile --activity 11 --fix   corrects 2 of 2",
    ] {
        assert!(shown.contains(says), "{says}: {shown}");
    }

    broken_off(&world.config("")).await;
    let (code, fixed) = world.reconcile(&["--fix"]).await;
    let (left, all) = (&fixed["corrected"], due.iter().map(|(_, found)| found.len()).sum::<usize>());
    assert!((1..all as u64).contains(&left.as_u64().unwrap()), "{left} of {all}: none was made before");
    assert_eq!((code, &fixed["corrected"]), (1, &fixed["differences"]), "{fixed}");
    eventually("writers finish it", || async { world.reconcile(&[]).await.0 == 0 }).await;
    world.nothing_owed().await;
    all_is_equal(&world).await;
    eventually("the writer sees it, too", || async { writer.metric("rushgate_units_off") == 0 }).await;
    writer.stopped();
}

/// Orders, marks and units of every activity, without the command's help.
async fn all_is_equal(world: &World) {
    for activity in (1..=16).filter(|id| *id != 7).map(ActivityId) {
        let (mut free, mut left, mut came, mut live) = (0, 0, 0, 0);
        for shard in ShardId::ALL {
            let snapshot = world.redis.snapshot(shard).await.unwrap();
            for one in snapshot.counters.iter().filter(|one| one.sku == SkuKey { activity, sku: SkuId(1) }) {
                free += u64::from(one.free);
                left += one.out.iter().map(|(_, units)| units).sum::<u64>();
                came += one.brought_in.iter().map(|(_, units)| units).sum::<u64>();
            }
            let of_it = snapshot.marks.iter().filter(|(_, mark)| mark.sku.activity == activity);
            live += of_it.filter(|(_, mark)| mark.state.is_live()).count() as u64;
        }
        assert_eq!((free + live, left), (u64::from(STOCK), came), "activity {activity}");
        let orders = world.sql.orders(activity, UserId(0), 1000).await.unwrap();
        let standing = orders.iter().filter(|(_, mark)| mark.state.is_live()).count() as u64;
        assert_eq!(standing, live, "activity {activity}");
        let figures = &world.sql.figures(activity).await.unwrap().1[&SkuId(1)];
        assert_eq!((figures.sold, figures.free), (live, free), "activity {activity}");
    }
}

/// Buys, moves units between shards and closes orders, until it is told to stop.
async fn sell_and_close(world: &mut World, is_over: &AtomicBool) -> u64 {
    let mut user = 0;
    while !is_over.load(Ordering::Relaxed) {
        world.reserve(user + 1..=user + 20).await;
        user += 20;
        let (source, target) = (ShardId::ALL[(user % 16) as usize], ShardId::ALL[(user / 20 % 16) as usize]);
        if source != target {
            let moved = world.call(source, CallBody::MoveOut { sku: SKU, target, want: 2 }).await;
            let out = moved.counters[0].out.iter().find(|(peer, _)| *peer == target).unwrap().1;
            let bring_in = vec![BringIn { sku: SKU, source, out }];
            world.call(target, CallBody::Reserve { bring_in, items: Vec::new() }).await;
        }
        if let Some(order) = world.sql.order_of(UserId(user / 2), SKU.activity).await.unwrap() {
            world.sql.close_order(order.order, "not paid").await.unwrap();
        }
    }
    user
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_found_or_corrected_while_a_healthy_sale_runs() {
    let mut world = World::with_stock(1_600_000).await;
    let writer = WriterProcess::working(&world, "");
    let is_over = AtomicBool::new(false);
    let config = world.config("");
    let look = async {
        for _ in 0..4 {
            let (code, found) = run_json(&config, &["--fix"]).await;
            assert_eq!((code, &found["corrected"]), (0, &json!(0)), "{found}");
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (sold, ()) = tokio::join!(sell_and_close(&mut world, &is_over), look);
    assert!(sold > 100, "hardly a sale: {sold}");
    world.nothing_owed().await;
    let (code, found) = world.reconcile(&[]).await;
    assert_eq!(code, 0, "{found}");
    let total = &found["activities"][0]["skus"][0];
    assert_eq!(writer.metric("rushgate_units_off"), 0, "{}", writer.log());
    assert!(writer.count("stock_looks") > 0 && !writer.log().contains("add up"), "{}", writer.log());
    assert_eq!(
        (&total["total"], &total["reserved"], &total["off"]),
        (&json!(1_600_000), &json!(0), &json!(0))
    );
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_unit_too_few_is_seen_while_it_sells() {
    let mut world = World::with_stock(1_600_000).await;
    let writer = WriterProcess::working(&world, "");
    let is_over = AtomicBool::new(false);
    let key = world.key(ShardId::of(VICTIM), "7:stock");
    let look = async {
        shared_redis().await.cli(&["HINCRBY", &key, "free:1", "-1"]).await.unwrap();
        eventually("the writer sees it", || async { writer.metric("rushgate_units_off") == 1 }).await;
        shared_redis().await.cli(&["HINCRBY", &key, "free:1", "1"]).await.unwrap();
        eventually("and that it is over", || async { writer.metric("rushgate_units_off") == 0 }).await;
        is_over.store(true, Ordering::Relaxed);
    };
    let (sold, ()) = tokio::join!(sell_and_close(&mut world, &is_over), look);
    assert!(sold > 20, "hardly a sale: {sold}");
    let log = writer.log();
    assert!(log.contains(&format!("in shard {}: -1", ShardId::of(VICTIM).number())), "{log}");
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_back_is_compared_and_corrected_too() {
    let world = World::with_stock(1000).await;
    let reserve = MySqlStore::new(world.sql.clone());
    reserve.write_load(SKU, NewLoad::Add(50)).await.unwrap();
    reserve.drive_loads().await.unwrap();
    let (code, healthy) = world.reconcile(&["--fix"]).await;
    let held_back = |told: &Value| told["activities"][0]["skus"][0]["reserve"].clone();
    let right = json!({"total": 50, "free": 50, "moving": 0, "sold": 0, "off": 0});
    assert_eq!((code, held_back(&healthy)), (0, right.clone()), "{healthy}");
    for (damage, off) in [("free - 2", -2), ("free + 3", 3)] {
        world.hand(&format!("UPDATE sql_stock SET free = {damage} WHERE free > 2 LIMIT 1")).await;
        let (code, told) = world.reconcile(&[]).await;
        assert_eq!((code, differences(&told["activities"][0])), (1, json!([["reserve_units", off, null]])));
        let (code, fixed) = world.reconcile(&["--fix"]).await;
        assert_eq!((code, &fixed["corrected"]), (1, &json!(1)), "{fixed}");
        let (code, clean) = world.reconcile(&[]).await;
        assert_eq!((code, held_back(&clean)), (0, right.clone()), "{clean}");
    }
    let shown = String::from_utf8(run(&world.config(""), &[]).await.stdout).unwrap();
    assert!(shown.contains("SKU 1 holds back 50 from Redis: 50 free"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_command_works_on_a_cluster() {
    let settings = RedisSettings::new(Persistence::Off);
    let cluster = RedisCluster::start_with(3, 0, settings).await.unwrap();
    let mut world = World::on_cluster(&cluster, shared_mariadb().await).await;
    world.sell(1600).await;
    world.reserve(1..=40).await;
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    let (code, healthy) = world.reconcile(&["--fix"]).await;
    assert_eq!((code, &healthy["clean"]), (0, &json!(true)), "{healthy}");
    // A unit too many on each master, and an order whose row is gone.
    for shard in [1, 7, 13].map(|number| ShardId::ALL[number]) {
        let books = world.redis.books(shard, SKU.activity).await.unwrap().unwrap();
        let (generation, mended) = (books.generation, books.mended);
        let mut at = MendAt { shard, generation, mended, activity: SKU.activity };
        assert_eq!(world.redis.mend_units(&mut at, SKU, 1).await.unwrap(), Mended::By(1));
    }
    world.hand(&format!("DELETE FROM orders WHERE user = {VICTIM}")).await;
    eventually("the writer sees it", || async { writer.metric("rushgate_units_off") == 3 }).await;
    let (code, told) = world.reconcile(&[]).await;
    let mut found: Vec<_> = told["activities"][0]["differences"].as_array().unwrap().iter().collect();
    found.sort_by_key(|one| one["kind"].to_string());
    let kinds: Vec<_> = found.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!((code, kinds), (1, vec!["mark_without_order", "units", "units", "units"]), "{told}");
    let (code, fixed) = world.reconcile(&["--fix"]).await;
    assert_eq!((code, &fixed["corrected"]), (1, &json!(4)), "{fixed}");
    eventually("nothing differs", || async { world.reconcile(&[]).await.0 == 0 }).await;
    eventually("the writer sees it, too", || async { writer.metric("rushgate_units_off") == 0 }).await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_told_is_no_clean_bill() {
    let world = World::with_stock(100).await;
    let config = world.config("");
    assert_eq!(run(&config, &["--activity", "4711"]).await.status.code(), Some(2));
    let key = world.key(ShardId::ALL[5], "7:stock");
    shared_redis().await.cli(&["HSET", &key, "free:1", "some"]).await.unwrap();
    let raw = run(&config, &[]).await;
    let said = String::from_utf8_lossy(&raw.stderr);
    assert_eq!(raw.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot be told") && said.contains(&key), "{said}");
}
