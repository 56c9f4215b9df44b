//! What a gateway answers and pushes: the bodies, written by the gateway and read by the client.

use bytes::{BufMut, BytesMut};

use super::cursor::Cursor;
use super::request::put_string16;
use super::{ActivityId, Opcode, Order, OrderNumber, OrderState, SkuId, SkuKey, Status, UserId};

/// Which of the two kinds of connection AUTH made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionKind {
    /// One user for its life.
    App = 1,
    /// A back end that names user and client address in each request.
    Service = 2,
}

/// Where an activity stands by the sale clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ActivityState {
    /// Before its window.
    Upcoming = 1,
    /// On sale.
    Open = 2,
    /// After its window, or closed by the operator.
    Ended = 3,
}

/// How much of an SKU is left, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StockBand {
    /// Nothing.
    SoldOut = 0,
    /// At most 10 % of the total.
    Low = 1,
    /// At most 50 % of the total.
    Medium = 2,
    /// More.
    High = 3,
    /// The gateway does not know at the moment.
    Unknown = 255,
}

/// One SKU in an ACTIVITY reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkuInfo {
    /// Which.
    pub sku: SkuId,
    /// How much is left.
    pub band: StockBand,
    /// Price in minor units.
    pub price_minor: u64,
}

/// The fixed part of an ACTIVITY reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityInfo {
    /// Which.
    pub activity: ActivityId,
    /// Where it stands.
    pub state: ActivityState,
    /// See [`activity_flags`].
    pub flags: u8,
    /// Unix milliseconds of the sale clock.
    pub server_time_ms: u64,
    /// Unix milliseconds.
    pub opens_at_ms: u64,
    /// Unix milliseconds.
    pub closes_at_ms: u64,
    /// Greatest quantity of a user's one order.
    pub per_user_limit: u16,
}

/// Bits of [`ActivityInfo::flags`].
pub mod activity_flags {
    /// A challenge has to be solved before buying.
    pub const CHALLENGE_NEEDED: u8 = 1;
    /// A purchase token has to be fetched before buying.
    pub const TOKEN_NEEDED: u8 = 2;
    /// This user may buy here.
    pub const ELIGIBLE: u8 = 4;
    /// This user holds an order here.
    pub const HOLDS_ORDER: u8 = 8;
}

/// A reply's or push's body, as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// HELLO succeeded.
    Hello {
        /// Unix milliseconds of the sale clock.
        server_time_ms: u64,
        /// For support: names the connection in the gateway's logs.
        connection_id: u64,
        /// Send something at least this often.
        keepalive_ms: u32,
        /// Cap on a request frame after AUTH.
        frame_bytes_max: u32,
        /// Greatest number of BUYs unanswered at a time on an app connection.
        in_flight_max: u16,
    },
    /// AUTH succeeded.
    Auth {
        /// The connection's user; `None` on a service connection.
        user: Option<UserId>,
        /// Unix milliseconds at which the token expires.
        expires_at_ms: u64,
        /// App or service.
        kind: ConnectionKind,
        /// Greatest number of BUYs unanswered at a time on this connection.
        in_flight_max: u16,
    },
    /// PING's answer.
    Pong {
        /// Unix milliseconds of the sale clock.
        server_time_ms: u64,
        /// As sent.
        client_time: u64,
    },
    /// The gateway drains.
    Goaway {
        /// The connection is closed at the latest after so many milliseconds.
        drain_ms: u32,
    },
    /// What was wrong, for people.
    Error {
        /// UTF-8.
        message: String,
    },
    /// An activity.
    Activity {
        /// The fixed part.
        info: ActivityInfo,
        /// Its SKUs.
        skus: Vec<SkuInfo>,
    },
    /// An order (QUEUED, ALREADY, RESULT, `RESULT_PUSH`, CANCEL).
    Order(Order),
    /// INSUFFICIENT.
    Left {
        /// Units left.
        left: u32,
    },
    /// `NOT_STARTED`.
    OpensAt {
        /// Unix milliseconds of the sale clock.
        opens_at_ms: u64,
        /// Unix milliseconds of the sale clock, now.
        server_time_ms: u64,
    },
    /// UNCONFIRMED.
    Pending {
        /// The number that the order will have if there is one; 0 = not known.
        order_number: OrderNumber,
    },
    /// `UPGRADE_REQUIRED`.
    Upgrade {
        /// The least version of this platform that is served: major, minor, patch; zeros = none of it is.
        min_version: [u16; 3],
    },
    /// No body, or one whose status version 1 gives no body.
    Empty,
}

