//! One seed's plan: how many of what, how bad the network is, which disasters happen when.

use fastrand::Rng;
use rushgate::protocol::{ActivityId, SkuId, SkuKey, UserId};
use rushgate::stock::Settings;
use rushgate::stock::calls::{SHARDS, ShardId};

/// What a family of runs is about; the seed draws the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Everything by chance.
    Mixed,
    /// A sound network and no disasters: what is left must be due to the engine alone.
    Calm,
    /// Single units, losses and late copies: N of N sell.
    NOfN,
    /// Several units per purchase over scattered stock.
    Gather,
    /// Crashes, restarts under a new generation, additions and takings.
    Disasters,
    /// Shards that lose their last writes, old masters that live on, silent gateways, leaders that die.
    Recovery,
}

impl Family {
    pub(crate) const ALL: [Self; 6] =
        [Self::Mixed, Self::Calm, Self::NOfN, Self::Gather, Self::Disasters, Self::Recovery];

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| format!("{family:?}").eq_ignore_ascii_case(name))
    }
}

/// See the module. Probabilities are per mille.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, drawn by chance")]
pub(crate) struct Plan {
    pub(crate) gateways: usize,
    pub(crate) skus: Vec<SkuKey>,
    /// Units per SKU and shard before the sale.
    pub(crate) stock: Vec<[u32; SHARDS]>,
    /// User, activity, units wanted.
    pub(crate) clients: Vec<(UserId, ActivityId, u16)>,
    pub(crate) settings: Settings,
    pub(crate) sale_ms: u64,
    pub(crate) delay_ms_max: u64,
    pub(crate) slow_ms_max: u64,
    pub(crate) lost: u32,
    pub(crate) repeated: u32,
    pub(crate) late: u32,
    pub(crate) late_ms_max: u64,
    pub(crate) feed_events_max: usize,
    pub(crate) current_after_events: bool,
    pub(crate) plain_reads: bool,
    pub(crate) double_buys: u32,
    pub(crate) small_patience: u32,
    /// Per mille of a gateway's turns: an activity's entry closes for a moment.
    pub(crate) closings: u32,
    pub(crate) crashes: u32,
    pub(crate) restarts: u32,
    pub(crate) additions: u32,
    pub(crate) takings: u32,
    pub(crate) trims: u32,
    pub(crate) settles: u32,
    pub(crate) releases: u32,
    pub(crate) late_preheat: bool,
    pub(crate) undo_moves: bool,
    /// Restarts of shards that lose their last writes.
    pub(crate) rollbacks: u32,
    /// Per mille of these: the old master lives on.
    pub(crate) zombies: u32,
    /// Times that a gateway is cut off.
    pub(crate) silences: u32,
    /// Per mille of a leader's steps: it dies.
    pub(crate) leader_deaths: u32,
    /// Orders of a user that may ask the store in a window; 0 = all.
    pub(crate) attempts_max: u32,
    /// How often a user may buy again after his order was closed.
    pub(crate) again_max: u8,
}

fn some(rng: &mut Rng, of_1000: u32, range: std::ops::RangeInclusive<u32>) -> u32 {
    if rng.u32(0..1000) < of_1000 { rng.u32(range) } else { 0 }
}

fn users_of(rng: &mut Rng, shards: &[ShardId], count: usize) -> Vec<UserId> {
    let mut next = rng.u64(1..1 << 40);
    let mut users = Vec::new();
    while users.len() < count {
        next += 1;
        if shards.contains(&ShardId::of(UserId(next))) {
            users.push(UserId(next));
        }
    }
    users
}

fn settings(rng: &mut Rng) -> Settings {
    let patience_ms = rng.u64(60..=400);
    Settings {
        queue_items_max: *rng.choice(&[4096, 4096, 4096, 2]).unwrap_or(&4096),
        batch_items_max: *rng.choice(&[256, 256, 2, 1]).unwrap_or(&256),
        patience_ms,
        unconfirmed_after_ms: patience_ms + rng.u64(0..=200),
        call_timeout_ms: rng.u64(20..=100),
        view_lag_ms_max: rng.u64(40..=300),
        gathers_max: 3,
        orphan_wait_ms: rng.u64(5..=50),
    }
}

/// Time enough to pass units back and forth many times, if anybody does.
fn patient(settings: Settings) -> Settings {
    Settings { patience_ms: 400, unconfirmed_after_ms: 500, orphan_wait_ms: 5, ..settings }
}

fn stock(rng: &mut Rng, skus: usize, family: Family) -> Vec<[u32; SHARDS]> {
    let spread = rng.usize(1..=SHARDS);
    let units_max = if rng.u32(0..8) == 0 { 40 } else { 12 };
    (0..skus)
        .map(|_| {
            let mut amounts = [0; SHARDS];
            let units = rng.u32(if family == Family::Gather { 2 } else { 0 }..=units_max);
            for _ in 0..units {
                amounts[rng.usize(0..spread)] += 1;
            }
            rng.shuffle(&mut amounts);
            amounts
        })
        .collect()
}

