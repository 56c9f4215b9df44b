#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests"
)]

use proptest::prelude::*;

use super::*;
use crate::stock::calls::SHARDS;

const ACTIVITY: ActivityId = ActivityId(7);
const SKU: SkuKey = SkuKey { activity: ACTIVITY, sku: SkuId(1) };

fn shard(number: usize) -> ShardId {
    ShardId::ALL[number]
}

fn user(of: usize, nth: usize) -> UserId {
    (1..).map(UserId).filter(|user| ShardId::of(*user) == shard(of)).nth(nth).unwrap()
}

fn mark(order: u64, quantity: u16, state: OrderState) -> Mark {
    Mark { order: OrderNumber(order), sku: SKU, quantity, attempt: 1, state, pay_by_ms: 0 }
}

/// One shard of a store that keeps to the rules.
#[derive(Clone, Debug, Default)]
struct Real {
    loaded: i64,
    free: u32,
    out: BTreeMap<ShardId, u64>,
    brought_in: BTreeMap<ShardId, u64>,
    marks: BTreeMap<UserId, Mark>,
}

impl Real {
    fn counters(&self) -> SkuCounters {
        SkuCounters {
            sku: SKU,
            free: self.free,
            out: self.out.iter().map(|(peer, units)| (*peer, *units)).collect(),
            brought_in: self.brought_in.iter().map(|(peer, units)| (*peer, *units)).collect(),
        }
    }

    fn content(&self, number: usize) -> ShardContent {
        let loads = vec![AppliedLoad { id: "first".into(), amounts: vec![(SkuId(1), self.loaded)] }];
        let marks = self.marks.iter().map(|(user, mark)| (*user, *mark)).collect();
        ShardContent {
            epoch: format!("run{number}"),
            activities: vec![ActivityContent {
                id: ACTIVITY,
                phase: ActivityPhase::Live,
                counters: vec![self.counters()],
                loads,
                marks,
            }],
        }
    }
}

fn content_of_shard(merged: &Merged, number: usize) -> &ActivityContent {
    &merged.contents.iter().find(|(id, _)| *id == shard(number)).unwrap().1.activities[0]
}

/// Units free in a content, checked against the formula.
fn free_by_formula(content: &ActivityContent) -> u64 {
    let counters = &content.counters[0];
    let sum = |units: &[(ShardId, u64)]| units.iter().map(|(_, units)| *units as i64).sum::<i64>();
    let loaded: i64 = content.loads.iter().flat_map(|load| &load.amounts).map(|(_, amount)| *amount).sum();
    let held: i64 = content
        .marks
        .iter()
        .filter(|(_, mark)| mark.state.is_live())
        .map(|(_, mark)| i64::from(mark.quantity))
        .sum();
    let free = loaded + sum(&counters.brought_in) - sum(&counters.out) - held;
    assert_eq!(i64::from(counters.free), free, "the formula holds in every content");
    free as u64
}