impl Reply {
    /// Reads the body of a frame from a gateway by its opcode and status. `None`: too short, or a value that
    /// version 1 does not know.
    pub fn parse(opcode: Opcode, status: u16, body: &[u8]) -> Option<Self> {
        let fields = &mut Cursor(body);
        if opcode == Opcode::Error {
            let message = String::from_utf8_lossy(fields.string16()?).into_owned();
            return Some(Self::Error { message });
        }
        match (opcode, Status::from_wire(status)) {
            (Opcode::Hello, Some(Status::Ok)) => Self::parse_hello(fields),
            (Opcode::Auth, Some(Status::Ok)) => Self::parse_auth(fields),
            (Opcode::Ping, Some(Status::Ok)) => {
                Some(Self::Pong { server_time_ms: fields.u64()?, client_time: fields.u64()? })
            }
            (Opcode::Goaway, _) => Some(Self::Goaway { drain_ms: fields.u32()? }),
            (Opcode::Activity, Some(Status::Ok)) => Self::parse_activity(fields),
            (Opcode::Buy, Some(Status::Queued | Status::Already))
            | (Opcode::Result | Opcode::ResultPush, Some(Status::Ok))
            | (Opcode::Cancel, Some(Status::Ok | Status::Cancelling | Status::NotCancellable)) => {
                parse_order(fields).map(Self::Order)
            }
            (_, Some(Status::Insufficient)) => Some(Self::Left { left: fields.u32()? }),
            (_, Some(Status::NotStarted)) => {
                Some(Self::OpensAt { opens_at_ms: fields.u64()?, server_time_ms: fields.u64()? })
            }
            (_, Some(Status::Unconfirmed)) => {
                Some(Self::Pending { order_number: OrderNumber(fields.u64()?) })
            }
            (_, Some(Status::UpgradeRequired)) => {
                let min_version = [fields.u16()?, fields.u16()?, fields.u16()?];
                fields.u16()?;
                Some(Self::Upgrade { min_version })
            }
            _ => Some(Self::Empty),
        }
    }

    fn parse_hello(fields: &mut Cursor<'_>) -> Option<Self> {
        let hello = Self::Hello {
            server_time_ms: fields.u64()?,
            connection_id: fields.u64()?,
            keepalive_ms: fields.u32()?,
            frame_bytes_max: fields.u32()?,
            in_flight_max: fields.u16()?,
        };
        fields.u16()?;
        Some(hello)
    }

    fn parse_auth(fields: &mut Cursor<'_>) -> Option<Self> {
        let user = UserId::new(fields.u64()?);
        let expires_at_ms = fields.u64()?;
        let kind = match fields.u8()? {
            1 => ConnectionKind::App,
            2 => ConnectionKind::Service,
            _ => return None,
        };
        fields.u8()?;
        let in_flight_max = fields.u16()?;
        fields.u32()?;
        Some(Self::Auth { user, expires_at_ms, kind, in_flight_max })
    }

    fn parse_activity(fields: &mut Cursor<'_>) -> Option<Self> {
        let activity = ActivityId(fields.u32()?);
        let state = match fields.u8()? {
            1 => ActivityState::Upcoming,
            2 => ActivityState::Open,
            3 => ActivityState::Ended,
            _ => return None,
        };
        let flags = fields.u8()?;
        let sku_count = fields.u16()?;
        let info = ActivityInfo {
            activity,
            state,
            flags,
            server_time_ms: fields.u64()?,
            opens_at_ms: fields.u64()?,
            closes_at_ms: fields.u64()?,
            per_user_limit: fields.u16()?,
        };
        fields.bytes(6)?;
        let skus = (0..sku_count).map(|_| parse_sku(fields)).collect::<Option<_>>()?;
        Some(Self::Activity { info, skus })
    }