/// Who wants what, and where it is.
struct Crowd {
    /// All at once, for what is not enough for all.
    scattered: bool,
    stock: Vec<[u32; SHARDS]>,
    clients: Vec<(UserId, ActivityId, u16)>,
}

impl Crowd {
    fn of(rng: &mut Rng, family: Family, skus: &[SkuKey]) -> Self {
        let single_units = family == Family::NOfN || family != Family::Gather && rng.bool();
        let mut stock = stock(rng, skus.len(), family);
        let mut homes: Vec<ShardId> = ShardId::all().collect();
        rng.shuffle(&mut homes);
        homes.truncate(rng.usize(1..=SHARDS));
        // A unit in each of a few shards, and in each of these somebody who wants two.
        let scattered = family == Family::Gather && rng.u32(0..3) == 0;
        if scattered {
            homes.truncate(rng.usize(2..=3));
            for amounts in &mut stock {
                *amounts = [0; SHARDS];
                for home in &homes {
                    amounts[home.index()] = 1;
                }
            }
        }
        let units: u32 = stock.iter().flatten().sum();
        let least = if family == Family::NOfN { units as usize + 1 } else { 3 };
        let count = least.max(rng.usize(3..=if scattered { 5 } else { 36 }));
        let activities = skus.iter().map(|sku| sku.activity.0).max().unwrap_or(1);
        let mut clients = Vec::new();
        for user in users_of(rng, &homes, count) {
            let quantity = match (scattered, single_units) {
                (true, _) => 2,
                (_, true) => 1,
                _ => *rng.choice(&[1, 1, 2, 2, 3, 4]).unwrap_or(&1),
            };
            for activity in 1..=activities {
                if activity == 1 || rng.bool() {
                    clients.push((user, ActivityId(activity), quantity));
                }
            }
        }
        Self { scattered, stock, clients }
    }
}

impl Plan {
    pub(crate) fn of(seed: u64, family: Family) -> Self {
        let rng = &mut Rng::with_seed(seed ^ ((family as u64 + 1) << 40));
        let bad = !matches!(family, Family::Calm);
        let disasters = matches!(family, Family::Mixed | Family::Disasters);
        let recovery = family == Family::Recovery;
        let activities = if disasters || recovery { rng.u32(1..=2) } else { 1 };
        let per_activity = if family == Family::NOfN { 1 } else { rng.u16(1..=3) };
        let mut skus = Vec::new();
        for activity in 1..=activities {
            skus.extend(
                (1..=per_activity).map(|sku| SkuKey { activity: ActivityId(activity), sku: SkuId(sku) }),
            );
        }
        let crowd = Crowd::of(rng, family, &skus);
        let trouble = if bad { rng.u32(0..=3) } else { 0 };
        let on = |rng: &mut Rng, range| if trouble == 0 { 0 } else { some(rng, 600, range) };
        let plan = Self {
            gateways: *rng.choice(&[1, 2, 2, 3, 4]).unwrap_or(&2),
            skus,
            stock: crowd.stock,
            clients: crowd.clients,
            settings: if crowd.scattered { patient(settings(rng)) } else { settings(rng) },
            sale_ms: if crowd.scattered { 5 } else { rng.u64(50..=500) },
            delay_ms_max: *rng.choice(&[1, 3, 10, 25]).unwrap_or(&3),
            slow_ms_max: if bad && rng.u32(0..3) == 0 { 150 } else { 0 },
            lost: on(rng, 10..=250),
            repeated: on(rng, 10..=300),
            late: on(rng, 10..=150),
            late_ms_max: rng.u64(50..=4000),
            feed_events_max: *rng.choice(&[1, 3, 100]).unwrap_or(&100),
            current_after_events: rng.bool(),
            plain_reads: rng.bool(),
            double_buys: some(rng, 500, 50..=300),
            small_patience: some(rng, 300, 50..=500),
            closings: if disasters { some(rng, 300, 1..=20) } else { 0 },
            crashes: if disasters || recovery { some(rng, 500, 1..=3) } else { 0 },
            restarts: if disasters { some(rng, 500, 1..=3) } else { 0 },
            additions: if disasters { some(rng, 500, 1..=4) } else { 0 },
            takings: if disasters { some(rng, 300, 1..=3) } else { 0 },
            trims: if bad { some(rng, 400, 1..=20) } else { 0 },
            settles: if bad { some(rng, 400, 1..=20) } else { 0 },
            releases: if disasters || recovery { some(rng, 300, 1..=6) } else { 0 },
            late_preheat: disasters && rng.u32(0..8) == 0,
            undo_moves: rng.bool(),
            rollbacks: if recovery { rng.u32(1..=5) } else { 0 },
            zombies: if recovery { some(rng, 600, 200..=800) } else { 0 },
            silences: if recovery { some(rng, 700, 1..=6) } else { 0 },
            leader_deaths: if recovery { some(rng, 400, 20..=200) } else { 0 },
            attempts_max: if disasters || recovery { some(rng, 300, 1..=2) } else { 0 },
            again_max: if disasters || recovery { some(rng, 400, 1..=2) as u8 } else { 0 },
        };
        let releases = if plan.again_max > 0 { rng.u32(4..=24) } else { plan.releases };
        Self { releases, ..plan }
    }
}