#[derive(Clone, Debug)]
enum Step {
    Reserve { shard: usize, quantity: u16 },
    Move { from: usize, to: usize, units: u32 },
    Arrive { from: usize, to: usize },
    Release { shard: usize, nth: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let shards = 0..4_usize;
    prop_oneof![
        4 => (shards.clone(), 1..3_u16).prop_map(|(shard, quantity)| Step::Reserve { shard, quantity }),
        3 => (shards.clone(), 1..4_usize, 1..6_u32)
            .prop_map(|(from, by, units)| Step::Move { from, to: (from + by) % 4, units }),
        3 => (shards.clone(), 1..4_usize).prop_map(|(from, by)| Step::Arrive { from, to: (from + by) % 4 }),
        1 => (shards, 0..9_usize).prop_map(|(shard, nth)| Step::Release { shard, nth }),
    ]
}

/// Runs the steps as the scripts would; the shards, each with all its former states, and the ledger.
fn play(steps: &[Step]) -> (Vec<Vec<Real>>, Vec<SqlOrder>) {
    let first = Real { loaded: 8, free: 8, ..Real::default() };
    let mut shards = vec![first; 4];
    let mut histories: Vec<Vec<Real>> = shards.iter().map(|shard| vec![shard.clone()]).collect();
    let mut ledger = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let changed = match *step {
            Step::Reserve { shard: at, quantity } if shards[at].free >= u32::from(quantity) => {
                let buyer = user(at, histories[at].len());
                shards[at].free -= u32::from(quantity);
                shards[at].marks.insert(buyer, mark(number as u64 + 1, quantity, OrderState::Reserved));
                vec![at]
            }
            Step::Move { from, to, units } if shards[from].free > 0 => {
                let units = units.min(shards[from].free);
                shards[from].free -= units;
                *shards[from].out.entry(shard(to)).or_default() += u64::from(units);
                vec![from]
            }
            Step::Arrive { from, to } => {
                let out = shards[from].out.get(&shard(to)).copied().unwrap_or(0);
                let known = shards[to].brought_in.insert(shard(from), out).unwrap_or(0);
                shards[to].free += (out - known) as u32;
                vec![to]
            }
            Step::Release { shard: at, nth } => {
                let live = shards[at].marks.iter().filter(|(_, mark)| mark.state.is_live());
                let Some((buyer, held)) = live.map(|(user, mark)| (*user, *mark)).nth(nth) else { continue };
                let closed = Mark { state: OrderState::Closed, ..held };
                ledger.push(SqlOrder { user: buyer, mark: closed, is_in_ledger: true });
                shards[at].marks.insert(buyer, closed);
                shards[at].free += u32::from(held.quantity);
                vec![at]
            }
            _ => vec![],
        };
        for at in changed {
            histories[at].push(shards[at].clone());
        }
    }
    (histories, ledger)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Shards of any age come back; live gateways know every mark, SQL every release: nothing is lost, and the sum is
    /// what was loaded.
    #[test]
    fn whatever_was_rolled_back_is_put_together_again(
        steps in proptest::collection::vec(step(), 0..60),
        closed in proptest::array::uniform4(any::<bool>()),
        back in proptest::array::uniform4(0..12_usize),
    ) {
        let (histories, ledger) = play(&steps);
        let newest: Vec<&Real> = histories.iter().map(|history| history.last().unwrap()).collect();
        let mut known = Known { orders: ledger, ..Known::default() };
        for number in 0..4 {
            if closed[number] {
                let history = &histories[number];
                let age = back[number].min(history.len() - 1);
                let old = &history[history.len() - 1 - age];
                known.surviving.push((shard(number), old.content(number)));
                known.handed_in.extend(newest[number].marks.iter().map(|(user, mark)| (*user, *mark)));
            } else {
                known.open.push((shard(number), vec![newest[number].counters()]));
            }
        }
        let merged = merge(known);
        prop_assert!(merged.broken.is_empty() && merged.missing_units.is_empty(), "{merged:?}");

        let mut counters: Vec<SkuCounters> = Vec::new();
        let mut sum = 0_u64;
        for number in 0..4 {
            if closed[number] {
                let content = content_of_shard(&merged, number);
                sum += free_by_formula(content);
                let marks: BTreeMap<UserId, Mark> = content.marks.iter().copied().collect();
                prop_assert_eq!(&marks, &newest[number].marks);
                counters.push(content.counters[0].clone());
            } else {
                sum += u64::from(newest[number].free);
                counters.push(newest[number].counters());
            }
            let live = newest[number].marks.values().filter(|mark| mark.state.is_live());
            sum += live.map(|mark| u64::from(mark.quantity)).sum::<u64>();
        }
        let units = |list: &[(ShardId, u64)], peer: usize| {
            list.iter().find(|(id, _)| *id == shard(peer)).map_or(0, |(_, units)| *units)
        };
        for from in 0..4 {
            for to in 0..4 {
                let (out, brought_in) = (units(&counters[from].out, to), units(&counters[to].brought_in, from));
                prop_assert!(out >= brought_in, "{from}→{to}: {out} out, {brought_in} in");
                sum += out - brought_in;
            }
        }
        prop_assert_eq!(sum, 32);
    }
}

