//! A purchase carried to its end by the protocol's retry rules.
//!
//! [`judge`] decides what answers mean, without I/O; the loops around it wait and ask.

use tokio::time::{Instant, sleep_until};

use super::{Answer, Backoff, Client, ClientError, EndReason, OnBehalf};
use crate::protocol::{ActivityId, Opcode, Order, Reply, Request, SkuId, Status, StatusClass};

/// What is to be bought.
#[derive(Clone, Copy, Debug)]
pub struct Purchase<'a> {
    /// In which activity.
    pub activity: ActivityId,
    /// Which article.
    pub sku: SkuId,
    /// Units, all or nothing.
    pub quantity: u16,
    /// For whom, on service connections.
    pub on_behalf: Option<OnBehalf<'a>>,
    /// How many copies of the BUY leave at once the first time. More than 1 is what an impatient finger does; rehearsals do
    /// it on purpose.
    pub copies: usize,
}

/// How long a purchase is tried.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Nothing new is begun after this.
    pub until: Instant,
    /// INSUFFICIENT so many times ends the purchase.
    pub insufficient_max: u32,
}

/// How a purchase ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The user holds this order.
    Won(Order),
    /// Finally refused, with this status.
    Refused(u16),
    /// Patience ran out; nothing was done, and this was the last status.
    GaveUp(u16),
    /// The gateway says that the request is wrong.
    Fault(u16),
    /// No gateway could be reached; nothing was sent, or nothing is left of it.
    Unreachable,
    /// Patience ran out with the outcome unknown.
    Unknown,
}

/// What RESULT said in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The user holds this order.
    Order(Order),
    /// The user holds none.
    NoOrder,
    /// Patience ran out, or the gateway refuses to say.
    Unknown,
}

/// One request and what came of it, as told to whoever watches a purchase.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// BUY or RESULT.
    pub asked: Opcode,
    /// When the request was begun (an answer's own `sent_at` is exact).
    pub begun_at: Instant,
    /// The answer, or why there is none.
    pub result: Result<&'a Answer, &'a ClientError>,
}

/// What answers to BUYs sent at once mean together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    End(Outcome),
    AskResult,
    Wait { hint_ms: u32, status: u16 },
    NewConnection { hint_ms: u32, status: u16 },
}

