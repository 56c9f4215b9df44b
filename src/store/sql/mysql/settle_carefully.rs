//! Settlement of a batch in which some row is not new or not good: looks first what SQL holds of each number, user and
//! SKU, decides row by row, then writes everything in the same one transaction.
//!
//! What another writer commits between the look and the write makes a unique key refuse the write; the round is then
//! done again. A row that the database itself refuses is found by inserting one by one. No row fails its neighbours.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::failure::Failure;
use super::order_rows::{insert_orders, lock_generation_to_settle, undo};
use super::orders::{SourcedMarkRow, sourced_mark};
use super::payments::{self, apply_parked};
use super::recorded::write_units;
use super::releases::{self, Release, ReleaseRow};
use super::reservations::{Reservation, SettleOutcome, Settlement};
use super::settle_batch::{Batch, learn};
use super::statements::{Reading, Shapes, read, read_with};
use super::takeover::late;
use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};

/// How the good rows are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    Together,
    /// After the database refused some row's values.
    OneByOne,
}

/// What came of a round.
pub(super) enum Round {
    Done(SettleOutcome),
    /// Another writer committed in between; nothing was written.
    Disturbed,
    /// The database refused the values of some row; nothing was written.
    BadRow,
}

/// What is written.
#[derive(Default)]
struct Plan {
    orders: Vec<(ShardId, UserId, Mark)>,
    failed: Vec<Failed>,
    /// Releases of numbers that are over and were reserved again (a promise that a recovery gave up, offered once more):
    /// the shard holds their units, so that the release is driven once more too, in the order of the numbers. Where the
    /// entry is only redelivered, the release finds nothing to do.
    owed_again: BTreeMap<(OrderNumber, UserId), Release>,
}

/// A reservation that fails.
struct Failed {
    /// Its place in the batch.
    at: usize,
    reason: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An ordinary refusal: a FAILED row.
    Superseded,
    /// A FAILED row and a dead letter.
    Dead,
    /// The number's row is another user's: a dead letter alone.
    Collision,
    /// Redis holds no unit of it any more: a FAILED row alone.
    Before,
}

pub(super) async fn settle(
    installation: &MySqlInstallation,
    batch: &Batch<'_>,
    rows: Rows,
) -> Result<Round, Failure> {
    let mut transaction = installation.pool.begin().await?;
    let (current, taken, now_ms) = lock_generation_to_settle(&mut transaction).await?;
    if current != batch.generation {
        return Ok(Round::Done(SettleOutcome::Gen(current)));
    }
    let mut known = Known::read(&mut transaction, batch.reservations).await?;
    if batch.is_older_than(taken) {
        known.taken = late::taken(&mut transaction).await?;
    }
    let mut plan = Plan::default();
    let mut settlements: Vec<_> = batch
        .reservations
        .iter()
        .enumerate()
        .map(|(at, one)| known.judge(batch, at, one, now_ms, &mut plan))
        .collect();
    plan.orders.sort_unstable_by_key(|(_, _, mark)| mark.order);
    let written =
        write(&mut transaction, installation, batch, rows, &mut plan, &mut settlements, now_ms).await;
    let Err(failure) = written else {
        let numbers: BTreeSet<u64> = batch.reservations.iter().map(|one| one.mark.order.0).collect();
        let numbers: Vec<_> = numbers.into_iter().collect();
        let unparked = apply_parked(&mut transaction, installation, &numbers, now_ms).await?;
        transaction.commit().await?;
        learn(&mut settlements, &unparked);
        payments::tell(&unparked);
        tell(batch, &settlements);
        return Ok(Round::Done(SettleOutcome::Committed(settlements)));
    };
    undo(transaction).await;
    if failure.is_duplicate() {
        return Ok(Round::Disturbed);
    }
    if failure.is_bad_row() {
        // One by one, only the deduction can still be refused: another writer took the last units.
        return Ok(if rows == Rows::Together { Round::BadRow } else { Round::Disturbed });
    }
    Err(failure)
}

