//! Service connections: each request names its user, and an app connection's naming is not believed.

use rushgate::protocol::{ActivityId, Head, Opcode, Reply, Request, Status, UserId, activity_flags, tlv};

use super::house::{House, Plan, SALE, SKU};
use super::wire::{Client, buy, frame, result};

fn ask(client: &mut Client, opcode: Opcode, tlvs: &[(u16, &[u8])], body: &[u8]) -> Status {
    let id = client.next_id();
    client.write(&frame(Head::request(opcode, id), tlvs, body));
    client.answer_to(id).status
}

fn buy_body(quantity: u16) -> Vec<u8> {
    [&SALE.to_be_bytes()[..], &SKU.to_be_bytes(), &quantity.to_be_bytes()].concat()
}

#[test]
fn a_request_that_names_no_user_or_no_possible_one_is_user_required() {
    let house = Plan::new(5).open();
    let mut back_end = house.service();
    let (zero, above, greatest) = (0_u64.to_be_bytes(), (1_u64 << 63).to_be_bytes(), u64::MAX.to_be_bytes());
    let named: [&[(u16, &[u8])]; 4] =
        [&[], &[(tlv::USER, &zero)], &[(tlv::USER, &above)], &[(tlv::USER, &greatest)]];
    let activity = SALE.to_be_bytes();
    for tlvs in named {
        for (opcode, body) in [
            (Opcode::Buy, &buy_body(1)[..]),
            (Opcode::Buy, &buy_body(0)),
            (Opcode::Result, &activity),
            (Opcode::Activity, &activity),
            (Opcode::Challenge, &activity),
        ] {
            assert_eq!(ask(&mut back_end, opcode, tlvs, body), Status::UserRequired, "{opcode:?} {tlvs:?}");
        }
    }
    assert_eq!(house.count("USER_REQUIRED"), 20);
    back_end.ping();
    let last = UserId::MAX.to_be_bytes();
    assert_eq!(ask(&mut back_end, Opcode::Buy, &[(tlv::USER, &last)], &buy_body(1)), Status::Queued);
    assert_eq!(ask(&mut back_end, Opcode::Buy, &[(tlv::USER, &last)], &buy_body(0)), Status::BadQuantity);
}

#[test]
fn known_tlvs_of_every_wrong_length_are_bad_body_and_unknown_ones_are_skipped() {
    let house = Plan::new(500).open();
    let mut back_end = house.service();
    for length in 0..=40 {
        let value = vec![b'x'; length];
        let mut user = u64::try_from(length).unwrap() + 1;
        let mut expect = |kind: u16, fits: bool| {
            user += 1000;
            let named = user.to_be_bytes();
            let tlvs: &[(u16, &[u8])] =
                if kind == tlv::USER { &[(kind, &value)] } else { &[(tlv::USER, &named), (kind, &value)] };
            let status = ask(&mut back_end, Opcode::Result, tlvs, &SALE.to_be_bytes());
            assert_eq!(status == Status::BadBody, !fits, "TLV {kind:#06x} of {length} bytes: {status:?}");
        };
        expect(tlv::USER, length == 8);
        expect(tlv::CLIENT_ADDR, length == 4 || length == 16);
        expect(tlv::DEVICE, length > 0);
        expect(tlv::CLAIMS, length > 0);
        expect(0x0010, true);
        expect(0x0011, true);
        expect(0x7ABC, true);
    }
    back_end.ping();
}

/// Who bought, as far as each of these users' own connections know.
fn holders(house: &House, users: &[u64]) -> Vec<u64> {
    let holds = |user: &u64| house.app(*user).ask(&result(SALE)).status == Status::Ok;
    users.iter().copied().filter(holds).collect()
}

#[test]
fn an_app_connection_buys_for_itself_whatever_its_tlvs_say() {
    let house = Plan::new(50).open();
    let mut client = house.app(1);
    let other = 2_u64.to_be_bytes();
    let nobody = 0_u64.to_be_bytes();
    let tlvs: &[(u16, &[u8])] =
        &[(tlv::USER, &other), (tlv::CLIENT_ADDR, &[9, 9, 9, 9]), (tlv::DEVICE, b"x")];
    assert_eq!(ask(&mut client, Opcode::Buy, tlvs, &buy_body(1)), Status::Queued);
    assert_eq!(ask(&mut client, Opcode::Result, &[(tlv::USER, &nobody)], &SALE.to_be_bytes()), Status::Ok);
    assert_eq!(holders(&house, &[1, 2]), [1]);
}

#[test]
fn one_connection_speaks_for_many_users_at_once() {
    let house = Plan::new(64).open();
    let mut back_end = house.service();
    let ids: Vec<u32> = (1..=128).map(|user| back_end.send_for(user, &buy(SALE, SKU, 1))).collect();
    let statuses: Vec<Status> = ids.into_iter().map(|id| back_end.answer_to(id).status).collect();
    let queued = statuses.iter().filter(|status| **status == Status::Queued).count();
    let sold_out = statuses.iter().filter(|status| **status == Status::SoldOut).count();
    assert_eq!((queued, sold_out), (64, 64));
    for (user, status) in (1..=128).zip(statuses) {
        let told = back_end.ask_for(user, &result(SALE)).status;
        assert_eq!(told == Status::Ok, status == Status::Queued, "user {user}");
    }
    let Reply::Activity { info, .. } =
        back_end.ask_for(1000, &Request::Activity { activity: ActivityId(SALE) }).reply
    else {
        panic!("no ACTIVITY reply")
    };
    assert_eq!(info.flags, activity_flags::ELIGIBLE, "flags are the named user's");
}
