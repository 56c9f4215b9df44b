//! When several statuses apply, the first in protocol.md's list is the answer: every pair of refusals that one
//! request can earn at once.

use rushgate::admission::identity::IdentityKind;
use rushgate::protocol::{Head, Opcode, Reply, Status, tlv};

use super::house::{House, Plan, SALE, SKU, TIGHT_USER, now_ms, rate, sale};
use super::wire::{Client, buy, eventually, frame, hello, result};

/// In the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Length,
    Version,
    Crc,
    TlvStructure,
    Flags,
    IdZero,
    Opcode,
    Unauthenticated,
    ShortBody,
    NoUser,
    QuantityZero,
    Expired,
    InFlight,
    Rate,
    Already,
    EntryClosed,
    NoActivity,
    NoSku,
    OverLimit,
    Upcoming,
    Over,
    Blocked,
    SoldOut,
}

use Fault::{
    Already, Blocked, Crc, EntryClosed, Expired, Flags, IdZero, InFlight, Length, NoActivity, NoSku, NoUser,
    Over, OverLimit, QuantityZero, ShortBody, SoldOut, TlvStructure, Unauthenticated, Upcoming, Version,
};

const FAULTS: [Fault; 23] = [
    Length,
    Version,
    Crc,
    TlvStructure,
    Flags,
    IdZero,
    Fault::Opcode,
    Unauthenticated,
    ShortBody,
    NoUser,
    QuantityZero,
    Expired,
    InFlight,
    Fault::Rate,
    Already,
    EntryClosed,
    NoActivity,
    NoSku,
    OverLimit,
    Upcoming,
    Over,
    Blocked,
    SoldOut,
];

impl Fault {
    fn status(self) -> Status {
        match self {
            Length | Crc | TlvStructure => Status::BadFrame,
            Version => Status::BadVersion,
            Flags => Status::BadFlags,
            IdZero => Status::BadRequestId,
            Fault::Opcode => Status::UnknownOpcode,
            Unauthenticated => Status::NotAuthenticated,
            ShortBody => Status::BadBody,
            NoUser => Status::UserRequired,
            QuantityZero => Status::BadQuantity,
            Expired => Status::TokenExpired,
            InFlight => Status::TooManyInFlight,
            Fault::Rate => Status::RateLimited,
            Already => Status::Already,
            EntryClosed | Over => Status::Ended,
            NoActivity => Status::UnknownActivity,
            NoSku => Status::UnknownSku,
            OverLimit => Status::OverLimit,
            Upcoming => Status::NotStarted,
            Blocked => Status::Blocked,
            SoldOut => Status::SoldOut,
        }
    }

    /// What one request cannot be at once with this one.
    fn excludes(self, other: Self) -> bool {
        let one_of = |set: &[Self]| set.contains(&self) && set.contains(&other);
        one_of(&[Expired, InFlight])
            || one_of(&[Unauthenticated, Expired])
            || one_of(&[Unauthenticated, InFlight])
            || one_of(&[QuantityZero, OverLimit])
            || one_of(&[NoSku, SoldOut])
            || one_of(&[Upcoming, Over])
            || self == NoActivity && [Already, EntryClosed, Upcoming, Over, SoldOut].contains(&other)
            || other == NoActivity && [Already, EntryClosed].contains(&self)
            // Nobody can have bought before it opens; and without a user there is neither his rate nor his order.
            || self == Already && [Upcoming, Over].contains(&other)
            || one_of(&[EntryClosed, Over])
    }
}

const GONE: u16 = 4;
const CLOSED: u32 = 1002;
const UPCOMING: u32 = 1003;
const OVER: u32 = 1004;
const CLOSED_UPCOMING: u32 = 1005;
const BLOCKED_DEVICE: &str = "a blocked device";
const HOLDER: u64 = 10;
const TIRED_HOLDER: u64 = 11;

struct Scene {
    house: House,
    expired: Client,
    full: Client,
    plain: Client,
    fresh_user: u64,
}

