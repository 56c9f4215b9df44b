//! TLS through real sockets: handshakes, tickets, renewed certificates, balancers that pass it on, and those who speak
//! something else.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rushgate::client::{ClientTls, Identity};
use rushgate::gateway::{Ending, Event, TlsFiles, TlsSettings};
use rushgate::protocol::Status;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::house::{House, Plan, SALE, SKU, rate};
use super::wire::{Client, PATIENCE, buy, eventually, hello, result};

const NAME: &str = "gate.example";
const FIRST_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A certificate of its own for [`NAME`], good for so many days from now on; its PEM.
fn write_certificate(folder: &Path, days: i64) -> String {
    let key = KeyPair::generate().unwrap();
    let pem = certificate(&key, days);
    // As who renews them does: each takes its name as a whole.
    for (name, text) in [("key.pem", key.serialize_pem()), ("cert.pem", pem.clone())] {
        fs::write(folder.join("new"), text).unwrap();
        fs::rename(folder.join("new"), folder.join(name)).unwrap();
    }
    pem
}

fn certificate(key: &KeyPair, days: i64) -> String {
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let now = std::time::SystemTime::now();
    let day = Duration::from_secs(24 * 3600);
    params.not_before = (now - 60 * day).into();
    params.not_after = if days < 0 { now - day } else { now + day * u32::try_from(days).unwrap() }.into();
    params.self_signed(key).unwrap().pem()
}

fn files(folder: &Path) -> TlsFiles {
    TlsFiles { certificate: folder.join("cert.pem"), private_key: folder.join("key.pem"), ticket_keys: None }
}

fn with_tls(plan: Plan, folder: &Path) -> Plan {
    plan.settings(|settings| {
        let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        settings.proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
        settings.tls =
            Some(TlsSettings { listen: any, proxy_listen: any, files: files(folder), handshakes_max: 100 });
    })
}

/// A client that trusts this certificate alone.
fn trusting(pem: &str) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"rushgate/1".to_vec()];
    Arc::new(config)
}

/// Speaks TLS to the port after these bytes; `Err` when the handshake fails.
fn handshake(
    house: &House,
    addr: SocketAddr,
    before: &[u8],
    config: &Arc<ClientConfig>,
    name: &'static str,
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let connector = TlsConnector::from(Arc::clone(config));
    house.runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(addr).await?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, before).await?;
        tokio::time::timeout(PATIENCE, connector.connect(ServerName::try_from(name).unwrap(), stream)).await?
    })
}

/// A client whose bytes go through this TLS.
fn client_over(house: &House, mut stream: TlsStream<tokio::net::TcpStream>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    far.set_nonblocking(true).unwrap();
    house.runtime.spawn(async move {
        let mut far = tokio::net::TcpStream::from_std(far).unwrap();
        // However it ends, both are closed.
        let _ = tokio::io::copy_bidirectional(&mut far, &mut stream).await;
    });
    Client::over(near)
}

fn events(house: &House, event: Event) -> u64 {
    house.gateway.counters().event_count(event)
}

fn endings(house: &House, ending: Ending) -> u64 {
    house.gateway.counters().ending_count(ending)
}

fn tls_addr(house: &House) -> SocketAddr {
    house.gateway.tls_addr().unwrap()
}

fn connect(house: &House, config: &Arc<ClientConfig>) -> (Client, HandshakeKind) {
    let stream = handshake(house, tls_addr(house), &[], config, NAME).unwrap();
    let kind = stream.get_ref().1.handshake_kind().unwrap();
    (client_over(house, stream), kind)
}

fn login(house: &House, config: &Arc<ClientConfig>, id: u64) -> (Client, HandshakeKind) {
    let (mut client, kind) = connect(house, config);
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    assert_eq!(client.auth(&house.token(id)).status, Status::Ok);
    (client, kind)
}

#[test]
fn a_purchase_goes_through_tls_as_through_the_plain_port() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = trusting(&write_certificate(folder.path(), 30));
    let house = with_tls(Plan::new(1), folder.path()).open();
    let stream = handshake(&house, tls_addr(&house), &[], &config, NAME).unwrap();
    let session = stream.get_ref().1;
    assert_eq!(session.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(session.alpn_protocol(), Some(b"rushgate/1".as_slice()));
    let mut client = client_over(&house, stream);
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    assert_eq!(client.auth(&house.token(7)).status, Status::Ok);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let (mut other, _) = login(&house, &config, 8);
    assert_eq!(other.ask(&buy(SALE, SKU, 1)).status, Status::SoldOut);
    let again = client.ask(&buy(SALE, SKU, 1));
    assert_eq!((again.status, again.order()), (Status::Already, client.ask(&result(SALE)).order()));
    assert_eq!(events(&house, Event::TlsFull) + events(&house, Event::TlsResumed), 2);
}

