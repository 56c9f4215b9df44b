//! The contract, one sentence per test.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rushgate::protocol::{OrderState, SkuId, SkuKey};
use rushgate::stock::calls::{
    BringIn, CallBody, Change, Gen, Item, ItemAnswer, Reply, SHARDS, ShardId, SkuCounters,
};
use rushgate::store::{FeedRead, ReservationStore};

use crate::installation::{ACTIVITY, Installation, Process, out_of, shard, sku, user_of, users_of};
use crate::replay::Replay;

async fn with_stock<I: Installation>(units: u32) -> (I, Process<I::Store>) {
    let installation = I::create().await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), units)]).await;
    let process = Process::start(installation.store()).await;
    (installation, process)
}

/// Free units of an SKU in each shard.
async fn free<I: Installation>(installation: &I, sku: SkuKey) -> [u32; SHARDS] {
    let mut free = [0; SHARDS];
    for shard in ShardId::all() {
        let snapshot = installation.store().snapshot(shard).await.unwrap();
        let counters = snapshot.counters.iter().find(|counters| counters.sku == sku);
        free[shard.index()] = counters.map_or(0, |counters| counters.free);
    }
    free
}

async fn numbers<I: Installation>(installation: &I) -> Vec<u64> {
    let mut numbers: Vec<_> =
        installation.orders(ACTIVITY).await.iter().map(|order| order.number.0).collect();
    numbers.sort_unstable();
    numbers
}

pub async fn exactly_n_of_n_sell<I: Installation>() {
    const STOCK: u32 = 100;
    let (installation, mut process) = with_stock::<I>(STOCK).await;
    let mut sold = 0;
    // All demand is in one shard, so that every unit has to travel there.
    let home = shard(3);
    let mut buyers = users_of(home);
    for source in ShardId::all() {
        let mut announced = Vec::new();
        if source != home {
            let moved = process.move_out(source, sku(1), home, STOCK).await;
            let out = out_of(&moved, home);
            announced.push(BringIn { sku: sku(1), source, out });
        }
        let items = buyers.by_ref().take(10).map(|user| process.item(user, sku(1), 1)).collect();
        let call = process.call(home, CallBody::Reserve { bring_in: announced, items });
        let done = process.done(&call).await;
        sold += done.answers.iter().filter(|answer| **answer == ItemAnswer::Reserved).count();
    }
    assert_eq!(sold, STOCK as usize);
    let next = buyers.next().unwrap();
    assert_eq!(process.buy(next, sku(1), 1).await, ItemAnswer::EmptyHere);
    assert_eq!(numbers(&installation).await.len(), STOCK as usize);
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.total, figures.free, figures.in_transit, figures.sold), (100, 0, 0, 100));
}

pub async fn items_of_one_batch_see_each_other<I: Installation>() {
    // 16 units: one per shard.
    let (installation, mut process) = with_stock::<I>(48).await;
    let home = shard(5);
    let (a, b, c) = (user_of(home, 0), user_of(home, 1), user_of(home, 2));
    let first = process.item(a, sku(1), 1);
    let items = vec![
        first,
        process.item(a, sku(1), 1),
        process.item(b, sku(1), 3),
        process.item(b, sku(1), 2),
        process.item(c, sku(1), 1),
    ];
    let call = process.reserve(home, items);
    let done = process.done(&call).await;
    let ItemAnswer::Already(mark) = done.answers[1] else { panic!("{done:?}") };
    assert_eq!((mark.order, mark.quantity, mark.attempt), (first.order, 1, 1));
    assert_eq!(done.answers[0], ItemAnswer::Reserved);
    assert_eq!(done.answers[2], ItemAnswer::EmptyHere, "one of three units is gone");
    assert_eq!(done.answers[3], ItemAnswer::Reserved, "two are left, and b holds none yet");
    assert_eq!(done.answers[4], ItemAnswer::EmptyHere);
    assert_eq!(done.counters[0].free, 0);
    installation.figures(sku(1)).await.assert_conserved();
}

