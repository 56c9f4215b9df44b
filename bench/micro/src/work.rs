//! The kinds of work that a refusing gateway does most.

use bytes::BytesMut;
use rushgate::protocol::{Opcode, Request, Status};

use super::requests::{CROWDED, HOME, SALE, WINNER, buy, put_app, put_service};

/// One kind of request, and what it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// BUY of an app, nothing left.
    SoldOut,
    /// BUY of an app at an address over its rate.
    RateLimited,
    /// BUY of the user who has the order.
    Duplicate,
    /// RESULT of a user without an order.
    NoOrder,
    /// RESULT of the user who has the order.
    Order,
    /// ACTIVITY of an app.
    Activity,
    /// BUYs of a back end, each for another user at another address, nothing left.
    ServiceSoldOut,
    /// RESULTs of a back end, each for another user.
    ServiceNoOrder,
    /// BUYs of a back end for the user who has the order.
    ServiceDuplicate,
}

impl Work {
    /// All of them. Those about few users come first: how long a key is looked for among many differs from start to
    /// start.
    pub const ALL: [Self; 9] = [
        Self::SoldOut,
        Self::RateLimited,
        Self::Duplicate,
        Self::NoOrder,
        Self::Order,
        Self::Activity,
        Self::ServiceDuplicate,
        Self::ServiceSoldOut,
        Self::ServiceNoOrder,
    ];

    /// As in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SoldOut => "sold_out",
            Self::RateLimited => "rate_limited",
            Self::Duplicate => "duplicate",
            Self::NoOrder => "result_no_order",
            Self::Order => "result_order",
            Self::Activity => "activity",
            Self::ServiceSoldOut => "service_sold_out",
            Self::ServiceNoOrder => "service_result",
            Self::ServiceDuplicate => "service_duplicate",
        }
    }

    /// Whether a back end does it.
    pub const fn is_service(self) -> bool {
        matches!(self, Self::ServiceSoldOut | Self::ServiceNoOrder | Self::ServiceDuplicate)
    }

    /// Who does it on an app connection.
    pub const fn user(self) -> u64 {
        match self {
            Self::Duplicate | Self::Order => WINNER,
            _ => 77,
        }
    }

    /// Where it comes from.
    pub const fn address(self) -> [u8; 4] {
        match self {
            Self::RateLimited => CROWDED,
            _ => HOME,
        }
    }

    /// One wake: so many requests as one read finds them. `first` counts the requests before it: it gives the ids
    /// and, for a back end, the users.
    pub fn wake(self, first: u32, depth: u32) -> Vec<u8> {
        let mut out = BytesMut::new();
        let request = self.request();
        for number in (first..).take(usize::try_from(depth).unwrap_or(0)) {
            let id = number.saturating_add(1);
            match self {
                Self::ServiceDuplicate => put_service(&mut out, id, WINNER, &request),
                _ if self.is_service() => put_service(&mut out, id, user(number), &request),
                _ => put_app(&mut out, id, &request),
            }
        }
        out.to_vec()
    }

    /// What each of its requests is answered.
    pub const fn answer(self) -> (Opcode, Status) {
        match self {
            Self::SoldOut | Self::ServiceSoldOut => (Opcode::Buy, Status::SoldOut),
            Self::RateLimited => (Opcode::Buy, Status::RateLimited),
            Self::Duplicate | Self::ServiceDuplicate => (Opcode::Buy, Status::Already),
            Self::NoOrder | Self::ServiceNoOrder => (Opcode::Result, Status::NoOrder),
            Self::Order => (Opcode::Result, Status::Ok),
            Self::Activity => (Opcode::Activity, Status::Ok),
        }
    }

    const fn request(self) -> Request<'static> {
        match self.answer().0 {
            Opcode::Buy => buy(),
            Opcode::Result => Request::Result { activity: SALE },
            _ => Request::Activity { activity: SALE },
        }
    }
}

/// Spread over the ids, so that neighbours in a wake are none in memory.
const fn user(number: u32) -> u64 {
    // Odd, so that no two of the 2^40 come out the same.
    let spread = (number as u64).wrapping_mul(0x9E37_79B1) & 0x00FF_FFFF_FFFF;
    spread.saturating_add(1_000)
}
