//! Rule 13: one transaction, then the settled call, then the acknowledgement.

use rushgate::protocol::{OrderNumber, OrderState, UserId};
use rushgate::stock::calls::{Item, SHARDS, ShardId};

use super::child::WriterProcess;
use super::house::{SKU, World, eventually, shared_redis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_what_gateways_reserved_is_settled_told_and_acknowledged() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=400).await;
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    // While it runs, too.
    world.reserve(401..=700).await;
    world.drained().await;
    world.audit(1000, 700).await;
    assert_eq!(writer.count("rows_settled"), 700);
    assert_eq!(writer.http("/livez").0, 200);
    assert_eq!(writer.http("/readyz"), (200, "{\"ready\":true,\"reasons\":[]}\n".to_owned()));
    eventually("the lag is told", || async { writer.metric("rushgate_feed_oldest_age_ms_all") == 0 }).await;
    writer.stopped();
    world.audit(1000, 700).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_14_a_malformed_entry_is_a_dead_letter_and_its_neighbours_are_settled() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=100).await;
    let shard = ShardId::ALL[4];
    let id = world.append_rubbish(shared_redis().await, shard).await;
    world.reserve(101..=200).await;
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    world.audit(1000, 200).await;
    let letters = world.sql.dead_letters(0, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].shard, letters[0].order), (shard, OrderNumber(0)));
    let key = format!("{}:{{04}}:feed", world.prefix);
    assert!(letters[0].reason.contains(&key) && letters[0].reason.contains(&id), "{}", letters[0].reason);
    assert_eq!(writer.count("dead_letters"), 1);
    assert!(writer.log().contains(&id), "{}", writer.log());
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_an_order_number_that_two_users_have_is_loud_and_the_second_one_fails() {
    let mut world = World::with_stock(1000).await;
    let order = world.next_order();
    for user in [UserId(11), UserId(12)] {
        let item = Item { user, sku: SKU, order, quantity: 1, attempt: 1, promised: false };
        world.reserve_items(ShardId::of(user), vec![item]).await;
    }
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    eventually("the unit of the second is back", || async { world.free().await == 999 }).await;
    let rows = world.order_rows().await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let (winner, _) = rows[0];
    let loser = if winner == UserId(11) { UserId(12) } else { UserId(11) };
    let marks = world.marks().await;
    assert_eq!(marks[&winner].state, OrderState::PendingPayment);
    assert_eq!(marks[&loser].state, OrderState::Failed);
    assert_eq!(writer.count("collisions"), 1);
    let log = writer.log();
    let line = log.lines().find(|line| line.contains("ERROR") && line.contains(&order.to_string()));
    let line = line.unwrap_or_else(|| panic!("nothing is said of {order}: {log}"));
    assert!(line.contains(&format!("user={loser}")) && line.contains("sku="), "{line}");
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_what_was_read_before_a_recovery_is_not_settled_but_read_again() {
    let mut world = World::with_stock(1000).await;
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    // A recovery has begun in SQL; the shards do not know it yet and go on under the old generation.
    let mut leadership = world.sql.try_lead().await.unwrap().unwrap();
    let generation = leadership.raise_generation(&[false; SHARDS]).await.unwrap();
    world.reserve(1..=300).await;
    eventually("they are put back", || async { writer.count("entries_put_back") > 0 }).await;
    assert_eq!(world.order_rows().await.len(), 0);
    assert_eq!(writer.count("entries_claimed"), 0);
    world.recovered(leadership, generation).await;
    world.drained().await;
    world.audit(1000, 300).await;
    assert!(writer.count("entries_claimed") > 0);
    writer.stopped();
}
