//! The model's own books: what was true at which instant, and who was told what. All verdicts are made here.

use std::collections::{BTreeMap, BTreeSet};

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuKey, UserId};
use rushgate::stock::Left;
use rushgate::stock::calls::{Mark, SHARDS};

use super::store::{Effect, Store};

/// What held of an SKU from `at_ms` on.
#[derive(Clone, Copy, Debug)]
struct Instant {
    at_ms: u64,
    /// Free or moving, over all shards.
    units: u32,
    free: [u32; SHARDS],
}

#[derive(Debug, Default)]
struct SkuBook {
    instants: Vec<Instant>,
    /// When units came from or went outside.
    supplied_at_ms: Vec<u64>,
}

/// A mark as it came to be.
#[derive(Clone, Copy, Debug)]
struct Born {
    user: UserId,
    mark: Mark,
    at_ms: u64,
    released_at_ms: Option<u64>,
    /// A recovery did not find it.
    lost_at_ms: Option<u64>,
}

impl Born {
    fn is_live(&self) -> bool {
        self.released_at_ms.is_none() && self.lost_at_ms.is_none()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    skus: BTreeMap<SkuKey, SkuBook>,
    born: BTreeMap<OrderNumber, Born>,
    of_user: BTreeMap<(ActivityId, UserId), Vec<OrderNumber>>,
    /// Orders of which somebody was told that they do not exist and never will.
    refused: BTreeMap<OrderNumber, String>,
    /// Orders of which somebody was told that they are his, and by which process.
    pub(crate) promised: BTreeMap<OrderNumber, u32>,
    /// Orders that a recovery may have lost: whoever knew them took no part in it.
    pub(crate) may_be_lost: BTreeSet<OrderNumber>,
    /// Explicit FAILED orders.
    pub(crate) failed: BTreeMap<OrderNumber, UserId>,
    pub(crate) moves: u64,
    pub(crate) units_moved: u64,
    pub(crate) reserved: u64,
    /// Of these, by users whose order was closed.
    pub(crate) again: u64,
    /// How often a user may buy again.
    again_max: u8,
}

fn order_rank(state: OrderState) -> u8 {
    match state {
        OrderState::Reserved => 0,
        OrderState::Recorded => 1,
        OrderState::PendingPayment => 2,
        OrderState::Paid => 3,
        OrderState::Closed | OrderState::Failed => 4,
        OrderState::RefundDue => 5,
    }
}

impl Ledger {
    pub(crate) fn new(again_max: u8) -> Self {
        Self { again_max, ..Self::default() }
    }

    /// Enters what the store did since the last time.
    pub(crate) fn enter(&mut self, now_ms: u64, store: &mut Store) {
        let mut touched = BTreeSet::new();
        for effect in std::mem::take(&mut store.effects) {
            match effect {
                Effect::Reserved { user, mark } => {
                    self.enter_reserved(now_ms, user, mark);
                    touched.insert(mark.sku);
                }
                Effect::Released { mark } => {
                    self.born.get_mut(&mark.order).unwrap().released_at_ms = Some(now_ms);
                }
                Effect::Supplied { sku } => {
                    self.skus.entry(sku).or_default().supplied_at_ms.push(now_ms);
                    touched.insert(sku);
                }
                Effect::MovedOut { sku, units } => {
                    self.moves += 1;
                    self.units_moved += units;
                    touched.insert(sku);
                }
                Effect::BroughtIn { sku } => {
                    touched.insert(sku);
                }
            }
        }
        for sku in touched {
            self.note(now_ms, store, sku);
        }
    }

    fn enter_reserved(&mut self, now_ms: u64, user: UserId, mark: Mark) {
        if let Some(told) = self.refused.get(&mark.order) {
            panic!("order {} of user {user} is reserved after its user was told {told}", mark.order);
        }
        let orders = self.of_user.entry((mark.sku.activity, user)).or_default();
        let live = orders.iter().filter(|order| self.born[order].is_live()).count();
        assert_eq!(live, 0, "user {user} holds {orders:?} and gets {}", mark.order);
        assert!(!self.failed.contains_key(&mark.order), "order {} is reserved, but FAILED", mark.order);
        let born = Born { user, mark, at_ms: now_ms, released_at_ms: None, lost_at_ms: None };
        let before = self.born.insert(mark.order, born);
        assert!(before.is_none_or(|before| before.lost_at_ms.is_some()), "{} is reserved twice", mark.order);
        if before.is_none() {
            orders.push(mark.order);
        }
        assert!(mark.attempt <= self.again_max + 1, "nobody buys so often: {mark:?} of user {user}");
        self.reserved += 1;
        self.again += u64::from(mark.attempt > 1);
    }

