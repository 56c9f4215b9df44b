//! The vectors as data, and the messages that their fields describe.

use rushgate::protocol::frame::{FRAME_BYTES_MAX_AFTER_AUTH, FRAME_BYTES_MAX_BEFORE_AUTH, REPLY_BYTES_MAX};
use rushgate::protocol::{
    ActivityId, ActivityInfo, ActivityState, ClientVersion, ConnectionKind, Order, OrderNumber, OrderState,
    Reply, Request, SkuId, SkuInfo, SkuKey, StatusClass, StockBand, UserId,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) from: String,
    pub(crate) stage: String,
    pub(crate) hex: String,
    #[serde(default)]
    pub(crate) canonical: bool,
    #[serde(default)]
    pub(crate) fields: Value,
    #[serde(default)]
    pub(crate) expect: Value,
}

impl Entry {
    pub(crate) fn is_request(&self) -> bool {
        match self.from.as_str() {
            "client" => true,
            "server" => false,
            other => panic!("{}: from {other}", self.name),
        }
    }

    pub(crate) fn cap(&self) -> usize {
        match (self.is_request(), self.stage.as_str()) {
            (false, _) => REPLY_BYTES_MAX,
            (true, "before_auth") => FRAME_BYTES_MAX_BEFORE_AUTH,
            (true, "after_auth") => FRAME_BYTES_MAX_AFTER_AUTH,
            (_, other) => panic!("{}: stage {other}", self.name),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        unhex(&self.hex)
    }

    pub(crate) fn closes(&self) -> bool {
        self.expect["connection"] == "closes"
    }
}

pub(crate) fn valid() -> Vec<Entry> {
    serde_json::from_str(include_str!("../vectors/valid.json")).unwrap()
}

pub(crate) fn invalid() -> Vec<Entry> {
    serde_json::from_str(include_str!("../vectors/invalid.json")).unwrap()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd hex");
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

pub(crate) fn number<T: TryFrom<u64>>(object: &Value, key: &str) -> T {
    let number = object[key].as_u64().unwrap_or_else(|| panic!("{key} in {object}"));
    T::try_from(number).unwrap_or_else(|_| panic!("{key} too great in {object}"))
}

pub(crate) fn big(object: &Value, key: &str) -> u64 {
    object[key].as_str().unwrap_or_else(|| panic!("{key} in {object}")).parse().unwrap()
}

pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_else(|| panic!("{key} in {object}"))
}

/// The request that an entry's fields describe; `answer` holds ANSWER's bytes.
pub(crate) fn request_of<'a>(message: &'a Value, answer: &'a [u8]) -> Request<'a> {
    let activity = || ActivityId(number(message, "activity"));
    let sku = || SkuId(number(message, "sku"));
    match text(message, "kind") {
        "HELLO" => Request::Hello {
            version: ClientVersion {
                platform: number(message, "platform"),
                app: [number(message, "major"), number(message, "minor"), number(message, "patch")],
            },
            device: text(message, "device"),
        },
        "AUTH" => Request::Auth { token: text(message, "token").as_bytes() },
        "PING" => Request::Ping { client_time: big(message, "client_time") },
        "GOAWAY" => Request::Goaway,
        "ACTIVITY" => Request::Activity { activity: activity() },
        "CHALLENGE" => Request::Challenge { activity: activity() },
        "ANSWER" => Request::Answer { activity: activity(), answer },
        "TOKEN" => Request::Token { activity: activity(), sku: sku() },
        "BUY" => Request::Buy { activity: activity(), sku: sku(), quantity: number(message, "quantity") },
        "RESULT" => Request::Result { activity: activity() },
        "CANCEL" => {
            Request::Cancel { activity: activity(), order: OrderNumber(big(message, "order_number")) }
        }
        other => panic!("request kind {other}"),
    }
}

/// The reply that an entry's fields describe, unknown values replaced by their fallbacks.
pub(crate) fn reply_of(message: &Value) -> Reply {
    match text(message, "kind") {
        "HELLO_OK" => Reply::Hello {
            server_time_ms: big(message, "server_time_ms"),
            connection_id: big(message, "connection_id"),
            keepalive_ms: number(message, "keepalive_ms"),
            frame_bytes_max: number(message, "frame_bytes_max"),
            in_flight_max: number(message, "in_flight_max"),
        },
        "AUTH_OK" => Reply::Auth {
            user: UserId::new(big(message, "user")),
            expires_at_ms: big(message, "expires_at_ms"),
            kind: match number(message, "kind_of_connection") {
                1_u8 => ConnectionKind::App,
                2 => ConnectionKind::Service,
                other => panic!("kind {other}"),
            },
            in_flight_max: number(message, "in_flight_max"),
        },
        "PING_OK" => Reply::Pong {
            server_time_ms: big(message, "server_time_ms"),
            client_time: big(message, "client_time"),
        },
        "GOAWAY_PUSH" => Reply::Goaway { drain_ms: number(message, "drain_ms") },
        "ERROR" => Reply::Error { message: text(message, "message").to_owned() },
        "ACTIVITY_OK" => activity_of(message),
        "ORDER" => Reply::Order(order_of(message)),
        "LEFT" => Reply::Left { left: number(message, "left") },
        "OPENS" => Reply::OpensAt {
            opens_at_ms: big(message, "opens_at_ms"),
            server_time_ms: big(message, "server_time_ms"),
        },
        "ORDER_NUMBER" => Reply::Pending { order_number: OrderNumber(big(message, "order_number")) },
        "UPGRADE" => Reply::Upgrade {
            min_version: [number(message, "major"), number(message, "minor"), number(message, "patch")],
        },
        "EMPTY" | "OPAQUE" => Reply::Empty,
        other => panic!("reply kind {other}"),
    }
}

pub(crate) fn activity_of(message: &Value) -> Reply {
    let sku_of = |sku: &Value| SkuInfo {
        sku: SkuId(number(sku, "sku")),
        band: match number(sku, "stock_band") {
            0_u8 => StockBand::SoldOut,
            1 => StockBand::Low,
            2 => StockBand::Medium,
            3 => StockBand::High,
            _ => StockBand::Unknown,
        },
        price_minor: big(sku, "price_minor"),
    };
    Reply::Activity {
        info: ActivityInfo {
            activity: ActivityId(number(message, "activity")),
            state: match number(message, "state") {
                1_u8 => ActivityState::Upcoming,
                2 => ActivityState::Open,
                3 => ActivityState::Ended,
                other => panic!("state {other}"),
            },
            flags: number(message, "flags"),
            server_time_ms: big(message, "server_time_ms"),
            opens_at_ms: big(message, "opens_at_ms"),
            closes_at_ms: big(message, "closes_at_ms"),
            per_user_limit: number(message, "per_user_limit"),
        },
        skus: message["skus"].as_array().unwrap().iter().map(sku_of).collect(),
    }
}

pub(crate) fn order_of(message: &Value) -> Order {
    Order {
        number: OrderNumber(big(message, "order_number")),
        sku: SkuKey { activity: ActivityId(number(message, "activity")), sku: SkuId(number(message, "sku")) },
        quantity: number(message, "quantity"),
        state: OrderState::from_wire(number(message, "state")).unwrap_or(OrderState::Reserved),
        attempt: number(message, "attempt"),
        pay_by_ms: big(message, "pay_by_ms"),
    }
}

pub(crate) fn class_name(class: StatusClass) -> &'static str {
    match class {
        StatusClass::Ok => "ok",
        StatusClass::Refused => "refused",
        StatusClass::RetryLater => "retry_later",
        StatusClass::Reconnect => "reconnect",
        StatusClass::ClientFault => "client_fault",
        StatusClass::Unknown => "unknown",
    }
}