fn one_closed(free_of_16: i64, survives: &[(UserId, Mark)]) -> Known {
    let real = Real { loaded: free_of_16, marks: survives.iter().copied().collect(), ..Real::default() };
    Known { surviving: vec![(shard(0), real.content(0))], ..Known::default() }
}

#[test]
fn the_higher_attempt_wins_then_the_state_further_along() {
    let buyer = user(0, 0);
    let mut known = one_closed(9, &[(buyer, mark(5, 1, OrderState::Reserved))]);
    known.handed_in = vec![(buyer, Mark { attempt: 2, ..mark(6, 1, OrderState::Reserved) })];
    let paid = Mark { attempt: 2, ..mark(6, 1, OrderState::Paid) };
    known.orders = vec![SqlOrder { user: buyer, mark: paid, is_in_ledger: false }];
    let merged = merge(known);
    assert_eq!(content_of_shard(&merged, 0).marks, [(buyer, paid)]);
    assert_eq!(free_by_formula(content_of_shard(&merged, 0)), 8);
}

#[test]
fn the_first_order_that_comes_back_live_neither_hides_the_second_nor_holds_its_units() {
    let buyer = user(0, 0);
    let closed = SqlOrder { user: buyer, mark: mark(5, 2, OrderState::Closed), is_in_ledger: true };
    let second = Mark { attempt: 2, ..mark(6, 1, OrderState::PendingPayment) };
    let second = SqlOrder { user: buyer, mark: second, is_in_ledger: false };
    for orders in [vec![closed, second], vec![second, closed]] {
        let mut known = one_closed(9, &[(buyer, mark(5, 2, OrderState::Reserved))]);
        known.orders = orders;
        let merged = merge(known);
        assert_eq!(content_of_shard(&merged, 0).marks, [(buyer, second.mark)]);
        assert_eq!(free_by_formula(content_of_shard(&merged, 0)), 8);
    }
    // The second is closed as well: the third attempt is his next.
    let mut known = one_closed(9, &[(buyer, mark(5, 2, OrderState::Closed))]);
    let over = Mark { state: OrderState::Closed, ..second.mark };
    known.orders = vec![SqlOrder { mark: over, is_in_ledger: true, ..second }, closed];
    let merged = merge(known);
    assert_eq!(content_of_shard(&merged, 0).marks, [(buyer, over)]);
    assert_eq!(free_by_formula(content_of_shard(&merged, 0)), 9);
}

#[test]
fn a_number_in_the_ledger_counts_as_released_whoever_still_holds_it_live() {
    let buyer = user(0, 0);
    let mut known = one_closed(9, &[]);
    known.handed_in = vec![(buyer, mark(5, 2, OrderState::PendingPayment))];
    let settled = mark(5, 2, OrderState::PendingPayment);
    known.orders = vec![SqlOrder { user: buyer, mark: settled, is_in_ledger: true }];
    let merged = merge(known);
    assert!(content_of_shard(&merged, 0).marks.iter().all(|(_, mark)| !mark.state.is_live()));
    assert_eq!(free_by_formula(content_of_shard(&merged, 0)), 9);
}

#[test]
fn a_failed_number_neither_comes_back_nor_hides_the_order_that_stands() {
    let buyer = user(0, 0);
    let failed = SqlOrder { user: buyer, mark: mark(5, 1, OrderState::Failed), is_in_ledger: true };
    for state in [OrderState::Reserved, OrderState::PendingPayment] {
        let stands = mark(6, 2, state);
        let mut known = one_closed(9, &[(buyer, mark(5, 1, OrderState::Reserved))]);
        known.handed_in = vec![(buyer, stands), (buyer, mark(5, 1, OrderState::Reserved))];
        known.orders = vec![failed];
        let merged = merge(known);
        assert_eq!(content_of_shard(&merged, 0).marks, [(buyer, stands)]);
        assert_eq!(free_by_formula(content_of_shard(&merged, 0)), 7);
    }
    let mut known = one_closed(9, &[]);
    known.orders = vec![failed];
    assert!(
        content_of_shard(&merge(known), 0).marks.is_empty(),
        "no mark stands in the way of the next order"
    );
}

