//! kill -9 in the middle of a sale: what was promised stands, and the rest sells to the last unit.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::BytesMut;
use rushgate::protocol::frame::REPLY_BYTES_MAX;
use rushgate::protocol::{Opcode, Reply, Request, Status, decode};

use super::house::{House, SALE, SKU, Serving};
use super::wire::{Answer, Client, buy, eventually, hello, request, result};

const STOCK: u64 = 400;
const USERS: u64 = 1200;
const THREADS: u64 = 6;

/// What one user was told last before the gateway died under him.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// QUEUED or ALREADY, with this number.
    Won(u64),
    SoldOut,
}

/// HELLO, AUTH and BUY on a connection of its own; `None` when that ends before the answer.
fn try_to_buy(addr: SocketAddr, token: &str) -> Option<Told> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(super::wire::PATIENCE)).unwrap();
    let asked = [
        request(1, None, &hello()),
        request(2, None, &Request::Auth { token: token.as_bytes() }),
        request(3, None, &buy(SALE, SKU, 1)),
    ];
    stream.write_all(&asked.concat()).ok()?;
    let mut unread = BytesMut::new();
    loop {
        while let Some((frame, taken)) = decode(&unread, REPLY_BYTES_MAX).unwrap() {
            let status = Status::from_wire(frame.status).unwrap();
            if frame.request_id == 3 {
                let reply = Reply::parse(Opcode::Buy, frame.status, frame.body).unwrap();
                return match (status, reply) {
                    (Status::Queued | Status::Already, Reply::Order(order)) => {
                        Some(Told::Won(order.number.0))
                    }
                    (Status::SoldOut, _) => Some(Told::SoldOut),
                    // Doubtful, or to be repeated.
                    (Status::Unconfirmed | Status::Busy, _) => None,
                    other => panic!("{other:?}"),
                };
            }
            let _ = unread.split_to(taken);
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => unread.extend_from_slice(&bytes[..count]),
            _ => return None,
        }
    }
}

/// Everybody who has no answer yet tries to buy, until `kill_at` of them have won; then the gateway is killed.
fn sell_and_kill(
    house: &House,
    serving: Serving,
    told: &mut BTreeMap<u64, Told>,
    tokens: &Arc<Vec<String>>,
    kill_at: usize,
) {
    let won = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|part| {
            let waiting: Vec<u64> =
                (1..=USERS).filter(|user| user % THREADS == part && !told.contains_key(user)).collect();
            let (won, tokens, addr) = (Arc::clone(&won), Arc::clone(tokens), serving.addr);
            thread::spawn(move || {
                let mut told = Vec::new();
                let mut lost = 0;
                for user in waiting {
                    match try_to_buy(addr, &tokens[usize::try_from(user).unwrap()]) {
                        Some(answer) => {
                            won.fetch_add(usize::from(answer != Told::SoldOut), Ordering::Relaxed);
                            told.push((user, answer));
                        }
                        // The second time in a row it is no longer the one that was being asked.
                        None if lost > 0 => break,
                        None => lost += 1,
                    }
                }
                told
            })
        })
        .collect();
    eventually("the sale is in full swing", || won.load(Ordering::Relaxed) >= kill_at);
    serving.kill();
    told.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
    assert!(told.len() < usize::try_from(USERS).unwrap(), "nobody was left to lose an answer");
    assert!(house.data_dir().exists());
}

/// RESULT, asked again while the gateway cannot tell: on a busy machine its view may be too old for that.
#[track_caller]
fn definite_result(client: &mut Client) -> Answer {
    let mut last = None;
    eventually("RESULT is definite", || {
        let answer = client.ask(&result(SALE));
        let is_definite = !matches!(answer.status, Status::Unconfirmed | Status::RateLimited);
        last = Some(answer);
        is_definite
    });
    last.unwrap()
}

fn expect_promises_kept(house: &House, serving: &Serving, told: &BTreeMap<u64, Told>) {
    for (user, answer) in told {
        let mut client = house.app(serving, *user);
        let result = definite_result(&mut client);
        match answer {
            Told::Won(number) => assert_eq!((result.status, result.order().number.0), (Status::Ok, *number)),
            Told::SoldOut => assert_eq!(result.status, Status::NoOrder),
        }
    }
}

#[test]
fn every_queued_has_its_order_after_kill_9_and_the_rest_sells_to_the_last_unit() {
    let house = House::with_sale(STOCK);
    let mut serving = house.serve(&[]);
    let tokens = Arc::new((0..=USERS).map(|user| house.token(user.max(1))).collect::<Vec<_>>());
    let listen = serving.addr.to_string();
    let mut told = BTreeMap::new();
    for kill_at in [60, 90] {
        sell_and_kill(&house, serving, &mut told, &tokens, kill_at);
        // The same port, while connections of the dead one linger in the kernel.
        serving = house.serve_on(&listen, &[]);
        expect_promises_kept(&house, &serving, &told);
    }
    assert!(!told.values().any(|answer| *answer == Told::SoldOut), "too late to show anything: {told:?}");
    // Who was cut off asks first, and buys when there is no order; then everybody else.
    for user in 1..=USERS {
        if told.contains_key(&user) {
            continue;
        }
        let mut client = Client::login(serving.addr, &tokens[usize::try_from(user).unwrap()]);
        let known = definite_result(&mut client);
        let answer = client.ask(&buy(SALE, SKU, 1));
        match (known.status, answer.status) {
            (Status::Ok, Status::Already) => assert_eq!(known.order().number, answer.order().number),
            (Status::NoOrder, Status::Queued | Status::SoldOut) => {}
            other => panic!("user {user}: {other:?}"),
        }
        let answer = match answer.status {
            Status::SoldOut => Told::SoldOut,
            _ => Told::Won(answer.order().number.0),
        };
        told.insert(user, answer);
    }
    expect_promises_kept(&house, &serving, &told);
    let winners: Vec<u64> = told
        .values()
        .filter_map(|answer| match answer {
            Told::Won(number) => Some(*number),
            Told::SoldOut => None,
        })
        .collect();
    let numbers: std::collections::BTreeSet<&u64> = winners.iter().collect();
    assert_eq!((winners.len() as u64, numbers.len() as u64), (STOCK, STOCK));
    assert_eq!(house.figures(), (STOCK, 0, STOCK, STOCK));
}
