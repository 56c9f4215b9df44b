//! The rungs of the caps on open unpaid reservations: of a user over all activities, of a device over all its users.
//!
//! Part of the funnel: runs on the connection's thread, behind what is left and before the queue, so that only who would
//! be sold to is counted; nothing while no cap is in force. Open is what the buyers tell as reserved and not paid, not
//! past its pay-by. Whoever has as many is refused; who might have when what is under way is answered comes again.
//! Approximate across gateways: one knows the orders of all, but what is under way, and on which device, of its own.

use super::ask::{Ask, Refusal};
use super::clock::Now;
use super::counters::Rung;
use super::funnel::Funnel;
use super::reply_parts::busy_hint_ms;
use super::unpaid::{Bid, Bids, Counted, Holder};
use super::view::View;
use crate::protocol::{ActivityId, Status, UserId};
use crate::stock::Standing;

/// What is counted towards a cap.
#[derive(Clone, Copy, Default)]
struct Count {
    open: usize,
    /// It is not known yet whether it comes to an order.
    under_way: usize,
}

impl Count {
    fn add(&mut self, stands: Stands, waits: bool) {
        match stands {
            Stands::Open => self.open = self.open.saturating_add(1),
            Stands::InDoubt => self.under_way = self.under_way.saturating_add(1),
            Stands::Not => self.under_way = self.under_way.saturating_add(usize::from(waits)),
        }
    }

    fn judge(self, rung: Rung, max: u8) -> Result<(), Refusal> {
        let max = usize::from(max);
        if self.open >= max {
            return Err(Refusal::plain(rung, Status::TooManyUnpaid));
        }
        if self.open.saturating_add(self.under_way) >= max {
            return Err(Refusal { hint_ms: busy_hint_ms(), ..Refusal::plain(rung, Status::Busy) });
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    Open,
    InDoubt,
    Not,
}

impl Funnel {
    /// Counts the BUY towards the caps in force, if they let it pass; until it is answered, whatever is told of it.
    pub(super) fn count_unpaid(
        &self,
        now: Now,
        view: &View,
        ask: &Ask<'_>,
    ) -> Result<Option<Counted>, Refusal> {
        let max = view.on_sale().rates().open_unpaid();
        if !max.is_on() {
            return Ok(None);
        }
        let bid = Bid::new(ask.activity, ask.user, now.mono_ms());
        let device = ask.device.filter(|_| max.per_device > 0).map(|name| self.unpaid.device(name));
        let user = (max.per_user > 0).then_some(Holder::User(ask.user));
        let bids_of = |holder: Option<Holder>| holder.map(|holder| (holder, self.unpaid.of(holder)));
        let of_user = bids_of(user);
        let of_device = bids_of(device.map(Holder::Device));
        if let Some((_, bids)) = &of_user {
            self.count_user(now, view, &bid, bids).judge(Rung::OpenUnpaidUser, max.per_user)?;
        }
        if let Some((_, bids)) = &of_device {
            self.count_device(now, &bid, bids).judge(Rung::OpenUnpaidDevice, max.per_device)?;
        }
        for (holder, bids) in of_user.iter().chain(&of_device) {
            let mut known = bids.iter().flatten();
            let over = known.find(|known| {
                !known.waits(now.mono_ms()) && self.stands(now, known.activity, known.user) == Stands::Not
            });
            self.unpaid.enter(*holder, bid, over.copied());
        }
        Ok(Some(Counted { activity: ask.activity, user: ask.user, by_user: user.is_some(), device }))
    }

    /// Over all activities that are not archived, whoever has sold to him; and what waits here.
    fn count_user(&self, now: Now, view: &View, bid: &Bid, bids: &Bids) -> Count {
        let mut count = Count::default();
        for sale in view.on_sale().sales().iter().filter(|sale| sale.id != bid.activity) {
            let mut known = bids.iter().flatten();
            let waits = known.any(|known| known.activity == sale.id && known.waits(now.mono_ms()));
            count.add(self.stands(now, sale.id, bid.user), waits);
        }
        count
    }

    /// Of what was bought from it here.
    fn count_device(&self, now: Now, bid: &Bid, bids: &Bids) -> Count {
        let mut count = Count::default();
        let same = |known: &&Bid| (known.activity, known.user) == (bid.activity, bid.user);
        for known in bids.iter().flatten().filter(|known| !same(known)) {
            count.add(self.stands(now, known.activity, known.user), known.waits(now.mono_ms()));
        }
        count
    }

    fn stands(&self, now: Now, activity: ActivityId, user: UserId) -> Stands {
        match self.standing(activity, user) {
            Some(Standing::Order(mark)) if !mark.state.is_unpaid() => Stands::Not,
            // About to be closed.
            Some(Standing::Order(mark)) if (1..=now.sale_ms).contains(&mark.pay_by_ms) => Stands::Not,
            Some(Standing::Order(_)) => Stands::Open,
            Some(Standing::Unconfirmed(_)) => Stands::InDoubt,
            None => Stands::Not,
        }
    }

    /// Forgets what is counted no more.
    pub(super) fn retain_unpaid(&self, now: Now) {
        self.unpaid.retain(now.mono_ms(), |bid| self.stands(now, bid.activity, bid.user) != Stands::Not);
    }
}