fn scene() -> Scene {
    let activity = |id: u32, shift: i64, entry_open: bool| {
        let mut activity = sale(id, &[(SKU, 160), (GONE, 1)], 2);
        activity.opens_at_ms = activity.opens_at_ms.saturating_add_signed(shift);
        activity.closes_at_ms = activity.closes_at_ms.saturating_add_signed(shift);
        activity.entry_open = entry_open;
        activity
    };
    let day = 24 * 3_600_000;
    let house = Plan::with(vec![
        activity(SALE, 0, true),
        activity(CLOSED, 0, true),
        activity(UPCOMING, day, true),
        activity(OVER, -day, true),
        activity(CLOSED_UPCOMING, day, false),
    ])
    .limits(|limits| limits.per_user = rate(1, TIGHT_USER))
    .settings(|settings| {
        settings.service_in_flight_max = 1;
        settings.stock.unconfirmed_after_ms = 600_000;
        settings.stock.patience_ms = 600_000;
        settings.stock.call_timeout_ms = 600_000;
    })
    .open();
    let mut expired = Client::login(house.addr(), &house.mint(IdentityKind::Service, 1));
    let mut full = house.service();
    let mut plain = house.service();
    for activity in [SALE, CLOSED] {
        assert_eq!(plain.ask_for(HOLDER, &buy(activity, SKU, 1)).status, Status::Queued);
        assert_eq!(plain.ask_for(TIRED_HOLDER, &buy(activity, SKU, 1)).status, Status::Queued);
    }
    for (user, activity) in [(20, SALE), (21, CLOSED)] {
        assert_eq!(plain.ask_for(user, &buy(activity, GONE, 1)).status, Status::Queued);
    }
    // What cannot be sold out by buying is emptied by its operator.
    for activity in [UPCOMING, OVER, CLOSED_UPCOMING] {
        house.operate(house.admin.stock_remove(u64::from(activity), u64::from(GONE), 1)).unwrap();
    }
    house.operate(house.admin.close(u64::from(CLOSED))).unwrap();
    eventually("the entry is closed", || plain.ask_for(22, &buy(CLOSED, 9, 1)).status == Status::Ended);
    eventually("the article is gone", || plain.ask_for(23, &buy(SALE, GONE, 1)).status == Status::SoldOut);
    eventually("the token expires", || expired.ask_for(24, &result(SALE)).status == Status::TokenExpired);
    super::risk::in_force(&house, &[&format!("device:{BLOCKED_DEVICE}")], "block", 0);
    house.gate.shut();
    full.send_for(25, &buy(SALE, SKU, 1));
    Scene { house, expired, full, plain, fresh_user: 1_000_000 }
}

