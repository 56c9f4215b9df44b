//! The funnel: one ladder of rungs that every BUY climbs, cheapest first.
//!
//! Runs on the connection's thread, inside one wake: synchronous, no I/O, no wait, no allocation, no lock held
//! across a rung; the time is an argument. Each rung turns away with a definite status and is counted. Who comes
//! through stands in the queue of his shard, and the stock task decides.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::ask::{Ask, Refusal};
use super::cancels::Cancels;
use super::clock::Now;
use super::counters::Rung;
use super::door::Door;
use super::eligibility::{Known, Verdict};
use super::explain::Explain;
use super::lookups::Lookups;
use super::on_sale::{OnSale, Sale, SkuOnSale};
use super::reply_parts::{busy_hint_ms, order_of, with_jitter};
use super::reserve::Reserve;
use super::unpaid::UnpaidBook;
use super::view::View;
use crate::admission::limits::{Held, LimitedBy, Limits, Rates, Share};
use crate::admission::risk::Risk;
use crate::admission::switches::SwitchBoard;
use crate::protocol::{
    ActivityId, ActivityInfo, ActivityState, OrderNumber, Reply, SkuId, SkuInfo, Status, StatusClass,
    StockBand, UserId, activity_flags,
};
use crate::stock::{Board, Buyers, Left, Standing};
use crate::store::gate::Gate;

/// When to come again while nobody can tell who has won: long enough for a feed to be read again.
pub(super) const UNKNOWN_RETRY_MS: u32 = 1000;

/// Where the answer to a RESULT is.
#[derive(Debug)]
pub(super) enum Found {
    Here((Status, u32, Reply)),
    /// To be looked up.
    InTheDatabase,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Funnel {
    pub(super) limits: Limits,
    pub(super) risk: Risk,
    pub(super) explain: Explain,
    pub(super) buyers: Arc<Buyers>,
    pub(super) board: Arc<Board>,
    pub(super) on_sale: ArcSwap<OnSale>,
    pub(super) door: Arc<Door>,
    pub(super) gate: Arc<Gate>,
    pub(super) reserve: Option<Reserve>,
    pub(super) lookups: Lookups,
    pub(super) cancels: Cancels,
    pub(super) unpaid: UnpaidBook,
}

impl Funnel {
    /// How the user stands, whoever has sold to him.
    pub(super) fn standing(&self, activity: ActivityId, user: UserId) -> Option<Standing> {
        let of_store = self.buyers.standing(activity, user);
        self.reserve.as_ref().map_or(of_store, |reserve| reserve.standing(of_store, activity, user))
    }

    /// The doors at which somebody may have been put by a wake.
    pub(super) fn doors(&self) -> impl Iterator<Item = &Door> {
        let reserve = self.reserve.as_ref().filter(|_| self.gate.uses_database());
        std::iter::once(&*self.door).chain(reserve.map(|reserve| &*reserve.door))
    }

    /// What the requests of one wake go by.
    pub(super) fn view(&self) -> View {
        View::new(&self.buyers, &self.on_sale)
    }

    /// The ladder. `Ok`: the BUY waits for the stock task, which will answer it.
    pub(super) fn buy(&self, now: Now, view: &View, ask: &Ask<'_>) -> Result<(), Refusal> {
        let on_sale = view.on_sale();
        let sale = on_sale.sale(ask.activity);
        // Read before the buyers: the stock task makes marks known before it says that nothing is left, so that
        // whoever took the last unit is found by the duplicate rung, never told "sold out".
        let left = self.left(now, sale, ask.sku);
        // What is left is told by a fresh view alone.
        let was_fresh = left != Left::Unknown || self.board.is_fresh(now.mono_ms());
        // Frame and connection have been judged before: see `session`.
        self.rate(now, on_sale.rates(), ask)?;
        self.duplicate(on_sale, ask)?;
        let judged = self.below_duplicate(now, view, sale, left, ask);
        let counted = judged.and_then(|()| self.count_unpaid(now, view, ask));
        let counted = counted.map_err(|refusal| self.unless_a_winner(now, was_fresh, view, ask, refusal))?;
        let queued = self.queue(now, sale, ask, counted);
        if let (Err(_), Some(counted)) = (&queued, &counted) {
            self.unpaid.answered(counted);
        }
        queued
    }