impl Client {
    /// Buys, and follows the retry rules until the outcome is final or patience is over: RETRY LATER waits at
    /// least the hint, RECONNECT goes to another connection, and after an unknown outcome RESULT is asked until
    /// it knows; only its `NO_ORDER` leads to another BUY.
    pub async fn buy_until_final(
        &self,
        purchase: &Purchase<'_>,
        patience: Patience,
        observe: &mut (impl FnMut(Exchange<'_>) + Send),
    ) -> Outcome {
        let mut backoff = Backoff::of_requests();
        let mut insufficient = 0_u32;
        let mut copies = purchase.copies.max(1);
        let mut last_status = None;
        loop {
            let results = self.buy_once(purchase, copies, patience.until, observe).await;
            copies = 1;
            let (hint_ms, status) = match judge(&results) {
                Next::End(Outcome::Unreachable) => {
                    return last_status.map_or(Outcome::Unreachable, Outcome::GaveUp);
                }
                Next::End(outcome) => return outcome,
                Next::AskResult => {
                    let on_behalf = purchase.on_behalf.as_ref();
                    match self.result_until_known(purchase.activity, on_behalf, patience.until, observe).await
                    {
                        Known::Order(order) => return Outcome::Won(order),
                        Known::Unknown => return Outcome::Unknown,
                        Known::NoOrder => (0, Status::Unconfirmed.code()),
                    }
                }
                Next::Wait { hint_ms, status } => (hint_ms, status),
                Next::NewConnection { hint_ms, status } => {
                    self.move_on(hint_ms);
                    (0, status)
                }
            };
            last_status = Some(status);
            insufficient = insufficient.saturating_add(u32::from(status == Status::Insufficient.code()));
            if insufficient >= patience.insufficient_max || !wait(&mut backoff, hint_ms, patience.until).await
            {
                return Outcome::GaveUp(status);
            }
        }
    }

    async fn buy_once(
        &self,
        purchase: &Purchase<'_>,
        copies: usize,
        until: Instant,
        observe: &mut (impl FnMut(Exchange<'_>) + Send),
    ) -> Vec<Result<Answer, ClientError>> {
        let &Purchase { activity, sku, quantity, .. } = purchase;
        let request = Request::Buy { activity, sku, quantity };
        let begun_at = Instant::now();
        let mut results = Vec::with_capacity(copies);
        match self.start(&request, purchase.on_behalf.as_ref(), copies, until).await {
            Ok(pending) => {
                for queued in pending {
                    results.push(queued.await);
                }
            }
            Err(error) => results.push(Err(error)),
        }
        for result in &results {
            observe(Exchange { asked: Opcode::Buy, begun_at, result: result.as_ref() });
        }
        results
    }

    /// Asks RESULT, with back-off and over reconnections, until it says ORDER or `NO_ORDER`.
    pub async fn result_until_known(
        &self,
        activity: ActivityId,
        on_behalf: Option<&OnBehalf<'_>>,
        until: Instant,
        observe: &mut (impl FnMut(Exchange<'_>) + Send),
    ) -> Known {
        let mut backoff = Backoff::of_requests();
        let request = Request::Result { activity };
        loop {
            let begun_at = Instant::now();
            let result = self.ask(&request, on_behalf, until).await;
            observe(Exchange { asked: Opcode::Result, begun_at, result: result.as_ref() });
            let hint_ms = match &result {
                Ok(Answer { reply: Reply::Order(order), .. }) => return Known::Order(*order),
                Ok(answer) if answer.known_status() == Some(Status::NoOrder) => return Known::NoOrder,
                Ok(answer) => match answer.class() {
                    StatusClass::Reconnect => {
                        self.move_on(answer.hint_ms);
                        0
                    }
                    StatusClass::Unknown | StatusClass::RetryLater => answer.hint_ms,
                    StatusClass::Ok | StatusClass::Refused | StatusClass::ClientFault => {
                        return Known::Unknown;
                    }
                },
                Err(error) if error.is_outcome_unknown() => 0,
                Err(ClientError::InFlightFull { .. }) => 0,
                Err(_) => return Known::Unknown,
            };
            if !wait(&mut backoff, hint_ms, until).await {
                return Known::Unknown;
            }
        }
    }
}

/// Waits by full jitter, at most until patience ends. `false`: patience is over, or the hint lies beyond it.
async fn wait(backoff: &mut Backoff, hint_ms: u32, until: Instant) -> bool {
    let now = Instant::now();
    let left = until.saturating_duration_since(now);
    if left.is_zero() || left.as_millis() < u128::from(hint_ms) {
        return false;
    }
    let wake_at = now.checked_add(backoff.next_wait(hint_ms)).unwrap_or(until);
    sleep_until(wake_at.min(until)).await;
    true
}

/// An order decides; then what is unknown has to be found out before anything else is believed; then the refusal.
fn judge(results: &[Result<Answer, ClientError>]) -> Next {
    let verdicts = results.iter().map(judge_one);
    let rank = |next: &Next| match next {
        Next::End(Outcome::Won(_)) => 0,
        Next::AskResult => 1,
        Next::End(Outcome::Refused(_) | Outcome::Fault(_)) => 2,
        Next::NewConnection { .. } => 3,
        Next::Wait { .. } => 4,
        Next::End(_) => 5,
    };
    verdicts.min_by_key(rank).unwrap_or(Next::End(Outcome::Unreachable))
}

fn judge_one(result: &Result<Answer, ClientError>) -> Next {
    match result {
        Ok(Answer { reply: Reply::Order(order), .. }) => Next::End(Outcome::Won(*order)),
        Ok(answer) => {
            let Answer { status, hint_ms, .. } = *answer;
            match answer.class() {
                // "Done", in a way this client does not know: RESULT tells what it meant.
                StatusClass::Ok | StatusClass::Unknown => Next::AskResult,
                StatusClass::Refused => Next::End(Outcome::Refused(status)),
                StatusClass::RetryLater => Next::Wait { hint_ms, status },
                StatusClass::Reconnect => Next::NewConnection { hint_ms, status },
                StatusClass::ClientFault => Next::End(Outcome::Fault(status)),
            }
        }
        Err(error) if error.is_outcome_unknown() => Next::AskResult,
        Err(ClientError::Refused { status, .. }) => match Status::class_of(*status) {
            StatusClass::Refused => Next::End(Outcome::Refused(*status)),
            _ => Next::End(Outcome::Fault(*status)),
        },
        Err(ClientError::InFlightFull { .. }) => {
            Next::Wait { hint_ms: 0, status: Status::TooManyInFlight.code() }
        }
        Err(ClientError::Closed(EndReason::ClosedHere)) => Next::End(Outcome::Unreachable),
        Err(error) if error.is_for_another_connection() => {
            Next::NewConnection { hint_ms: error.hint_ms(), status: Status::GoingAway.code() }
        }
        Err(_) => Next::End(Outcome::Unreachable),
    }
}
