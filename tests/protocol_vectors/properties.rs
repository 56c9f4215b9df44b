//! What no list of vectors can hold: properties over everything that can be encoded, and over any bytes at all.

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;
use rushgate::protocol::frame::{FRAME_BYTES_MAX_AFTER_AUTH, FrameError, REPLY_BYTES_MAX};
use rushgate::protocol::{
    ActivityId, ActivityInfo, ActivityState, ClientVersion, ConnectionKind, Frame, Head, Opcode, Order,
    OrderNumber, OrderState, Reply, Request, SkuId, SkuInfo, SkuKey, Status, StockBand, UserId, decode,
    encode, put_tlv,
};

use crate::read_in_pieces;

#[derive(Clone, Debug)]
pub(crate) struct AnyFrame {
    head: Head,
    tlvs: Vec<(u16, Vec<u8>)>,
    body: Vec<u8>,
}

impl AnyFrame {
    pub(crate) fn encoded(&self) -> BytesMut {
        let mut out = BytesMut::new();
        encode(
            &mut out,
            self.head,
            |ext| self.tlvs.iter().for_each(|(kind, value)| put_tlv(ext, *kind, value)),
            |body| body.put_slice(&self.body),
        );
        out
    }
}

prop_compose! {
    fn any_head()(
        opcode in any::<u8>(), flags in any::<u16>(), request_id in any::<u32>(), status in any::<u16>(),
        hint_ms in any::<u32>(),
    ) -> Head {
        Head { opcode, flags, request_id, status, hint_ms }
    }
}

prop_compose! {
    pub(crate) fn any_frame()(
        head in any_head(),
        tlvs in prop::collection::vec((0..6_u16, prop::collection::vec(any::<u8>(), 0..40)), 0..5),
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) -> AnyFrame {
        AnyFrame { head, tlvs, body }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Owned {
    Hello(u8, [u16; 3], String),
    Auth(Vec<u8>),
    Answer(u32, Vec<u8>),
    Plain(Request<'static>),
}

impl Owned {
    pub(crate) fn request(&self) -> Request<'_> {
        match self {
            Self::Hello(platform, app, device) => {
                Request::Hello { version: ClientVersion { platform: *platform, app: *app }, device }
            }
            Self::Auth(token) => Request::Auth { token },
            Self::Answer(activity, answer) => Request::Answer { activity: ActivityId(*activity), answer },
            Self::Plain(request) => *request,
        }
    }
}

pub(crate) fn any_request() -> impl Strategy<Value = Owned> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..500);
    let plain = (any::<u32>(), any::<u16>(), any::<u16>(), any::<u64>(), 0..8_u8).prop_map(
        |(activity, sku, quantity, client_time, which)| {
            let (activity, sku) = (ActivityId(activity), SkuId(sku));
            Owned::Plain(match which {
                0 => Request::Ping { client_time },
                1 => Request::Goaway,
                2 => Request::Activity { activity },
                3 => Request::Challenge { activity },
                4 => Request::Token { activity, sku },
                5 => Request::Buy { activity, sku, quantity },
                6 => Request::Cancel { activity, order: OrderNumber(client_time) },
                _ => Request::Result { activity },
            })
        },
    );
    prop_oneof![
        (any::<u8>(), any::<[u16; 3]>(), "[ -~]{0,64}|秒{0,21}").prop_map(|(p, a, d)| Owned::Hello(p, a, d)),
        bytes().prop_map(Owned::Auth),
        (any::<u32>(), bytes()).prop_map(|(activity, answer)| Owned::Answer(activity, answer)),
        plain,
    ]
}

fn any_order() -> impl Strategy<Value = Order> {
    (any::<u64>(), any::<(u32, u16, u16)>(), 1..=7_u8, any::<u8>(), any::<u64>()).prop_map(
        |(number, (activity, sku, quantity), state, attempt, pay_by_ms)| Order {
            number: OrderNumber(number),
            sku: SkuKey { activity: ActivityId(activity), sku: SkuId(sku) },
            quantity,
            state: OrderState::from_wire(state).unwrap(),
            attempt,
            pay_by_ms,
        },
    )
}

fn any_activity() -> impl Strategy<Value = Reply> {
    use {ActivityState as S, StockBand as B};
    let band = prop::sample::select(vec![B::SoldOut, B::Low, B::Medium, B::High, B::Unknown]);
    let sku = (any::<u16>(), band, any::<u64>()).prop_map(|(sku, band, price_minor)| SkuInfo {
        sku: SkuId(sku),
        band,
        price_minor,
    });
    let state = prop::sample::select(vec![S::Upcoming, S::Open, S::Ended]);
    (any::<(u32, u8, u16)>(), state, any::<[u64; 3]>(), prop::collection::vec(sku, 0..20)).prop_map(
        |((activity, flags, per_user_limit), state, [server_time_ms, opens_at_ms, closes_at_ms], skus)| {
            let activity = ActivityId(activity);
            let info = ActivityInfo {
                activity,
                state,
                flags,
                server_time_ms,
                opens_at_ms,
                closes_at_ms,
                per_user_limit,
            };
            Reply::Activity { info, skus }
        },
    )
}

