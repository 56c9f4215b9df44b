//! The same on a Redis Cluster of three masters and three replicas: routing, moved slots, a killed master.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rushgate::protocol::{OrderNumber, SkuId};
use rushgate::stock::calls::{CallBody, Gen, ItemAnswer, ProcessNumber, Reply, SHARDS, ShardId};
use rushgate::store::redis::{Adopted, MendAt, Mended, Rebuilt, RedisOptions, RedisShards};
use rushgate::store::slices::{RateExchange, SliceCall, SliceStore};
use rushgate::store::switches::SwitchStore;
use rushgate::store::{FeedRead, ReservationStore};
use rushgate_servers::{Persistence, RedisCluster, RedisSettings};
use tokio::time::{Instant, sleep, timeout};

use crate::attempts::what_two_gateways_let_pass_is_exactly_the_limit;
use crate::installation::{ACTIVITY, Installation, Process, sku, user_of};
use crate::redis_installation::{RedisInstallation, RedisStore};
use crate::switches::{new, switches_are_kept_and_followed};

const PATIENCE: Duration = Duration::from_secs(60);

async fn cluster(replicas: usize) -> (RedisCluster, RedisInstallation, Process<RedisStore>) {
    // While one master is away the others go on.
    let more = vec!["cluster-require-full-coverage no".to_owned()];
    let settings = RedisSettings { more, ..RedisSettings::new(Persistence::Off) };
    let cluster = RedisCluster::start_with(3, replicas, settings).await.unwrap();
    let wait_replicas = u32::from(replicas > 0);
    let options = RedisOptions {
        wait_replicas,
        wait_timeout: Duration::from_secs(3),
        call_timeout: Duration::from_secs(1),
        ..RedisOptions::cluster(cluster.addresses())
    };
    let installation = RedisInstallation::with(options).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 16_000)]).await;
    let process = Process::start(installation.store()).await;
    (cluster, installation, process)
}