impl Scene {
    fn bytes(&mut self, has: impl Fn(Fault) -> bool) -> Vec<u8> {
        let activity = match () {
            () if has(NoActivity) => 9999,
            () if has(EntryClosed) && has(Upcoming) => CLOSED_UPCOMING,
            () if has(EntryClosed) => CLOSED,
            () if has(Upcoming) => UPCOMING,
            () if has(Over) => OVER,
            () => SALE,
        };
        let sku = if has(NoSku) {
            99
        } else if has(SoldOut) {
            GONE
        } else {
            SKU
        };
        let quantity: u16 = if has(QuantityZero) {
            0
        } else if has(OverLimit) {
            3
        } else {
            1
        };
        self.fresh_user += 1;
        let user = match (has(Already), has(Fault::Rate)) {
            (true, true) => TIRED_HOLDER,
            (true, false) => HOLDER,
            (false, _) => self.fresh_user,
        };
        if has(Fault::Rate) {
            // Now, so that the next is a second away.
            eventually("the limit is used up", || {
                self.plain.ask_for(user, &buy(9999, SKU, 1)).status == Status::RateLimited
            });
        }
        let user = user.to_be_bytes();
        let mut body = [&activity.to_be_bytes()[..], &sku.to_be_bytes(), &quantity.to_be_bytes()].concat();
        if has(ShortBody) {
            body.truncate(7);
        }
        let head = Head {
            opcode: if has(Fault::Opcode) { 0x24 } else { Opcode::Buy as u8 },
            flags: if has(Flags) { 0x8000 } else { 0 },
            request_id: if has(IdZero) { 0 } else { 7 },
            status: 0,
            hint_ms: 0,
        };
        let user = (!has(NoUser)).then_some((tlv::USER, &user[..]));
        let device = has(Blocked).then_some((tlv::DEVICE, BLOCKED_DEVICE.as_bytes()));
        let tlvs: Vec<(u16, &[u8])> = user.into_iter().chain(device).collect();
        let mut bytes = frame(head, &tlvs, &body);
        if has(TlvStructure) {
            let too_many = u16::try_from(bytes.len() - 24 + 1).unwrap();
            bytes[14..16].copy_from_slice(&too_many.to_be_bytes());
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..20]), &bytes[24..]);
            bytes[20..24].copy_from_slice(&crc.to_be_bytes());
        }
        if has(Crc) {
            bytes[20] ^= 0xFF;
        }
        if has(Version) {
            bytes[4] = 9;
        }
        if has(Length) {
            bytes[..4].copy_from_slice(&19_u32.to_be_bytes());
        }
        bytes
    }

    fn expect(&mut self, faults: &[Fault]) {
        let has = |fault| faults.contains(&fault);
        let bytes = self.bytes(has);
        let closes = faults[0] <= TlvStructure;
        // A connection that is going to be closed is not one that is needed again.
        let mut own = (closes || has(Unauthenticated)).then(|| {
            let mut client = Client::connect(self.house.addr());
            client.ask(&hello());
            if !has(Unauthenticated) {
                client.auth(&self.house.mint(IdentityKind::Service, 3600));
            }
            client
        });
        let client = match &mut own {
            Some(own) => own,
            None if has(Expired) => &mut self.expired,
            None if has(InFlight) => &mut self.full,
            None => &mut self.plain,
        };
        client.write(&bytes);
        let answer = client.wait_for(|answer| answer.opcode != Opcode::ResultPush);
        assert_eq!(answer.status, faults[0].status(), "{faults:?}");
        if closes {
            client.closed();
        }
    }
}

#[test]
fn of_every_pair_of_faults_the_first_in_the_list_is_told() {
    let mut scene = scene();
    let mut pairs = 0;
    for (at, first) in FAULTS.into_iter().enumerate() {
        scene.expect(&[first]);
        for second in &FAULTS[at + 1..] {
            if !first.excludes(*second) {
                scene.expect(&[first, *second]);
                pairs += 1;
            }
        }
    }
    assert!(pairs > 200, "only {pairs} pairs");
    // And all at once, one after the other taken away.
    let all: Vec<Fault> = FAULTS
        .into_iter()
        .filter(|fault| {
            ![Already, EntryClosed, Upcoming, Over, SoldOut, OverLimit, Expired, Unauthenticated]
                .contains(fault)
        })
        .collect();
    (0..all.len()).for_each(|at| scene.expect(&all[at..]));
    scene.house.gate.open();
}

#[test]
fn goaway_stands_between_the_opcode_and_the_handshake() {
    let house = Plan::new(160).open();
    house.gate.shut();
    let mut client = house.service();
    client.send_for(1, &buy(SALE, SKU, 1));
    eventually("the call is at the store", || house.gate.arrived() > 0);
    let gateway = std::sync::Arc::clone(&house.gateway);
    let draining = house.runtime.spawn(async move { gateway.drain().await });
    client.push(Opcode::Goaway);
    let mut status = |head: Head, body: &[u8]| {
        client.write(&frame(head, &[], body));
        client.wait_for(|answer| answer.id == head.request_id).status
    };
    let head = Head::request(Opcode::Buy, 70);
    assert_eq!(status(head, &[0; 3]), Status::GoingAway, "before BAD_BODY and USER_REQUIRED");
    assert_eq!(status(Head { flags: 0x100, ..head }, &[0; 8]), Status::BadFlags);
    assert_eq!(status(Head { opcode: 0x24, ..head }, &[0; 8]), Status::UnknownOpcode);
    assert_eq!(status(Head::request(Opcode::Hello, 71), &[]), Status::GoingAway, "before UNEXPECTED");
    assert_eq!(status(Head::request(Opcode::Ping, 72), &[0; 3]), Status::BadBody, "PING goes on");
    house.gate.open();
    assert!(house.runtime.block_on(draining).unwrap());
}