pub async fn a_duplicate_leaves_the_stock_untouched<I: Installation>() {
    let installation = I::create().await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 160), (SkuId(2), 160)]).await;
    let mut process = Process::start(installation.store()).await;
    let mut other = Process::start(installation.store()).await;
    let user = user_of(shard(0), 0);
    let item = process.item(user, sku(1), 2);
    let call = process.reserve(shard(0), vec![item]);
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
    let before = free(&installation, sku(1)).await;

    // The same order under another call number is the same order; from another process, or for another SKU
    // of the activity, it is one too many.
    let again = process.reserve(shard(0), vec![item]);
    let again = process.done(&again).await;
    assert_eq!(again.answers, [ItemAnswer::Reserved]);
    for wanted in [sku(1), sku(2)] {
        let ItemAnswer::Already(mark) = other.buy(user, wanted, 1).await else { panic!("bought twice") };
        assert_eq!((mark.order, mark.sku, mark.quantity), (item.order, sku(1), 2));
        assert!(mark.state.is_live());
    }
    assert_eq!(free(&installation, sku(1)).await, before);
    assert_eq!(free(&installation, sku(2)).await, [10; SHARDS]);
    assert_eq!(numbers(&installation).await, [item.order.0]);
    let snapshot = installation.store().snapshot(shard(0)).await.unwrap();
    assert_eq!(snapshot.seq, again.seq, "nothing of it was an event");
}

pub async fn many_of_one_batch_of_whom_one_holds_an_order<I: Installation>() {
    let installation = I::create().await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 1600), (SkuId(2), 1600)]).await;
    let mut process = Process::start(installation.store()).await;
    let home = shard(3);
    assert_eq!(process.buy(user_of(home, 7), sku(2), 1).await, ItemAnswer::Reserved);
    // Many of a kind and few of another, with more than enough for all.
    let kind = |nth: usize| if nth % 13 == 1 { (sku(2), 2) } else { (sku(1), 1) };
    let items: Vec<_> = (0..40)
        .map(|nth| {
            let (sku, quantity) = kind(nth);
            process.item(user_of(home, nth), sku, quantity)
        })
        .collect();
    let call = process.reserve(home, items.clone());
    let done = process.done(&call).await;
    for (nth, answer) in done.answers.iter().enumerate() {
        let is_holder = nth == 7;
        assert_eq!(matches!(answer, ItemAnswer::Already(mark) if mark.sku == sku(2)), is_holder, "{nth}");
        assert_eq!(*answer == ItemAnswer::Reserved, !is_holder, "{nth}: {answer:?}");
    }
    let snapshot = installation.store().snapshot(home).await.unwrap();
    assert_eq!(snapshot.marks.len(), 40);
    for item in items.iter().filter(|item| item.user != user_of(home, 7)) {
        let (_, mark) = snapshot.marks.iter().find(|(user, _)| *user == item.user).unwrap();
        assert_eq!((mark.order, mark.sku, mark.quantity), (item.order, item.sku, item.quantity));
    }
    for sku in [sku(1), sku(2)] {
        installation.figures(sku).await.assert_conserved();
    }
}