async fn write(
    connection: &mut MySqlConnection,
    installation: &MySqlInstallation,
    batch: &Batch<'_>,
    rows: Rows,
    plan: &mut Plan,
    settlements: &mut [Settlement],
    now_ms: u64,
) -> Result<(), Failure> {
    match rows {
        Rows::Together => insert_orders(connection, &plan.orders, now_ms).await?,
        Rows::OneByOne => insert_one_by_one(connection, batch, plan, settlements, now_ms).await?,
    }
    for release in plan.owed_again.values() {
        releases::owe_again(connection, release, now_ms).await?;
    }
    write_failed(connection, installation, batch, plan, now_ms).await?;
    write_units(connection, plan.orders.iter().map(|(_, _, mark)| mark)).await
}

/// What SQL held of a batch at the look, and what the batch adds to it.
#[derive(Default)]
struct Known {
    numbers: HashMap<OrderNumber, (UserId, Mark)>,
    /// Rows of each user and activity that are in the way of another: whether live, whether of a shard in Redis.
    held: HashMap<(ActivityId, UserId), Vec<(Mark, bool)>>,
    /// Numbers that are over, whatever their rows say.
    ledgered: HashMap<(OrderNumber, UserId), Release>,
    /// Numbers that the batch itself fails.
    failed: HashSet<(OrderNumber, UserId)>,
    available: HashMap<SkuKey, u64>,
    /// The generation of the last takeover of activities that ever were taken over.
    taken: HashMap<ActivityId, Gen>,
}

macro_rules! look {
    ($($name:ident = $columns:literal, $tail:literal;)+) => {
        $(static $name: LazyLock<Shapes> = LazyLock::new(|| Shapes::new($columns, "?", $tail));)+
    };
}

look! {
    ORDERS_BY_NUMBER = "SELECT user, number, activity, sku, quantity, attempt, state, pay_by_ms, source \
        FROM orders WHERE number IN (", ")";
    ORDERS_BY_USER = "SELECT user, number, activity, sku, quantity, attempt, state, pay_by_ms, source \
        FROM orders WHERE user IN (", ") AND activity = ?";
    LEDGER_BY_NUMBER = "SELECT id, shard, user, number, activity, sku, quantity, attempt, state \
        FROM ledger WHERE number IN (", ")";
    AVAILABLE_BY_SKU = "SELECT sku, available FROM sku_stock WHERE sku IN (", ") AND activity = ?";
}

impl Known {
    async fn read(connection: &mut MySqlConnection, batch: &[Reservation]) -> Result<Self, Failure> {
        let mut known = Self::default();
        known.read_numbers(connection, batch).await?;
        known.read_users(connection, batch).await?;
        Ok(known)
    }

    async fn read_numbers(
        &mut self,
        connection: &mut MySqlConnection,
        batch: &[Reservation],
    ) -> Result<(), Failure> {
        let numbers: BTreeSet<u64> = batch.iter().map(|one| one.mark.order.0).collect();
        let numbers: Vec<_> = numbers.into_iter().collect();
        let rows: Vec<SourcedMarkRow> = read(connection, &ORDERS_BY_NUMBER, &numbers, Reading::bind).await?;
        for row in rows {
            let (user, mark, _) = sourced_mark(row)?;
            self.numbers.insert(mark.order, (user, mark));
        }
        let rows: Vec<ReleaseRow> = read(connection, &LEDGER_BY_NUMBER, &numbers, Reading::bind).await?;
        for row in rows {
            let release = releases::release(row)?;
            self.ledgered.insert((release.mark.order, release.user), release);
        }
        Ok(())
    }

