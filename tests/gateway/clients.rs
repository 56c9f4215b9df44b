//! Which software is served: platform, least version, the device's name.

use std::sync::Arc;

use rushgate::admission::clients::{AppVersion, ClientRules, DeviceCharset, Platform};
use rushgate::admission::identity::IdentityKind;
use rushgate::client::{Client as Buyer, Identity, Outcome, Patience, Purchase};
use rushgate::protocol::{ActivityId, ClientVersion, Opcode, Reply, Request, SkuId, Status};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::house::{House, Plan, SALE, SKU};
use super::wire::{Client, PATIENCE, buy, request};

const IOS: u8 = 1;
const ANDROID: u8 = 2;
const BACK_END: u8 = 5;
const DEVICE: &str = "ios-7f3a";

fn house(rules: ClientRules) -> House {
    Plan::new(5).settings(|settings| settings.clients = rules).open()
}

fn rules() -> ClientRules {
    ClientRules {
        platforms: vec![Platform::Ios, Platform::Android, Platform::BackEnd],
        min_version: vec![(Platform::Ios, AppVersion([3, 2, 0]))],
        device_bytes_min: 8,
        device_charset: DeviceCharset::Plain,
    }
}

const fn says(platform: u8, app: [u16; 3], device: &str) -> Request<'_> {
    Request::Hello { version: ClientVersion { platform, app }, device }
}

/// HELLO, AUTH and BUY in one write; the answer to HELLO.
#[track_caller]
fn knocks(house: &House, hello: &Request<'_>) -> (Client, Status, Reply) {
    let mut client = Client::connect(house.addr());
    let token = house.token(1);
    let auth = Request::Auth { token: token.as_bytes() };
    client.write(
        &[request(1, None, hello), request(2, None, &auth), request(3, None, &buy(SALE, SKU, 1))].concat(),
    );
    let answer = client.read().unwrap();
    assert_eq!((answer.opcode, answer.id), (Opcode::Hello, 1));
    (client, answer.status, answer.reply)
}

#[test]
fn a_client_that_is_too_old_is_told_the_least_version_and_nothing_behind_its_hello_is_done() {
    let house = house(rules());
    for (platform, app, min_version) in [
        (IOS, [3, 1, 9], [3, 2, 0]),
        (IOS, [0, 0, 0], [3, 2, 0]),
        (3, [9, 9, 9], [0, 0, 0]),
        (0, [9, 9, 9], [0, 0, 0]),
        // Unknown ones count as "other".
        (77, [9, 9, 9], [0, 0, 0]),
    ] {
        let (mut client, status, reply) = knocks(&house, &says(platform, app, DEVICE));
        assert_eq!((status, reply), (Status::UpgradeRequired, Reply::Upgrade { min_version }));
        client.closed();
    }
    assert_eq!((house.count("ending upgrade_required"), house.count("UPGRADE_REQUIRED")), (5, 5));
    assert_eq!((house.count("rung passed"), house.sold()), (0, (0, 0)));
    for (platform, app) in [(IOS, [3, 2, 0]), (IOS, [3, 10, 0]), (ANDROID, [0, 0, 0])] {
        let (mut client, status, _) = knocks(&house, &says(platform, app, DEVICE));
        assert_eq!(status, Status::Ok);
        assert_eq!(client.answer_to(2).status, Status::Ok);
        client.answer_to(3);
    }
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn a_hello_without_such_a_device_as_is_asked_for_has_not_happened() {
    let house = house(rules());
    let mut client = Client::connect(house.addr());
    for bad in ["", "short", "with blank", "line\nbreak", "nul\0nul\0", "\u{202E}reversed", "schlüssel"] {
        assert_eq!(client.ask(&says(ANDROID, [1; 3], bad)).status, Status::BadBody, "{bad:?}");
    }
    assert_eq!(client.auth(&house.token(1)).status, Status::Unexpected, "nobody has said HELLO");
    assert_eq!(house.count("device_refused"), 7);
    assert_eq!(client.ask(&says(ANDROID, [1; 3], "{07}:meta*")).status, Status::Ok, "hostile, but a name");
    assert_eq!(client.auth(&house.token(1)).status, Status::Ok);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}

#[test]
fn a_back_end_needs_no_device_and_an_app_that_calls_itself_one_does() {
    let house = house(rules());
    let greeted = |device| {
        let mut client = Client::connect(house.addr());
        assert_eq!(client.ask(&says(BACK_END, [0; 3], device)).status, Status::Ok);
        client
    };
    let mut back_end = greeted("");
    assert_eq!(back_end.auth(&house.token(1)).status, Status::Unexpected, "a user's token");
    assert_eq!(back_end.auth(&house.mint(IdentityKind::Service, 60)).status, Status::Ok);
    assert_eq!(back_end.ask_for(1, &buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(house.count("device_refused"), 1);
    assert_eq!(greeted(DEVICE).auth(&house.token(2)).status, Status::Ok);
}

#[test]
fn the_reference_client_stops_for_good_when_its_version_is_not_served() {
    let house = house(rules());
    let identity = Identity {
        token: house.token(1),
        device: DEVICE.to_owned(),
        version: ClientVersion { platform: IOS, app: [3, 1, 0] },
    };
    let buyer = Arc::new(Buyer::new(
        &[house.addr()],
        identity,
        rushgate::client::Settings::default(),
        mpsc::channel(1).0,
    ));
    let purchase =
        Purchase { activity: ActivityId(SALE), sku: SkuId(SKU), quantity: 1, on_behalf: None, copies: 1 };
    let mut said = Vec::new();
    for _ in 0..3 {
        let patience = Patience { until: Instant::now() + PATIENCE, insufficient_max: 1 };
        let outcome = house.runtime.block_on(buyer.buy_until_final(&purchase, patience, &mut |exchange| {
            said.push(exchange.result.unwrap_err().to_string());
        }));
        assert_eq!(outcome, Outcome::Refused(Status::UpgradeRequired.code()));
    }
    let text = "HELLO was refused with UPGRADE_REQUIRED: version 3.2.0 or later of this program is needed";
    assert_eq!(said, [text; 3]);
    assert_eq!((buyer.connects(), house.count("UPGRADE_REQUIRED")), (1, 1), "it was asked once");
}
