//! The link between a client and a Redis fails as it is told, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "tests")]

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rushgate_servers::{Direction, FaultyLink, Persistence, Redis, RespConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::time::timeout;

static REDIS: OnceCell<Redis> = OnceCell::const_new();

/// A link to the Redis of all these tests, and a key of this test's own.
async fn linked() -> (FaultyLink, &'static Redis, String) {
    let redis = REDIS.get_or_try_init(|| Redis::start(Persistence::Off)).await.unwrap();
    let link = FaultyLink::start(redis.address().parse::<SocketAddr>().unwrap()).await.unwrap();
    (link, redis, redis.fresh_prefix())
}

async fn connect(link: &FaultyLink) -> RespConnection {
    RespConnection::connect(link.port(), None).await.unwrap()
}

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn is_silent(asked: impl Future) -> bool {
    timeout(Duration::from_millis(80), asked).await.is_err()
}

#[tokio::test]
async fn without_faults_every_byte_arrives_in_order_and_the_end_after_it() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let link = FaultyLink::start(listener.local_addr().unwrap()).await.unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let expected = sent.clone();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        stream.write_all(&received).await.unwrap();
        received
    });
    let mut client = TcpStream::connect(link.address()).await.unwrap();
    client.write_all(&sent).await.unwrap();
    client.shutdown().await.unwrap();
    let mut returned = Vec::new();
    client.read_to_end(&mut returned).await.unwrap();
    assert!(server.await.unwrap() == expected && returned == expected);
    until("the connection was not forgotten", async || link.open() == 0).await;
}

#[tokio::test]
async fn each_direction_is_delayed_by_its_own_time() {
    let (link, _, key) = linked().await;
    let mut client = connect(&link).await;
    link.delay(Direction::ToServer, Duration::from_millis(60));
    link.delay(Direction::ToClient, Duration::from_millis(90));
    let begun = Instant::now();
    client.call(&["INCR", &key]).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
    link.delay(Direction::ToServer, Duration::ZERO);
    link.delay(Direction::ToClient, Duration::ZERO);
    assert_eq!(client.call(&["INCR", &key]).await.unwrap().to_string(), "2");
}

#[tokio::test]
async fn a_swallowed_request_never_arrives_and_a_swallowed_reply_was_carried_out() {
    let (link, redis, key) = linked().await;
    let mut client = connect(&link).await;
    link.swallow(Direction::ToServer, true);
    assert!(is_silent(client.call(&["INCR", &key])).await);
    assert_eq!(redis.cli(&["EXISTS", &key]).await.unwrap(), "0");
    link.swallow(Direction::ToServer, false);
    link.swallow(Direction::ToClient, true);
    let mut client = connect(&link).await;
    assert!(is_silent(client.call(&["INCR", &key])).await);
    until("the call was not carried out", async || redis.cli(&["GET", &key]).await.unwrap() == "1").await;
}

#[tokio::test]
async fn a_held_request_arrives_late_long_after_its_client_gave_up_and_repeated_it() {
    let (link, redis, key) = linked().await;
    let mut client = connect(&link).await;
    client.call(&["PING"]).await.unwrap();
    link.hold(Direction::ToServer);
    assert!(is_silent(client.call(&["INCR", &key])).await);
    drop(client);
    let mut again = connect(&link).await;
    assert_eq!(again.call(&["INCR", &key]).await.unwrap().to_string(), "1");
    assert!(link.bytes_under_way(Direction::ToServer) > 0);
    link.release(Direction::ToServer);
    until("the late copy did not arrive", async || redis.cli(&["GET", &key]).await.unwrap() == "2").await;
    until("the old connection was not forgotten", async || link.open() == 1).await;
}

#[tokio::test]
async fn a_cut_spares_what_is_held_for_the_server_and_nothing_else() {
    let (link, redis, key) = linked().await;
    let (mut held, mut other) = (connect(&link).await, connect(&link).await);
    held.call(&["PING"]).await.unwrap();
    other.call(&["PING"]).await.unwrap();
    link.hold(Direction::ToServer);
    assert!(is_silent(held.call(&["INCR", &key])).await);
    link.cut();
    assert!(held.call(&["PING"]).await.is_err());
    assert!(other.call(&["PING"]).await.is_err());
    link.release(Direction::ToServer);
    until("the late copy did not arrive", async || redis.cli(&["GET", &key]).await.unwrap() == "1").await;
    until("a cut connection was not forgotten", async || link.open() == 0).await;
}

#[tokio::test]
async fn a_held_reply_arrives_when_it_is_released() {
    let (link, redis, key) = linked().await;
    let mut client = connect(&link).await;
    client.call(&["PING"]).await.unwrap();
    link.hold(Direction::ToClient);
    {
        let command = ["INCR", &key];
        let asked = client.call(&command);
        tokio::pin!(asked);
        assert!(is_silent(&mut asked).await);
        assert_eq!(redis.cli(&["GET", &key]).await.unwrap(), "1");
        link.release(Direction::ToClient);
        assert_eq!(asked.await.unwrap().to_string(), "1");
    }
    link.cut();
    assert!(client.call(&["PING"]).await.is_err());
}

#[tokio::test]
async fn refused_clients_and_those_of_a_server_that_is_down_are_closed() {
    let (link, ..) = linked().await;
    link.refuse(true);
    assert!(connect(&link).await.call(&["PING"]).await.is_err());
    link.refuse(false);
    assert!(connect(&link).await.call(&["PING"]).await.is_ok());
    assert_eq!(link.accepted(), 2);

    let redis = Redis::start(Persistence::Off).await.unwrap();
    let link = FaultyLink::start(redis.address().parse().unwrap()).await.unwrap();
    redis.kill9().await.unwrap();
    assert!(connect(&link).await.call(&["PING"]).await.is_err());
    redis.restart().await.unwrap();
    assert!(connect(&link).await.call(&["PING"]).await.is_ok());
    let mut open = connect(&link).await;
    open.call(&["PING"]).await.unwrap();
    drop(link);
    assert!(open.call(&["PING"]).await.is_err());
}