    async fn read_users(
        &mut self,
        connection: &mut MySqlConnection,
        batch: &[Reservation],
    ) -> Result<(), Failure> {
        let mut users: BTreeMap<ActivityId, (BTreeSet<u64>, BTreeSet<u16>)> = BTreeMap::new();
        for one in batch {
            let (users, skus) = users.entry(one.mark.sku.activity).or_default();
            users.insert(one.user.0);
            skus.insert(one.mark.sku.sku.0);
        }
        for (activity, (users, skus)) in users {
            let users: Vec<_> = users.into_iter().collect();
            let bind = |query: Reading<SourcedMarkRow>, user| query.bind(user);
            let rows =
                read_with(connection, &ORDERS_BY_USER, &users, bind, |query| query.bind(activity.0)).await?;
            for row in rows {
                let (user, mark, from_redis) = sourced_mark(row)?;
                self.held.entry((activity, user)).or_default().push((mark, from_redis));
            }
            let skus: Vec<_> = skus.into_iter().collect();
            let bind = |query: Reading<(u16, u32)>, sku| query.bind(sku);
            let rows =
                read_with(connection, &AVAILABLE_BY_SKU, &skus, bind, |query| query.bind(activity.0)).await?;
            let stock =
                rows.into_iter().map(|(sku, units)| (SkuKey { activity, sku: SkuId(sku) }, units.into()));
            self.available.extend(stock);
        }
        Ok(())
    }

    /// What becomes of one reservation, after those before it in the batch.
    fn judge(
        &mut self,
        batch: &Batch<'_>,
        at: usize,
        one: &Reservation,
        now_ms: u64,
        plan: &mut Plan,
    ) -> Settlement {
        let (number, user, sku) = (one.mark.order, one.user, one.mark.sku);
        if let Some(release) = self.ledgered.get(&(number, user)) {
            plan.owed_again.insert((number, user), *release);
        }
        match self.numbers.get(&number) {
            Some((owner, mark)) if *owner == user && mark.sku.activity == sku.activity => {
                return Settlement::WasSettled(*mark);
            }
            Some((owner, _)) => {
                let owner = *owner;
                let reason = format!("the number is an order of user {owner}");
                self.fail(plan, at, one, reason, Kind::Collision);
                return Settlement::Collision { owner };
            }
            // Failed before without a row of its own.
            None if self.is_over(number, user) => {
                return Settlement::WasSettled(Mark { state: OrderState::Failed, ..one.mark });
            }
            None => {}
        }
        if let Some(fault) = one.fault() {
            return self.refuse(plan, at, one, fault.to_owned());
        }
        if self.taken.get(&sku.activity).is_some_and(|taken| one.entry.0 < *taken) {
            self.fail(plan, at, one, String::new(), Kind::Before);
            return Settlement::WasSettled(Mark { state: OrderState::Failed, ..one.mark });
        }
        let held = self.held.entry((sku.activity, user)).or_default();
        // The one that stands, rather than an earlier one that is over.
        let in_the_way = held.iter().find(|(mark, _)| mark.state.is_live()).or_else(|| {
            let same = |(mark, from_redis): &&(Mark, bool)| {
                *from_redis && mark.attempt == one.mark.attempt && mark.state != OrderState::Failed
            };
            held.iter().find(same)
        });
        if let Some((already, _)) = in_the_way.copied() {
            self.fail(plan, at, one, format!("superseded by order {}", already.order), Kind::Superseded);
            return Settlement::Superseded { already };
        }
        if !batch.pay_within_ms.contains_key(&sku.activity) {
            return self.refuse(plan, at, one, format!("there is no activity {}", sku.activity));
        }
        let Some(available) = self.available.get_mut(&sku) else {
            return self.refuse(plan, at, one, format!("activity {} has no SKU {}", sku.activity, sku.sku));
        };
        let Some(rest) = available.checked_sub(u64::from(one.mark.quantity)) else {
            let reason = format!("SKU {sku} has only {available} units that are not sold");
            return self.refuse(plan, at, one, reason);
        };
        *available = rest;
        let mark = batch.settled(one, now_ms);
        plan.orders.push((one.shard, user, mark));
        self.numbers.insert(number, (user, mark));
        self.held.entry((sku.activity, user)).or_default().push((mark, true));
        Settlement::of(mark)
    }

    fn is_over(&self, number: OrderNumber, user: UserId) -> bool {
        self.ledgered.contains_key(&(number, user)) || self.failed.contains(&(number, user))
    }

