//! Two gateways behind a real HAProxy with the configuration that operators are given.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use rushgate::protocol::{Request, Status};
use rushgate_servers::HaProxy;
use socket2::{Domain, Socket, Type};

use super::house::{House, SALE, SKU, Serving};
use super::wire::{Client, buy, eventually, hello};

const CONFIG: &str = include_str!("../../deploy/haproxy/haproxy.cfg");

/// One secret for both gateways, and a limit by address that a few clients use up.
fn gateway(house: &House, secret: &str) -> Serving {
    let secret = format!("auth.secret_file={secret}");
    let limits = ["limits.per_ip.rate_per_s=1", "limits.per_ip.burst=2"];
    house.serve(&[limits[0], limits[1], "gateway.proxy_listen=127.0.0.1:0", &secret])
}

/// Where it serves balancers, by its log.
fn proxy_addr(serving: &Serving) -> SocketAddr {
    let log = serving.log();
    let line = log.lines().find(|line| line.contains("serves balancers")).expect("it says where");
    line.rsplit("addr=").next().unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// The configuration with the addresses of this test; everything else is as operators have it.
fn configured(gateways: [&Serving; 2]) -> String {
    let mut config = CONFIG.to_owned();
    let mut replace = |from: &str, to: &str| {
        assert_eq!(config.matches(from).count(), 1, "{from} in haproxy.cfg");
        config = config.replace(from, to);
    };
    replace("bind \"*:7700\"", "bind \"127.0.0.1:${FRONT}\"");
    for (shown, serving) in ["10.0.0.11", "10.0.0.12"].into_iter().zip(gateways) {
        let (proxy, admin) = (proxy_addr(serving), serving.admin.port());
        replace(&format!("{shown}:7703 check port 7701"), &format!("{proxy} check port {admin}"));
    }
    config
}

struct Shop {
    front: SocketAddr,
    house: House,
}

impl Shop {
    /// A user's connection from that address; `None` if the balancer or a dying gateway closed it.
    fn try_app(&self, from: u8, id: u64) -> Option<Client> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, from)), 0);
        socket.bind(&from.into()).unwrap();
        socket.connect(&self.front.into()).ok()?;
        let mut client = Client::over(TcpStream::from(socket));
        let first = client.next_id();
        std::io::Write::write_all(&mut client.stream, &super::wire::request(first, None, &hello())).ok()?;
        assert_eq!(client.read()?.status, Status::Ok);
        let token = self.house.token(id);
        assert_eq!(client.ask(&Request::Auth { token: token.as_bytes() }).status, Status::Ok);
        Some(client)
    }

    fn app(&self, from: u8, id: u64) -> Client {
        self.try_app(from, id).expect("a gateway takes it")
    }
}

#[test]
fn haproxy_as_deployed_passes_addresses_and_leads_clients_to_the_gateway_that_is_left() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (House::with_sale(160), House::with_sale(160));
    // Made by the first use, then shared.
    first.done(&["token", "mint", "--user", "1"]);
    let secret = first.data_dir().join("auth.secret").display().to_string();
    let (one, two) = (gateway(&first, &secret), gateway(&second, &secret));
    let config = configured([&one, &two]);
    let haproxy = runtime.block_on(HaProxy::start(&config, &["FRONT"], &[])).unwrap();
    let front = SocketAddr::from(([127, 0, 0, 1], haproxy.port("FRONT").unwrap()));
    let shop = Shop { front, house: first };

    // One address uses up its limit on both gateways, another is not touched by that.
    let unknown = buy(SALE + 1, SKU, 1);
    let mut many: Vec<Client> = (1..=4).map(|id| shop.app(2, id)).collect();
    assert_eq!([&one, &two].map(|gateway| gateway.metric("rushgate_connections")), [2, 2], "spread evenly");
    for client in &mut many {
        eventually("its address is over the limit", || client.ask(&unknown).status == Status::RateLimited);
    }
    let mut others = [shop.app(3, 11), shop.app(3, 12)];
    for client in &mut others {
        assert_ne!(client.ask(&unknown).status, Status::RateLimited);
    }
    assert_eq!([&one, &two].map(|gateway| gateway.metric("rushgate_limiter_ips")), [2, 2]);
    for gateway in [&one, &two] {
        let ended = |why: &str| gateway.metric(&format!("rushgate_connections_ended_total{{why=\"{why}\"}}"));
        assert_eq!((ended("untrusted_proxy"), ended("bad_proxy_header")), (0, 0));
    }

    // One gateway dies. Whoever was there is told by the end of the connection, and gets to the other.
    one.kill();
    let mut lost = 0;
    for client in many.iter_mut().chain(&mut others) {
        let id = client.next_id();
        let ping = super::wire::request(id, None, &Request::Ping { client_time: 0 });
        let sent = std::io::Write::write_all(&mut client.stream, &ping);
        lost += u64::from(sent.is_err() || client.read().is_none());
    }
    assert_eq!(lost, 3);
    let mut again = None;
    eventually("the other gateway takes them", || {
        again = shop.try_app(4, 21);
        again.is_some()
    });
    assert_eq!(again.unwrap().ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(second.figures(), (160, 159, 1, 1));
    let state = |server: &str| {
        let stat = runtime.block_on(haproxy.command("show stat")).unwrap();
        let line = stat.lines().find(|line| line.starts_with(&format!("gateways,{server},"))).unwrap();
        line.split(',').nth(17).unwrap().to_owned()
    };
    eventually("the check finds the dead one", || state("gateway1").starts_with("DOWN"));
    assert!(state("gateway2").starts_with("UP"), "{}", state("gateway2"));
    (31..=33).for_each(|id| shop.app(5, id).ping());
}
