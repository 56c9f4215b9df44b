//! The reference client: everything in this repository that talks to a gateway talks through it.
//!
//! - [`Session`]: one connection. HELLO, AUTH and the first requests go out in one write; afterwards any number of
//!   tasks ask through it at once, replies come in any order. One task per connection reads and writes.
//! - [`Client`]: sessions that are replaced when they end, and the retry rules of the protocol
//!   ([`Client::buy_until_final`]).
//!
//! It never gives up a request silently: each is answered, or ends as [`ClientError::Lost`] or
//! [`ClientError::Deadline`] (outcome unknown), or failed before a byte of it was sent. It never buys again while
//! an outcome is unknown. A connection that breaks takes nothing with it but its own outstanding requests.

mod backoff;
mod clock;
mod connection;
mod error;
mod pending;
mod purchase;
mod reconnect;
mod session;
mod shared;
mod slots;
mod tls;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

pub use backoff::Backoff;
pub use clock::ServerClock;
pub use error::{ClientError, EndReason};
pub use pending::Pending;
pub use purchase::{Exchange, Known, Outcome, Patience, Purchase};
pub use reconnect::Client;
pub use session::{Connected, Session, Welcome};
pub use tls::{ClientTls, ClientTlsError, Wire};

use crate::protocol::{ClientVersion, Reply, Status, StatusClass, UserId};

/// Who connects, and with what software.
#[derive(Clone, Debug)]
pub struct Identity {
    /// A JWT: of a user (app connection) or with the service scope (service connection).
    pub token: String,
    /// Device id; may be empty, at most 64 bytes.
    pub device: String,
    /// Platform and app version.
    pub version: ClientVersion,
}

impl Identity {
    /// An identity of a back end (platform 5) at this library's protocol version.
    pub fn back_end(token: String) -> Self {
        Self { token, device: String::new(), version: ClientVersion { platform: 5, app: [1, 0, 0] } }
    }
}

/// Whom a request on a service connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnBehalf<'a> {
    /// The user.
    pub user: UserId,
    /// The address the user came from.
    pub client_addr: Option<IpAddr>,
    /// The user's device, 1 to 64 bytes.
    pub device: Option<&'a str>,
    /// What the back end knows of the user, for rules of activities: `level=3;vip=true`, 1 to 256 bytes.
    pub claims: Option<&'a str>,
}

/// Timeouts and sizes of a connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Speaks TLS; `None` = not.
    pub tls: Option<ClientTls>,
    /// TCP connect and TLS handshake.
    pub connect_timeout: Duration,
    /// From the first write to AUTH's reply.
    pub handshake_timeout: Duration,
    /// From queueing a request to its reply.
    pub request_timeout: Duration,
    /// How long [`Session::close`] waits for the gateway to close.
    pub close_timeout: Duration,
    /// What BUY asks the gateway to wait at most, in milliseconds; 0 = the gateway's default.
    pub buy_patience_ms: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tls: None,
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(1),
            buy_patience_ms: 0,
        }
    }
}

/// A gateway's reply to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, known to version 1 or not.
    pub status: u16,
    /// `retry_after` in milliseconds; 0 = none.
    pub hint_ms: u32,
    /// The body.
    pub reply: Reply,
    /// When the request was queued for writing.
    pub sent_at: Instant,
    /// When the reply was read off the socket.
    pub received_at: Instant,
}

impl Answer {
    /// The status, if version 1 knows it.
    pub const fn known_status(&self) -> Option<Status> {
        Status::from_wire(self.status)
    }

    /// What to do about it.
    pub const fn class(&self) -> StatusClass {
        Status::class_of(self.status)
    }
}

/// Something a gateway said unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The status code.
    pub status: u16,
    /// GOAWAY: reconnect not before so many milliseconds.
    pub hint_ms: u32,
    /// Whom it is about, on service connections.
    pub user: Option<UserId>,
    /// An order (`RESULT_PUSH`), GOAWAY or an ERROR.
    pub reply: Reply,
    /// When it was read off the socket.
    pub received_at: Instant,
}
