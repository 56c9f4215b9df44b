//! Delivery: what the engine says, told to whoever waits or listens.
//!
//! Called by the stock task, after each change: answers go to the connections that asked, orders that came to be or
//! moved on are pushed to all connections of their users. Decides nothing, waits for nobody; what a connection has no
//! room for is not its business.

use std::sync::Arc;

use super::Core;
use super::counters::{Event, PassedEnding, Sheet};
use super::desk::Sells;
use super::door::Ticket;
use super::post::Round;
use super::reply_parts::{busy_hint_ms, order_of, with_jitter};
use crate::protocol::{Opcode, Reply, Status, UserId};
use crate::stock::Outcome;
use crate::stock::calls::Mark;
use crate::store::crash_point;

/// Workers are woken for so many answers together: each time costs every connection a read and a write. Often enough that
/// nobody waits longer than a millisecond for the rest of a great batch.
const ANSWERS_PER_ROUND: usize = 2048;

/// See the module.
#[derive(Debug)]
pub(super) struct Delivery {
    core: Arc<Core>,
    sheet: Arc<Sheet>,
    sells: Sells,
}

impl Delivery {
    pub(super) const fn new(core: Arc<Core>, sheet: Arc<Sheet>, sells: Sells) -> Self {
        Self { core, sheet, sells }
    }

    /// Answers, then pushes. An order's news that are the next to be pushed when it is answered go right behind, with
    /// one look at who listens.
    pub(super) fn deliver(&self, outcomes: Vec<(Ticket, Outcome)>, news: Vec<(UserId, Mark)>) {
        let mut news = news.into_iter().peekable();
        let mut pushed: u64 = 0;
        let mut round = Round::default();
        for (nth, (ticket, outcome)) in (1..).zip(outcomes) {
            let outcome = self.sells.told(outcome);
            self.answer(&ticket, outcome, &mut round);
            let answered = outcome.order();
            let with_it = news.next_if(|(_, mark)| Some(mark.order) == answered);
            let handed = self.tell_listeners(&ticket, outcome, with_it.map(|(_, mark)| mark), &mut round);
            pushed = pushed.saturating_add(handed);
            if nth % ANSWERS_PER_ROUND == 0 {
                round.end();
            }
        }
        for (user, mark) in news {
            let handed = self.core.subscribers.push(user, order_of(mark), &mut round);
            pushed = pushed.saturating_add(handed);
        }
        self.sheet.event(Event::Push, pushed);
    }

    fn answer(&self, ticket: &Ticket, outcome: Outcome, round: &mut Round) {
        self.sheet.passed(ending_of(outcome));
        if let Some(counted) = &ticket.counted {
            self.core.funnel.unpaid.answered(counted);
        }
        let (status, hint_ms, reply) = match outcome {
            Outcome::Queued(mark) => (Status::Queued, 0, Reply::Order(order_of(mark))),
            Outcome::Already(mark) => (Status::Already, 0, Reply::Order(order_of(mark))),
            Outcome::NotAgain => (Status::NotAgain, 0, Reply::Empty),
            Outcome::Ended => (Status::Ended, 0, Reply::Empty),
            Outcome::SoldOut => (Status::SoldOut, 0, Reply::Empty),
            Outcome::Insufficient(left) => (Status::Insufficient, busy_hint_ms(), Reply::Left { left }),
            Outcome::Busy => (Status::Busy, busy_hint_ms(), Reply::Empty),
            Outcome::TooOften { retry_after_ms } => {
                (Status::RateLimited, with_jitter(retry_after_ms), Reply::Empty)
            }
            Outcome::Unconfirmed(order_number) => {
                (Status::Unconfirmed, busy_hint_ms(), Reply::Pending { order_number })
            }
        };
        self.sheet.status(status);
        if status == Status::Queued {
            self.sheet.event(Event::SoldFromReserve, u64::from(self.sells == Sells::Reserve));
            crash_point::pass("gateway.before_queued");
        }
        ticket.peer.answer(Opcode::Buy, ticket.request_id, status, hint_ms, &reply, round);
        if status == Status::Queued {
            crash_point::pass("gateway.after_queued");
        }
    }

    /// A service connection hears of the order from now on. To how many connections `news` of it was handed.
    fn tell_listeners(
        &self,
        ticket: &Ticket,
        outcome: Outcome,
        news: Option<Mark>,
        round: &mut Round,
    ) -> u64 {
        let subscribers = &self.core.subscribers;
        let hears = ticket.names_user && outcome.order().is_some();
        match news {
            Some(mark) if hears => {
                subscribers.subscribe_and_push(ticket.user, &ticket.peer, order_of(mark), round)
            }
            Some(mark) => subscribers.push(ticket.user, order_of(mark), round),
            None if hears => {
                subscribers.subscribe(ticket.user, &ticket.peer, true);
                0
            }
            None => 0,
        }
    }
}

const fn ending_of(outcome: Outcome) -> PassedEnding {
    match outcome {
        Outcome::Queued(_) => PassedEnding::Queued,
        Outcome::Already(_) => PassedEnding::Already,
        Outcome::NotAgain => PassedEnding::NotAgain,
        Outcome::Ended => PassedEnding::Ended,
        Outcome::SoldOut => PassedEnding::SoldOut,
        Outcome::Insufficient(_) => PassedEnding::Insufficient,
        Outcome::Busy => PassedEnding::Busy,
        Outcome::TooOften { .. } => PassedEnding::RateAttempts,
        Outcome::Unconfirmed(_) => PassedEnding::Unconfirmed,
    }
}
