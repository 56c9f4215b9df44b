//! SQL of the model: rows in memory, and the transactions that write them. What they decide is the real code's.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use crate::payment::{Cause, Owed, Payment, PaymentState, Verdict, judge};
use crate::protocol::{OrderNumber, OrderState, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};
use crate::store::StoreError;
use crate::store::sql::mysql::settling::{Decided, Rows, decide};
use crate::store::sql::mysql::{Release, Reservation, SettleOutcome, Settlement};

use super::shards::ACTIVITY;

pub(super) const PRICE: u64 = 100;
pub(super) const PAY_WITHIN_MS: u64 = 30 * 60_000;

/// One order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) user: UserId,
    pub(super) mark: Mark,
    /// Sold from the database's own units.
    pub(super) is_of_reserve: bool,
    pub(super) deferred_ms: u64,
    pub(super) asked: u32,
}

/// A step of an order's life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) order: OrderNumber,
    pub(super) cause: Cause,
    pub(super) at_ms: u64,
    pub(super) pay_by_ms: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) payment: Payment,
    pub(super) state: PaymentState,
    pub(super) received_ms: u64,
}

/// How the next transaction fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing is written.
    Before,
    /// It is committed, and nobody hears of it.
    After,
}

#[derive(Debug)]
pub(super) struct Books {
    pub(super) now_ms: u64,
    pub(super) generation: Gen,
    pub(super) fault: Option<Fault>,
    pub(super) orders: BTreeMap<OrderNumber, Row>,
    pub(super) history: Vec<Past>,
    /// Units that are not sold: of Redis, and of the database's own.
    pub(super) available: BTreeMap<SkuKey, u64>,
    pub(super) reserve: BTreeMap<SkuKey, u64>,
    pub(super) ledger: BTreeMap<(OrderNumber, UserId), (Release, bool)>,
    /// By id.
    pub(super) outbox: BTreeMap<u64, (OrderNumber, OrderState, bool)>,
    pub(super) payments: BTreeMap<String, Kept>,
    pub(super) cancels: BTreeMap<OrderNumber, (UserId, bool)>,
    pub(super) newest_process: u32,
    next_id: u64,
}

/// As the tasks have it.
#[derive(Debug)]
pub(super) struct Shelf(pub(super) Mutex<Books>);

impl Shelf {
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap()
    }

    /// One transaction, which may fail at either end.
    pub(super) fn transact<T>(&self, act: impl FnOnce(&mut Books) -> T) -> Result<T, StoreError> {
        let mut books = self.books();
        let failed = || StoreError::Unavailable("the model's database".to_owned());
        match books.fault.take() {
            Some(Fault::Before) => Err(failed()),
            Some(Fault::After) => {
                act(&mut books);
                Err(failed())
            }
            None => Ok(act(&mut books)),
        }
    }
}

