//! Rule 12 and its end in rule 11.4: a gateway that cannot reach the database acknowledges nothing that a recovery may
//! contradict, and goes on by itself.

use std::time::{Duration, Instant};

use rushgate::protocol::{Opcode, OrderNumber, OrderState, Reply, Status, UserId};
use rushgate::stock::calls::ShardId;
use rushgate_servers::{Persistence, RedisSettings};

use super::house::{SALE, SKU, Serving};
use super::shop::{Shop, background, heal, own_redis, silence};
use super::wire::{Client, buy, eventually, result};

const READY: &str = "HTTP/1.1 200 OK";
/// A gateway that is told soon that it does not know.
const QUICK: [&str; 2] = ["stock.unconfirmed_after=500ms", "stock.patience=500ms"];

/// Whether it is not ready, for this reason among others.
fn is_not_ready(gateway: &Serving, reason: &str) -> bool {
    let (status, body) = gateway.get("/readyz");
    status != READY && body.contains(reason)
}

#[track_caller]
fn opened(shop: &Shop, gateway: &Serving, id: u64) -> (Client, OrderNumber) {
    let mut client = shop.app(gateway, id);
    eventually("it is sold", || client.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    let order = client.ask(&result(SALE)).order().number;
    (client, order)
}

#[test]
fn rule_12_a_gateway_cut_off_from_the_database_acknowledges_nothing_and_goes_on_by_itself() {
    let (shop, runtime) = (Shop::new(), background());
    let link = shop.link_to_database(&runtime);
    let gateway = shop.house.serve(&[&format!("mysql.port={}", link.port()), QUICK[0], QUICK[1]]);
    let other = shop.house.serve(&[]);
    shop.create(160, &["--opens", "+2s"]);
    shop.drive_loads();
    let (mut before, _) = opened(&shop, &gateway, 1);
    let mut clients: Vec<Client> = (2..200).map(|id| shop.app(&gateway, id)).collect();
    silence(&link);
    let cut_at = Instant::now();
    let mut doubtful = Vec::new();
    while doubtful.len() < 3 {
        let mut client = clients.pop().expect("the lease ends in time");
        let told = client.ask(&buy(SALE, SKU, 1));
        match told.status {
            // For as long as the last renewal is good for.
            Status::Queued => assert!(cut_at.elapsed() < Duration::from_secs(3), "{:?}", cut_at.elapsed()),
            Status::Unconfirmed => {
                let Reply::Pending { order_number } = told.reply else { panic!("{told:?}") };
                doubtful.push((client, order_number));
            }
            // Behind somebody's doubt, in the same shard: nothing was done.
            Status::Busy => {}
            other => panic!("{other:?}"),
        }
        // Slower than a purchase takes: two seconds are enough for 40 of them.
        std::thread::park_timeout(Duration::from_millis(50));
    }
    eventually("it says why", || is_not_ready(&gateway, "cannot renew with the database"));
    assert!(gateway.log().contains("the heartbeat does not reach the database"), "{}", gateway.log());
    // Whoever has no order is not told so any more.
    assert_eq!(clients[0].ask(&result(SALE)).status, Status::Unconfirmed);
    // Who was told of his order before is told again, and on another gateway nobody notices.
    assert_eq!(before.ask(&result(SALE)).status, Status::Ok);
    assert_eq!(shop.app(&other, 500).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(other.get("/readyz").0, READY);

    heal(&link);
    eventually("it goes on", || gateway.get("/readyz").0 == READY);
    assert!(gateway.log().contains("the heartbeat reaches the database again"), "{}", gateway.log());
    for (client, order) in &mut doubtful {
        eventually("the doubt ends", || {
            let told = client.ask(&result(SALE));
            assert!(told.status != Status::Ok || told.order().number == *order, "{told:?}");
            told.status == Status::Ok
        });
    }
    assert_eq!(clients[0].ask(&result(SALE)).status, Status::NoOrder);
    assert_eq!(clients[0].ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert!(gateway.metric("rushgate_leases_lost_total") > 0);
}

/// Users of different shards, none of them in the first.
fn strangers(count: usize) -> Vec<u64> {
    let mut shards = Vec::new();
    (1..)
        .filter(|id| {
            let shard = ShardId::of(UserId(*id));
            let is_new = !shards.contains(&shard);
            shards.push(shard);
            is_new
        })
        .take(count)
        .collect()
}

#[test]
fn rule_11_a_gateway_silent_through_a_recovery_hands_in_nothing_stale_and_offers_its_orders_again() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    let link = shop.link_to_database(&runtime);
    let silent = shop.house.serve(&[&format!("mysql.port={}", link.port())]);
    shop.create(32, &["--opens", "+2s"]);
    shop.drive_loads();
    // Three orders that it alone knows of, in shards that need no units of others.
    let mut sold: Vec<_> = strangers(3).into_iter().map(|id| opened(&shop, &silent, id)).collect();
    let handed_in = silent.metric("rushgate_recoveries_total");
    silence(&link);
    eventually("it is silent", || is_not_ready(&silent, "cannot renew with the database"));
    // Redis comes back without the last two of them.
    runtime.block_on(async {
        redis.kill9().await.unwrap();
        redis.truncate_aof_naming(":feed", 2).unwrap();
        redis.restart().await.unwrap();
    });
    let other = shop.house.serve(&[]);
    eventually("it has recovered them", || other.log().contains("shards recovered and opened"));
    // It sells all but one of the 31 that it knows to be free.
    for id in 1000..1030 {
        let told = shop.app(&other, id).ask(&buy(SALE, SKU, 1));
        assert_eq!(told.status, Status::Queued, "{told:?}");
    }
    assert!(is_not_ready(&silent, "cannot renew with the database"));

    heal(&link);
    eventually("both are offered again", || silent.metric("rushgate_promises_offered_total") == 2);
    eventually("one of them fails", || silent.metric("rushgate_promises_failed_total") == 1);
    eventually("it goes on", || silent.get("/readyz").0 == READY);
    assert_eq!(silent.metric("rushgate_recoveries_total"), handed_in, "nothing was handed in");
    let mut states = Vec::new();
    for ((client, order), id) in sold.iter_mut().zip(strangers(3)) {
        let told = client.ask(&result(SALE)).order();
        assert_eq!(told.number, *order);
        if told.state == OrderState::Failed {
            let pushed = client.wait_for(|answer| {
                answer.opcode == Opcode::ResultPush && answer.order().state == OrderState::Failed
            });
            assert_eq!(pushed.order().number, *order);
            let log = silent.log();
            let line = log.lines().find(|line| line.contains("an acknowledged order ended FAILED")).unwrap();
            assert!(line.contains(&format!("user={id}")) && line.contains(&order.0.to_string()), "{line}");
            let row =
                shop.run(async |sql| sql.order_of(UserId(id), rushgate::protocol::ActivityId(SALE)).await);
            assert_eq!(row.unwrap().map(|mark| mark.state), Some(OrderState::Failed));
        }
        states.push(told.state);
    }
    states.sort_by_key(|state| *state as u8);
    assert_eq!(states, [OrderState::Reserved, OrderState::Reserved, OrderState::Failed]);
    // All 32 are sold: 30, the one that survived, the one that was put back.
    let mut late = shop.app(&other, 2000);
    eventually("nothing is left", || late.ask(&buy(SALE, SKU, 1)).status == Status::SoldOut);
}