#[test]
fn of_two_numbers_of_one_attempt_the_one_that_did_not_fail_stands() {
    let buyer = user(0, 0);
    let failed = SqlOrder { user: buyer, mark: mark(5, 1, OrderState::Failed), is_in_ledger: true };
    for state in [OrderState::Reserved, OrderState::PendingPayment] {
        for (survives, handed_in) in [(5, 6), (6, 5)] {
            let held = |order| mark(order, 1, if order == 5 { OrderState::Reserved } else { state });
            let mut known = one_closed(9, &[(buyer, held(survives))]);
            known.handed_in = vec![(buyer, held(handed_in))];
            known.orders = vec![failed];
            let merged = merge(known);
            assert_eq!(
                content_of_shard(&merged, 0).marks,
                [(buyer, mark(6, 1, state))],
                "{survives} survived"
            );
            assert_eq!(free_by_formula(content_of_shard(&merged, 0)), 8);
        }
    }
}

#[test]
fn an_undone_take_counts_as_the_shard_says_and_a_done_one_as_sql_says() {
    let take = |is_undone_take, amount| SqlLoad {
        shard: shard(0),
        activity: ACTIVITY,
        id: "take".into(),
        amounts: vec![(SkuId(1), amount)],
        is_undone_take,
    };
    let mut known = one_closed(9, &[]);
    known.loads = vec![take(true, -5)];
    assert_eq!(free_by_formula(content_of_shard(&merge(known), 0)), 9, "the shard does not know of it");
    let mut known = one_closed(9, &[]);
    known.loads = vec![take(false, -5)];
    assert_eq!(free_by_formula(content_of_shard(&merge(known), 0)), 4);
}

#[test]
fn an_addition_that_sql_wrote_is_there_though_redis_lost_all() {
    let empty = ShardContent { epoch: "new".into(), activities: Vec::new() };
    let load = |number: usize| SqlLoad {
        shard: shard(number),
        activity: ACTIVITY,
        id: "first".into(),
        amounts: vec![(SkuId(1), 3), (SkuId(2), 0)],
        is_undone_take: false,
    };
    let merged = merge(Known {
        surviving: (0..SHARDS).map(|number| (shard(number), empty.clone())).collect(),
        loads: (0..SHARDS).map(load).collect(),
        ..Known::default()
    });
    for number in 0..SHARDS {
        let counters = &content_of_shard(&merged, number).counters;
        assert_eq!(counters.iter().map(|counters| counters.free).collect::<Vec<_>>(), [3, 0]);
    }
}

#[test]
fn an_archived_activity_leaves_its_tombstone_alone() {
    let mut known = one_closed(9, &[(user(0, 0), mark(5, 1, OrderState::Paid))]);
    known.phases.insert(ACTIVITY, ActivityPhase::Archived);
    let merged = merge(known);
    let content = content_of_shard(&merged, 0);
    assert_eq!(content.phase, ActivityPhase::Archived);
    assert!(content.marks.is_empty() && content.loads.is_empty() && content.counters.is_empty());
}

#[test]
fn a_reservation_that_no_unit_is_left_for_is_named() {
    let (settled, lost) = (
        (user(0, 0), mark(1, 1, OrderState::PendingPayment)),
        (user(0, 1), mark(2, 1, OrderState::Reserved)),
    );
    let mut known = one_closed(1, &[]);
    known.handed_in = vec![lost];
    known.orders = vec![SqlOrder { user: settled.0, mark: settled.1, is_in_ledger: false }];
    let merged = merge(known);
    assert_eq!(merged.broken, [lost]);
    assert_eq!(content_of_shard(&merged, 0).marks, [settled]);
    assert!(merged.missing_units.is_empty());
}
