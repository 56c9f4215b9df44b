use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::peer::{self, Peer, connect, frame, listen, order, pair};
use crate::client::{ClientError, EndReason, OnBehalf, Settings};
use crate::protocol::{ActivityId, Opcode, Reply, Request, SkuId, Status, UserId};

const ACTIVITY: ActivityId = ActivityId(1);
const SKU: SkuId = SkuId(1);
const BUY: Request<'static> = Request::Buy { activity: ACTIVITY, sku: SKU, quantity: 1 };

fn quick() -> Settings {
    Settings { request_timeout: Duration::from_millis(100), ..Settings::default() }
}

#[tokio::test]
async fn hello_auth_and_the_first_requests_leave_in_one_write() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let mut peer = Peer::accept(&listener).await;
        peer.greet(64, 60_000).await;
        let read_at_once = peer.first_read;
        let buy = peer.read_a(Opcode::Buy).await;
        assert_eq!(peer.first_read, read_at_once);
        peer.reply(&buy, Status::Queued, 0, &Reply::Order(order(9))).await;
        (read_at_once, peer)
    };
    let first = [(BUY, None)];
    let (connected, (read_at_once, _peer)) = tokio::join!(connect(addr, &first), gateway);
    // HELLO 24+9, AUTH 24+2+5, BUY 24+8.
    assert_eq!(read_at_once, 33 + 31 + 32);
    let mut connected = connected.unwrap();
    assert_eq!((connected.welcome.user, connected.welcome.in_flight_max), (UserId::new(5), 64));
    let answer = connected.first.pop().unwrap().await.unwrap();
    assert_eq!((answer.status, answer.reply), (Status::Queued.code(), Reply::Order(order(9))));
    assert!(connected.session.clock().at(Instant::now()).is_some_and(|ms| ms >= 1_000_000));
}

#[tokio::test]
async fn replies_find_their_requests_in_any_order_and_cut_at_any_byte() {
    let (session, mut peer) = pair(Settings::default(), 64, mpsc::channel(8).0).await;
    let mut pending = Vec::new();
    for user in 1..=20 {
        let on_behalf = OnBehalf {
            user: UserId(user),
            client_addr: Some("198.18.0.1".parse().unwrap()),
            device: Some("d"),
            claims: Some("level=3"),
        };
        pending.push((user, session.submit(&BUY, Some(&on_behalf)).await.unwrap()));
    }
    let gateway = async {
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(peer.read_a(Opcode::Buy).await);
        }
        fastrand::shuffle(&mut seen);
        for request in &seen {
            let number = request.user.unwrap() * 100;
            for byte in frame(Opcode::Buy, request.id, Status::Queued, 0, None, &Reply::Order(order(number)))
            {
                peer.write(&[byte]).await;
            }
        }
        // A second reply to the same id reaches nobody.
        peer.reply(&seen[0], Status::SoldOut, 0, &Reply::Empty).await;
    };
    let answers = async {
        for (user, pending) in pending {
            assert_eq!(pending.await.unwrap().reply, Reply::Order(order(user * 100)));
        }
    };
    tokio::join!(gateway, answers);
}

#[tokio::test]
async fn a_lost_connection_ends_everything_outstanding_as_lost_and_nothing_new_is_sent() {
    let (session, mut peer) = pair(Settings::default(), 64, mpsc::channel(8).0).await;
    let mut pending = Vec::new();
    for _ in 0..10 {
        pending.push(session.submit(&BUY, None).await.unwrap());
    }
    let answered = peer.read().await;
    peer.reply(&answered, Status::SoldOut, 0, &Reply::Empty).await;
    for _ in 1..10 {
        peer.read_a(Opcode::Buy).await;
    }
    drop(peer);
    let mut lost = 0;
    for pending in pending {
        match pending.await {
            Ok(answer) => assert_eq!(answer.status, Status::SoldOut.code()),
            Err(error) => {
                assert!(matches!(error, ClientError::Lost(EndReason::PeerClosed)), "{error}");
                assert!(error.is_outcome_unknown());
                lost += 1;
            }
        }
    }
    assert_eq!(lost, 9);
    let error = session.buy(ACTIVITY, SKU, 1).await.unwrap_err();
    assert!(matches!(error, ClientError::Closed(EndReason::PeerClosed)) && !error.is_outcome_unknown());
}