pub async fn a_closed_order_admits_the_next_attempt_alone<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(16).await;
    let user = user_of(shard(9), 0);
    let item = process.item(user, sku(1), 1);
    let call = process.reserve(shard(9), vec![item]);
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
    installation.close_order(item.order).await;
    let mut second = process.item(user, sku(1), 1);
    for attempt in [0, 1, 3, 255] {
        second.attempt = attempt;
        let call = process.reserve(shard(9), vec![second, item]);
        assert_eq!(process.done(&call).await.answers, [ItemAnswer::NotAgain, ItemAnswer::NotAgain]);
    }
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.free, figures.sold), (16, 0));
    let snapshot = installation.store().snapshot(shard(9)).await.unwrap();
    assert!(matches!(snapshot.marks.as_slice(), [(_, mark)] if mark.state == OrderState::Closed));
    // Of the next attempt one wins, in one call and in later ones; what comes of an earlier attempt changes nothing.
    second.attempt = 2;
    let third = Item { attempt: 2, ..process.item(user, sku(1), 1) };
    let call = process.reserve(shard(9), vec![second, third, item]);
    let answers = process.done(&call).await.answers;
    let stands = |answer: &ItemAnswer| matches!(answer, ItemAnswer::Already(mark) if (mark.order, mark.attempt) == (second.order, 2));
    assert!(answers[0] == ItemAnswer::Reserved && answers[1..].iter().all(stands), "{answers:?}");
    for _ in 0..2 {
        installation.close_again(user, item.order).await;
        let figures = installation.figures(sku(1)).await;
        assert_eq!((figures.free, figures.sold), (15, 1));
        let snapshot = installation.store().snapshot(shard(9)).await.unwrap();
        let [(_, mark)] = snapshot.marks.as_slice() else { panic!("{:?}", snapshot.marks) };
        assert_eq!((mark.order, mark.attempt, mark.state.is_live()), (second.order, 2, true));
    }
    installation.close_order(second.order).await;
    for (attempt, answer) in [(2, ItemAnswer::NotAgain), (3, ItemAnswer::Reserved)] {
        let call = process.reserve(shard(9), vec![Item { attempt, ..third }]);
        assert_eq!(process.done(&call).await.answers, [answer]);
    }
    installation.figures(sku(1)).await.assert_conserved();
    assert_eq!(numbers(&installation).await, [third.order.0]);
}

pub async fn the_same_number_gives_the_same_reply_and_does_nothing_twice<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(1600).await;
    let home = shard(2);
    let items = (0..64).map(|nth| process.item(user_of(home, nth), sku(1), 1)).collect();
    let call = process.reserve(home, items);
    let first = process.reply(&call).await;
    assert_eq!(process.reply(&call).await, first);
    let moving = process.call(home, CallBody::MoveOut { sku: sku(1), target: shard(3), want: 5 });
    let moved = process.reply(&moving).await;
    assert_eq!(process.reply(&moving).await, moved);
    let refused = process.item(user_of(home, 100), sku(9), 1);
    let refused = process.reserve(home, vec![refused]);
    let refusal = process.reply(&refused).await;
    installation.add_stock(sku(1), 160).await;
    assert_eq!(process.reply(&refused).await, refusal, "a refusal is stored like any other reply");
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.sold, figures.in_transit), (64, 5));
    figures.assert_conserved();
}

pub async fn concurrent_copies_of_a_call_execute_once<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    let home = shard(4);
    for round in 0..20 {
        let moving = CallBody::MoveOut { sku: sku(1), target: shard(5), want: 1 };
        let item = process.item(user_of(home, round), sku(1), 1);
        let body = match round % 2 {
            0 => moving,
            _ => CallBody::Reserve { bring_in: Vec::new(), items: vec![item] },
        };
        let call = process.call(home, body);
        let copies: Vec<_> = (0..8)
            .map(|_| {
                let (store, call) = (installation.store(), call.clone());
                tokio::spawn(async move { store.call(&call).await.unwrap() })
            })
            .collect();
        let reply = process.reply(&call).await;
        for copy in copies {
            assert_eq!(copy.await.unwrap(), reply);
        }
    }
    let figures = installation.figures(sku(1)).await;
    assert_eq!(figures.free, 160 - 10, "ten units left the shard or were sold, then it was empty");
    figures.assert_conserved();
}

pub async fn a_stored_reply_outlives_a_restart<I: Installation>() {
    let (mut installation, mut process) = with_stock::<I>(160).await;
    let item = process.item(user_of(shard(1), 0), sku(1), 1);
    let call = process.reserve(shard(1), vec![item]);
    let reply = process.reply(&call).await;
    let old = process.generation;
    let user = user_of(shard(1), 1);
    let item = process.item(user, sku(1), 1);
    let next = process.reserve(shard(1), vec![item]);
    installation.reopen().await;
    let store = installation.store();
    assert_eq!(store.call(&call).await.unwrap(), reply, "whatever its generation");
    let Reply::Gen(current) = store.call(&next).await.unwrap() else {
        panic!("an old generation was served")
    };
    assert!(current > old);
    assert_eq!(store.call(&call).await.unwrap(), Reply::Stale, "the refusal used a later number up");
    assert_eq!(numbers(&installation).await.len(), 1);
    let snapshot = store.snapshot(shard(1)).await.unwrap();
    assert_eq!((snapshot.generation, snapshot.marks.len()), (current, 1), "nothing was lost either");
}