/// A reply with an opcode and status under which it can stand.
pub(crate) fn any_reply() -> impl Strategy<Value = (Opcode, Status, Reply)> {
    use {Opcode as O, Status as S};
    let of = |opcode: O, status: S| move |reply: Reply| (opcode, status, reply);
    let kind = prop::sample::select(vec![ConnectionKind::App, ConnectionKind::Service]);
    let empty = prop::sample::select(vec![S::SoldOut, S::Busy, S::GoingAway, S::BadBody, S::NoOrder]);
    prop_oneof![
        any::<(u64, u64, u32, u32, u16)>()
            .prop_map(|(server_time_ms, connection_id, keepalive_ms, frame_bytes_max, in_flight_max)| {
                Reply::Hello { server_time_ms, connection_id, keepalive_ms, frame_bytes_max, in_flight_max }
            })
            .prop_map(of(O::Hello, S::Ok)),
        (any::<(u64, u64, u16)>(), kind)
            .prop_map(|((user, expires_at_ms, in_flight_max), kind)| {
                Reply::Auth { user: UserId::new(user >> 1), expires_at_ms, kind, in_flight_max }
            })
            .prop_map(of(O::Auth, S::Ok)),
        any::<(u64, u64)>()
            .prop_map(|(server_time_ms, client_time)| Reply::Pong { server_time_ms, client_time })
            .prop_map(of(O::Ping, S::Ok)),
        any::<u32>().prop_map(|drain_ms| Reply::Goaway { drain_ms }).prop_map(of(O::Goaway, S::GoingAway)),
        ".{0,80}".prop_map(|message| Reply::Error { message }).prop_map(of(O::Error, S::BadFrame)),
        any_activity().prop_map(of(O::Activity, S::Ok)),
        any_order().prop_map(Reply::Order).prop_map(of(O::Buy, S::Queued)),
        any_order().prop_map(Reply::Order).prop_map(of(O::Buy, S::Already)),
        any_order().prop_map(Reply::Order).prop_map(of(O::Result, S::Ok)),
        any_order().prop_map(Reply::Order).prop_map(of(O::ResultPush, S::Ok)),
        any::<u32>().prop_map(|left| Reply::Left { left }).prop_map(of(O::Buy, S::Insufficient)),
        any::<(u64, u64)>()
            .prop_map(|(opens_at_ms, server_time_ms)| Reply::OpensAt { opens_at_ms, server_time_ms })
            .prop_map(of(O::Buy, S::NotStarted)),
        any::<u64>()
            .prop_map(|number| Reply::Pending { order_number: OrderNumber(number) })
            .prop_map(of(O::Result, S::Unconfirmed)),
        any::<[u16; 3]>()
            .prop_map(|min_version| Reply::Upgrade { min_version })
            .prop_map(of(O::Hello, S::UpgradeRequired)),
        empty.prop_map(|status| (O::Buy, status, Reply::Empty)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_frame_comes_back_as_it_was_encoded(any in any_frame()) {
        let bytes = any.encoded();
        let (frame, consumed) = decode(&bytes, REPLY_BYTES_MAX).unwrap().unwrap();
        let Frame { opcode, flags, request_id, status, hint_ms, .. } = frame;
        prop_assert_eq!(consumed, bytes.len());
        prop_assert_eq!(Head { opcode, flags, request_id, status, hint_ms }, any.head);
        let tlvs: Vec<_> = frame.tlvs().map(|(kind, value)| (kind, value.to_vec())).collect();
        prop_assert_eq!(tlvs, any.tlvs);
        prop_assert_eq!(frame.body, &any.body[..]);
    }

    #[test]
    fn a_request_comes_back_as_it_was_written_and_no_cut_of_it_does(
        owned in any_request(), grown in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let request = owned.request();
        let mut body = BytesMut::new();
        request.write(&mut body);
        for end in 0..body.len() {
            prop_assert_eq!(Request::parse(request.opcode(), &body[..end]), Err(Status::BadBody));
        }
        body.put_slice(&grown);
        prop_assert_eq!(Request::parse(request.opcode(), &body), Ok(request));
    }

    #[test]
    fn a_reply_comes_back_as_it_was_written_and_no_cut_of_it_does(
        (opcode, status, reply) in any_reply(), grown in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut body = BytesMut::new();
        reply.write(&mut body);
        for end in 0..body.len() {
            prop_assert_eq!(Reply::parse(opcode, status.code(), &body[..end]), None, "cut at {}", end);
        }
        body.put_slice(&grown);
        prop_assert_eq!(Reply::parse(opcode, status.code(), &body), Some(reply));
    }

    #[test]
    fn any_split_of_a_stream_gives_the_same_frames(
        frames in prop::collection::vec(any_frame(), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        broken in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut stream: Vec<u8> = frames.iter().flat_map(AnyFrame::encoded).collect();
        if let Some(at) = broken {
            stream[at.index(frames.iter().map(|frame| frame.encoded().len()).sum())] ^= 0x10;
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let whole = read_in_pieces(&stream, &[], FRAME_BYTES_MAX_AFTER_AUTH);
        prop_assert_eq!(read_in_pieces(&stream, &cuts, FRAME_BYTES_MAX_AFTER_AUTH), whole);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), cap in 0..5000_usize) {
        let _ = decode(&bytes, cap);
        let plausible = [&[0, 0, 0, 60, 1][..], &bytes].concat();
        let _ = decode(&plausible, cap);
        for &opcode in Opcode::ALL {
            let _ = Request::parse(opcode, &bytes);
            for status in [0, 0x7777].into_iter().chain(Status::ALL.iter().map(|status| status.code())) {
                let _ = Reply::parse(opcode, status, &bytes);
            }
        }
    }

    #[test]
    fn random_extensions_with_a_right_checksum_never_panic(
        head in any_head(), ext in prop::collection::vec(any::<u8>(), 0..60), body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut out = BytesMut::new();
        encode(&mut out, head, |to| to.put_slice(&ext), |to| to.put_slice(&body));
        match decode(&out, REPLY_BYTES_MAX) {
            Ok(Some((frame, _))) => {
                let taken: usize = frame.tlvs().map(|(_, value)| value.len() + 4).sum();
                prop_assert_eq!(taken, ext.len());
            }
            other => prop_assert!(matches!(other, Err(FrameError::Ext { .. })), "{:?}", other),
        }
    }
}