#[tokio::test]
async fn after_goaway_nothing_new_is_sent_and_what_was_sent_is_still_answered() {
    let (pushes, mut pushed) = mpsc::channel(8);
    let (session, mut peer) = pair(Settings::default(), 64, pushes).await;
    let pending = session.submit(&BUY, None).await.unwrap();
    let buy = peer.read_a(Opcode::Buy).await;
    peer.push(Opcode::Goaway, Status::GoingAway, 5_000, None, &Reply::Goaway { drain_ms: 9_000 }).await;
    let push = pushed.recv().await.unwrap();
    assert_eq!((push.hint_ms, push.reply), (5_000, Reply::Goaway { drain_ms: 9_000 }));
    let error = session.buy(ACTIVITY, SKU, 1).await.unwrap_err();
    assert!(
        matches!(error, ClientError::GoingAway { reconnect_after_ms } if reconnect_after_ms > 4_000),
        "{error}"
    );
    peer.reply(&buy, Status::Queued, 0, &Reply::Order(order(3))).await;
    assert_eq!(pending.await.unwrap().reply, Reply::Order(order(3)));
    session.close().await;
    assert_eq!(peer.try_read().await, None, "not even a GOAWAY of its own");
}

#[tokio::test]
async fn a_passed_deadline_leaves_the_outcome_unknown_and_keeps_counting_as_in_flight() {
    let (session, mut peer) = pair(quick(), 1, mpsc::channel(8).0).await;
    let error = session.buy(ACTIVITY, SKU, 1).await.unwrap_err();
    assert!(matches!(error, ClientError::Deadline), "{error}");
    let late = peer.read_a(Opcode::Buy).await;
    let error = session.buy(ACTIVITY, SKU, 1).await.unwrap_err();
    assert!(matches!(error, ClientError::InFlightFull { in_flight: 1 }), "{error}");
    let waiting = session.submit(&BUY, None);
    let gateway = async {
        peer.reply(&late, Status::SoldOut, 0, &Reply::Empty).await;
        let buy = peer.read_a(Opcode::Buy).await;
        assert_ne!(buy.id, late.id);
        peer.reply(&buy, Status::Busy, 20, &Reply::Empty).await;
    };
    let (pending, ()) = tokio::join!(async { waiting.await.unwrap().await }, gateway);
    assert_eq!((pending.as_ref().unwrap().status, pending.unwrap().hint_ms), (Status::Busy.code(), 20));
}

#[tokio::test]
async fn it_sends_heartbeats_and_notices_that_they_are_not_answered() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let mut peer = Peer::accept(&listener).await;
        peer.greet(64, 100).await;
        let ping = peer.read_a(Opcode::Ping).await;
        let pong = Reply::Pong { server_time_ms: 1_000_100, client_time: 0 };
        peer.reply(&ping, Status::Ok, 0, &pong).await;
        peer.read_a(Opcode::Ping).await;
        peer
    };
    let client = async {
        let identity = peer::identity();
        let connecting = crate::client::Session::connect(addr, &identity, quick(), &[], mpsc::channel(8).0);
        let session = connecting.await.unwrap().session;
        while session.is_usable() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        session
    };
    let (_peer, session) = timeout(Duration::from_secs(10), async { tokio::join!(gateway, client) })
        .await
        .expect("a heartbeat that is not answered ends the session");
    assert_eq!(session.end_reason(), Some(EndReason::HeartbeatMissed));
}

