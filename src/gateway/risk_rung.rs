//! The rung Risk, and what is remembered of every BUY for whoever asks why.
//!
//! Runs on the connection's thread, inside one wake, as the funnel does: no wait, no allocation, no lock.

use super::ask::{Ask, Refusal};
use super::clock::Now;
use super::counters::Rung;
use super::explain::LastBuy;
use super::funnel::Funnel;
use super::reply_parts::with_jitter;
use super::view::View;
use crate::admission::risk::{Refused, RiskTime, Who};
use crate::protocol::{Reply, Status};

impl Funnel {
    /// Who is listed is blocked, or slowed. Stands behind the duplicate rung: no winner comes here.
    pub(super) fn risk(&self, now: Now, view: &View, ask: &Ask<'_>) -> Result<(), Refusal> {
        let time = RiskTime { mono_ms: now.mono_ms(), sale_ms: now.sale_ms };
        let who = Who { user: ask.user, ip: ask.ip, device: ask.device };
        let checked = match ask.risk_held {
            Some(held) => self.risk.check_held(time, &held.verdict, &who),
            None => self.risk.check(time, || view.lists(&self.risk), &who),
        };
        checked.map_err(|refused| match refused {
            Refused::Blocked => Refusal::plain(Rung::Risk, Status::Blocked),
            Refused::Slowed { retry_after_ms } => Refusal {
                rung: Rung::RiskSlowed,
                status: Status::RateLimited,
                hint_ms: with_jitter(retry_after_ms),
                reply: Reply::Empty,
            },
        })
    }

    /// Remembers what became of a BUY. Of an app connection once a second, and when another rung speaks.
    pub(super) fn remember(&self, now: Now, ask: &Ask<'_>, rung: Rung, status: Status) {
        let at_s = u32::try_from(now.sale_ms / 1000).unwrap_or(u32::MAX);
        if let Some(held) = ask.risk_held
            && held.remembered.replace(Some((rung, at_s))) == Some((rung, at_s))
        {
            return;
        }
        self.explain.remember(ask.user, LastBuy { rung, status, activity: ask.activity, at_s });
    }
}
