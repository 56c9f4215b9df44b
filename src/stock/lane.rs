//! A lane: what waits for one shard, and the one call in flight to it.
//!
//! Owned by the [`Stock`](super::Stock) engine. Pure data and bookkeeping; planning is in `plan`.

use std::collections::{BTreeMap, VecDeque};

use super::calls::{Call, CallBody, Item, Mark, ShardId};
use crate::protocol::{OrderNumber, SkuKey, UserId};

/// An item and who waits for its outcome.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    /// `None` once its outcome was told (UNCONFIRMED); the item itself lives on.
    pub(super) ticket: Option<T>,
    pub(super) item: Item,
    /// The store may hold it: a call with it went out and was refused in a way that does not tell whether an
    /// earlier copy was executed. It is asked for again, whatever is free, until an answer tells.
    pub(super) in_doubt: bool,
    /// A recovery lost it after its user could see it: refused means FAILED.
    pub(super) promised: bool,
    /// Not sent by then → BUSY.
    pub(super) patience_until_ms: u64,
    /// Sent, but no reply by then → UNCONFIRMED.
    pub(super) unconfirmed_at_ms: u64,
    /// How often an item of more than one unit found too few, in the store or among what had come for it.
    pub(super) gathers: u32,
    /// Not tried again before.
    pub(super) not_before_ms: u64,
}

impl<T> Waiting<T> {
    /// When its time in the queue is up. Whoever was never sent, or whose call certainly came to nothing, waits as long
    /// as he has patience; whose outcome is in doubt is told so, once.
    pub(super) const fn late_at_ms(&self) -> u64 {
        match (self.in_doubt, &self.ticket) {
            (false, _) => self.patience_until_ms,
            (true, Some(_)) => self.unconfirmed_at_ms,
            (true, None) => u64::MAX,
        }
    }
}

/// The call that a lane waits for.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    pub(super) call: Call,
    /// The items of the call's body, in the same order.
    pub(super) items: Vec<Waiting<T>>,
    /// The least and the greatest order number of its items.
    pub(super) orders: (OrderNumber, OrderNumber),
    /// Where among the items the last order was found; the feed tells of them in their order.
    pub(super) found_at: usize,
    /// The earliest time at which one of them is to be told that it is not known yet, or earlier.
    pub(super) unconfirmed_at_ms: u64,
    /// What the feed told of its items before the reply came.
    pub(super) news: Vec<(UserId, Mark)>,
    /// When to send it again; `None` while a copy is out.
    pub(super) resend_at_ms: Option<u64>,
    /// When the first copy was sent.
    pub(super) first_sent_ms: u64,
    /// Copies sent so far.
    pub(super) copies: u32,
    /// When the copy that is out counts as lost.
    pub(super) lost_at_ms: u64,
}

impl<T> InFlight<T> {
    /// Whether somebody still waits to be told of this order. Asked for every mark that the feed tells of: most are
    /// of an earlier call, the others come in the order of the items.
    pub(super) fn owes_a_word(&mut self, order: OrderNumber) -> bool {
        let (least, greatest) = self.orders;
        if order < least || order > greatest {
            return false;
        }
        let (before, after) = self.items.split_at_checked(self.found_at).unwrap_or((&self.items, &[]));
        let mut from_there = after.iter().chain(before);
        let Some(steps) = from_there.position(|waiting| waiting.item.order == order) else { return false };
        let items = self.items.len();
        self.found_at = self.found_at.saturating_add(steps).checked_rem(items).unwrap_or(0);
        self.items.get(self.found_at).is_some_and(|waiting| waiting.ticket.is_some())
    }

    /// The least and the greatest order number of items.
    pub(super) fn orders_of(items: &[Waiting<T>]) -> (OrderNumber, OrderNumber) {
        let orders = || items.iter().map(|waiting| waiting.item.order);
        (orders().min().unwrap_or(OrderNumber(u64::MAX)), orders().max().unwrap_or(OrderNumber(0)))
    }

    /// The earliest time at which one of those who wait for the reply is to be told that it is not known yet.
    pub(super) fn unconfirmed_at_ms_of(items: &[Waiting<T>]) -> u64 {
        let told = items.iter().filter(|waiting| waiting.ticket.is_some());
        told.map(|waiting| waiting.unconfirmed_at_ms).min().unwrap_or(u64::MAX)
    }

