//! A serving process: what it says of itself, and how it ends.

use std::fs;
use std::time::{Duration, Instant};

use rushgate::protocol::{Opcode, Reply, Status};

use super::house::{House, SALE, SKU, Serving};
use super::wire::{buy, eventually, result};

#[test]
fn it_serves_where_it_says_and_tells_of_itself_on_the_admin_port() {
    let house = House::with_sale(160);
    let mut serving = house.serve(&[]);
    let token = house.done(&["token", "mint", "--user", "42"]);
    let mut client = super::wire::Client::login(serving.addr, token.trim());
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);

    assert_eq!(serving.get("/livez"), ("HTTP/1.1 200 OK".to_owned(), "alive\n".to_owned()));
    eventually("it is ready", || serving.get("/readyz").0 == "HTTP/1.1 200 OK");
    assert_eq!(serving.get("/nothing").0, "HTTP/1.1 404 Not Found");
    assert_eq!(serving.metric("rushgate_buys_total{rung=\"passed\"}"), 1);
    assert_eq!(serving.metric("rushgate_replies_total{status=\"QUEUED\"}"), 1);
    assert_eq!((serving.metric("rushgate_connections"), serving.metric("rushgate_ready")), (1, 1));
    assert!(serving.log().contains("auth.secret_file is not set"), "{}", serving.log());
    assert!(serving.is_running());
}

#[test]
fn the_first_client_of_a_fresh_start_gets_definite_answers() {
    let house = House::with_sale(160);
    let serving = house.serve(&[]);
    let mut client = house.app(&serving, 1);
    assert_eq!(client.ask(&result(SALE)).status, Status::NoOrder);
}

/// Holds the database, as a slow disk would: what needs a transaction waits.
struct Hold {
    runtime: tokio::runtime::Runtime,
    connection: Option<sqlx::SqliteConnection>,
}

impl Hold {
    fn new(house: &House) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let file = house.data_dir().join("rushgate.db");
        let connection = runtime.block_on(async {
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
            let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
            sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            connection
        });
        Self { runtime, connection: Some(connection) }
    }

    fn release(&mut self) {
        let connection = self.connection.take().unwrap();
        self.runtime.block_on(sqlx::Connection::close(connection)).unwrap();
    }
}

#[test]
fn sigterm_says_goaway_answers_what_is_in_flight_and_exits_0() {
    let house = House::with_sale(160);
    let serving = house.serve(&["gateway.drain_timeout=15s"]);
    assert!(has_worker_threads(&serving));
    says_goaway_answers_and_exits_0(&house, serving);
}

#[test]
fn on_one_core_connections_share_the_only_thread_and_sigterm_is_obeyed_alike() {
    let house = House::with_sale(160);
    let command = house.shell(
        "exec taskset -c 0 \"$RUSHGATE\" serve --set gateway.listen=127.0.0.1:0 --set admin.listen=127.0.0.1:0 \
         --set gateway.drain_timeout=15s",
    );
    let serving = house.start(command);
    assert!(!has_worker_threads(&serving));
    says_goaway_answers_and_exits_0(&house, serving);
}

fn has_worker_threads(serving: &Serving) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", serving.pid())).unwrap();
    let names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).unwrap());
    names.into_iter().any(|name| name.trim() == "rushgate-0")
}

fn says_goaway_answers_and_exits_0(house: &House, mut serving: Serving) {
    let (mut client, mut idle) = (house.app(&serving, 1), house.app(&serving, 2));
    let mut hold = Hold::new(house);
    let id = client.send(&buy(SALE, SKU, 1));
    eventually("the BUY waits", || serving.metric("rushgate_purchases_unfinished") == 1);
    serving.signal("TERM");
    let goaway = client.push(Opcode::Goaway);
    assert_eq!((goaway.status, goaway.reply), (Status::GoingAway, Reply::Goaway { drain_ms: 15_000 }));
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::GoingAway);
    assert_eq!(serving.get("/readyz").0, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(serving.get("/livez").0, "HTTP/1.1 200 OK");
    assert!(serving.is_running());
    hold.release();
    assert_eq!(client.answer_to(id).status, Status::Queued);
    idle.push(Opcode::Goaway);
    assert!(idle.read().is_none());
    let released = Instant::now();
    assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
    assert!(released.elapsed() < Duration::from_secs(5), "it waited for its drain timeout");
    assert_eq!(house.figures(), (160, 159, 1, 1));
}

#[test]
fn with_nobody_connected_sigterm_and_sigint_end_it_at_once() {
    let house = House::with_sale(160);
    for signal in ["TERM", "INT"] {
        let mut serving = house.serve(&[]);
        let began = Instant::now();
        serving.signal(signal);
        assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
        assert!(began.elapsed() < Duration::from_secs(3));
    }
}

#[test]
fn a_second_sigterm_ends_it_at_once_with_1() {
    let house = House::with_sale(160);
    let mut serving = house.serve(&["gateway.drain_timeout=60s"]);
    let mut client = house.app(&serving, 1);
    let mut hold = Hold::new(&house);
    client.send(&buy(SALE, SKU, 1));
    eventually("the BUY waits", || serving.metric("rushgate_purchases_unfinished") == 1);
    serving.signal("TERM");
    client.push(Opcode::Goaway);
    let began = Instant::now();
    serving.signal("TERM");
    assert_eq!(serving.ended().code(), Some(1), "{}", serving.log());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(serving.log().contains("second signal"), "{}", serving.log());
    hold.release();
}
