//! What every user of a sale was told: the clients' side of the audit.
//!
//! Compact: a user who was plainly refused leaves 48 bytes and no event.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::protocol::{ActivityId, OrderNumber, SkuId, Status, StatusClass, UserId};

/// What a client asked when it was told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// BUY.
    Buy,
    /// RESULT, while the sale ran.
    Result,
    /// RESULT, on a fresh connection after the sale.
    FinalResult,
    /// Nothing: it was pushed.
    Push,
}

/// An order as a client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenOrder {
    /// Its number.
    pub number: OrderNumber,
    /// The activity.
    pub activity: ActivityId,
    /// The article.
    pub sku: SkuId,
    /// Units.
    pub quantity: u16,
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// An order, with this status.
    Order(u16, SeenOrder),
    /// A status without an order.
    Status(u16),
    /// Nothing: lost or late; the outcome is unknown.
    Unknown,
    /// Nothing, and nothing had been sent.
    NotSent,
}

impl Got {
    /// The order, if there was one.
    pub const fn order(&self) -> Option<&SeenOrder> {
        if let Self::Order(_, order) = self { Some(order) } else { None }
    }

    /// The status, if there was an answer.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Order(status, _) | Self::Status(status) => Some(*status),
            Self::Unknown | Self::NotSent => None,
        }
    }

    /// Whether it leaves the outcome open.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Status(status) => Status::class_of(*status) == StatusClass::Unknown,
            Self::Order(..) | Self::NotSent => false,
        }
    }
}

/// One thing a client was told. Times are nanoseconds since the sale began, by the rehearsal's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// In answer to what.
    pub asked: Asked,
    /// When it was asked.
    pub sent_ns: u64,
    /// When the answer was there.
    pub received_ns: u64,
    /// The answer.
    pub got: Got,
}

/// How a user's purchase ended, as far as he knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// He holds this order.
    Won(OrderNumber),
    /// Finally refused.
    Refused(u16),
    /// Patience ended; the last status.
    GaveUp(u16),
    /// The gateway called the request wrong.
    Fault(u16),
    /// The outcome stayed unknown.
    Unknown,
    /// No gateway was reached.
    Unreachable,
}

impl End {
    /// Whether it is that of a user who went away empty-handed and would come back.
    pub fn is_sent_away(self) -> bool {
        self == Self::Refused(Status::SoldOut.code()) || matches!(self, Self::GaveUp(_))
    }
}

/// A user's further connections, each to another gateway, that only listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// How many there were when he had won.
    pub connections: u8,
    /// How many of them were pushed his order.
    pub heard: u8,
}

/// One user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserHistory {
    /// Units wanted.
    pub quantity: u16,
    /// On other gateways.
    pub listening: Listening,
    /// How it ended.
    pub end: End,
    /// What he was told, in the order of telling; empty for users who were plainly refused.
    pub events: Vec<Event>,
}

impl UserHistory {
    /// Whether he was told QUEUED.
    pub fn was_queued(&self) -> bool {
        self.events.iter().any(|event| event.got.status() == Some(Status::Queued.code()))
    }

    /// Whether he was told QUEUED and heard no push of that order.
    pub fn is_unpushed(&self) -> bool {
        self.was_queued() && !self.events.iter().any(|event| event.asked == Asked::Push)
    }

    /// Whether he listened on several gateways, so that it can be told what was pushed where he did not buy.
    pub const fn is_listening(&self) -> bool {
        self.listening.connections > 1
    }

    /// Whether his order was pushed to a gateway that he did not buy on: of several that pushed it, one at most is his.
    pub const fn was_pushed_elsewhere(&self) -> bool {
        self.listening.heard > 1
    }

    /// Whether an outcome was unknown to him at some time.
    pub fn was_unknown(&self) -> bool {
        self.end == End::Unknown || self.events.iter().any(|event| event.got.is_unknown())
    }
}

/// Answers counted over all users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// BUYs that were answered.
    pub answered: u64,
    /// BUYs sent beyond each user's first.
    pub retries: u64,
    /// ALREADY.
    pub already: u64,
    /// BUSY.
    pub busy: u64,
    /// `RATE_LIMITED`, to BUY or RESULT.
    pub rate_limited: u64,
    /// INSUFFICIENT.
    pub insufficient: u64,
    /// UNCONFIRMED, to BUY.
    pub unconfirmed: u64,
    /// Requests whose answer was lost or late.
    pub lost: u64,
    /// Answers that call the request wrong, and attempts to connect or send that failed.
    pub errors: u64,
    /// `RESULT_PUSH`, each that arrived: one order may be pushed more than once.
    pub pushes: u64,
}

impl Tally {
    /// Adds another tally.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            answered,
            retries,
            already,
            busy,
            rate_limited,
            insufficient,
            unconfirmed,
            lost,
            errors,
            pushes,
        } = self;
        let sums = [
            (answered, other.answered),
            (retries, other.retries),
            (already, other.already),
            (busy, other.busy),
            (rate_limited, other.rate_limited),
            (insufficient, other.insufficient),
            (unconfirmed, other.unconfirmed),
            (lost, other.lost),
            (errors, other.errors),
            (pushes, other.pushes),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The BUYs of a sale, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buys {
    /// Sent, each copy, answered or not.
    pub sent: u64,
    /// Answered, by the status of the answer.
    pub by_status: BTreeMap<u16, u64>,
}

/// A sale as its clients saw it.
#[derive(Clone, Debug)]
pub struct SaleHistory {
    /// In which activity.
    pub activity: ActivityId,
    /// Which article.
    pub sku: SkuId,
    /// The id of `users[0]`; the others follow.
    pub first_user: u64,
    /// Every user.
    pub users: Vec<UserHistory>,
    /// Answers counted.
    pub tally: Tally,
    /// BUYs counted.
    pub buys: Buys,
    /// Microseconds from queueing a BUY to its answer.
    pub latency_us: Histogram<u64>,
    /// From the first BUY to the last user's answer; the RESULTs asked afterwards not included.
    pub duration: Duration,
    /// BUYs that were answered in that time.
    pub answered: u64,
}

impl SaleHistory {
    /// The id of the user at an index.
    pub fn user_id(&self, index: usize) -> UserId {
        UserId(self.first_user.saturating_add(u64::try_from(index).unwrap_or(u64::MAX)))
    }

    /// The history of a user; `None` for one who takes no part.
    pub fn of_user(&self, user: UserId) -> Option<&UserHistory> {
        let index = usize::try_from(user.0.checked_sub(self.first_user)?).ok()?;
        self.users.get(index)
    }

    /// Users with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (UserId, &UserHistory)> {
        self.users.iter().enumerate().map(|(index, user)| (self.user_id(index), user))
    }
}