    /// Writes down what holds of an SKU, and checks that no unit came from nowhere or was lost.
    pub(crate) fn note(&mut self, now_ms: u64, store: &Store, sku: SkuKey) {
        let mut free = [0; SHARDS];
        let mut loaded = 0;
        for shard in store.visible() {
            if let Some(stock) = shard.stock.get(&sku) {
                free[shard.id.index()] = stock.free;
                loaded += stock.loaded;
            }
        }
        let units = free.iter().sum::<u32>() + u32::try_from(store.moving(sku)).unwrap();
        let live = store
            .visible()
            .flat_map(|shard| shard.marks.values())
            .filter(|mark| mark.sku == sku && mark.state.is_live())
            .map(|mark| i64::from(mark.quantity))
            .sum::<i64>();
        assert_eq!(loaded, i64::from(units) + live, "{sku}: loaded = free + moving + live marks");
        self.skus.entry(sku).or_default().instants.push(Instant { at_ms: now_ms, units, free });
    }

    /// Instants that held at some time from `from_ms` to now, newest first.
    fn since(&self, sku: SkuKey, from_ms: u64) -> impl Iterator<Item = &Instant> {
        let instants = self.skus.get(&sku).map_or(&[][..], |book| &book.instants[..]);
        let mut before = false;
        instants.iter().rev().take_while(move |instant| {
            let held = !before;
            before |= instant.at_ms < from_ms;
            held
        })
    }

    fn supplied_since(&self, sku: SkuKey, from_ms: u64) -> bool {
        let book = self.skus.get(&sku);
        book.is_some_and(|book| book.supplied_at_ms.last().is_some_and(|at_ms| *at_ms >= from_ms))
    }

    /// Whether "`left` units are left, none moving" may be said of an SKU.
    ///
    /// Without a load, a taking or a release since `from_ms` the sum over 16 sub-keys, each as it was at an instant
    /// of its own, lies between the true sums at the first and at the last of these instants; zero is then the
    /// true sum at the last. With one, each sub-key must have been as said at some instant.
    pub(crate) fn check_left(&self, from_ms: u64, sku: SkuKey, left: u32, who: &str) {
        let (mut least, mut most) = (u32::MAX, 0);
        let (mut least_free, mut most_free) = ([u32::MAX; SHARDS], [0; SHARDS]);
        for instant in self.since(sku, from_ms) {
            least = least.min(instant.units);
            most = most.max(instant.units);
            for shard in 0..SHARDS {
                least_free[shard] = least_free[shard].min(instant.free[shard]);
                most_free[shard] = most_free[shard].max(instant.free[shard]);
            }
        }
        if self.supplied_since(sku, from_ms) {
            least = least_free.iter().copied().fold(0, u32::saturating_add);
            most = most_free.iter().sum();
        }
        let told: Vec<_> = self.since(sku, from_ms).collect();
        assert!(
            (least..=most).contains(&left),
            "{who}: {sku} has {left} left, said since {from_ms}, but it was {least} to {most}: {told:?}"
        );
    }

    /// Whether `SOLD_OUT` may be told to a user: there was an instant when nothing was left, and he held nothing of
    /// this SKU then. What he holds of another SKU of the activity must not be older than the view.
    pub(crate) fn check_sold_out(&self, from_ms: u64, sku: SkuKey, user: UserId, who: &str) {
        self.check_left(from_ms, sku, 0, who);
        let supplied = self.supplied_since(sku, from_ms);
        let mut next_ms = u64::MAX;
        let fits = self.since(sku, from_ms).any(|instant| {
            let until_ms = next_ms;
            next_ms = instant.at_ms;
            let empty = instant.units == 0 || supplied;
            empty
                && !self.held_throughout(
                    Some(sku),
                    (sku.activity, user),
                    instant.at_ms.max(from_ms),
                    until_ms,
                )
        });
        let held = self.held_throughout(None, (sku.activity, user), from_ms, u64::MAX);
        assert!(
            fits && !held,
            "{who}: SOLD_OUT of {sku} told to user {user}, who held a unit whenever it was true"
        );
    }

    fn held_throughout(
        &self,
        sku: Option<SkuKey>,
        buyer: (ActivityId, UserId),
        from_ms: u64,
        until_ms: u64,
    ) -> bool {
        let orders = self.of_user.get(&buyer).map_or(&[][..], |orders| &orders[..]);
        orders.iter().map(|order| &self.born[order]).any(|born| {
            sku.is_none_or(|sku| born.mark.sku == sku)
                && born.at_ms <= from_ms
                && born.released_at_ms.is_none_or(|released_ms| released_ms >= until_ms)
                && born.lost_at_ms.is_none_or(|lost_ms| lost_ms >= until_ms)
        })
    }