#[test]
fn everything_asked_in_one_go_is_answered_through_tls_however_late_it_is_read() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = trusting(&write_certificate(folder.path(), 30));
    let house = with_tls(Plan::new(1), folder.path()).open();
    let (mut client, _) = login(&house, &config, 7);
    // Far more than sockets and TLS hold: the gateway stops reading, and goes on when this side reads.
    let asked = 40_000;
    let mut writer = client.stream.try_clone().unwrap();
    let first = client.next_id();
    let writing = std::thread::spawn(move || {
        for id in 0..asked {
            writer.write_all(&super::wire::request(first + id, None, &result(SALE))).unwrap();
        }
    });
    for id in 0..asked {
        let answer = client.read().unwrap();
        assert_eq!((answer.id, answer.status), (first + id, Status::NoOrder));
    }
    writing.join().unwrap();
}

#[test]
fn a_client_that_comes_again_is_spared_half_the_handshake_also_at_another_gateway() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = trusting(&write_certificate(folder.path(), 30));
    fs::write(folder.path().join("tickets"), format!("# for all gateways\n{FIRST_KEY}\n")).unwrap();
    let shared = || {
        with_tls(Plan::new(1), folder.path()).settings(|settings| {
            let tls = settings.tls.as_mut().unwrap();
            tls.files.ticket_keys = Some(folder.path().join("tickets"));
        })
    };
    let (one, two) = (shared().open(), shared().open());
    let apart = with_tls(Plan::new(1), folder.path()).open();
    assert_eq!(login(&one, &config, 7).1, HandshakeKind::Full);
    assert_eq!(login(&one, &config, 7).1, HandshakeKind::Resumed);
    assert_eq!(login(&two, &config, 7).1, HandshakeKind::Resumed);
    assert_eq!(login(&apart, &config, 7).1, HandshakeKind::Full, "it has keys of its own");
    assert_eq!((events(&one, Event::TlsFull), events(&one, Event::TlsResumed)), (1, 1));
    assert_eq!((events(&two, Event::TlsFull), events(&two, Event::TlsResumed)), (0, 1));
}

#[test]
fn a_renewed_certificate_is_shown_to_who_comes_next_and_bad_files_change_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let first = write_certificate(folder.path(), 30);
    let house = with_tls(Plan::new(1), folder.path()).open();
    let (mut before, _) = login(&house, &trusting(&first), 7);
    let expires_s = house.gateway.tls().unwrap().expires_s;

    // Expired; and a key that does not go with it.
    write_certificate(folder.path(), -1);
    eventually("refused", || events(&house, Event::TlsFilesRefused) > 0);
    assert_eq!(house.gateway.tls().unwrap().expires_s, expires_s);
    login(&house, &trusting(&first), 8);
    fs::write(folder.path().join("cert.pem"), certificate(&KeyPair::generate().unwrap(), 30)).unwrap();
    let refused = events(&house, Event::TlsFilesRefused);
    eventually("refused again", || events(&house, Event::TlsFilesRefused) > refused);
    login(&house, &trusting(&first), 9);

    let second = write_certificate(folder.path(), 60);
    eventually("changed", || events(&house, Event::TlsChanged) == 1);
    assert!(house.gateway.tls().unwrap().expires_s > expires_s);
    login(&house, &trusting(&second), 10);
    let refused = handshake(&house, tls_addr(&house), &[], &trusting(&first), NAME).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    // Whoever was there stays.
    assert_eq!(before.ask(&result(SALE)).status, Status::NoOrder);
}

/// A PROXY protocol header for a client at 192.0.2.`host`.
fn from_host(host: u8) -> Vec<u8> {
    let payload = [192, 0, 2, host, 127, 0, 0, 1, 0x30, 0x39, 0x1E, 0x14];
    [b"\r\n\r\n\x00\r\nQUIT\n".as_slice(), &[0x21, 0x11, 0, 12], &payload].concat()
}

#[test]
fn a_balancer_that_passes_tls_on_says_whom_it_connects() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = trusting(&write_certificate(folder.path(), 30));
    let tight = |limits: &mut rushgate::admission::limits::LimitsSettings| {
        limits.per_ip = rate(1, 2);
        limits.per_ip_overrides = Vec::new();
    };
    let house = with_tls(Plan::new(5), folder.path()).limits(tight).open();
    let addr = house.gateway.tls_proxy_addr().unwrap();
    let passed = |host, ids: std::ops::Range<u64>| {
        let status = |id| {
            let stream = handshake(&house, addr, &from_host(host), &config, NAME).unwrap();
            let mut client = client_over(&house, stream);
            assert_eq!(client.ask(&hello()).status, Status::Ok);
            assert_eq!(client.auth(&house.token(id)).status, Status::Ok);
            client.ask(&buy(SALE + 1, SKU, 1)).status
        };
        ids.map(status).filter(|status| *status != Status::RateLimited).count()
    };
    assert_eq!(passed(1, 1..3), 2);
    assert_eq!(passed(2, 10..12), 2, "another client behind the same balancer");
    // Without the header it is none of the balancer's.
    let refused = handshake(&house, addr, &[], &config, NAME);
    assert!(refused.is_err());
    eventually("counted as none", || endings(&house, Ending::BadProxyHeader) == 1);
    // And the header is none of TLS.
    assert!(handshake(&house, tls_addr(&house), &from_host(1), &config, NAME).is_err());
    eventually("counted", || endings(&house, Ending::TlsFailed) == 1);
}

