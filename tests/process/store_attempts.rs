//! How often a user may ask the store for units, over all gateways together: one user hammers two of them, and gets what
//! he may and nothing more, by his answers, by what Redis has counted, and by the funnel's numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use rushgate::protocol::{OrderNumber, Status};
use rushgate::rehearsal::GatewayCounts;
use rushgate::stock::calls::ShardId;

use super::house::{SKU, Serving};
use super::shop::Shop;
use super::wire::{Client, buy, eventually, request, user};

const COUNT_MAX: usize = 2;
/// Few: each takes a while to make.
const ACTIVITIES: u32 = 3;
/// How often each gateway is asked for each of them.
const ROUNDS: u32 = 10;

/// About an hour, and not over before the test is.
fn long_window_s() -> u64 {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    [3_600, 3_500, 3_400].into_iter().find(|window_s| now_s % window_s < window_s - 90).unwrap()
}

/// What came of BUYs: the activity, the status, the order it names, the hint.
type Answered = (u32, Status, Option<OrderNumber>, u32);

/// All activities in this order, again and again, without waiting for answers.
fn hammer(client: &mut Client, order: &[u32]) -> Vec<Answered> {
    let mut answered = Vec::new();
    for _ in 0..ROUNDS {
        let ids: Vec<(u32, u32)> = order.iter().map(|activity| (client.next_id(), *activity)).collect();
        let bytes: Vec<u8> =
            ids.iter().flat_map(|(id, activity)| request(*id, None, &buy(*activity, SKU, 1))).collect();
        client.write(&bytes);
        for (id, activity) in ids {
            let answer = client.answer_to(id);
            let holds = matches!(answer.status, Status::Queued | Status::Already);
            answered.push((activity, answer.status, holds.then(|| answer.order().number), answer.hint_ms));
        }
    }
    answered
}

fn counts(serving: &Serving) -> GatewayCounts {
    GatewayCounts::from_metrics(&serving.get("/metrics").1).unwrap()
}

fn sum(counts: &[(String, u64)]) -> u64 {
    counts.iter().map(|(_, count)| count).sum()
}

fn named(counts: &[(String, u64)], name: &str) -> u64 {
    counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count).unwrap()
}

/// How many attempts of all users Redis remembers in a shard, by the orders it was let ask for.
fn remembered(shop: &Shop, shard: ShardId, window_s: u64) -> usize {
    let key = shop.key(shard, &format!("attempts:{}", window_s * 1_000));
    let script = "local all, bytes = redis.call('HGETALL', KEYS[1]), 0
                  for i = 1, #all, 2 do if #all[i] == 8 then bytes = bytes + #all[i + 1] end end return bytes / 8";
    shop.redis(&["EVAL", script, "1", &key]).parse().unwrap()
}

/// A user whom nobody else of the test shares a shard with.
fn loner(ids: &[u64]) -> u64 {
    let taken: Vec<ShardId> = ids.iter().map(|id| ShardId::of(user(*id))).collect();
    (100..200).find(|id| !taken.contains(&ShardId::of(user(*id)))).unwrap()
}

#[test]
fn a_user_who_hammers_two_gateways_asks_the_store_exactly_as_often_as_he_may() {
    let shop = Shop::new();
    let window_s = long_window_s();
    let (count, window) = (
        format!("limits.store_attempts_max={COUNT_MAX}"),
        format!("limits.store_attempts_window={window_s}s"),
    );
    // This limit and no other.
    let set = [&count, &window, "limits.per_user.rate_per_s=0", "limits.per_ip.rate_per_s=0"];
    let gateways = [shop.house.serve(&set), shop.house.serve(&set)];
    for activity in 1..=ACTIVITIES {
        let id = activity.to_string();
        let args =
            ["activity", "create", "--id", &id, "--name", "a sale", "--sku", "1:160:999", "--opens", "+3s"];
        shop.house.done(&args);
    }
    shop.drive_loads();
    // Others ask, until every gateway sells everything: each for himself, and no more than he may.
    let mut sent = [0_u64; 2];
    let mut askers = Vec::new();
    for (gateway, sent) in gateways.iter().zip(&mut sent) {
        for activity in 1..=ACTIVITIES {
            let id = 1 + askers.len() as u64;
            askers.push(id);
            let mut client = shop.app(gateway, id);
            eventually("it sells", || {
                *sent += 1;
                client.ask(&buy(activity, SKU, 1)).status == Status::Queued
            });
        }
    }
    let hammerer = loner(&askers);
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, hammerer));
    let there: Vec<u32> = (1..=ACTIVITIES).collect();
    let back: Vec<u32> = there.iter().rev().copied().collect();
    let [one, two] = &mut clients;
    let (by_one, by_two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| hammer(two, &back));
        (hammer(one, &there), other.join().unwrap())
    });
    let all: Vec<Answered> = by_one.into_iter().chain(by_two).collect();

    let queued: BTreeSet<_> = all
        .iter()
        .filter(|(_, status, ..)| *status == Status::Queued)
        .map(|(_, _, order, _)| order)
        .collect();
    assert_eq!(queued.len(), COUNT_MAX, "{all:?}");
    let mut by_activity: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
    for (activity, status, order, hint_ms) in &all {
        let limited = *status == Status::RateLimited;
        assert!(limited || matches!(status, Status::Queued | Status::Already), "{all:?}");
        // Up to a second later, so that not all come back together.
        assert_eq!(limited, (1..=window_s * 1_000 + 1_000).contains(&u64::from(*hint_ms)), "{all:?}");
        assert!(order.is_none() || queued.contains(order), "{all:?}");
        by_activity.entry(*activity).or_default().insert(u16::from(limited));
    }
    // Where he has an order he is told so, always.
    assert!(by_activity.values().all(|limited| limited.len() == 1), "{all:?}");
    assert_eq!(remembered(&shop, ShardId::of(user(hammerer)), window_s), COUNT_MAX);

    // Every BUY is in one line of the funnel.
    let limited = all.iter().filter(|(_, status, ..)| *status == Status::RateLimited).count() as u64;
    let each = u64::from(ACTIVITIES * ROUNDS);
    let counted = gateways.each_ref().map(counts);
    for (counted, sent) in counted.iter().zip(sent) {
        assert_eq!(sum(&counted.rungs), sent + each, "{counted:?}");
        assert_eq!(named(&counted.rungs, "passed"), sum(&counted.passed), "{counted:?}");
    }
    let limited_there: u64 = counted.iter().map(|counted| named(&counted.passed, "rate_attempts")).sum();
    assert_eq!(limited_there, limited);
    // What he was not given is there for others.
    let refused = by_activity.iter().find(|(_, limited)| limited.contains(&1)).map(|(activity, _)| *activity);
    let next = shop.app(&gateways[1], loner(&[hammerer])).ask(&buy(refused.unwrap(), SKU, 1));
    assert_eq!(next.status, Status::Queued);
}
