//! The wire, version 1: frames, messages, status codes. No I/O, and it knows nothing of the rest.
//!
//! protocol.md is the specification and `tests/vectors` the arbiter; this module follows them.

mod ids;
mod status;

pub use ids::{ActivityId, Order, OrderNumber, OrderState, SkuId, SkuKey, UserId};
pub use status::{Status, StatusClass};
