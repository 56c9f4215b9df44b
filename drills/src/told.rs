//! What every user of a drill was told, in order: the clients' side of the audit.

use std::collections::{BTreeMap, BTreeSet};

use rushgate::client::{Answer, ClientError, Exchange, Outcome};
use rushgate::protocol::{Opcode, Order, Reply, Status};

/// In answer to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Buy,
    Result,
    /// It was pushed.
    Nothing,
}

/// One thing a user was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) asked: Asked,
    /// None: the answer was lost or never came.
    pub(crate) status: Option<u16>,
    pub(crate) order: Option<Order>,
    /// The place among all that anybody was told.
    pub(crate) place: u64,
}

impl Heard {
    pub(crate) fn of_exchange(exchange: &Exchange<'_>) -> Self {
        let asked = if exchange.asked == Opcode::Buy { Asked::Buy } else { Asked::Result };
        Self::of_result(asked, exchange.result)
    }

    pub(crate) fn of_result(asked: Asked, result: Result<&Answer, &ClientError>) -> Self {
        match result {
            Ok(answer) => {
                Self { asked, status: Some(answer.status), order: order_in(&answer.reply), place: 0 }
            }
            Err(_) => Self { asked, status: None, order: None, place: 0 },
        }
    }

    pub(crate) fn is(&self, status: Status) -> bool {
        self.status == Some(status.code())
    }
}

pub(crate) fn order_in(reply: &Reply) -> Option<Order> {
    if let Reply::Order(order) = reply { Some(*order) } else { None }
}

/// One user.
#[derive(Clone, Debug)]
pub(crate) struct UserTold {
    pub(crate) sku: u16,
    pub(crate) quantity: u16,
    /// Which gateway alone he speaks with; none: whichever answers.
    pub(crate) gateway: Option<usize>,
    pub(crate) heard: Vec<Heard>,
    pub(crate) end: Outcome,
}

/// Everybody, by user id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) users: BTreeMap<u64, UserTold>,
}

impl UserTold {
    /// Numbers of the orders that he was told to be his and to stand.
    pub(crate) fn promised(&self) -> BTreeSet<u64> {
        let standing =
            self.heard.iter().filter_map(|heard| heard.order).filter(|order| order.state.is_live());
        standing.map(|order| order.number.0).collect()
    }

    pub(crate) fn was(&self, status: Status) -> bool {
        self.heard.iter().any(|heard| heard.is(status))
    }

    /// The place at which he was first told of that order.
    pub(crate) fn told_at(&self, number: u64) -> u64 {
        let told =
            self.heard.iter().filter(|heard| heard.order.is_some_and(|order| order.number.0 == number));
        told.map(|heard| heard.place).min().unwrap_or(u64::MAX)
    }

    /// Whether he was finally refused, and never told of an order.
    pub(crate) fn ended_refused(&self) -> bool {
        matches!(self.end, Outcome::Refused(_)) && self.heard.iter().all(|heard| heard.order.is_none())
    }
}
