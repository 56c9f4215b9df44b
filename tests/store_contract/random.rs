//! Several gateway processes at once, with everything that a network does to their calls; then the books.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use fastrand::Rng;
use rushgate::protocol::{ActivityId, SkuId, SkuKey, UserId};
use rushgate::stock::calls::{BringIn, Call, CallBody, Done, Gen, Item, ItemAnswer, Reply, SHARDS, ShardId};
use rushgate::store::ReservationStore;

use crate::installation::{ACTIVITY, Installation, OrderRow, Process, user_of};
use crate::replay::Replay;

const SEEDS: u64 = 6;
const PROCESSES: u64 = 3;
const CALLS: usize = 25;
/// Users of a shard; few, so that processes meet over them.
const USERS: usize = 40;
const OTHER: ActivityId = ActivityId(8);

fn skus() -> [SkuKey; 4] {
    [(ACTIVITY, 1), (ACTIVITY, 2), (ACTIVITY, 3), (OTHER, 1)]
        .map(|(activity, id)| SkuKey { activity, sku: SkuId(id) })
}

/// What all processes together were told.
#[derive(Default)]
struct Told {
    /// The greatest known `out` per (SKU, source, target).
    out: BTreeMap<(SkuKey, ShardId, ShardId), u64>,
    reserved: BTreeMap<ActivityId, BTreeSet<OrderRow>>,
    seqs: BTreeMap<(ShardId, u64), Done>,
}

impl Told {
    fn hear(&mut self, call: &Call, done: &Done) {
        for counters in &done.counters {
            for (target, units) in &counters.out {
                let known = self.out.entry((counters.sku, call.shard, *target)).or_default();
                *known = (*known).max(*units);
            }
        }
        if let CallBody::Reserve { items, .. } = &call.body {
            assert_eq!(items.len(), done.answers.len());
            for (item, answer) in items.iter().zip(&done.answers) {
                if *answer == ItemAnswer::Reserved {
                    self.reserved.entry(item.sku.activity).or_default().insert(row(item));
                }
            }
        }
        // Two replies of one position agree on every SKU both name.
        let earlier = self.seqs.entry((call.shard, done.seq)).or_insert_with(|| done.clone());
        for counters in &done.counters {
            if let Some(same) = earlier.counters.iter().find(|other| other.sku == counters.sku) {
                assert_eq!(same, counters);
            } else {
                earlier.counters.push(counters.clone());
            }
        }
    }
}

fn row(item: &Item) -> OrderRow {
    OrderRow { number: item.order, user: item.user, sku: item.sku.sku, quantity: item.quantity }
}

pub async fn concurrent_processes_conserve_every_unit<I: Installation>() {
    for seed in 0..SEEDS {
        one_sale::<I>(seed).await;
    }
}

async fn one_sale<I: Installation>(seed: u64) {
    let mut installation = Arc::new(I::create().await);
    let generation = installation.store().register().await.unwrap().generation;
    let mut replay = Replay::from_start(generation);
    installation.create_activity(ACTIVITY, &[(SkuId(1), 300), (SkuId(2), 11), (SkuId(3), 2_000)]).await;
    installation.create_activity(OTHER, &[(SkuId(1), 100)]).await;
    let told = Arc::new(Mutex::new(Told::default()));
    let ended = Arc::new(AtomicBool::new(false));

    let reader = tokio::spawn({
        let (store, ended) = (installation.store(), Arc::clone(&ended));
        async move {
            while !ended.load(Ordering::Acquire) {
                replay.read(&*store, Duration::from_millis(5)).await;
            }
            replay.catch_up(&*store).await;
            replay
        }
    });
    let operator = tokio::spawn({
        let installation = Arc::clone(&installation);
        let mut rng = Rng::with_seed(seed);
        async move {
            for _ in 0..8 {
                let sku = skus()[rng.usize(..4)];
                if rng.bool() {
                    installation.add_stock(sku, rng.u32(1..40)).await;
                } else {
                    installation.remove_stock(sku, rng.u32(1..40)).await;
                }
            }
        }
    });
    let mut lanes = Vec::new();
    for nth in 0..PROCESSES {
        let process = Arc::new(tokio::sync::Mutex::new(Process::start(installation.store()).await));
        for shard in ShardId::all() {
            let lane = Lane {
                process: Arc::clone(&process),
                store: installation.store(),
                told: Arc::clone(&told),
                shard,
                rng: Rng::with_seed(seed * 1_000 + nth * 16 + u64::from(shard.number())),
            };
            lanes.push(tokio::spawn(lane.run()));
        }
    }
    for lane in lanes {
        lane.await.unwrap();
    }
    operator.await.unwrap();
    ended.store(true, Ordering::Release);
    let replay = reader.await.unwrap();
    let told = std::mem::take(&mut *told.lock().unwrap());
    audit(&*installation, &told, &replay).await;
    Arc::get_mut(&mut installation).expect("everybody has ended").reopen().await;
    audit_records(&*installation, &told.reserved).await;
}

async fn audit<I: Installation>(installation: &I, told: &Told, replay: &Replay) {
    let store = installation.store();
    for shard in ShardId::all() {
        replay.assert_equals(&store.snapshot(shard).await.unwrap());
    }
    for (shard, event) in &replay.events {
        // A reply of this position, if there was one, told the same counters.
        let Some(done) = told.seqs.get(&(*shard, event.seq)) else { continue };
        for counters in &event.counters {
            if let Some(told) = done.counters.iter().find(|told| told.sku == counters.sku) {
                assert_eq!(told, counters);
            }
        }
    }
    audit_records(installation, &told.reserved).await;
}