    /// Appends the body.
    pub fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Hello { server_time_ms, connection_id, keepalive_ms, frame_bytes_max, in_flight_max } => {
                out.put_u64(*server_time_ms);
                out.put_u64(*connection_id);
                out.put_u32(*keepalive_ms);
                out.put_u32(*frame_bytes_max);
                out.put_u16(*in_flight_max);
                out.put_u16(0);
            }
            Self::Auth { user, expires_at_ms, kind, in_flight_max } => {
                out.put_u64(user.map_or(0, |user| user.0));
                out.put_u64(*expires_at_ms);
                out.put_u8(*kind as u8);
                out.put_u8(0);
                out.put_u16(*in_flight_max);
                out.put_u32(0);
            }
            Self::Pong { server_time_ms, client_time } => {
                out.put_u64(*server_time_ms);
                out.put_u64(*client_time);
            }
            Self::Goaway { drain_ms } => out.put_u32(*drain_ms),
            Self::Error { message } => put_string16(out, message.as_bytes()),
            Self::Activity { info, skus } => put_activity(out, info, skus),
            Self::Order(order) => put_order(out, order),
            Self::Left { left } => out.put_u32(*left),
            Self::OpensAt { opens_at_ms, server_time_ms } => {
                out.put_u64(*opens_at_ms);
                out.put_u64(*server_time_ms);
            }
            Self::Pending { order_number } => out.put_u64(order_number.0),
            Self::Upgrade { min_version } => {
                for part in min_version {
                    out.put_u16(*part);
                }
                out.put_u16(0);
            }
            Self::Empty => {}
        }
    }
}

fn put_activity(out: &mut BytesMut, info: &ActivityInfo, skus: &[SkuInfo]) {
    out.put_u32(info.activity.0);
    out.put_u8(info.state as u8);
    out.put_u8(info.flags);
    out.put_u16(u16::try_from(skus.len()).unwrap_or(u16::MAX));
    out.put_u64(info.server_time_ms);
    out.put_u64(info.opens_at_ms);
    out.put_u64(info.closes_at_ms);
    out.put_u16(info.per_user_limit);
    out.put_bytes(0, 6);
    for sku in skus {
        out.put_u16(sku.sku.0);
        out.put_u8(sku.band as u8);
        out.put_bytes(0, 5);
        out.put_u64(sku.price_minor);
    }
}

fn parse_sku(fields: &mut Cursor<'_>) -> Option<SkuInfo> {
    let sku = SkuId(fields.u16()?);
    let band = match fields.u8()? {
        0 => StockBand::SoldOut,
        1 => StockBand::Low,
        2 => StockBand::Medium,
        3 => StockBand::High,
        _ => StockBand::Unknown,
    };
    fields.bytes(5)?;
    Some(SkuInfo { sku, band, price_minor: fields.u64()? })
}

fn put_order(out: &mut BytesMut, order: &Order) {
    out.put_u64(order.number.0);
    out.put_u32(order.sku.activity.0);
    out.put_u16(order.sku.sku.0);
    out.put_u16(order.quantity);
    out.put_u8(order.state as u8);
    out.put_u8(order.attempt);
    out.put_bytes(0, 6);
    out.put_u64(order.pay_by_ms);
}

fn parse_order(fields: &mut Cursor<'_>) -> Option<Order> {
    let number = OrderNumber(fields.u64()?);
    let sku = SkuKey { activity: ActivityId(fields.u32()?), sku: SkuId(fields.u16()?) };
    let quantity = fields.u16()?;
    // A state of a later version: there is an order, and asking again later tells more.
    let state = OrderState::from_wire(fields.u8()?).unwrap_or(OrderState::Reserved);
    let attempt = fields.u8()?;
    fields.bytes(6)?;
    Some(Order { number, sku, quantity, state, attempt, pay_by_ms: fields.u64()? })
}