pub async fn a_late_copy_of_a_lower_number_is_stale<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    let home = shard(6);
    let early = process.call(home, CallBody::MoveOut { sku: sku(1), target: shard(7), want: 1 });
    let late = process.call(home, CallBody::MoveOut { sku: sku(1), target: shard(7), want: 2 });
    process.done(&late).await;
    assert_eq!(process.reply(&early).await, Reply::Stale);
    // Numbers of other shards and other processes are their own.
    let elsewhere = process.call(shard(8), CallBody::MoveOut { sku: sku(1), target: home, want: 1 });
    process.done(&elsewhere).await;
    let mut other = Process::start(installation.store()).await;
    other.move_out(home, sku(1), shard(7), 1).await;
    let figures = installation.figures(sku(1)).await;
    assert_eq!(figures.in_transit, 4);
    figures.assert_conserved();
}

pub async fn an_old_generation_is_refused_and_its_number_used_up<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    let user = user_of(shard(0), 0);
    let item = process.item(user, sku(1), 1);
    let mut call = process.reserve(shard(0), vec![item]);
    let current = process.generation;
    for wrong in [Gen(current.0 - 1), Gen(current.0 + 1)] {
        call.number += 1;
        call.generation = wrong;
        assert_eq!(process.reply(&call).await, Reply::Gen(current));
        assert_eq!(process.reply(&call).await, Reply::Gen(current));
        call.generation = current;
        assert_eq!(process.reply(&call).await, Reply::Gen(current), "the number is used up");
    }
    assert_eq!(numbers(&installation).await, [0_u64; 0]);
    call.number += 1;
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
}

pub async fn moves_conserve_units_and_repeat_harmlessly<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    let (from, to) = (shard(10), shard(11));
    let moved = process.move_out(from, sku(1), to, 4).await;
    assert_eq!((moved.counters[0].free, out_of(&moved, to)), (6, 4));
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.free, figures.in_transit), (156, 4));
    let announced = BringIn { sku: sku(1), source: from, out: 4 };
    let arrived = process.bring_in(to, vec![announced]).await;
    assert_eq!((arrived.counters[0].free, arrived.counters[0].brought_in[0]), (14, (from, 4)));

    // Repeated by anybody, under any number, with old news too: nothing more comes.
    let mut other = Process::start(installation.store()).await;
    for out in [4, 2, 0, 4] {
        let again = other.bring_in(to, vec![BringIn { out, ..announced }, announced]).await;
        assert_eq!((again.counters[0].free, again.seq), (14, arrived.seq));
    }
    // More is wanted than is free: what is free goes.
    let rest = process.move_out(from, sku(1), to, 100).await;
    assert_eq!((rest.counters[0].free, out_of(&rest, to)), (0, 10));
    let nothing = process.move_out(from, sku(1), to, 100).await;
    assert_eq!((nothing.seq, out_of(&nothing, to)), (rest.seq, 10));
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.free, figures.in_transit), (154, 6));
}

pub async fn announcements_may_come_in_any_order<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    let to = shard(0);
    let mut announced = Vec::new();
    for (source, want) in [(1, 2), (2, 3), (1, 4), (2, 1)] {
        let moved = process.move_out(shard(source), sku(1), to, want).await;
        announced.push(BringIn { sku: sku(1), source: shard(source), out: out_of(&moved, to) });
    }
    announced.reverse();
    let user = user_of(to, 0);
    let item = process.item(user, sku(1), 20);
    let call = process.call(to, CallBody::Reserve { bring_in: announced, items: vec![item] });
    let done = process.done(&call).await;
    assert_eq!(done.answers, [ItemAnswer::Reserved], "what was brought in is sold by the same call");
    assert_eq!(done.counters[0].free, 0);
    assert_eq!(done.counters[0].brought_in, [(shard(1), 6), (shard(2), 4)]);
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.in_transit, figures.sold), (0, 20));
    figures.assert_conserved();
}