/// What a leader does, without SQL: a new generation, open shards adopt it, closed ones are rebuilt. Until all are.
async fn lead(shards: &RedisShards, mut generation: u64) -> Gen {
    let begun = Instant::now();
    'term: loop {
        assert!(begun.elapsed() < PATIENCE, "no recovery within a minute");
        generation += 1;
        sleep(Duration::from_millis(50)).await;
        for shard in ShardId::all() {
            let Ok(state) = shards.shard_state(shard).await else { continue 'term };
            if state.is_open {
                match shards.adopt(shard, &state.own_epoch, Gen(generation)).await {
                    Ok(Adopted::Adopted(_)) => {}
                    _ => continue 'term,
                }
            } else {
                let Ok(content) = shards.content(shard).await else { continue 'term };
                match shards.rebuild(shard, &content.epoch, Gen(generation), &content).await {
                    Ok(Rebuilt::Opened) => {}
                    _ => continue 'term,
                }
            }
        }
        return Gen(generation);
    }
}

/// Sells one unit to the nth user of every shard; the orders that were acknowledged. Calls that are not answered are
/// repeated under their number; whatever a recovery refuses is bought again under the same order number.
async fn sell(process: &mut Process<RedisStore>, nth: usize, acknowledged: &mut BTreeSet<OrderNumber>) {
    for home in ShardId::all() {
        let item = process.item(user_of(home, nth), sku(1), 1);
        let begun = Instant::now();
        let mut call = process.reserve(home, vec![item]);
        loop {
            assert!(begun.elapsed() < PATIENCE, "shard {home:?} sells nothing");
            match process.store.call(&call).await {
                Ok(Reply::Done(done)) if done.generation == process.generation => {
                    assert_eq!(done.answers, [ItemAnswer::Reserved]);
                    acknowledged.insert(item.order);
                    break;
                }
                Ok(Reply::Done(_) | Reply::Stale | Reply::Gen(_) | Reply::Recovering) => {
                    process.generation = lead(&process.store.shards, process.generation.0).await;
                    call = process.reserve(home, vec![item]);
                }
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

async fn assert_all_there(installation: &RedisInstallation, acknowledged: &BTreeSet<OrderNumber>) {
    let marks = installation.marks(ACTIVITY).await;
    let there: BTreeSet<_> = marks.iter().map(|(_, mark)| mark.order).collect();
    assert!(there.is_superset(acknowledged), "{:?} are lost", acknowledged.difference(&there));
    assert_eq!(there.len(), acknowledged.len());
    let figures = installation.figures(sku(1)).await;
    figures.assert_conserved();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_16_shards_spread_over_all_masters_and_feeds_and_groups_work_across_them() {
    let (cluster, installation, mut process) = cluster(0).await;
    let calls: Vec<_> = ShardId::all().map(|home| process.reserve(home, Vec::new())).collect();
    let alone: Vec<_> = calls.iter().map(|call| vec![call.clone()]).collect();
    assert_eq!(process.store.together(calls), alone, "no function may have keys of several slots");
    let mut per_master: BTreeMap<usize, usize> = BTreeMap::new();
    for home in ShardId::all() {
        let key = format!("seckill:{{{:02}}}:meta", home.number());
        *per_master.entry(cluster.master_of_key(&key).await.unwrap()).or_default() += 1;
    }
    assert_eq!(per_master.len(), 3);
    let limited = RedisOptions { prefix: "limited".to_owned(), ..installation.options.clone() };
    what_two_gateways_let_pass_is_exactly_the_limit(limited, ShardId::ALL[9]).await;
    assert!(per_master.values().all(|shards| *shards >= 3), "{per_master:?}");

    let shards = installation.shards();
    shards.probe().await.unwrap();
    let mut after = [(process.generation, 1); SHARDS];
    assert_eq!(shards.read_feeds(&after, Duration::from_millis(20)).await.unwrap(), []);
    let mut given = BTreeSet::new();
    let mut acknowledged = BTreeSet::new();
    for nth in 0..3 {
        let waiting = {
            let shards = shards.clone();
            tokio::spawn(async move { shards.read_feeds(&after, Duration::from_secs(60)).await.unwrap() })
        };
        sell(&mut process, nth, &mut acknowledged).await;
        assert!(!waiting.await.unwrap().is_empty());
        let mut seen = BTreeSet::new();
        while seen.len() < 16 {
            for (shard, read) in shards.read_feeds(&after, Duration::from_secs(60)).await.unwrap() {
                let FeedRead::Events(events) = read else { panic!("a gap in {shard:?}") };
                after[shard.index()].1 = events.last().unwrap().seq;
                seen.insert(shard);
            }
        }
    }
    while given.len() < 16 * 5 {
        for delivered in shards.read_group("one", 100, Duration::from_secs(60)).await.unwrap() {
            for entry in delivered.entries {
                assert!(given.insert((delivered.shard, entry.id)), "given twice");
            }
        }
    }
    assert_all_there(&installation, &acknowledged).await;
    // A reconciliation finds its way, too: all of this is given to a writer, and not finished.
    for shard in ShardId::all() {
        let books = shards.books(shard, ACTIVITY).await.unwrap().unwrap();
        let marks: BTreeMap<_, _> = books.marks.iter().map(|(user, mark)| (*user, mark.order)).collect();
        let unfinished = shards.unfinished(shard).await.unwrap();
        let unfinished: BTreeMap<_, _> =
            unfinished.into_iter().map(|(user, mark)| (user, mark.order)).collect();
        assert_eq!(unfinished, marks);
        let (generation, mended) = (books.generation, books.mended);
        let mut at = MendAt { shard, generation, mended, activity: ACTIVITY };
        assert_eq!(shards.mend_units(&mut at, sku(1), 1).await.unwrap(), Mended::By(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_away_keeps_the_feeds_of_the_others_from_nobody() {
    let (cluster, installation, mut process) = cluster(0).await;
    let slot = cluster.slot_of("{05}").await.unwrap();
    let node = cluster.master_of_slot(slot).await.unwrap();
    let (mut here, mut away) = (Vec::new(), Vec::new());
    for shard in ShardId::all() {
        let slot = cluster.slot_of(&format!("{{{:02}}}", shard.number())).await.unwrap();
        let is_away = cluster.master_of_slot(slot).await.unwrap() == node;
        if is_away { &mut away } else { &mut here }.push(shard);
    }
    let shards = installation.shards();
    let mut after = [(process.generation, 1); SHARDS];
    assert_eq!(shards.read_feeds(&after, Duration::from_millis(20)).await.unwrap(), []);
    cluster.node(node).unwrap().pause().await.unwrap();
    let begun = Instant::now();
    for nth in 0..10 {
        for home in &here {
            assert_eq!(process.buy(user_of(*home, nth), sku(1), 1).await, ItemAnswer::Reserved);
        }
        let mut missing: BTreeSet<_> = here.iter().copied().collect();
        while !missing.is_empty() {
            let reads = shards.read_feeds(&after, Duration::from_secs(60)).await.unwrap();
            let unread = reads.iter().filter(|(_, read)| *read == FeedRead::Unread);
            assert_eq!(unread.map(|(shard, _)| *shard).collect::<Vec<_>>(), away);
            for (shard, read) in reads {
                let FeedRead::Events(events) = read else { continue };
                after[shard.index()].1 = events.last().unwrap().seq;
                missing.remove(&shard);
            }
        }
    }
    // The first read waited for it, and none of the others.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    cluster.node(node).unwrap().resume().unwrap();
    let begun = Instant::now();
    while !shards.read_feeds(&after, Duration::ZERO).await.unwrap().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "it is read again when it is back");
    }
    let mut acknowledged: BTreeSet<_> =
        installation.marks(ACTIVITY).await.into_iter().map(|(_, mark)| mark.order).collect();
    assert_eq!(acknowledged.len(), 10 * here.len());
    sell(&mut process, 10, &mut acknowledged).await;
    let mut missing: BTreeSet<_> = away.into_iter().collect();
    while !missing.is_empty() {
        for (shard, read) in shards.read_feeds(&after, Duration::from_secs(60)).await.unwrap() {
            let FeedRead::Events(events) = read else { panic!("{read:?} of {shard:?}") };
            after[shard.index()].1 = events.last().unwrap().seq;
            missing.remove(&shard);
        }
    }
    assert_all_there(&installation, &acknowledged).await;
    let other = RedisShards::open(installation.options.clone()).await.unwrap();
    switches_are_kept_and_followed(&shards, &other).await;
}

/// Masters that take no further connection: what there is of them answers, and nothing can block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feeds_that_cannot_be_followed_are_asked_now_and_then() {
    let (cluster, installation, mut process) = cluster(0).await;
    let shards = installation.shards();
    let mut after = [(process.generation, 1); SHARDS];
    assert_eq!(shards.read_feeds(&after, Duration::ZERO).await.unwrap(), []);
    let mut operators = Vec::new();
    for node in cluster.nodes() {
        let mut operator = node.connect().await.unwrap();
        operator.call(&["CONFIG", "SET", "maxclients", "1"]).await.unwrap();
        operators.push(operator);
    }
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(shards.read_feeds(&after, Duration::from_secs(60)).await.unwrap(), []);
    }
    assert!(begun.elapsed() >= 5 * Duration::from_millis(50), "five calls after {:?}", begun.elapsed());
    // The news come all the same.
    let home = ShardId::ALL[3];
    assert_eq!(process.buy(user_of(home, 0), sku(1), 1).await, ItemAnswer::Reserved);
    let news = shards.read_feeds(&after, Duration::from_secs(60)).await.unwrap();
    let [(shard, FeedRead::Events(events))] = &news[..] else { panic!("{news:?}") };
    assert_eq!(*shard, home);
    after[home.index()].1 = events.last().unwrap().seq;
    for operator in &mut operators {
        operator.call(&["CONFIG", "SET", "maxclients", "10000"]).await.unwrap();
    }
    let waiting = {
        let shards = shards.clone();
        tokio::spawn(async move {
            loop {
                let news = shards.read_feeds(&after, Duration::from_secs(60)).await.unwrap();
                if !news.is_empty() {
                    return news;
                }
            }
        })
    };
    assert_eq!(process.buy(user_of(home, 1), sku(1), 1).await, ItemAnswer::Reserved);
    assert_eq!(waiting.await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_and_shared_rates_move_with_their_slot_and_are_followed_there() {
    let (cluster, installation, _) = cluster(0).await;
    let shards = installation.shards();
    let before = shards.set_switch(&new("entry", "closed", "before")).await.unwrap();
    let exchange = async |number, give, want| {
        let rate = RateExchange { name: "g".to_owned(), give, want, pool_max: 100 };
        let call = SliceCall { gateway: ProcessNumber(1), number, rates: vec![rate] };
        shards.exchange_slices(&call).await.unwrap().unwrap()
    };
    assert_eq!(exchange(1, 0, 5).await.gateways, 1);
    let follower = tokio::spawn({
        let shards = shards.clone();
        async move {
            loop {
                match shards.switch_changes(before, PATIENCE).await {
                    Ok(changes) if changes.is_empty() => {}
                    Ok(changes) => return changes,
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
        }
    });
    let slot = cluster.slot_of("{00}").await.unwrap();
    let from = cluster.begin_move(slot, (cluster.master_of_slot(slot).await.unwrap() + 1) % 3).await.unwrap();
    cluster.finish_move(slot, from, (from + 1) % 3).await.unwrap();
    // The shard is closed now, for its master is another; a door can be opened all the same.
    assert_eq!(shards.switches().await.unwrap().version(), before);
    let after = shards.set_switch(&new("entry", "open", "after")).await.unwrap();
    assert_eq!(exchange(2, 7, 5).await.granted, [5]);
    assert!(exchange(2, 7, 5).await.granted.is_empty(), "executed already");
    let changes = timeout(PATIENCE, follower).await.unwrap().unwrap();
    assert!(changes.iter().map(|change| change.version).eq([after]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_while_selling_is_followed_and_recovered() {
    let (cluster, installation, mut process) = cluster(0).await;
    let mut acknowledged = BTreeSet::new();
    sell(&mut process, 0, &mut acknowledged).await;
    let slot = cluster.slot_of("{05}").await.unwrap();
    let from = cluster.begin_move(slot, (cluster.master_of_slot(slot).await.unwrap() + 1) % 3).await.unwrap();
    // Under way: the shard's keys are all where they were.
    sell(&mut process, 1, &mut acknowledged).await;
    cluster.finish_move(slot, from, (from + 1) % 3).await.unwrap();
    sell(&mut process, 2, &mut acknowledged).await;
    assert!(
        process.generation > Gen(1),
        "the other master is another process: the shard had to be recovered"
    );
    assert_all_there(&installation, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_killed_while_selling_loses_no_acknowledged_reserve() {
    let (cluster, installation, mut process) = cluster(3).await;
    let mut acknowledged = BTreeSet::new();
    sell(&mut process, 0, &mut acknowledged).await;
    let slot = cluster.slot_of("{00}").await.unwrap();
    let master = cluster.master_of_slot(slot).await.unwrap();
    let killing = async {
        sleep(Duration::from_millis(5)).await;
        cluster.kill9(master).await.unwrap();
        cluster.wait_promotion(slot, master).await.unwrap();
        // Without a replica the promoted one would confirm nothing: the old master comes back as one.
        cluster.restart(master).await.unwrap();
    };
    let selling = async {
        for nth in 1..4 {
            sell(&mut process, nth, &mut acknowledged).await;
        }
    };
    timeout(PATIENCE * 2, async { tokio::join!(killing, selling) }).await.unwrap();
    assert!(process.generation > Gen(1), "the promoted replica was recovered");
    assert_eq!(acknowledged.len(), 64);
    assert_all_there(&installation, &acknowledged).await;
    // A late call to a dead master's shard under the old generation is refused.
    let mut late =
        process.call(ShardId::ALL[0], CallBody::MoveOut { sku: sku(1), target: ShardId::ALL[1], want: 1 });
    late.generation = Gen(1);
    assert_eq!(process.store.call(&late).await.unwrap(), Reply::Gen(process.generation));
}
