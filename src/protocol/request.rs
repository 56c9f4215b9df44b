//! What a client may ask, decoded without copying.

use bytes::{BufMut, BytesMut};

use super::cursor::Cursor;
use super::{ActivityId, Opcode, OrderNumber, SkuId, Status};

/// The client's platform, as HELLO names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientVersion {
    /// 0 other, 1 iOS, 2 Android, 3 web, 4 mini program, 5 back end.
    pub platform: u8,
    /// App version: major, minor, patch.
    pub app: [u16; 3],
}

/// The longest device id in bytes.
pub const DEVICE_BYTES_MAX: usize = 64;

/// The longest text of claims in bytes.
pub const CLAIMS_BYTES_MAX: usize = 256;

/// A request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Who speaks.
    Hello {
        /// What software.
        version: ClientVersion,
        /// On which device; may be empty.
        device: &'a str,
    },
    /// Proof of identity.
    Auth {
        /// A JWT.
        token: &'a [u8],
    },
    /// Heartbeat.
    Ping {
        /// Comes back as it is.
        client_time: u64,
    },
    /// The client's last frame.
    Goaway,
    /// State of an activity.
    Activity {
        /// Which.
        activity: ActivityId,
    },
    /// Fetch a challenge.
    Challenge {
        /// For which activity.
        activity: ActivityId,
    },
    /// Answer a challenge.
    Answer {
        /// For which activity.
        activity: ActivityId,
        /// The answer.
        answer: &'a [u8],
    },
    /// Fetch a purchase token.
    Token {
        /// For which activity.
        activity: ActivityId,
        /// For which article.
        sku: SkuId,
    },
    /// Buy, all or nothing.
    Buy {
        /// In which activity.
        activity: ActivityId,
        /// Which article.
        sku: SkuId,
        /// Units.
        quantity: u16,
    },
    /// Ask for one's order.
    Result {
        /// In which activity.
        activity: ActivityId,
    },
    /// Cancel one's own unpaid order.
    Cancel {
        /// In which activity.
        activity: ActivityId,
        /// Which.
        order: OrderNumber,
    },
}

impl<'a> Request<'a> {
    /// Reads the body of a request. `Err` is the status to answer with: a body that is too short or not UTF-8
    /// where it must be, an opcode that only a server sends. Bytes past the known ones are left alone.
    pub fn parse(opcode: Opcode, body: &'a [u8]) -> Result<Self, Status> {
        let fields = &mut Cursor(body);
        let parsed = match opcode {
            Opcode::Hello => Self::parse_hello(fields),
            Opcode::Auth => fields.string16().map(|token| Self::Auth { token }),
            Opcode::Ping => fields.u64().map(|client_time| Self::Ping { client_time }),
            Opcode::Goaway => Some(Self::Goaway),
            Opcode::Activity => activity(fields).map(|activity| Self::Activity { activity }),
            Opcode::Challenge => activity(fields).map(|activity| Self::Challenge { activity }),
            Opcode::Answer => activity(fields)
                .and_then(|activity| Some(Self::Answer { activity, answer: fields.string16()? })),
            Opcode::Token => activity(fields).and_then(|activity| {
                let sku = SkuId(fields.u16()?);
                fields.u16()?;
                Some(Self::Token { activity, sku })
            }),
            Opcode::Buy => activity(fields).and_then(|activity| {
                Some(Self::Buy { activity, sku: SkuId(fields.u16()?), quantity: fields.u16()? })
            }),
            Opcode::Result => activity(fields).map(|activity| Self::Result { activity }),
            Opcode::Cancel => activity(fields)
                .and_then(|activity| Some(Self::Cancel { activity, order: OrderNumber(fields.u64()?) })),
            Opcode::Error | Opcode::ResultPush => return Err(Status::Unexpected),
        };
        parsed.ok_or(Status::BadBody)
    }

    fn parse_hello(fields: &mut Cursor<'a>) -> Option<Self> {
        let platform = fields.u8()?;
        fields.u8()?;
        let app = [fields.u16()?, fields.u16()?, fields.u16()?];
        let device = std::str::from_utf8(fields.string8()?).ok()?;
        if device.len() > DEVICE_BYTES_MAX {
            return None;
        }
        Some(Self::Hello { version: ClientVersion { platform, app }, device })
    }

    /// The opcode of the request.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Hello { .. } => Opcode::Hello,
            Self::Auth { .. } => Opcode::Auth,
            Self::Ping { .. } => Opcode::Ping,
            Self::Goaway => Opcode::Goaway,
            Self::Activity { .. } => Opcode::Activity,
            Self::Challenge { .. } => Opcode::Challenge,
            Self::Answer { .. } => Opcode::Answer,
            Self::Token { .. } => Opcode::Token,
            Self::Buy { .. } => Opcode::Buy,
            Self::Result { .. } => Opcode::Result,
            Self::Cancel { .. } => Opcode::Cancel,
        }
    }

    /// Appends the body. Strings longer than their field are cut.
    pub fn write(&self, out: &mut BytesMut) {
        match *self {
            Self::Hello { version, device } => {
                out.put_u8(version.platform);
                out.put_u8(0);
                version.app.into_iter().for_each(|part| out.put_u16(part));
                let length = u8::try_from(device.len()).unwrap_or(u8::MAX);
                out.put_u8(length);
                out.put_slice(device.as_bytes().get(..usize::from(length)).unwrap_or_default());
            }
            Self::Auth { token } => put_string16(out, token),
            Self::Ping { client_time } => out.put_u64(client_time),
            Self::Goaway => {}
            Self::Activity { activity } | Self::Challenge { activity } | Self::Result { activity } => {
                out.put_u32(activity.0);
            }
            Self::Answer { activity, answer } => {
                out.put_u32(activity.0);
                put_string16(out, answer);
            }
            Self::Token { activity, sku } => {
                out.put_u32(activity.0);
                out.put_u16(sku.0);
                out.put_u16(0);
            }
            Self::Cancel { activity, order } => {
                out.put_u32(activity.0);
                out.put_u64(order.0);
            }
            Self::Buy { activity, sku, quantity } => {
                out.put_u32(activity.0);
                out.put_u16(sku.0);
                out.put_u16(quantity);
            }
        }
    }
}

fn activity(fields: &mut Cursor<'_>) -> Option<ActivityId> {
    fields.u32().map(ActivityId)
}

pub(super) fn put_string16(out: &mut BytesMut, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.put_u16(length);
    out.put_slice(bytes.get(..usize::from(length)).unwrap_or_default());
}