pub async fn an_excess_announcement_creates_no_unit<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    process.move_out(shard(1), sku(1), shard(2), 3).await;
    let excess = |source| BringIn { sku: sku(1), source, out: 1_000_000 };
    let done = process.bring_in(shard(2), vec![excess(shard(1)), excess(shard(3)), excess(shard(2))]).await;
    assert_eq!(done.counters[0].free, 13, "only what was really moved out");
    installation.figures(sku(1)).await.assert_conserved();
}

pub async fn empty_here_concerns_one_item_and_one_shard<I: Installation>() {
    let installation = I::create().await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 16), (SkuId(2), 16)]).await;
    let mut process = Process::start(installation.store()).await;
    let home = shard(12);
    let items = [(0, 1, 2), (1, 2, 1), (2, 1, 1), (3, 1, 1), (4, 2, 1)]
        .map(|(nth, id, quantity)| process.item(user_of(home, nth), sku(id), quantity));
    let call = process.reserve(home, items.to_vec());
    let (empty, reserved) = (ItemAnswer::EmptyHere, ItemAnswer::Reserved);
    assert_eq!(process.done(&call).await.answers, [empty, reserved, reserved, empty, empty]);
    let elsewhere = user_of(shard(13), 0);
    assert_eq!(process.buy(elsewhere, sku(1), 1).await, reserved);
}

pub async fn what_was_never_loaded_is_not_loaded<I: Installation>() {
    // Fewer units than shards: loaded everywhere all the same, with nothing in most.
    let (installation, mut process) = with_stock::<I>(1).await;
    let home = shard(0);
    let mut nobody = sku(1);
    nobody.activity.0 += 1;
    let items = vec![process.item(user_of(home, 0), sku(2), 1), process.item(user_of(home, 1), nobody, 1)];
    let call = process.reserve(home, items);
    let done = process.done(&call).await;
    assert_eq!(done.answers, [ItemAnswer::NotLoaded, ItemAnswer::NotLoaded]);
    assert_eq!(done.counters, Vec::<SkuCounters>::new());
    let moved = process.move_out(home, nobody, shard(1), 1).await;
    assert_eq!((moved.seq, moved.counters.len()), (done.seq, 0));
    let mut sold = 0;
    for shard in ShardId::all() {
        match process.buy(user_of(shard, 0), sku(1), 1).await {
            ItemAnswer::Reserved => sold += 1,
            answer => assert_eq!(answer, ItemAnswer::EmptyHere),
        }
    }
    assert_eq!(sold, 1);
    assert_eq!(numbers(&installation).await.len(), 1);
}

pub async fn an_item_of_another_shard_is_refused<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    let (stranger, at_home) = (user_of(shard(1), 0), user_of(shard(2), 0));
    let items = vec![process.item(stranger, sku(1), 1), process.item(at_home, sku(1), 1)];
    let call = process.reserve(shard(2), items);
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::NotLoaded, ItemAnswer::Reserved]);
    assert_eq!(numbers(&installation).await.len(), 1);
    installation.figures(sku(1)).await.assert_conserved();
}