    /// The rungs that must not turn a winner away.
    fn below_duplicate(
        &self,
        now: Now,
        view: &View,
        sale: Option<&Sale>,
        left: Left,
        ask: &Ask<'_>,
    ) -> Result<(), Refusal> {
        switches(view.on_sale(), sale, ask.activity)?;
        activity(now, sale, ask)?;
        self.risk(now, view, ask)?;
        eligibility(sale, ask)?;
        stock(left, ask)
    }

    /// Nothing below the duplicate rung may turn a winner away. While the view is not fresh, anybody may be one of whom
    /// this gateway has not heard yet: he is told to come again, by when it has heard. Asked before and after he was not
    /// found among the buyers, as for RESULT.
    fn unless_a_winner(
        &self,
        now: Now,
        was_fresh: bool,
        view: &View,
        ask: &Ask<'_>,
        refusal: Refusal,
    ) -> Refusal {
        let is_final = Status::class_of(refusal.status.code()) == StatusClass::Refused;
        let is_known = was_fresh && self.board.is_fresh(now.mono_ms()) && view.is_of(&self.buyers);
        // Of an archived activity RESULT tells the orders, from the database.
        if is_known || !is_final || view.on_sale().is_archived(ask.activity) {
            return refusal;
        }
        let hint_ms = with_jitter(UNKNOWN_RETRY_MS);
        Refusal { rung: refusal.rung, status: Status::Busy, hint_ms, reply: Reply::Empty }
    }

    fn left(&self, now: Now, sale: Option<&Sale>, sku: SkuId) -> Left {
        // The board tells of Redis alone.
        let sku = sale.filter(|sale| !sale.is_taken).and_then(|sale| sale.sku(sku));
        sku.map_or(Left::Unknown, |sku| self.board.left(&sku.slot, now.mono_ms()))
    }

    fn rate(&self, now: Now, rates: &Rates, ask: &Ask<'_>) -> Result<(), Refusal> {
        let passed = match ask.held {
            Some(held) => self.limits.check_held(rates, now.mono_ns, held, ask.ip, ask.user),
            None => self.limits.check(rates, now.mono_ns, ask.ip, ask.user),
        };
        passed.map_err(|limited| {
            let rung = match limited.by {
                LimitedBy::Connection => Rung::RateConnection,
                LimitedBy::Global => Rung::RateGlobal,
                LimitedBy::Ip => Rung::RateIp,
                LimitedBy::User => Rung::RateUser,
            };
            Refusal::limited(rung, limited.retry_after_ms)
        })
    }

    /// Nothing below may turn a winner away: not a closed entry, not "sold out".
    fn duplicate(&self, on_sale: &OnSale, ask: &Ask<'_>) -> Result<(), Refusal> {
        let (status, reply) = match self.standing(ask.activity, ask.user) {
            // Not forgotten yet; the database tells it better.
            Some(_) if on_sale.is_archived(ask.activity) => return Ok(()),
            Some(Standing::Order(mark)) if mark.state.is_live() => {
                (Status::Already, Reply::Order(order_of(mark)))
            }
            // An order that was closed does not hide what the rungs below say; behind the last of them it is
            // NOT_AGAIN.
            None | Some(Standing::Order(_)) => return Ok(()),
            Some(Standing::Unconfirmed(order_number)) => {
                (Status::Unconfirmed, Reply::Pending { order_number })
            }
        };
        Err(Refusal { rung: Rung::Duplicate, status, hint_ms: 0, reply })
    }

    /// The one rate of RESULT, CANCEL and ACTIVITY; `Err` is what a user over it is told.
    pub(super) fn question_rate(
        &self,
        now: Now,
        rates: &Rates,
        user: UserId,
        held: Option<&Held>,
    ) -> Result<(), (Status, u32, Reply)> {
        let passed = match held {
            Some(held) => self.limits.check_result_held(rates, now.mono_ns, held, user),
            None => self.limits.check_result(rates, now.mono_ns, user),
        };
        passed.map_err(|limited| (Status::RateLimited, with_jitter(limited.retry_after_ms), Reply::Empty))
    }

