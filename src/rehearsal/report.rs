//! How a rehearsed sale went, for machines and for people.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::funnel::FunnelReport;
use super::history::{End, SaleHistory, UserHistory};
use super::life::LifeReport;
use super::plan::SalePlan;
use super::verdict::{Verdict, count};
use crate::protocol::Status;

/// One JSON object, or a table.
///
/// Counted in *users*: `users`, `queued`, `learned`, `sold_out`, `refused`, `gave_up`, `unresolved`, `unpushed`,
/// `listening`, `pushed_elsewhere`.
/// Counted in *answers* (a user may get several): `already`, `busy`, `rate_limited`, `insufficient`, `unconfirmed`,
/// `lost`, `errors`, `pushes`. From the *database*: `stock`, `orders`, `oversold`, `undersold`, `stock_left`, and where
/// winners pay `paid`, `pending`, `closed`, `restocked`, `refund_due`, `conserved`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `app` or `service`.
    pub mode: &'static str,
    /// Open at once.
    pub connections: u64,
    /// Users who bought.
    pub users: u64,
    /// Units loaded, less those that users outside this sale hold.
    pub stock: u64,
    /// Users who were told QUEUED.
    pub queued: u64,
    /// Users who hold an order but learned it otherwise (RESULT or ALREADY, after a lost answer).
    pub learned: u64,
    /// ALREADY answers.
    pub already: u64,
    /// Users finally told `SOLD_OUT`.
    pub sold_out: u64,
    /// Users finally refused for another reason, or told that their request is wrong.
    pub refused: u64,
    /// Users whose patience ended.
    pub gave_up: u64,
    /// Users who cannot know, or reached no gateway.
    pub unresolved: u64,
    /// BUSY answers.
    pub busy: u64,
    /// `RATE_LIMITED` answers.
    pub rate_limited: u64,
    /// INSUFFICIENT answers.
    pub insufficient: u64,
    /// UNCONFIRMED answers to BUY.
    pub unconfirmed: u64,
    /// Requests whose answer was lost with the connection or came too late.
    pub lost: u64,
    /// Answers that call a request wrong, and attempts to connect that failed for good.
    pub errors: u64,
    /// BUYs beyond each user's first.
    pub retries: u64,
    /// `RESULT_PUSH`es that arrived; an order pushed twice counts twice.
    pub pushes: u64,
    /// Users told QUEUED who heard no push within the plan's wait. No violation: pushes are best effort, and RESULT
    /// is the truth.
    pub unpushed: u64,
    /// Winners who held a further connection to each of several gateways, only to listen.
    pub listening: u64,
    /// Those of them whose order was pushed on another gateway than they had bought on.
    pub pushed_elsewhere: u64,
    /// Live orders of the sale's users.
    pub orders: u64,
    /// Units sold beyond those loaded.
    pub oversold: u64,
    /// Units left that users wanted who went away without an order.
    pub undersold: u64,
    /// Units free or between shards.
    pub stock_left: u64,
    /// From the first BUY to the last user's answer.
    pub seconds: f64,
    /// Answered BUYs per second.
    pub requests_per_s: f64,
    /// Median time of an answered BUY, in microseconds.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// `ok`, or the first violation and how many more there are.
    pub audit: String,
    /// How orders ended, where winners pay.
    #[serde(flatten)]
    pub life: Option<LifeReport>,
    /// Where the BUYs ended.
    pub funnel: FunnelReport,
}

impl Report {
    /// Puts the three sides together.
    pub fn new(plan: &SalePlan, history: &SaleHistory, verdict: &Verdict) -> Self {
        let users = |wanted: fn(&UserHistory) -> bool| {
            count(history.users.iter().filter(|user| wanted(user)).count())
        };
        let tally = &history.tally;
        Self {
            mode: plan.mode.name(),
            connections: count(plan.open_at_once()),
            users: count(history.users.len()),
            stock: verdict.stock,
            queued: users(UserHistory::was_queued),
            learned: users(|user| matches!(user.end, End::Won(_)) && !user.was_queued()),
            already: tally.already,
            sold_out: users(|user| user.end == End::Refused(Status::SoldOut.code())),
            refused: users(|user| match user.end {
                End::Refused(status) => status != Status::SoldOut.code(),
                End::Fault(_) => true,
                End::Won(_) | End::GaveUp(_) | End::Unknown | End::Unreachable => false,
            }),
            gave_up: users(|user| matches!(user.end, End::GaveUp(_))),
            unresolved: users(|user| matches!(user.end, End::Unknown | End::Unreachable)),
            busy: tally.busy,
            rate_limited: tally.rate_limited,
            insufficient: tally.insufficient,
            unconfirmed: tally.unconfirmed,
            lost: tally.lost,
            errors: tally.errors,
            retries: tally.retries,
            pushes: tally.pushes,
            unpushed: users(UserHistory::is_unpushed),
            listening: users(UserHistory::is_listening),
            pushed_elsewhere: users(UserHistory::was_pushed_elsewhere),
            orders: verdict.orders,
            oversold: verdict.oversold,
            undersold: verdict.undersold,
            stock_left: verdict.stock_left,
            seconds: rounded(history.duration.as_secs_f64()),
            requests_per_s: per_second(history.answered, history.duration),
            p50_us: history.latency_us.value_at_quantile(0.5),
            p99_us: history.latency_us.value_at_quantile(0.99),
            audit: verdict.sentence(),
            life: None,
            funnel: FunnelReport::new(history),
        }
    }