pub async fn every_change_is_one_event_and_nothing_else_is<I: Installation>() {
    let installation = I::create().await;
    let mut process = Process::start(installation.store()).await;
    let mut replay = Replay::from_start(process.generation);
    let store = installation.store();
    installation.create_activity(ACTIVITY, &[(SkuId(1), 160)]).await;
    replay.catch_up(&*store).await;
    assert!(replay.events.iter().all(|(_, event)| event.change == Change::Loaded));
    assert_eq!(replay.events.iter().map(|(shard, _)| *shard).collect::<BTreeSet<_>>().len(), SHARDS);

    let home = shard(3);
    let (a, b) = (user_of(home, 0), user_of(home, 1));
    let (first, second) = (process.item(a, sku(1), 1), process.item(b, sku(1), 2));
    let sold = process.reserve(home, vec![first, second]);
    let sold = process.done(&sold).await;
    replay.catch_up(&*store).await;
    let (at, event) = replay.events.last().unwrap().clone();
    assert_eq!((at, event.seq, &event.counters), (home, sold.seq, &sold.counters));
    let Change::Marked(marks) = event.change else { panic!("{event:?}") };
    assert_eq!(
        marks.iter().map(|(user, mark)| (*user, mark.order)).collect::<Vec<_>>(),
        [(a, first.order), (b, second.order),]
    );

    let moved = process.move_out(home, sku(1), shard(4), 2).await;
    let arrived = process.bring_in(shard(4), vec![BringIn { sku: sku(1), source: home, out: 2 }]).await;
    replay.catch_up(&*store).await;
    let [.., out, into] = replay.events.as_slice() else { panic!("two events") };
    assert_eq!((out.0, out.1.seq, &out.1.counters), (home, moved.seq, &moved.counters));
    assert_eq!((into.0, into.1.seq, &into.1.counters), (shard(4), arrived.seq, &arrived.counters));
    assert_eq!((&out.1.change, &into.1.change), (&Change::Moved, &Change::Moved));

    let events = replay.events.len();
    let call = process.reserve(home, vec![first, second]);
    assert_eq!(process.done(&call).await.seq, moved.seq);
    let refused = process.item(a, sku(1), 1);
    let call = process.reserve(home, vec![refused]);
    assert_eq!(process.done(&call).await.seq, moved.seq);
    assert_eq!(process.move_out(home, sku(1), shard(4), 0).await.seq, moved.seq);
    replay.catch_up(&*store).await;
    assert_eq!(replay.events.len(), events, "what changes nothing is no event");
}

pub async fn an_old_position_is_a_gap<I: Installation>() {
    let (installation, process) = with_stock::<I>(16_000_000).await;
    let store = installation.store();
    let current = process.generation;
    let other_generation = [(Gen(current.0 - 1), 0); SHARDS];
    let news = store.read_feeds(&other_generation, Duration::from_secs(60)).await.unwrap();
    assert_eq!(news.len(), SHARDS);
    assert!(news.iter().all(|(_, read)| *read == FeedRead::Gap));

    // Overflow one shard's feed; the others are not concerned.
    let movers: Vec<_> = (0..32)
        .map(|_| {
            let store = installation.store();
            tokio::spawn(async move {
                let mut process = Process::start(store).await;
                for _ in 0..=2 * I::FEED_EVENTS / 32 {
                    process.move_out(shard(0), sku(1), shard(1), 1).await;
                }
            })
        })
        .collect();
    for mover in movers {
        mover.await.unwrap();
    }
    let news = store.read_feeds(&[(current, 0); SHARDS], Duration::ZERO).await.unwrap();
    let gaps: Vec<_> = news.iter().filter(|(_, read)| *read == FeedRead::Gap).map(|(at, _)| *at).collect();
    assert_eq!(gaps, [shard(0)]);
    // A snapshot leads back into the feed.
    let snapshot = store.snapshot(shard(0)).await.unwrap();
    let mut after = [(current, u64::MAX - 1); SHARDS];
    after[0].1 = snapshot.seq;
    assert_eq!(store.read_feeds(&after, Duration::ZERO).await.unwrap(), []);
    after[0].1 = snapshot.seq - 3;
    let news = store.read_feeds(&after, Duration::ZERO).await.unwrap();
    let [(_, FeedRead::Events(events))] = news.as_slice() else { panic!("{news:?}") };
    assert_eq!(
        events.iter().map(|event| event.seq).collect::<Vec<_>>(),
        [snapshot.seq - 2, snapshot.seq - 1, snapshot.seq]
    );
}

pub async fn a_snapshot_is_the_replay_of_the_feed<I: Installation>() {
    let installation = I::create().await;
    let mut process = Process::start(installation.store()).await;
    let store = installation.store();
    let mut replay = Replay::from_start(process.generation);
    installation.create_activity(ACTIVITY, &[(SkuId(1), 500), (SkuId(2), 7)]).await;
    for (nth, home) in (0..4).flat_map(|nth| ShardId::all().map(move |home| (nth, home))) {
        let target = shard((home.number() + 3) % 16);
        let moved = process.move_out(home, sku(1), target, 2).await;
        let announced = BringIn { sku: sku(1), source: home, out: out_of(&moved, target) };
        process.bring_in(target, vec![announced]).await;
        let items = vec![
            process.item(user_of(home, nth), sku(1), 3),
            process.item(user_of(home, nth + 10), sku(2), 1),
        ];
        let call = process.reserve(home, items);
        process.done(&call).await;
        if nth == 2 {
            replay.catch_up(&*store).await;
        }
    }
    replay.catch_up(&*store).await;
    for shard in ShardId::all() {
        replay.assert_equals(&store.snapshot(shard).await.unwrap());
    }
}

