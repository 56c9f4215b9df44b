//! Bad input in numbers, against a gateway that is a process of its own: its memory is then its own too, and so are
//! its descriptors (20,000 hold ten thousand connections at one end, not at both).

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;

use rushgate::admission::identity::IdentityKind;
use rushgate::protocol::{ActivityId, Head, Opcode, Request, Status, tlv};

use super::bystander::Bystander;
use super::house::{House, SALE, SKU, Serving};
use super::wire::{Client, buy, eventually, frame, hello, request, result};

const MUTE: usize = 10_000;
/// Of one connection in a debug build: twice what its task, its timer, tokio and the allocator take.
const IDLE_BYTES_MAX: u64 = 4 << 10;
/// What the allocator may keep or move between two rounds of the same. A connection's task is 1 KiB: one leaked for
/// each of the 5,000 or 10,000 connections would be more.
const SLACK_BYTES: u64 = 4 << 20;

const NO_LIMITS: [&str; 3] =
    ["limits.per_ip.rate_per_s=0", "limits.per_user.rate_per_s=0", "limits.result_per_user.rate_per_s=0"];

impl Serving {
    fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn ended_by(&self, why: &str) -> u64 {
        self.metric(&format!("rushgate_connections_ended_total{{why=\"{why}\"}}"))
    }
}

/// Many connections to `to`, from four addresses, so that ports are not what runs out.
fn connect_many(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let from = |host: u8| {
        move || -> Vec<TcpStream> {
            let addr = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
            let connect = |_| {
                let socket =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
                socket.bind(&addr.into()).unwrap();
                socket.connect(&to.into()).unwrap();
                TcpStream::from(socket)
            };
            (0..count / 4).map(connect).collect()
        }
    };
    let threads = [2, 3, 4, 5].map(|host| thread::spawn(from(host)));
    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn ten_thousand_connects_without_a_word_are_held_for_little_closed_in_time_and_forgotten() {
    let limit = rlimit::increase_nofile_limit(20_000).unwrap();
    assert!(limit >= 11_000, "this test needs 11,000 descriptors (ulimit -n), not {limit}");
    let house = House::with_sale(160);
    let mut settings = vec!["gateway.handshake_timeout=8s"];
    settings.extend(NO_LIMITS);
    let mut serving = house.serve(&settings);
    let bystander = Bystander::watch(house.app(&serving, 77), SALE);
    let before = serving.resident_bytes();

    let mute = connect_many(serving.addr, MUTE);
    eventually("all are in", || serving.metric("rushgate_connections") == MUTE as u64 + 1);
    let held = serving.resident_bytes().saturating_sub(before);
    assert!(held < MUTE as u64 * IDLE_BYTES_MAX, "{} bytes for each mute connection", held / MUTE as u64);
    for stream in mute {
        Client::over(stream).closed_with(Status::TimedOut);
    }
    eventually("all are gone", || serving.metric("rushgate_connections") == 1);
    assert_eq!(serving.ended_by("handshake_timeout"), MUTE as u64);
    let after = serving.resident_bytes();

    // And again, gone before their time.
    drop(connect_many(serving.addr, MUTE));
    eventually("all came and went", || serving.ended_by("client") == MUTE as u64);
    eventually("all are gone", || serving.metric("rushgate_connections") == 1);
    let grown = serving.resident_bytes().saturating_sub(after);
    assert!(grown < SLACK_BYTES, "grew by {grown} bytes when the same came again");
    bystander.unharmed();
    assert!(serving.is_running());
    assert!(!serving.log().contains("panicked"), "{}", serving.log());
}

/// What one client does wrong, and how.
struct Abuse<'a> {
    addr: SocketAddr,
    app: &'a str,
    service: &'a str,
}

