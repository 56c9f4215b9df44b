//! Identities and the order record that both sides of the wire speak of.

use std::fmt;

/// A shop user: unsigned, non-zero, below 2⁶³ (it is stored in signed SQL columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(pub u64);

impl UserId {
    /// The greatest user id.
    pub const MAX: u64 = (1 << 63) - 1;

    /// `None` for 0 and for ids of 2⁶³ and above.
    pub const fn new(id: u64) -> Option<Self> {
        if id == 0 || id > Self::MAX { None } else { Some(Self(id)) }
    }
}

/// An activity (one flash sale), chosen by the operator; non-zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActivityId(pub u32);

/// An article within one activity; non-zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SkuId(pub u16);

/// An article of an activity: what stock is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SkuKey {
    /// The activity.
    pub activity: ActivityId,
    /// The article in it.
    pub sku: SkuId,
}

/// An order number: process number (27 bits) · sequence (36 bits), never reused, below 2⁶³.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderNumber(pub u64);

macro_rules! display_inner {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_inner!(UserId, ActivityId, SkuId, OrderNumber);

impl fmt::Display for SkuKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.activity, self.sku)
    }
}

/// Where an order stands; moves only forward. The numbers are the wire's and SQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OrderState {
    /// The unit is the user's; the order has not been settled in SQL yet.
    Reserved = 1,
    /// The order stands in SQL and waits for its payment.
    PendingPayment = 2,
    /// Paid.
    Paid = 3,
    /// Closed unpaid (timeout, cancelled); the unit goes back on sale.
    Closed = 4,
    /// Could not be settled; the unit goes back on sale.
    Failed = 5,
    /// Paid after it was closed: the money goes back.
    RefundDue = 6,
    /// Recorded while orders are not being settled; settled later.
    Recorded = 7,
}

impl OrderState {
    /// `None` for a number that version 1 does not know.
    pub const fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Reserved,
            2 => Self::PendingPayment,
            3 => Self::Paid,
            4 => Self::Closed,
            5 => Self::Failed,
            6 => Self::RefundDue,
            7 => Self::Recorded,
            _ => return None,
        })
    }

    /// Whether the order holds its units and stands in the way of a second one.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Reserved | Self::PendingPayment | Self::Paid | Self::Recorded)
    }

    /// Whether the order holds its units and waits for its payment, or is going to.
    pub const fn is_unpaid(self) -> bool {
        matches!(self, Self::Reserved | Self::Recorded | Self::PendingPayment)
    }

    /// How far along an order is: of two marks of one order the one that is further along is the newer. Reserved comes first,
    /// then recorded; closed and failed are equally far.
    pub const fn rank(self) -> u8 {
        match self {
            Self::Reserved => 0,
            Self::Recorded => 1,
            Self::PendingPayment => 2,
            Self::Paid => 3,
            Self::Closed | Self::Failed => 4,
            Self::RefundDue => 5,
        }
    }

    /// Whether SQL may move an order from this state to that one: only ever forward.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Reserved => matches!(next, Self::Recorded | Self::PendingPayment | Self::Failed),
            Self::Recorded => matches!(next, Self::PendingPayment | Self::Closed | Self::Failed),
            Self::PendingPayment => matches!(next, Self::Paid | Self::Closed),
            Self::Closed => matches!(next, Self::RefundDue),
            Self::Paid | Self::Failed | Self::RefundDue => false,
        }
    }
}

/// What a client is told of an order: the 32-byte ORDER body of BUY, RESULT and `RESULT_PUSH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number.
    pub number: OrderNumber,
    /// What was bought.
    pub sku: SkuKey,
    /// Units, all or nothing.
    pub quantity: u16,
    /// Where it stands.
    pub state: OrderState,
    /// 1 for the user's first order in the activity.
    pub attempt: u8,
    /// Unix milliseconds until when it is to be paid; 0 while unknown.
    pub pay_by_ms: u64,
}
