//! The bytes of requests, as clients send them.

use bytes::BytesMut;
use rushgate::protocol::{
    ActivityId, ClientVersion, Head, Opcode, Request, SkuId, Status, decode, encode, put_tlv, tlv,
};

/// Who has the only order.
pub const WINNER: u64 = 42;
/// Where clients come from.
pub const HOME: [u8; 4] = [127, 0, 0, 1];
/// An address that is over its rate, but for one request a second.
pub const CROWDED: [u8; 4] = [127, 9, 0, 1];

/// The one activity of the scene.
pub const SALE: ActivityId = ActivityId(1001);
/// Its one article.
pub const SKU: SkuId = SkuId(3);

/// As long as device ids of apps usually are.
const DEVICE: &[u8] = b"5f3c9a70-1f1e-4b8e-9d53-0c6a7d2b41aa";

/// One unit of the article.
pub const fn buy() -> Request<'static> {
    Request::Buy { activity: SALE, sku: SKU, quantity: 1 }
}

/// HELLO of an app.
pub const fn hello() -> Request<'static> {
    Request::Hello { version: ClientVersion { platform: 2, app: [1, 2, 3] }, device: "a device" }
}

/// Appends a request as an app sends it.
pub fn put_app(out: &mut BytesMut, id: u32, request: &Request<'_>) {
    encode(out, Head::request(request.opcode(), id), |_| {}, |body| request.write(body));
}

/// Appends a request as a back end sends it: with its user, his address (one for each user) and his device.
pub fn put_service(out: &mut BytesMut, id: u32, user: u64, request: &Request<'_>) {
    let tlvs = |ext: &mut BytesMut| {
        put_tlv(ext, tlv::USER, &user.to_be_bytes());
        put_tlv(ext, tlv::CLIENT_ADDR, &address(user));
        put_tlv(ext, tlv::DEVICE, DEVICE);
    };
    encode(out, Head::request(request.opcode(), id), tlvs, |body| request.write(body));
}

/// Opcode and status of every frame in `replies`.
pub fn answers(mut replies: &[u8]) -> Vec<(Option<Opcode>, Option<Status>)> {
    let mut answers = Vec::new();
    while let Ok(Some((frame, frame_bytes))) = decode(replies, usize::MAX) {
        answers.push((Opcode::from_wire(frame.opcode), Status::from_wire(frame.status)));
        replies = replies.get(frame_bytes..).unwrap_or_default();
    }
    answers
}

/// In 10.0.0.0/8.
fn address(user: u64) -> [u8; 4] {
    let [_, _, _, _, _, b, c, d] = user.to_be_bytes();
    [10, b, c, d]
}