    /// The move that this call makes, if it does.
    pub(super) fn pull(&self) -> Option<(SkuKey, ShardId)> {
        match self.call.body {
            CallBody::MoveOut { sku, target, .. } => Some((sku, target)),
            CallBody::Reserve { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Lane<T> {
    pub(super) waiting: VecDeque<Waiting<T>>,
    pub(super) in_flight: Option<InFlight<T>>,
    /// The number of the last call.
    pub(super) last_number: u64,
    /// Units that waiting items miss here, per SKU: what a pull may bring. In order, so that a run of the model
    /// can be repeated from its seed.
    pub(super) missing: BTreeMap<SkuKey, u32>,
    /// When it was last looked whether others have what is missing.
    pub(super) pulls_looked_at_ms: u64,
    /// Items came since the last look.
    pub(super) has_new_items: bool,
    /// The shard's revision in the view, and the time, when the waiting items were last looked at.
    pub(super) looked_at: Option<(u64, u64)>,
    /// How many at the front of the queue were looked at then; those behind have come since.
    pub(super) looked_at_items: usize,
    /// The earliest time at which one of those who wait is late, or earlier: whoever adds one, or changes whose time
    /// is up when, brings it forward.
    pub(super) late_at_ms: u64,
    /// Not called before: the store refused the generation or does not serve.
    pub(super) not_before_ms: u64,
}

impl<T> Lane<T> {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            in_flight: None,
            last_number: 0,
            missing: BTreeMap::new(),
            pulls_looked_at_ms: 0,
            has_new_items: false,
            looked_at: None,
            looked_at_items: 0,
            late_at_ms: u64::MAX,
            not_before_ms: 0,
        }
    }

    /// A new item.
    pub(super) fn put(&mut self, item: Waiting<T>) {
        self.late_at_ms = self.late_at_ms.min(item.late_at_ms());
        self.waiting.push_back(item);
        self.has_new_items = true;
    }

    /// The queue is not what it was at the last look: all of it is to be looked at again, and soon.
    pub(super) const fn look_again(&mut self) {
        self.looked_at_items = 0;
        self.has_new_items = true;
    }

    /// Puts items back in front of which nobody knows whether the store holds them.
    pub(super) fn put_back_in_doubt(&mut self, items: Vec<Waiting<T>>) {
        self.put_back(items.into_iter().map(|waiting| Waiting { in_doubt: true, ..waiting }));
    }

    /// Puts items back in front, in their order, when the call is over; the lane is to be looked at again.
    pub(super) fn put_back(&mut self, items: impl DoubleEndedIterator<Item = Waiting<T>>) {
        for item in items.rev() {
            self.late_at_ms = self.late_at_ms.min(item.late_at_ms());
            self.waiting.push_front(item);
        }
        self.looked_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{ActivityId, SkuId};
    use crate::stock::calls::{Gen, ProcessNumber};

    fn waiting(order: u64, ticket: Option<()>) -> Waiting<()> {
        let sku = SkuKey { activity: ActivityId(1), sku: SkuId(1) };
        let item = Item {
            user: UserId(order),
            sku,
            order: OrderNumber(order),
            quantity: 1,
            attempt: 1,
            promised: false,
        };
        Waiting {
            ticket,
            item,
            in_doubt: false,
            promised: false,
            patience_until_ms: 0,
            unconfirmed_at_ms: 0,
            gathers: 0,
            not_before_ms: 0,
        }
    }

    #[test]
    fn a_word_is_owed_to_whoever_waits_in_whatever_order_the_feed_tells() {
        let items: Vec<_> = [(4, true), (9, true), (2, false), (7, true)]
            .map(|(order, waits)| waiting(order, waits.then_some(())))
            .into();
        let mut flight = InFlight {
            call: Call {
                process: ProcessNumber(1),
                generation: Gen(1),
                shard: ShardId::ALL[0],
                number: 1,
                body: CallBody::Reserve { bring_in: Vec::new(), items: Vec::new() },
            },
            orders: InFlight::orders_of(&items),
            found_at: 0,
            unconfirmed_at_ms: InFlight::unconfirmed_at_ms_of(&items),
            items,
            news: Vec::new(),
            resend_at_ms: None,
            first_sent_ms: 0,
            copies: 1,
            lost_at_ms: 0,
        };
        for round in [[4, 9, 7], [7, 9, 4], [9, 4, 7], [9, 9, 9]] {
            for order in round {
                assert!(flight.owes_a_word(OrderNumber(order)), "{order} of {round:?}");
            }
            for other in [1, 2, 3, 5, 8, 10] {
                assert!(!flight.owes_a_word(OrderNumber(other)), "{other} after {round:?}");
            }
        }
    }
}
