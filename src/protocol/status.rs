//! Status codes. The upper four bits are the class, which tells a client that does not know the code what to do.

use super::wire_enum::wire_enum;

/// What a client does with a reply, whatever its exact code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusClass {
    /// 0x0: done, or a definite answer.
    Ok,
    /// 0x1: final refusal; do not repeat.
    Refused,
    /// 0x2: nothing was done; repeat here, not before the hint.
    RetryLater,
    /// 0x3: nothing was done; repeat on a new connection.
    Reconnect,
    /// 0x4: the client sent something wrong; do not repeat unchanged.
    ClientFault,
    /// 0x5: the outcome is not known; ask with RESULT, do not buy again.
    Unknown,
}

wire_enum! {
    /// A status code of protocol version 1. The class of an unknown code still tells what to do.
    Status: u16 {
        /// Done.
        Ok = 0x0000, "OK";
        /// The unit is the user's and the order record is durable.
        Queued = 0x0001, "QUEUED";
        /// The user already holds an order in this activity.
        Already = 0x0002, "ALREADY";
        /// No order of this user is known in this activity.
        NoOrder = 0x0003, "NO_ORDER";
        /// The activity asks for no challenge and no purchase token.
        NotRequired = 0x0004, "NOT_REQUIRED";
        /// The cancel is kept; a payment that comes first wins.
        Cancelling = 0x0005, "CANCELLING";
        /// No unit is left anywhere.
        SoldOut = 0x1001, "SOLD_OUT";
        /// The activity, or its entry, is closed.
        Ended = 0x1002, "ENDED";
        /// The user, device or address is blocked.
        Blocked = 0x1003, "BLOCKED";
        /// No such activity.
        UnknownActivity = 0x1004, "UNKNOWN_ACTIVITY";
        /// The activity has no such SKU.
        UnknownSku = 0x1005, "UNKNOWN_SKU";
        /// More units than one user may buy.
        OverLimit = 0x1006, "OVER_LIMIT";
        /// The activity's rules leave this user out.
        NotEligible = 0x1007, "NOT_ELIGIBLE";
        /// The user's order here was closed, and he may not buy here again.
        NotAgain = 0x1008, "NOT_AGAIN";
        /// The client program is too old, or none that is served; the connection closes.
        UpgradeRequired = 0x1009, "UPGRADE_REQUIRED";
        /// The order is paid, or its money is on its way back.
        NotCancellable = 0x100A, "NOT_CANCELLABLE";
        /// The user, or his device, has as many unpaid orders as may be open at a time.
        TooManyUnpaid = 0x100B, "TOO_MANY_UNPAID";
        /// Not open yet; the hint is the time until it opens.
        NotStarted = 0x2001, "NOT_STARTED";
        /// Over a rate limit.
        RateLimited = 0x2002, "RATE_LIMITED";
        /// The queue is full, or the request waited longer than its patience.
        Busy = 0x2003, "BUSY";
        /// Fewer units are left than were asked for.
        Insufficient = 0x2004, "INSUFFICIENT";
        /// A challenge has to be solved first.
        ChallengeRequired = 0x2005, "CHALLENGE_REQUIRED";
        /// A purchase token has to be fetched first.
        TokenRequired = 0x2006, "TOKEN_REQUIRED";
        /// More requests in flight on this connection than agreed.
        TooManyInFlight = 0x2007, "TOO_MANY_IN_FLIGHT";
        /// The gateway is draining.
        GoingAway = 0x3001, "GOING_AWAY";
        /// The gateway holds as many connections as it may.
        TooManyConnections = 0x3002, "TOO_MANY_CONNECTIONS";
        /// Length, CRC or TLV structure is wrong; the connection closes.
        BadFrame = 0x4001, "BAD_FRAME";
        /// Unknown protocol version; the connection closes.
        BadVersion = 0x4002, "BAD_VERSION";
        /// An unknown must-understand flag is set.
        BadFlags = 0x4003, "BAD_FLAGS";
        /// Unknown opcode.
        UnknownOpcode = 0x4004, "UNKNOWN_OPCODE";
        /// The body does not fit the opcode.
        BadBody = 0x4005, "BAD_BODY";
        /// A request with id 0.
        BadRequestId = 0x4006, "BAD_REQUEST_ID";
        /// The opcode needs HELLO and AUTH first.
        NotAuthenticated = 0x4007, "NOT_AUTHENTICATED";
        /// The token was refused; the connection closes.
        BadToken = 0x4008, "BAD_TOKEN";
        /// The token has expired; AUTH with a fresh one.
        TokenExpired = 0x4009, "TOKEN_EXPIRED";
        /// Quantity 0.
        BadQuantity = 0x400A, "BAD_QUANTITY";
        /// A service connection's request names no user, or a wrong one.
        UserRequired = 0x400B, "USER_REQUIRED";
        /// A message out of its place (HELLO twice, AUTH before HELLO, another user).
        Unexpected = 0x400C, "UNEXPECTED";
        /// A deadline passed; the connection closes.
        TimedOut = 0x400D, "TIMED_OUT";
        /// The outcome is not known yet.
        Unconfirmed = 0x5001, "UNCONFIRMED";
    }
}

impl Status {
    /// The class of a code, known or not. Classes above 0x5 are treated as 0x4.
    pub const fn class_of(code: u16) -> StatusClass {
        match code >> 12 {
            0 => StatusClass::Ok,
            1 => StatusClass::Refused,
            2 => StatusClass::RetryLater,
            3 => StatusClass::Reconnect,
            5 => StatusClass::Unknown,
            _ => StatusClass::ClientFault,
        }
    }

    /// The class of this status.
    pub const fn class(self) -> StatusClass {
        Self::class_of(self as u16)
    }

    /// The code as it stands in the header.
    pub const fn code(self) -> u16 {
        self as u16
    }
}