impl Abuse<'_> {
    fn greeted(&self) -> Client {
        let mut client = Client::connect(self.addr);
        client.ask(&hello());
        client
    }

    /// Until the gateway closes, or this end does.
    fn read_out(mut client: Client) {
        client.finish_writing();
        // A reset is an end too.
        let _ = client.stream.read_to_end(&mut Vec::new());
    }

    fn say(mut client: Client, bytes: &[u8]) {
        // A peer that is closed at the first bytes may see that while it still writes.
        let _ = client.stream.write_all(bytes);
        Self::read_out(client);
    }

    fn streams(&self) {
        let good = request(9, None, &Request::Ping { client_time: 0 });
        let (mut crc, mut version) = (good.clone(), good.clone());
        crc[21] ^= 1;
        version[4] = 2;
        let long = vec![0xFF; 70_000];
        let short = 19_u32.to_be_bytes();
        let http = b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n";
        for bytes in [&crc[..], &version, &long, &short, http, &good[..17]] {
            Self::say(Client::connect(self.addr), bytes);
            Self::say(self.greeted(), bytes);
            Self::say(Client::login(self.addr, self.app), bytes);
        }
        Client::login(self.addr, self.app).reset();
        Client::connect(self.addr).reset();
        Self::say(self.greeted(), &request(2, None, &Request::Auth { token: b"nonsense" }));
    }

    fn requests(&self) {
        let unknown = buy(SALE, SKU + 1, 1);
        let mut bytes = Vec::new();
        // All with one id, and more than may be in flight.
        for _ in 0..100 {
            bytes.extend(request(5, None, &buy(SALE, SKU, 1)));
            bytes.extend(request(5, None, &unknown));
        }
        Self::say(Client::login(self.addr, self.app), &bytes);
        // Gone with all of it in the queue.
        let mut client = Client::login(self.addr, self.app);
        client.write(&bytes);
        client.reset();
        // Nobody named, and TLVs of all sizes.
        let mut bytes = request(6, None, &result(SALE));
        for length in (0..4000).step_by(97) {
            let value = vec![b'x'; length];
            for kind in [tlv::USER, tlv::DEVICE, 0x7000] {
                bytes.extend(frame(Head::request(Opcode::Result, 7), &[(kind, &value)], &SALE.to_be_bytes()));
            }
        }
        Self::say(Client::login(self.addr, self.service), &bytes);
    }

    /// Asks for much more than it takes: to the end, or gone with what waits for it.
    fn never_reads(&self) {
        let activity = Request::Activity { activity: ActivityId(SALE) };
        let asks: Vec<u8> = (1..=20_000).flat_map(|id| request(id, None, &activity)).collect();
        let client = Client::login(self.addr, self.app);
        socket2::SockRef::from(&client.stream).set_recv_buffer_size(4096).unwrap();
        client.stream.set_nonblocking(true).unwrap();
        // As much as fits.
        let _ = (&client.stream).write_all(&asks);
        client.reset();
    }
}

#[test]
fn the_same_bad_input_two_hundred_times_leaves_nothing_behind() {
    let house = House::with_sale(160);
    let mut serving = house.serve(&NO_LIMITS);
    let bystander = Bystander::watch(house.app(&serving, 77), SALE);
    let mint = |kind| {
        let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        house.minter().mint(kind, now_s, std::time::Duration::from_secs(3600)).unwrap()
    };
    let (app, service) = (house.token(5), mint(IdentityKind::Service));
    let abuse = Abuse { addr: serving.addr, app: &app, service: &service };
    let rounds = |count: usize| {
        for _ in 0..count {
            abuse.streams();
            abuse.requests();
            abuse.never_reads();
        }
        eventually("all are gone", || serving.metric("rushgate_connections") == 1);
        eventually("nothing is left", || serving.metric("rushgate_purchases_unfinished") == 0);
        serving.resident_bytes()
    };
    rounds(20);
    let warm = rounds(20);
    let after = rounds(200);
    let grown = after.saturating_sub(warm);
    assert!(grown < SLACK_BYTES, "grew by {grown} bytes");
    bystander.unharmed();
    assert!(serving.ended_by("bad_frame") >= 240 * 12, "{} bad frames", serving.ended_by("bad_frame"));
    assert_eq!(serving.ended_by("bad_token"), 240);
    assert_eq!(house.figures(), (160, 159, 1, 1), "one user, one order");
    assert!(serving.is_running());
    assert!(!serving.log().contains("panicked"), "{}", serving.log());
}
