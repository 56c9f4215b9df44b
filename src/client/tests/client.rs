use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::peer::{identity, listen};
use super::{Peer, order};
use crate::client::{Client, Outcome, Patience, Purchase, Settings};
use crate::protocol::{ActivityId, Opcode, OrderNumber, Reply, SkuId, Status};

const PURCHASE: Purchase<'static> =
    Purchase { activity: ActivityId(1), sku: SkuId(1), quantity: 1, on_behalf: None, copies: 1 };

fn client(addr: SocketAddr) -> Client {
    Client::new(&[addr], identity(), Settings::default(), mpsc::channel(8).0)
}

fn patience(limit: Duration) -> Patience {
    Patience { until: Instant::now() + limit, insufficient_max: 5 }
}

/// Runs a purchase against a scripted gateway; the outcome and what was exchanged.
async fn buy(
    addr: SocketAddr,
    purchase: Purchase<'_>,
    limit: Duration,
    gateway: impl Future<Output = ()>,
) -> (Outcome, Vec<(Opcode, Option<Status>)>) {
    let client = client(addr);
    let mut seen = Vec::new();
    let mut observe = |exchange: crate::client::Exchange<'_>| {
        seen.push((exchange.asked, exchange.result.ok().and_then(crate::client::Answer::known_status)));
    };
    let buying = client.buy_until_final(&purchase, patience(limit), &mut observe);
    let (outcome, ()) =
        timeout(Duration::from_secs(20), async { tokio::join!(buying, gateway) }).await.expect("it ends");
    (outcome, seen)
}

async fn greeted(listener: &TcpListener) -> Peer {
    let mut peer = Peer::accept(listener).await;
    peer.greet(64, 60_000).await;
    peer
}

async fn answer(peer: &mut Peer, opcode: Opcode, status: Status, hint_ms: u32, reply: Reply) {
    let request = peer.read_a(opcode).await;
    peer.reply(&request, status, hint_ms, &reply).await;
}

#[tokio::test]
async fn an_unknown_outcome_is_asked_for_until_it_is_known_and_only_no_order_leads_to_another_buy() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let unknown = || Reply::Pending { order_number: OrderNumber(4) };
        let mut peer = greeted(&listener).await;
        answer(&mut peer, Opcode::Buy, Status::Unconfirmed, 0, unknown()).await;
        answer(&mut peer, Opcode::Result, Status::Unconfirmed, 10, unknown()).await;
        answer(&mut peer, Opcode::Result, Status::RateLimited, 10, Reply::Empty).await;
        answer(&mut peer, Opcode::Result, Status::NoOrder, 0, Reply::Empty).await;
        peer.read_a(Opcode::Buy).await;
        drop(peer);
        let mut peer = greeted(&listener).await;
        answer(&mut peer, Opcode::Result, Status::Ok, 0, Reply::Order(order(4))).await;
    };
    let (outcome, seen) = buy(addr, PURCHASE, Duration::from_secs(15), gateway).await;
    assert_eq!(outcome, Outcome::Won(order(4)));
    let result = Opcode::Result;
    assert_eq!(
        seen,
        [
            (Opcode::Buy, Some(Status::Unconfirmed)),
            (result, Some(Status::Unconfirmed)),
            (result, Some(Status::RateLimited)),
            (result, Some(Status::NoOrder)),
            (Opcode::Buy, None),
            (result, Some(Status::Ok)),
        ]
    );
}

#[tokio::test]
async fn retry_later_waits_at_least_the_hint_and_a_final_refusal_ends_it() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let mut peer = greeted(&listener).await;
        answer(&mut peer, Opcode::Buy, Status::Busy, 300, Reply::Empty).await;
        let told_at = Instant::now();
        answer(&mut peer, Opcode::Buy, Status::SoldOut, 0, Reply::Empty).await;
        assert!(told_at.elapsed() >= Duration::from_millis(299));
    };
    let (outcome, seen) = buy(addr, PURCHASE, Duration::from_secs(15), gateway).await;
    assert_eq!((outcome, seen.len()), (Outcome::Refused(Status::SoldOut.code()), 2));
}

#[tokio::test]
async fn a_hint_beyond_patience_and_too_many_insufficients_end_it() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let mut peer = greeted(&listener).await;
        let opens = Reply::OpensAt { opens_at_ms: 99, server_time_ms: 9 };
        answer(&mut peer, Opcode::Buy, Status::NotStarted, 60_000, opens).await;
    };
    let (outcome, _) = buy(addr, PURCHASE, Duration::from_secs(5), gateway).await;
    assert_eq!(outcome, Outcome::GaveUp(Status::NotStarted.code()));
    let gateway = async {
        let mut peer = greeted(&listener).await;
        for _ in 0..5 {
            answer(&mut peer, Opcode::Buy, Status::Insufficient, 0, Reply::Left { left: 1 }).await;
        }
    };
    let (outcome, seen) = buy(addr, PURCHASE, Duration::from_secs(15), gateway).await;
    assert_eq!((outcome, seen.len()), (Outcome::GaveUp(Status::Insufficient.code()), 5));
}