    /// An order number of which its user was told that it came to nothing. Where he may buy again it may have been
    /// closed, and another be his by now: that one is told of.
    pub(crate) fn refuse(&mut self, order: OrderNumber, told: String) {
        let stands = |born: &&Born| {
            born.lost_at_ms.is_none() && (self.again_max == 0 || born.released_at_ms.is_none())
        };
        if let Some(born) = self.born.get(&order).filter(stands) {
            panic!("order {order} is reserved ({born:?}), and its user is told {told}");
        }
        self.refused.entry(order).or_insert(told);
    }

    /// A mark that a client is shown must be one that the store made, and not further on than the store's.
    pub(crate) fn check_mark(&self, store: &Store, user: UserId, mark: &Mark, who: &str) {
        let Some(born) = self.born.get(&mark.order) else { panic!("{who}: {mark:?} was never reserved") };
        let same = (born.user, born.mark.sku, born.mark.quantity, born.mark.attempt);
        assert_eq!(same, (user, mark.sku, mark.quantity, mark.attempt), "{who}: {mark:?} against {born:?}");
        if born.lost_at_ms.is_some() {
            // Known here only: it is offered again, or has failed.
            let failed = self.failed.contains_key(&mark.order);
            assert!(mark.state == OrderState::Reserved || failed, "{who}: {mark:?} is lost");
            return;
        }
        let shard = store.visible().nth(rushgate::stock::calls::ShardId::of(user).index()).unwrap();
        let held = shard.marks[&(mark.sku.activity, user)];
        if held.order == mark.order {
            assert!(order_rank(mark.state) <= order_rank(held.state), "{who}: {mark:?} is ahead of {held:?}");
        } else {
            assert!(held.attempt > mark.attempt, "{who}: {mark:?}, but the store has {held:?}");
        }
    }

    pub(crate) fn units(&self, sku: SkuKey) -> u32 {
        self.since(sku, u64::MAX).next().map_or(0, |instant| instant.units)
    }

    /// What a board says against the books.
    pub(crate) fn check_board(&self, from_ms: u64, sku: SkuKey, left: Left, who: &str) {
        if let Left::Exactly(left) = left {
            self.check_left(from_ms, sku, left, who);
        }
    }

    /// A recovery has decided what the closed shards hold: whoever is not in it holds nothing any more.
    pub(crate) fn reconcile(&mut self, now_ms: u64, store: &Store, skus: &[SkuKey]) -> Vec<(UserId, Mark)> {
        let mut lost = Vec::new();
        for born in self.born.values_mut() {
            let shard = store.visible().nth(rushgate::stock::calls::ShardId::of(born.user).index()).unwrap();
            let held = shard.marks.get(&(born.mark.sku.activity, born.user));
            match held.filter(|held| held.order == born.mark.order) {
                Some(held) => {
                    let released = !held.state.is_live();
                    assert_eq!(released, born.released_at_ms.is_some(), "{held:?} against {born:?}");
                    born.lost_at_ms = None;
                }
                // He has bought again since.
                None if held.is_some_and(|held| held.attempt > born.mark.attempt) => {
                    assert!(!born.is_live(), "{held:?} stands beside {born:?}");
                }
                None if born.lost_at_ms.is_none() => {
                    assert!(born.released_at_ms.is_none(), "a recovery forgot that {born:?} was released");
                    born.lost_at_ms = Some(now_ms);
                    lost.push((born.user, born.mark));
                }
                None => {}
            }
        }
        for shard in store.visible() {
            for (buyer, mark) in &shard.marks {
                assert!(self.born.contains_key(&mark.order), "{mark:?} of {buyer:?} comes from nowhere");
                assert!(!self.failed.contains_key(&mark.order), "{mark:?} of {buyer:?} has failed");
            }
        }
        for sku in skus {
            self.skus.entry(*sku).or_default().supplied_at_ms.push(now_ms);
            self.note(now_ms, store, *sku);
        }
        lost
    }

    /// A promise ends in a FAILED order.
    pub(crate) fn fail(&mut self, order: OrderNumber, user: UserId) {
        let born = &self.born[&order];
        assert!(born.lost_at_ms.is_some(), "FAILED, but it stands: {born:?}");
        assert!(self.may_be_lost.contains(&order), "FAILED, though its gateway was never silent: {born:?}");
        self.failed.insert(order, user);
    }

    /// Every promise: in the store, or an explicit FAILED order, or made by a process that crashed.
    pub(crate) fn check_promises(&self, crashed: impl Fn(u32) -> bool) {
        for (order, process) in &self.promised {
            let born = &self.born[order];
            let failed = self.failed.contains_key(order);
            if born.lost_at_ms.is_some() {
                let excused = crashed(*process) && self.may_be_lost.contains(order);
                assert!(failed || excused, "a promise was forgotten: {born:?}");
            } else {
                assert!(!failed, "FAILED, but it stands: {born:?}");
            }
        }
    }
}
