//! Devices and behaviour in the production form: counted over two gateways, written into Redis, obeyed on both; and what
//! becomes of it while Redis does not answer.

use rushgate::protocol::Status;
use rushgate_servers::{Persistence, RedisSettings};

use super::house::{SALE, SKU, Serving};
use super::shop::{Shop, background, own_redis};
use super::wire::{Client, buy, eventually};

fn told(client: &mut Client) -> Status {
    client.ask(&buy(SALE, SKU, 1)).status
}

/// Sixteen units that some twenty users have bought: whoever passes the lists is told so.
fn sold_out(shop: &Shop, set: &[&str]) -> [Serving; 2] {
    shop.create(16, &["--opens", "+2s"]);
    let gateways = [shop.house.serve(set), shop.house.serve(set)];
    shop.drive_loads();
    let (mut buyer, mut id) = (shop.app(&gateways[0], 1_000), 1_000);
    eventually("it is sold", || {
        let status = told(&mut buyer);
        if matches!(status, Status::Queued | Status::Already) {
            id += 1;
            buyer = shop.app(&gateways[0], id);
        }
        status == Status::SoldOut
    });
    gateways
}

#[test]
fn who_asks_too_much_of_one_gateway_is_blocked_on_the_other() {
    let shop = Shop::new();
    let set = [
        "limits.per_user.rate_per_s=0",
        "behaviour.per_minute=1",
        "behaviour.burst=10",
        "behaviour.block_after=10",
    ];
    let gateways = sold_out(&shop, &set);
    let mut calm = shop.app(&gateways[1], 2);
    let mut eager = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    for _ in 0..21 {
        told(&mut eager[0]);
    }
    eventually("he is blocked there", || gateways[0].metric("rushgate_flagged_total") >= 1);
    for client in &mut eager {
        eventually("he is blocked here", || told(client) == Status::Blocked);
    }
    assert_eq!(told(&mut calm), Status::SoldOut);
    let listed = shop.house.done(&["risk", "list"]);
    assert!(listed.contains("user:1") && listed.contains("more than 1 requests a minute"), "{listed}");
    assert_eq!(gateways[0].metric("rushgate_flags_forgotten_total"), 0);
}

/// Every app here says that it is "a device".
#[test]
fn one_device_on_two_gateways_is_one_device_also_while_redis_does_not_answer() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    let gateways = sold_out(&shop, &["devices.users_max=100", "devices.effect=block"]);
    let counted = || gateways.iter().map(|one| one.metric("rushgate_devices_counted_total")).sum::<u64>();
    // Those who bought the sixteen units, and the one who came too late.
    eventually("those before are counted", || counted() == 17);
    runtime.block_on(redis.pause()).unwrap();
    // Nobody who comes meanwhile waits for it.
    let mut clients: Vec<Client> =
        (1..=60).map(|id| shop.app(&gateways[usize::from(id % 2 == 0)], id)).collect();
    for client in &mut clients {
        client.ping();
    }
    assert_eq!(counted(), 17);
    redis.resume().unwrap();
    eventually("they are counted after all", || counted() == 77);
    let client = &mut clients[0];
    assert_ne!(told(client), Status::Blocked);
    clients.extend((500..540).map(|id| shop.app(&gateways[usize::from(id % 2 == 0)], id)));
    for client in clients.iter_mut().rev().take(2) {
        eventually("the device is blocked", || told(client) == Status::Blocked);
    }
    let listed = shop.house.done(&["risk", "list"]);
    assert!(listed.contains("device:a device") && listed.contains("more than 100 users"), "{listed}");
}