pub async fn a_reader_waits_for_news<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    let store = installation.store();
    let mut position = [(process.generation, 0); SHARDS];
    for shard in ShardId::all() {
        position[shard.index()].1 = store.snapshot(shard).await.unwrap().seq;
    }
    let news = store.read_feeds(&position, Duration::from_millis(1)).await.unwrap();
    assert_eq!(news, [], "the wait ends without news");
    let waiting = {
        let store = installation.store();
        tokio::spawn(async move { store.read_feeds(&position, Duration::from_secs(600)).await.unwrap() })
    };
    let moved = process.move_out(shard(14), sku(1), shard(0), 1).await;
    let news = waiting.await.unwrap();
    let [(at, FeedRead::Events(events))] = news.as_slice() else { panic!("{news:?}") };
    assert_eq!((*at, events[0].seq, &events[0].counters), (shard(14), moved.seq, &moved.counters));
}

pub async fn a_load_is_applied_once<I: Installation>() {
    let (mut installation, _) = with_stock::<I>(100).await;
    installation.add_stock(sku(1), 37).await;
    for _ in 0..3 {
        installation.drive_loads_again().await;
    }
    installation.reopen().await;
    installation.drive_loads_again().await;
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.total, figures.free), (137, 137));
    let per_shard = free(&installation, sku(1)).await;
    assert_eq!(per_shard.iter().sum::<u32>(), 137);
    assert!(per_shard.iter().max().unwrap() - per_shard.iter().min().unwrap() <= 2, "{per_shard:?}");
}

pub async fn a_removal_takes_only_what_is_free<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(32).await;
    for home in ShardId::all().take(10) {
        assert_eq!(process.buy(user_of(home, 0), sku(1), 2).await, ItemAnswer::Reserved);
    }
    process.move_out(shard(15), sku(1), shard(0), 2).await;
    assert_eq!(installation.remove_stock(sku(1), 4).await, 4);
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.total, figures.free, figures.in_transit, figures.sold), (28, 6, 2, 20));
    assert_eq!(installation.remove_stock(sku(1), 1_000).await, 6);
    installation.drive_loads_again().await;
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.total, figures.free, figures.in_transit, figures.sold), (22, 0, 2, 20));
    assert_eq!(installation.remove_stock(sku(1), 1).await, 0);
    installation.add_stock(sku(1), 16).await;
    assert_eq!(process.buy(user_of(shard(11), 0), sku(1), 1).await, ItemAnswer::Reserved);
}

pub async fn a_dropped_future_leaves_one_outcome<I: Installation>() {
    let (installation, mut process) = with_stock::<I>(160).await;
    let home = shard(7);
    for nth in 0..20 {
        let item = process.item(user_of(home, nth), sku(1), 1);
        let call = process.reserve(home, vec![item]);
        {
            let mut future = pin!(process.store.call(&call));
            let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        let done = process.done(&call).await;
        let expected = if nth < 10 { ItemAnswer::Reserved } else { ItemAnswer::EmptyHere };
        assert_eq!(done.answers, [expected]);
    }
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.free, figures.sold), (150, 10));
}

pub async fn process_numbers_are_never_reused<I: Installation>() {
    let mut installation = I::create().await;
    let mut seen = BTreeSet::new();
    let mut last = None;
    for _ in 0..3 {
        for _ in 0..3 {
            let registration = installation.store().register().await.unwrap();
            assert!((1..1 << 27).contains(&registration.process.0));
            assert!(seen.insert(registration.process), "{registration:?} was given before");
            last = Some(registration.generation);
        }
        installation.reopen().await;
        let registration = installation.store().register().await.unwrap();
        assert!(Some(registration.generation) > last);
        assert!(seen.insert(registration.process));
    }
}