/// What the gateway says to these bytes before it closes.
fn said_to(house: &House, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(tls_addr(house)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    said
}

/// A client hello of TLS 1.1 with two ciphers of its time.
fn old_hello() -> Vec<u8> {
    let body = [&[3, 2][..], &[7; 32], &[0], &[0, 4, 0, 0x2F, 0, 0x35], &[1, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[0x16, 3, 1, 0, length + 4, 1, 0, 0, length], &body[..]].concat()
}

#[test]
fn who_speaks_no_tls_or_an_old_one_or_knows_another_name_is_turned_away_and_counted() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = trusting(&write_certificate(folder.path(), 30));
    let house = with_tls(Plan::new(1), folder.path()).open();
    said_to(&house, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    said_to(&house, &super::wire::request(1, None, &hello()));
    said_to(&house, &[0x16, 3, 1, 0xFF, 0xFF]);
    let alert = said_to(&house, &old_hello());
    assert_eq!(alert[0], 0x15, "no alert: {alert:?}");
    eventually("counted", || endings(&house, Ending::TlsFailed) == 4);
    // The client's own check; it says so, and the gateway counts it.
    assert!(handshake(&house, tls_addr(&house), &[], &config, "elsewhere.example").is_err());
    eventually("counted", || endings(&house, Ending::TlsFailed) == 5);
    let another = {
        let mut config = ClientConfig::clone(&config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    assert!(handshake(&house, tls_addr(&house), &[], &another, NAME).is_err(), "another protocol");
    login(&house, &config, 7);
}

#[test]
fn handshakes_that_nobody_finishes_are_bounded_in_number_and_time() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = trusting(&write_certificate(folder.path(), 30));
    let house = with_tls(Plan::new(1), folder.path())
        .settings(|settings| settings.handshake_timeout = Duration::from_secs(2))
        .open();
    let (mut there, _) = login(&house, &config, 7);
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(tls_addr(&house)).unwrap()).collect();
    eventually("counted", || endings(&house, Ending::TlsRefused) == 200);
    assert_eq!(house.gateway.tls().unwrap().handshakes, 100);
    // Who is there does not notice.
    assert_eq!(there.ask(&result(SALE)).status, Status::NoOrder);
    eventually("counted", || endings(&house, Ending::HandshakeTimeout) == 100);
    assert_eq!(house.gateway.tls().unwrap().handshakes, 0);
    login(&house, &config, 8);
    drop(silent);
    eventually("all gone", || house.gateway.connections() <= 2);
}

/// The reference client at the TLS port, believing what this file holds.
fn reference_client(house: &House, roots: &Path, name: &str) -> rushgate::client::Client {
    let settings = rushgate::client::Settings {
        tls: Some(ClientTls::new(Some(roots), name).unwrap()),
        ..rushgate::client::Settings::default()
    };
    let (pushes, _) = tokio::sync::mpsc::channel(1);
    rushgate::client::Client::new(&[tls_addr(house)], Identity::back_end(house.token(7)), settings, pushes)
}

#[test]
fn the_reference_client_buys_over_tls_and_believes_nobody_else() {
    let folder = tempfile::TempDir::new().unwrap();
    write_certificate(folder.path(), 30);
    let house = with_tls(Plan::new(1), folder.path()).open();
    let roots = folder.path().join("cert.pem");
    let buying = async |client: &rushgate::client::Client| {
        let until = tokio::time::Instant::now() + Duration::from_secs(2);
        client.ask(&buy(SALE, SKU, 1), None, until).await
    };
    let bought = house.operate(buying(&reference_client(&house, &roots, NAME))).unwrap();
    assert_eq!(bought.known_status(), Some(Status::Queued));
    let error = house.operate(buying(&reference_client(&house, &roots, "elsewhere.example"))).unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    assert!(!error.is_outcome_unknown());
    let other = tempfile::TempDir::new().unwrap();
    write_certificate(other.path(), 30);
    let error =
        house.operate(buying(&reference_client(&house, &other.path().join("cert.pem"), NAME))).unwrap_err();
    assert!(
        error.to_string().contains("UnknownIssuer") || error.to_string().contains("BadSignature"),
        "{error}"
    );
    assert!(ClientTls::new(Some(&folder.path().join("key.pem")), NAME).is_err(), "no certificate in it");
    assert!(ClientTls::new(Some(&roots), "no name").is_err());
}