    /// Shows what the catalogue says now, under the switches as they are.
    pub(super) fn show(&self, now: Now, on_sale: &OnSale) {
        self.gate.set_taken(on_sale.has_taken());
        self.on_sale.rcu(|before| on_sale.clone().instead_of(before, now.mono_ns));
    }

    /// Obeys these switches from now on: whoever loads what is on sale after this, sees them in force.
    pub(super) fn obey(&self, now: Now, switches: &Arc<SwitchBoard>) {
        self.on_sale.rcu(|before| OnSale::clone(before).obeying(switches, now.mono_ns));
    }

    /// From now on this gateway gives out that share of the rates that are for all.
    pub(super) fn share(&self, now: Now, share: Share) {
        if self.on_sale.load().rates().share() != share {
            self.on_sale.rcu(|before| OnSale::clone(before).sharing(share, now.mono_ns));
        }
    }

    /// What RESULT says, whatever the switches and the window say: from memory, but for an activity that is archived.
    pub(super) fn result(
        &self,
        now: Now,
        view: &View,
        (activity, user): (ActivityId, UserId),
        held: Option<&Held>,
    ) -> Found {
        let on_sale = view.on_sale();
        if let Err(told) = self.question_rate(now, on_sale.rates(), user, held) {
            return Found::Here(told);
        }
        let archived_at_ms = on_sale.ended(activity).and_then(|ended| ended.archived_at_ms);
        match archived_at_ms {
            None => Found::Here(self.result_from_memory(now, view, activity, user)),
            Some(at_ms) if self.lookups.is_kept(now, at_ms) => Found::InTheDatabase,
            Some(_) => Found::Here((Status::NoOrder, 0, Reply::Empty)),
        }
    }

    fn result_from_memory(
        &self,
        now: Now,
        view: &View,
        activity: ActivityId,
        user: UserId,
    ) -> (Status, u32, Reply) {
        // Asked before and after: a view that became fresh in between has told of his order only after he was not
        // found; one that fell silent in between may have forgotten it.
        let was_fresh = self.board.is_fresh(now.mono_ms());
        match self.standing(activity, user) {
            Some(Standing::Order(mark)) => (Status::Ok, 0, Reply::Order(order_of(mark))),
            Some(Standing::Unconfirmed(order_number)) => {
                (Status::Unconfirmed, busy_hint_ms(), Reply::Pending { order_number })
            }
            None if was_fresh && self.board.is_fresh(now.mono_ms()) && view.is_of(&self.buyers) => {
                (Status::NoOrder, 0, Reply::Empty)
            }
            None => (Status::Unconfirmed, busy_hint_ms(), Reply::Pending { order_number: OrderNumber(0) }),
        }
    }

    /// What ACTIVITY says; counts towards the same per-user rate as RESULT.
    pub(super) fn activity(
        &self,
        now: Now,
        view: &View,
        (activity, user): (ActivityId, UserId),
        held: Option<&Held>,
        claims: Known<'_>,
    ) -> (Status, u32, Reply) {
        let on_sale = view.on_sale();
        if let Err(told) = self.question_rate(now, on_sale.rates(), user, held) {
            return told;
        }
        let Some(sale) = on_sale.sale(activity) else {
            let is_over = on_sale.ended(activity).is_some();
            let status = if is_over { Status::Ended } else { Status::UnknownActivity };
            return (status, 0, Reply::Empty);
        };
        let holds = matches!(
            self.standing(activity, user),
            Some(Standing::Order(mark)) if mark.state.is_live()
        );
        let is_eligible = sale.terms.judge(user, claims) == Verdict::Eligible;
        let flags = [(is_eligible, activity_flags::ELIGIBLE), (holds, activity_flags::HOLDS_ORDER)];
        let info = ActivityInfo {
            activity,
            state: sale.state(now.sale_ms),
            flags: flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag),
            server_time_ms: now.sale_ms,
            opens_at_ms: sale.opens_at_ms,
            closes_at_ms: sale.closes_at_ms,
            per_user_limit: sale.per_user_limit,
        };
        let info_of = |sku: &SkuOnSale| SkuInfo {
            sku: sku.id,
            band: if sale.is_taken { StockBand::Unknown } else { self.band(now, sku) },
            price_minor: sku.price_minor,
        };
        (Status::Ok, 0, Reply::Activity { info, skus: sale.skus.iter().map(info_of).collect() })
    }