impl Books {
    pub(super) fn new(units: &BTreeMap<SkuKey, u64>, reserve: u64) -> Self {
        Self {
            now_ms: 1_000_000,
            generation: Gen(1),
            fault: None,
            orders: BTreeMap::new(),
            history: Vec::new(),
            available: units.clone(),
            reserve: units.keys().map(|sku| (*sku, reserve)).collect(),
            ledger: BTreeMap::new(),
            outbox: BTreeMap::new(),
            payments: BTreeMap::new(),
            cancels: BTreeMap::new(),
            newest_process: 3,
            next_id: 0,
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn price(mark: &Mark) -> u64 {
        PRICE * u64::from(mark.quantity)
    }

    /// What the table's keys allow.
    fn insert(&mut self, row: Row) {
        let Row { user, mark, is_of_reserve, .. } = row;
        let live = |other: &&Row| other.user == user && other.mark.state.is_live() && mark.state.is_live();
        assert!(!self.orders.values().any(|other| live(&other)), "a second live order: {row:?}");
        let same = |other: &&Row| {
            other.user == user && other.is_of_reserve == is_of_reserve && other.mark.attempt == mark.attempt
        };
        let is_failed = |row: &Row| row.mark.state == OrderState::Failed;
        let taken = self.orders.values().filter(same).any(|other| !is_failed(other) && !is_failed(&row));
        assert!(!taken || is_of_reserve, "an attempt is used twice: {row:?}");
        let known = self.orders.insert(mark.order, row);
        assert!(known.is_none(), "{} is inserted twice", mark.order);
    }

    /// Moves an order on, forward as the protocol has it.
    pub(super) fn advance(&mut self, order: OrderNumber, to: OrderState, cause: Cause) {
        let row = self.orders.get_mut(&order).unwrap();
        let from = row.mark.state;
        assert!(from.may_become(to), "order {order} goes from {from:?} to {to:?}");
        row.mark.state = to;
        let past = Past { order, cause, at_ms: self.now_ms, pay_by_ms: row.mark.pay_by_ms };
        self.history.push(past);
    }

    /// Closes an order that waits for its payment: its units go back, or are owed to Redis.
    pub(super) fn close(&mut self, order: OrderNumber, cause: Cause) -> bool {
        let Some(row) = self.orders.get(&order).copied() else { return false };
        if row.mark.state != OrderState::PendingPayment {
            return false;
        }
        self.advance(order, OrderState::Closed, cause);
        let units = if row.is_of_reserve { &mut self.reserve } else { &mut self.available };
        *units.get_mut(&row.mark.sku).unwrap() += u64::from(row.mark.quantity);
        if !row.is_of_reserve {
            self.owe(row.user, Mark { state: OrderState::Closed, ..row.mark });
        }
        true
    }

    /// A row of the ledger, once for each order.
    pub(super) fn owe(&mut self, user: UserId, mark: Mark) {
        let id = self.id();
        let release = Release { id, shard: ShardId::of(user), user, mark };
        self.ledger.entry((mark.order, user)).or_insert((release, false));
    }

    /// Decides on a payment that has a row.
    pub(super) fn apply(&mut self, payment: &Payment) -> PaymentState {
        let row = self.orders.get(&payment.order).copied();
        let owed = match row {
            Some(Row { mark, .. }) => Some(Owed { state: mark.state, amount_minor: Self::price(&mark) }),
            None if self.ledger.keys().any(|(order, _)| *order == payment.order) => {
                Some(Owed { state: OrderState::Failed, amount_minor: 0 })
            }
            None => None,
        };
        let Verdict { payment: state, order } = judge(owed, payment.amount_minor);
        if let Some((to, cause)) = order {
            self.advance(payment.order, to, cause);
            let is_known =
                self.outbox.values().any(|(order, state, _)| (*order, *state) == (payment.order, to));
            if row.is_some_and(|row| !row.is_of_reserve) && !is_known {
                let id = self.id();
                self.outbox.insert(id, (payment.order, to, false));
            }
        }
        self.payments.get_mut(payment.id.as_str()).unwrap().state = state;
        state
    }

    /// A batch, as the careful way settles it.
    pub(super) fn settle(&mut self, generation: Gen, reservations: &[Reservation]) -> SettleOutcome {
        if self.generation != generation {
            return SettleOutcome::Gen(self.generation);
        }
        let rows = Rows {
            orders: self.orders.values().map(|row| (row.user, row.mark, !row.is_of_reserve)).collect(),
            ledger: self.ledger.values().map(|(release, _)| *release).collect(),
            available: self.available.clone(),
            pay_within_ms: HashMap::from([(ACTIVITY, PAY_WITHIN_MS)]),
        };
        let Decided { mut settlements, orders, failed, owed_again } =
            decide(generation, reservations, rows, self.now_ms);
        for (_, user, mark) in orders {
            let available = self.available.get_mut(&mark.sku).unwrap();
            *available = available.checked_sub(mark.quantity.into()).unwrap();
            self.insert(Row { user, mark, is_of_reserve: false, deferred_ms: 0, asked: 0 });
        }
        for Release { mark, user, .. } in owed_again {
            if let Some((_, is_done)) = self.ledger.get_mut(&(mark.order, user)) {
                *is_done = false;
            }
        }
        for (one, has_row) in failed {
            self.fail(one.user, one.mark, has_row);
        }
        for settlement in &mut settlements {
            if let Settlement::Settled(mark) | Settlement::WasSettled(mark) = settlement {
                self.unpark(mark.order);
                mark.state = self.orders.get(&mark.order).map_or(mark.state, |row| row.mark.state);
            }
        }
        SettleOutcome::Committed(settlements)
    }

    /// A FAILED order, which holds nothing and owes Redis its mark.
    pub(super) fn fail(&mut self, user: UserId, mark: Mark, has_row: bool) {
        let mark = Mark { state: OrderState::Failed, pay_by_ms: 0, ..mark };
        if has_row {
            self.insert(Row { user, mark, is_of_reserve: false, deferred_ms: 0, asked: 0 });
        }
        self.owe(user, mark);
    }

    fn unpark(&mut self, order: OrderNumber) {
        let is_one = |kept: &&Kept| kept.payment.order == order && kept.state == PaymentState::Parked;
        let parked: Vec<_> = self.payments.values().filter(is_one).map(|kept| kept.payment.clone()).collect();
        for payment in parked {
            self.apply(&payment);
        }
    }

    /// Database mode: one of the units that Redis never had.
    pub(super) fn sell_of_reserve(&mut self, user: UserId, item: Mark) -> bool {
        let holds = self
            .orders
            .values()
            .any(|row| row.user == user && (row.mark.state.is_live() || row.is_of_reserve));
        let free = self.reserve.get_mut(&item.sku).unwrap();
        let Some(rest) = free.checked_sub(item.quantity.into()).filter(|_| !holds) else { return false };
        *free = rest;
        let pay_by_ms = self.now_ms + PAY_WITHIN_MS;
        let mark = Mark { state: OrderState::PendingPayment, pay_by_ms, ..item };
        self.insert(Row { user, mark, is_of_reserve: true, deferred_ms: 0, asked: 0 });
        true
    }

    pub(super) fn due_releases(&self) -> Vec<Release> {
        self.ledger.values().filter(|(_, is_done)| !is_done).map(|(release, _)| *release).collect()
    }

    pub(super) fn releases_done(&mut self, ids: &[u64]) {
        for (release, is_done) in self.ledger.values_mut() {
            *is_done |= ids.contains(&release.id);
        }
    }

    /// States that Redis has to learn; `REFUND_DUE` when the units are back.
    pub(super) fn due_marks(&self) -> Vec<(u64, UserId, Mark)> {
        let due = self.outbox.iter().filter(|(_, (order, state, is_done))| {
            let is_owed = self.ledger.iter().any(|((number, _), (_, is_back))| number == order && !is_back);
            !is_done && (*state != OrderState::RefundDue || !is_owed)
        });
        due.map(|(id, (order, state, _))| {
            let row = self.orders[order];
            (*id, row.user, Mark { state: *state, ..row.mark })
        })
        .collect()
    }

    pub(super) fn marks_told(&mut self, ids: &[u64]) {
        for id in ids {
            self.outbox.get_mut(id).unwrap().2 = true;
        }
    }

    /// Cancels whose orders have gone on.
    pub(super) fn apply_cancels(&mut self) {
        let due: Vec<_> =
            self.cancels.iter().filter(|(_, (_, is_done))| !is_done).map(|(order, _)| *order).collect();
        for order in due {
            let is_over = match self.orders.get(&order).map(|row| row.mark.state) {
                Some(OrderState::Reserved | OrderState::Recorded) => false,
                Some(_) => {
                    self.close(order, Cause::Asked);
                    true
                }
                None => self.ledger.keys().any(|(number, _)| *number == order),
            };
            self.cancels.get_mut(&order).unwrap().1 = is_over;
        }
    }
}