    /// What the books say, as a sum.
    fn balance(&self, life: &LifeReport) -> String {
        let Self { stock, stock_left, .. } = self;
        let LifeReport { paid, pending, .. } = life;
        format!("{stock} units = {stock_left} left + {paid} paid + {pending} pending")
    }

    /// Whether the audit found nothing.
    pub fn is_ok(&self) -> bool {
        self.audit == "ok"
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn per_second(requests: u64, duration: Duration) -> f64 {
    // Below 2^32 requests an f64 is exact; above, a rate is rounded anyway.
    let requests = u32::try_from(requests).map_or(f64::from(u32::MAX), f64::from);
    (requests / duration.as_secs_f64().max(1e-9)).round()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &dyn fmt::Display, note: &str| {
            if note.is_empty() {
                writeln!(f, "{name:<16} {value:>12}")
            } else {
                writeln!(f, "{name:<16} {value:>12}   {note}")
            }
        };
        let per_connection =
            if self.mode == "app" { "each user on an own connection" } else { "shared by all users" };
        line("users", &self.users, "")?;
        line("connections", &self.connections, per_connection)?;
        line("stock", &self.stock, "units at the start")?;
        line("queued", &self.queued, "users who won a unit at once")?;
        line("learned", &self.learned, "users who learned later that they had won")?;
        line("sold out", &self.sold_out, "users")?;
        line("refused", &self.refused, "users, for another reason")?;
        line("gave up", &self.gave_up, "users, out of patience")?;
        line("unresolved", &self.unresolved, "users who cannot know")?;
        line("orders", &self.orders, "in the database")?;
        line("stock left", &self.stock_left, "units")?;
        line("oversold", &self.oversold, "units")?;
        line("undersold", &self.undersold, "units")?;
        line("already", &self.already, "answers")?;
        line("busy", &self.busy, "answers")?;
        line("rate limited", &self.rate_limited, "answers")?;
        line("insufficient", &self.insufficient, "answers")?;
        line("unconfirmed", &self.unconfirmed, "answers")?;
        line("lost", &self.lost, "answers that never came")?;
        line("errors", &self.errors, "")?;
        line("retries", &self.retries, "BUYs beyond each user's first")?;
        line("pushes", &self.pushes, "")?;
        line("unpushed", &self.unpushed, "users told QUEUED who heard no push")?;
        line("listening", &self.listening, "winners with connections to other gateways, too")?;
        line("pushed elsewhere", &self.pushed_elsewhere, "of them heard of their order there")?;
        line("seconds", &format!("{:.3}", self.seconds), "")?;
        line("requests per s", &format!("{:.0}", self.requests_per_s), "answered BUYs")?;
        line("p50", &format!("{} µs", self.p50_us), "")?;
        line("p99", &format!("{} µs", self.p99_us), "")?;
        if let Some(life) = &self.life {
            line("paid", &life.paid, "orders")?;
            line("pending", &life.pending, "orders that still wait for their payment")?;
            line("closed", &life.closed, "orders not paid in time")?;
            line("restocked", &life.restocked, "units back for sale, by the ledger")?;
            line("resold", &life.resold, "orders of users who had been told sold out")?;
            line("refund due", &life.refund_due, "payments that came too late")?;
            let books = if life.conserved { "balanced" } else { "NOT balanced" };
            line("books", &books, &self.balance(life))?;
        }
        line("audit", &self.audit, "")?;
        write!(f, "\n{}", self.funnel)
    }
}
