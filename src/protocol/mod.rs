//! The wire, version 1: frames, messages, status codes. No I/O, and it knows nothing of the rest.
//!
//! protocol.md is the specification and `tests/vectors` the arbiter; this module follows them.

mod cursor;
pub mod frame;
mod ids;
mod opcode;
mod reply;
mod request;
mod status;
mod wire_enum;

pub use frame::{Frame, FrameError, Head, decode, encode, put_tlv, tlv};
pub use ids::{ActivityId, Order, OrderNumber, OrderState, SkuId, SkuKey, UserId};
pub use opcode::Opcode;
pub use reply::{ActivityInfo, ActivityState, ConnectionKind, Reply, SkuInfo, StockBand, activity_flags};
pub use request::{CLAIMS_BYTES_MAX, ClientVersion, DEVICE_BYTES_MAX, Request};
pub use status::{Status, StatusClass};