#[tokio::test]
async fn a_refused_handshake_says_why_and_that_nothing_was_done() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let mut peer = Peer::accept(&listener).await;
        let hello = peer.read_a(Opcode::Hello).await;
        let auth = peer.read_a(Opcode::Auth).await;
        let reply = Reply::Hello {
            server_time_ms: 1,
            connection_id: 7,
            keepalive_ms: 1000,
            frame_bytes_max: 4096,
            in_flight_max: 64,
        };
        peer.reply(&hello, Status::Ok, 0, &reply).await;
        peer.reply(&auth, Status::BadToken, 0, &Reply::Empty).await;
        drop(peer);
        let mut peer = Peer::accept(&listener).await;
        peer.read_a(Opcode::Hello).await;
        let full = Reply::Error { message: "full".to_owned() };
        peer.push(Opcode::Error, Status::TooManyConnections, 700, None, &full).await;
        // What came meanwhile is taken first, or the system resets the connection before ERROR is read.
        peer.read_a(Opcode::Auth).await;
        peer.read_a(Opcode::Buy).await;
    };
    let first = [(BUY, None)];
    let client = async { (connect(addr, &first).await, connect(addr, &first).await) };
    let ((bad_token, full), ()) = tokio::join!(client, gateway);
    let (bad_token, full) = (bad_token.unwrap_err(), full.unwrap_err());
    assert_eq!(bad_token.to_string(), "AUTH was refused with BAD_TOKEN");
    assert!(!bad_token.is_outcome_unknown() && !bad_token.is_for_another_connection());
    assert_eq!(full.to_string(), "HELLO was refused with TOO_MANY_CONNECTIONS: full");
    assert!(!full.is_outcome_unknown() && full.is_for_another_connection() && full.hint_ms() == 700);
}

#[tokio::test]
async fn a_handshake_that_breaks_off_leaves_the_first_buy_unknown_but_a_closed_port_does_not() {
    let (listener, addr) = listen().await;
    let gateway = async {
        let mut peer = Peer::accept(&listener).await;
        peer.read_a(Opcode::Hello).await;
        peer.read_a(Opcode::Auth).await;
        peer.read_a(Opcode::Buy).await;
    };
    let first = [(BUY, None)];
    let (lost, ()) = tokio::join!(connect(addr, &first), gateway);
    assert!(lost.unwrap_err().is_outcome_unknown());
    drop(listener);
    let error = connect(addr, &first).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }) && !error.is_outcome_unknown(), "{error}");
}

#[tokio::test]
async fn pushes_name_their_user_unknown_ones_are_ignored_and_a_full_channel_loses_them() {
    let (pushes, mut pushed) = mpsc::channel(2);
    let (session, mut peer) = pair(Settings::default(), 64, pushes).await;
    let mut unknown = frame(Opcode::ResultPush, 0, Status::Ok, 0, None, &Reply::Order(order(1)));
    unknown[5] = 0x7E;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&unknown[..20]), &unknown[24..]);
    unknown[20..24].copy_from_slice(&crc.to_be_bytes());
    peer.write(&unknown).await;
    for user in 1..=5 {
        peer.push(Opcode::ResultPush, Status::Ok, 0, Some(user), &Reply::Order(order(user))).await;
    }
    let asking = session.ping();
    let (pong, ()) = tokio::join!(asking, async {
        let ping = peer.read_a(Opcode::Ping).await;
        let pong = Reply::Pong { server_time_ms: 5, client_time: 0 };
        peer.reply(&ping, Status::Ok, 0, &pong).await;
    });
    pong.unwrap();
    assert_eq!(session.pushes_dropped(), 3);
    for user in 1..=2 {
        let push = pushed.recv().await.unwrap();
        assert_eq!((push.user, push.reply), (UserId::new(user), Reply::Order(order(user))));
    }
}

#[tokio::test]
async fn bytes_that_are_no_frame_end_the_session() {
    let (session, mut peer) = pair(Settings::default(), 64, mpsc::channel(8).0).await;
    let pending = session.submit(&BUY, None).await.unwrap();
    peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let error = pending.await.unwrap_err();
    assert!(matches!(error, ClientError::Lost(EndReason::Frame(_))), "{error}");
}

#[tokio::test]
async fn closing_waits_for_what_is_outstanding_and_says_goaway_last() {
    let (session, mut peer) = pair(Settings::default(), 64, mpsc::channel(8).0).await;
    let pending = session.submit(&BUY, None).await.unwrap();
    let gateway = async {
        let buy = peer.read_a(Opcode::Buy).await;
        peer.reply(&buy, Status::SoldOut, 0, &Reply::Empty).await;
        assert_eq!(peer.read_a(Opcode::Goaway).await.id, 0);
        drop(peer);
    };
    tokio::join!(gateway, session.close());
    assert_eq!(pending.await.unwrap().status, Status::SoldOut.code());
    assert_eq!(session.end_reason(), Some(EndReason::PeerClosed));
}