    fn band(&self, now: Now, sku: &SkuOnSale) -> StockBand {
        if self.board.left(&sku.slot, now.mono_ms()) == Left::Exactly(0) {
            return StockBand::SoldOut;
        }
        let Some(free) = sku.slot.free_seen() else { return StockBand::Unknown };
        let (free, total) = (u64::from(free), u64::from(sku.stock_total));
        if free.saturating_mul(10) <= total {
            StockBand::Low
        } else if free.saturating_mul(2) <= total {
            StockBand::Medium
        } else {
            StockBand::High
        }
    }
}

fn switches(on_sale: &OnSale, sale: Option<&Sale>, activity: ActivityId) -> Result<(), Refusal> {
    let is_open = match sale {
        Some(sale) => sale.entry_open,
        // One that is not known is told so further down, unless nothing is let in at all.
        None => on_sale.entry_open && on_sale.ended(activity).is_none(),
    };
    if is_open { Ok(()) } else { Err(Refusal::plain(Rung::Switches, Status::Ended)) }
}

fn activity(now: Now, sale: Option<&Sale>, ask: &Ask<'_>) -> Result<(), Refusal> {
    let refuse = |status| Refusal::plain(Rung::Activity, status);
    let sale = sale.ok_or(refuse(Status::UnknownActivity))?;
    sale.sku(ask.sku).ok_or(refuse(Status::UnknownSku))?;
    if ask.quantity > sale.per_user_limit {
        return Err(refuse(Status::OverLimit));
    }
    match sale.state(now.sale_ms) {
        // Behind everything that turns away without it: who is told "not yet" uses nothing up.
        ActivityState::Open => {
            let passed = sale.limit.check(now.mono_ns);
            passed.map_err(|retry_after_ms| Refusal::limited(Rung::RateActivity, retry_after_ms))
        }
        ActivityState::Ended => Err(refuse(Status::Ended)),
        ActivityState::Upcoming => {
            let until_ms = sale.opens_at_ms.saturating_sub(now.sale_ms);
            Err(Refusal {
                rung: Rung::Activity,
                status: Status::NotStarted,
                hint_ms: u32::try_from(until_ms).unwrap_or(u32::MAX),
                reply: Reply::OpensAt { opens_at_ms: sale.opens_at_ms, server_time_ms: now.sale_ms },
            })
        }
    }
}

fn eligibility(sale: Option<&Sale>, ask: &Ask<'_>) -> Result<(), Refusal> {
    let verdict = sale.map_or(Verdict::Eligible, |sale| sale.terms.judge(ask.user, ask.claims));
    match verdict {
        Verdict::Eligible => Ok(()),
        Verdict::NotEligible => Err(Refusal::plain(Rung::Eligibility, Status::NotEligible)),
        // Final would be wrong, and so would letting everybody in.
        Verdict::Unknown => {
            Err(Refusal { hint_ms: busy_hint_ms(), ..Refusal::plain(Rung::Eligibility, Status::Busy) })
        }
    }
}

fn stock(left: Left, ask: &Ask<'_>) -> Result<(), Refusal> {
    match left {
        Left::Exactly(0) => Err(Refusal::plain(Rung::Stock, Status::SoldOut)),
        Left::Exactly(left) if left < u32::from(ask.quantity) => Err(Refusal {
            rung: Rung::Stock,
            status: Status::Insufficient,
            hint_ms: busy_hint_ms(),
            reply: Reply::Left { left },
        }),
        Left::Exactly(_) | Left::Unknown => Ok(()),
    }
}