async fn audit_records<I: Installation>(
    installation: &I,
    reserved: &BTreeMap<ActivityId, BTreeSet<OrderRow>>,
) {
    for sku in skus() {
        installation.figures(sku).await.assert_conserved();
    }
    for activity in [ACTIVITY, OTHER] {
        let orders = installation.orders(activity).await;
        let distinct: BTreeSet<_> = orders.iter().copied().collect();
        assert_eq!(distinct.len(), orders.len());
        let buyers: BTreeSet<UserId> = orders.iter().map(|order| order.user).collect();
        assert_eq!(buyers.len(), orders.len(), "one live order per user and activity");
        // Every call was answered in the end, so what was told is exactly what stands.
        assert_eq!(reserved.get(&activity), Some(&distinct));
        let mut marks = BTreeSet::new();
        for shard in ShardId::all() {
            let snapshot = installation.store().snapshot(shard).await.unwrap();
            marks.extend(snapshot.marks.iter().filter(|(_, mark)| mark.sku.activity == activity).map(
                |(user, mark)| OrderRow {
                    number: mark.order,
                    user: *user,
                    sku: mark.sku.sku,
                    quantity: mark.quantity,
                },
            ));
        }
        assert_eq!(marks, distinct, "order records are the marks");
    }
}

/// One process's calls to one shard, one after the other.
struct Lane<S> {
    process: Arc<tokio::sync::Mutex<Process<S>>>,
    store: Arc<S>,
    told: Arc<Mutex<Told>>,
    shard: ShardId,
    rng: Rng,
}

impl<S: ReservationStore> Lane<S> {
    async fn run(mut self) {
        let mut last: Option<Call> = None;
        for _ in 0..CALLS {
            let body = self.body().await;
            let call = self.process.lock().await.call(self.shard, body);
            let reply = self.send(&call).await;
            let Reply::Done(done) = &reply else { panic!("{call:?} was answered {reply:?}") };
            self.told.lock().unwrap().hear(&call, done);
            if let Some(last) = last.filter(|_| self.rng.u8(..4) == 0) {
                assert_eq!(self.store.call(&last).await.unwrap(), Reply::Stale);
            }
            last = Some(call);
            if self.rng.u8(..8) == 0 {
                let body = self.body().await;
                let mut call = self.process.lock().await.call(self.shard, body);
                let current = call.generation;
                call.generation = Gen(current.0 - 1);
                assert_eq!(self.send(&call).await, Reply::Gen(current));
                last = Some(call);
            }
        }
    }

    async fn body(&mut self) -> CallBody {
        let sku = skus()[self.rng.usize(..4)];
        if self.rng.u8(..4) == 0 {
            let target = ShardId::new(self.rng.u8(..16)).unwrap();
            let target = if target == self.shard { other(self.shard) } else { target };
            return CallBody::MoveOut { sku, target, want: self.rng.u32(..8) };
        }
        let bring_in = self.announcements();
        let mut items = Vec::new();
        for _ in 0..self.rng.usize(..6) {
            let user = user_of(self.shard, self.rng.usize(..USERS));
            let sku = skus()[self.rng.usize(..4)];
            let quantity = self.rng.u16(1..4);
            items.push(self.process.lock().await.item(user, sku, quantity));
        }
        CallBody::Reserve { bring_in, items }
    }

    /// What is known to have been moved here, sometimes old news, in any order.
    fn announcements(&mut self) -> Vec<BringIn> {
        let known: Vec<_> = {
            let told = self.told.lock().unwrap();
            told.out
                .iter()
                .filter(|((_, _, target), _)| *target == self.shard)
                .map(|((sku, source, _), out)| BringIn { sku: *sku, source: *source, out: *out })
                .collect()
        };
        let mut announced = Vec::new();
        for known in known {
            if self.rng.u8(..3) == 0 {
                let out = if self.rng.bool() { known.out } else { known.out / 2 };
                announced.push(BringIn { out, ..known });
            }
        }
        self.rng.shuffle(&mut announced);
        announced
    }

    /// Sends a call as a bad network would: lost, twice, late; all replies agree.
    async fn send(&mut self, call: &Call) -> Reply {
        match self.rng.u8(..5) {
            0 => {
                let copy = {
                    let (store, call) = (Arc::clone(&self.store), call.clone());
                    tokio::spawn(async move { store.call(&call).await.unwrap() })
                };
                let reply = self.store.call(call).await.unwrap();
                assert_eq!(copy.await.unwrap(), reply);
                reply
            }
            1 => {
                {
                    let mut lost = pin!(self.store.call(call));
                    let _ = lost.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                }
                self.store.call(call).await.unwrap()
            }
            2 => {
                let reply = self.store.call(call).await.unwrap();
                assert_eq!(self.store.call(call).await.unwrap(), reply);
                reply
            }
            _ => self.store.call(call).await.unwrap(),
        }
    }
}

fn other(shard: ShardId) -> ShardId {
    ShardId::new((shard.number() + 1) % SHARDS as u8).unwrap()
}
