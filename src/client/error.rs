//! What can go wrong between a client and a gateway, and whether anything may have been done.

use std::io;
use std::net::SocketAddr;

use crate::protocol::{FrameError, Opcode, Status, StatusClass};

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// The gateway closed it.
    #[error("the gateway closed the connection")]
    PeerClosed,
    /// The operating system reported an error.
    #[error("{0}")]
    Io(io::ErrorKind),
    /// The gateway sent something that is no frame.
    #[error("the gateway sent a frame that cannot be read: {0}")]
    Frame(FrameError),
    /// The gateway said why before it closed.
    #[error("the gateway closed the connection with status {0:#06x}")]
    Told(u16),
    /// A heartbeat was not answered in time.
    #[error("the gateway did not answer a heartbeat")]
    HeartbeatMissed,
    /// This side closed it.
    #[error("closed by this side")]
    ClosedHere,
}

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// No TCP connection came to be; nothing was sent.
    #[error("cannot connect to {addr}: {source}; is the gateway running (`rushgate serve`)?", source = .kind)]
    Connect {
        /// Where to.
        addr: SocketAddr,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// No TLS came to be; nothing was sent.
    #[error("no TLS with {addr}: {why}; is it a TLS port, and the gateway whom it was taken for?")]
    Tls {
        /// Where to.
        addr: SocketAddr,
        /// What was wrong.
        why: String,
    },
    /// HELLO or AUTH was refused; nothing was done.
    #[error("{} was refused with {}{}", .at.name(), status_name(*.status), detail(.message))]
    Refused {
        /// At which step.
        at: Opcode,
        /// The status code.
        status: u16,
        /// Not before so many milliseconds.
        hint_ms: u32,
        /// What the gateway said of it; may be empty.
        message: String,
    },
    /// The identity does not fit the protocol; nothing was sent.
    #[error("{0}")]
    Identity(&'static str),
    /// The connection ended before the request was queued; nothing was sent.
    #[error("the connection has ended ({0}); nothing was sent")]
    Closed(EndReason),
    /// The gateway drains; nothing was sent.
    #[error("the gateway is going away; nothing was sent, reconnect after {reconnect_after_ms} ms")]
    GoingAway {
        /// From now.
        reconnect_after_ms: u32,
    },
    /// As many requests are unanswered as the gateway or the request ids admit; nothing was sent.
    #[error(
        "{in_flight} requests are unanswered on this connection and none was answered in time; nothing was sent"
    )]
    InFlightFull {
        /// How many.
        in_flight: usize,
    },
    /// Patience ran out before a connection came to be; nothing was sent.
    #[error("no connection to a gateway within the time given; the last attempt: {0}")]
    Unreachable(Box<ClientError>),
    /// The connection ended with the request unanswered: the outcome is unknown.
    #[error("the connection was lost with the request unanswered ({0}); its outcome is unknown")]
    Lost(EndReason),
    /// No answer in time: the outcome is unknown.
    #[error("no answer within the deadline; the request's outcome is unknown")]
    Deadline,
    /// The reply's body cannot be read: the outcome is unknown.
    #[error("the reply with status {} has a body that cannot be read; the outcome is unknown", status_name(*.status))]
    BadReply {
        /// The reply's status code.
        status: u16,
    },
}

impl ClientError {
    /// Whether the request may have been executed.
    pub const fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Deadline | Self::BadReply { .. })
    }

    /// Whether the same request can simply be sent on another connection: nothing was done, and the cause lies with this one.
    pub const fn is_for_another_connection(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Closed(_) | Self::GoingAway { .. } => true,
            Self::Refused { status, .. } => {
                matches!(Status::class_of(*status), StatusClass::Reconnect | StatusClass::RetryLater)
            }
            _ => false,
        }
    }

    /// Whether the gateway serves no such program: nothing was done, and no other connection would hear anything else.
    pub const fn is_final(&self) -> bool {
        let Self::Refused { at: Opcode::Hello, status, .. } = self else { return false };
        matches!(Status::class_of(*status), StatusClass::Refused)
    }

    /// The gateway's own floor for the next attempt, in milliseconds; 0 = none.
    pub const fn hint_ms(&self) -> u32 {
        match self {
            Self::Refused { hint_ms, .. } => *hint_ms,
            Self::GoingAway { reconnect_after_ms } => *reconnect_after_ms,
            _ => 0,
        }
    }
}

fn status_name(code: u16) -> String {
    Status::from_wire(code).map_or_else(|| format!("status {code:#06x}"), |status| status.name().to_owned())
}

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}