#[tokio::test]
async fn going_away_leads_to_a_new_connection_not_before_the_hint() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let mut peer = greeted(&listener).await;
        let told_at = Instant::now();
        answer(&mut peer, Opcode::Buy, Status::GoingAway, 250, Reply::Empty).await;
        let mut peer = greeted(&listener).await;
        assert!(told_at.elapsed() >= Duration::from_millis(250));
        answer(&mut peer, Opcode::Buy, Status::Queued, 0, Reply::Order(order(8))).await;
    };
    let (outcome, _) = buy(addr, PURCHASE, Duration::from_secs(15), gateway).await;
    assert_eq!(outcome, Outcome::Won(order(8)));
}

#[tokio::test]
async fn a_pushed_goaway_holds_the_next_connection_back_for_the_hint() {
    let (listener, addr) = listen().await;
    let client = client(addr);
    let until = Instant::now() + Duration::from_secs(15);
    let connected = tokio::sync::Notify::new();
    let gateway = async {
        let mut peer = greeted(&listener).await;
        answer(&mut peer, Opcode::Ping, Status::Ok, 0, Reply::Pong { server_time_ms: 1, client_time: 0 })
            .await;
        connected.notified().await;
        peer.push(Opcode::Goaway, Status::GoingAway, 250, None, &Reply::Goaway { drain_ms: 9_000 }).await;
        let told_at = Instant::now();
        let mut next = greeted(&listener).await;
        assert!(told_at.elapsed() >= Duration::from_millis(249));
        answer(&mut next, Opcode::Ping, Status::Ok, 0, Reply::Pong { server_time_ms: 1, client_time: 0 })
            .await;
        (peer, next)
    };
    let asking = async {
        let session = client.connected(until).await.unwrap();
        connected.notify_one();
        while session.is_usable() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        client.connected(until).await.unwrap();
    };
    tokio::join!(asking, gateway);
    assert_eq!(client.connects(), 2);
}

#[tokio::test]
async fn two_buys_at_once_leave_together_and_an_order_outweighs_the_other_answer() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let mut peer = greeted(&listener).await;
        let first = peer.read_a(Opcode::Buy).await;
        let second = peer.read_a(Opcode::Buy).await;
        peer.reply(&second, Status::Queued, 0, &Reply::Order(order(6))).await;
        peer.reply(&first, Status::Busy, 0, &Reply::Empty).await;
    };
    let twice = Purchase { copies: 2, ..PURCHASE };
    let (outcome, seen) = buy(addr, twice, Duration::from_secs(15), gateway).await;
    assert_eq!(outcome, Outcome::Won(order(6)));
    assert_eq!(seen, [(Opcode::Buy, Some(Status::Busy)), (Opcode::Buy, Some(Status::Queued))]);
}

#[tokio::test]
async fn without_a_gateway_it_gives_up_when_patience_is_over() {
    let (listener, addr) = listen().await;
    drop(listener);
    let (outcome, seen) = buy(addr, PURCHASE, Duration::from_millis(300), async {}).await;
    assert!(matches!(outcome, Outcome::Unreachable | Outcome::GaveUp(_)), "{outcome:?}");
    assert!(seen.iter().all(|(asked, status)| *asked == Opcode::Buy && status.is_none()));
}

#[tokio::test]
async fn many_tasks_share_one_connection_and_survive_its_loss() {
    let (listener, addr) = listen().await;
    let client = std::sync::Arc::new(client(addr));
    let until = Instant::now() + Duration::from_secs(15);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let client = std::sync::Arc::clone(&client);
        tasks.spawn(async move {
            let patience = Patience { until, insufficient_max: 1 };
            client.buy_until_final(&PURCHASE, patience, &mut |_| {}).await
        });
    }
    let gateway = async {
        let mut peer = greeted(&listener).await;
        for _ in 0..50 {
            peer.read_a(Opcode::Buy).await;
        }
        drop(peer);
        let mut peer = greeted(&listener).await;
        for number in 1..=50 {
            answer(&mut peer, Opcode::Result, Status::Ok, 0, Reply::Order(order(number))).await;
        }
        peer
    };
    let (_peer, outcomes) = tokio::join!(gateway, tasks.join_all());
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Won(_))), "{outcomes:?}");
    assert_eq!(client.connects(), 2);
}