    fn refuse(&mut self, plan: &mut Plan, at: usize, one: &Reservation, reason: String) -> Settlement {
        self.fail(plan, at, one, reason.clone(), Kind::Dead);
        Settlement::Failed { reason }
    }

    fn fail(&mut self, plan: &mut Plan, at: usize, one: &Reservation, reason: String, kind: Kind) {
        self.failed.insert((one.mark.order, one.user));
        plan.failed.push(Failed { at, reason, kind });
    }
}

/// Inserts the good rows alone; one that the database refuses joins the failed.
async fn insert_one_by_one(
    connection: &mut MySqlConnection,
    batch: &Batch<'_>,
    plan: &mut Plan,
    settlements: &mut [Settlement],
    now_ms: u64,
) -> Result<(), Failure> {
    let mut inserted = Vec::with_capacity(plan.orders.len());
    for order in std::mem::take(&mut plan.orders) {
        let refused = match insert_orders(connection, std::slice::from_ref(&order), now_ms).await {
            Ok(()) => {
                inserted.push(order);
                continue;
            }
            Err(error) => Failure::from(error),
        };
        if !refused.is_bad_row() {
            return Err(refused);
        }
        let reason = format!("the database refuses it: {refused}");
        let same = |one: &&Reservation| one.mark.order == order.2.order && one.user == order.1;
        let at = batch.reservations.iter().position(|one| same(&one));
        if let Some(at) = at {
            plan.failed.push(Failed { at, reason: reason.clone(), kind: Kind::Dead });
            // A copy of it in the same batch was judged to be settled by this one, and is not.
            for (one, settlement) in batch.reservations.iter().zip(settlements.iter_mut()) {
                if same(&one) {
                    *settlement = Settlement::Failed { reason: reason.clone() };
                }
            }
        }
    }
    plan.orders = inserted;
    Ok(())
}

/// A FAILED row, its ledger row, and a dead letter or a line of history, for each that failed.
async fn write_failed(
    connection: &mut MySqlConnection,
    installation: &MySqlInstallation,
    batch: &Batch<'_>,
    plan: &Plan,
    now_ms: u64,
) -> Result<(), Failure> {
    for Failed { at, reason, kind } in &plan.failed {
        let Some(one) = batch.reservations.get(*at) else { continue };
        let mark = Mark { state: OrderState::Failed, pay_by_ms: 0, ..one.mark };
        let release = Release { id: 0, shard: one.shard, user: one.user, mark };
        if *kind == Kind::Before {
            late::fail_of_before(connection, installation, (one.user, &one.mark), now_ms).await?;
            continue;
        }
        if *kind != Kind::Collision && one.fits_a_row() {
            releases::insert_failed_order(connection, &release, reason, now_ms).await?;
        }
        releases::insert_ledger(connection, &release, now_ms).await?;
        if *kind != Kind::Superseded {
            super::dead_letters::insert(connection, one, reason, now_ms).await?;
        }
    }
    Ok(())
}

fn tell(batch: &Batch<'_>, settlements: &[Settlement]) {
    for (one, settlement) in batch.reservations.iter().zip(settlements) {
        let (order, user, sku) = (one.mark.order, one.user, one.mark.sku);
        match settlement {
            Settlement::Settled(_) | Settlement::Recorded(_) | Settlement::WasSettled(_) => {}
            Settlement::Superseded { already } => tracing::info!(
                %order, %user, %sku, already = %already.order,
                "an order failed because another one of the user stands; its units go back"
            ),
            Settlement::Collision { owner } => tracing::error!(
                %order, %user, %sku, %owner,
                "two users have the same order number: two processes run under one process number; this order failed"
            ),
            Settlement::Failed { reason } => tracing::error!(
                %order, %user, %sku, shard = one.shard.number(), seq = one.entry.1, reason,
                "a reservation could not be settled: it is a dead letter, the order failed, its units go back"
            ),
        }
    }
}