#[test]
fn an_unknown_outcome_comes_before_the_entry_switch_and_sold_out() {
    let house = Plan::new(160).settings(|settings| settings.stock.unconfirmed_after_ms = 100).open();
    house.gate.shut();
    let mut client = house.app(1);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Unconfirmed);
    house.operate(house.admin.close(u64::from(SALE))).unwrap();
    let mut other = house.app(2);
    eventually("the entry is closed", || other.ask(&buy(SALE, 9, 1)).status == Status::Ended);
    for ask in [buy(SALE, SKU, 1), buy(SALE, 9, 1), buy(SALE, SKU, 9), result(SALE)] {
        assert_eq!(client.ask(&ask).status, Status::Unconfirmed);
    }
    house.gate.open();
    eventually("the outcome is known", || client.ask(&result(SALE)).status == Status::Ok);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Already);
}

#[test]
fn sold_out_and_insufficient_come_before_a_full_queue() {
    let house = Plan::with(vec![sale(SALE, &[(SKU, 160), (GONE, 1), (7, 2)], 5)])
        .settings(|settings| {
            settings.stock.queue_items_max = 1;
            settings.stock.unconfirmed_after_ms = 600_000;
            settings.stock.patience_ms = 600_000;
        })
        .open();
    let mut client = house.app(1);
    assert_eq!(house.app(2).ask(&buy(SALE, GONE, 1)).status, Status::Queued);
    eventually("it is gone", || client.ask(&buy(SALE, GONE, 1)).status == Status::SoldOut);
    house.gate.shut();
    client.send(&buy(SALE, SKU, 1));
    eventually("the call is at the store", || house.gate.arrived() > 1);
    eventually("the queue is full", || {
        let id = client.send(&buy(SALE, SKU, 1));
        client.ping();
        client.has_answer_to(id)
    });
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Busy);
    assert_eq!(client.ask(&buy(SALE, GONE, 1)).status, Status::SoldOut);
    let few = client.ask(&buy(SALE, 7, 3));
    assert_eq!((few.status, few.reply), (Status::Insufficient, Reply::Left { left: 2 }));
    house.gate.open();
}

/// An order that was closed, as the shop's back office will do it: straight in the database, nobody serving.
fn with_a_closed_order() -> (House, u64) {
    let house = Plan::with(vec![sale(SALE, &[(SKU, 160)], 2), sale(CLOSED, &[(SKU, 160)], 2)]).open();
    for activity in [SALE, CLOSED] {
        assert_eq!(house.app(1).ask(&buy(activity, SKU, 1)).status, Status::Queued);
    }
    house.operate(house.admin.close(u64::from(CLOSED))).unwrap();
    let (dir, data_dir) = house.stop();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(data_dir.join("rushgate.db"));
        let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
        sqlx::query("UPDATE orders SET state = 4").execute(&mut connection).await.unwrap();
        sqlx::Connection::close(connection).await.unwrap();
    });
    (Plan::with(Vec::new()).open_in(dir), now_ms())
}

#[test]
fn a_closed_order_is_told_by_result_and_does_not_hide_what_comes_before_not_again() {
    let (house, _) = with_a_closed_order();
    let mut client = house.app(1);
    assert_eq!(client.ask(&result(SALE)).order().state, rushgate::protocol::OrderState::Closed);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::NotAgain);
    assert_eq!(client.ask(&buy(SALE, 9, 1)).status, Status::UnknownSku);
    assert_eq!(client.ask(&buy(SALE, SKU, 3)).status, Status::OverLimit);
    assert_eq!(client.ask(&buy(CLOSED, SKU, 1)).status, Status::Ended);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::NotAgain);
}
