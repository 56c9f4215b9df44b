//! What Rushgate and a payment centre say to each other: payments and what they do to orders, the messages, their
//! signatures, and the HTTP client that sends them.
//!
//! Pure but for [`http`]; time is an argument. It knows neither stores nor writers: `orders` takes notices and asks,
//! `store::sql` writes what [`judge`] decides, the stand-in for drills plays the other side with the same messages.

mod asking;
pub mod http;
mod notice;
mod signature;
mod verdict;

pub use asking::{Asked, AskedError, ask_body, asked_body, read_ask, read_asked};
pub use notice::{Answer, NOTICE_BYTES_MAX, notice_body, read_notice};
pub use signature::{KEY_BYTES_MIN, KeyFileError, Keys, SIGNATURE_HEADER, TIMESTAMP_HEADER};
pub use verdict::{
    Cause, Notice, Owed, PAYMENT_ID_BYTES_MAX, Payment, PaymentId, PaymentState, RefundCause, Verdict, judge,
};
