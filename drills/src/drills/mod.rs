//! The drills: which there are, and what all of them do alike.

mod cluster;
mod crash_points;
mod links;
mod losses;
mod outages;
mod payment_crashes;
mod payments;
mod processes;
mod record_only;
mod redis_faults;
mod stock;
mod takeover;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use crate::audit::{Audited, Evidence, Money, Promise, asked, audit, closed_rightly};
use crate::buyers::{Crowd, Sale, results};
use crate::error::Result;
use crate::pay_side;
use crate::redis_side;
use crate::settled::settled;
use crate::shop::{Premises, Shop, ShopPlan};
use crate::sql_side;
use crate::told::Told;

/// For everything to recover and be settled.
const SETTLED_MAX: Duration = Duration::from_secs(40);

/// A drill, by the name of its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Drill {
    /// One of two gateways is killed, and comes back
    GatewayKilled,
    /// The writer is killed, and comes back, twice
    WriterKilled,
    /// Redis with appendfsync always is killed and started on its data
    RedisKilledAlways,
    /// Redis is away for seconds; both gateways sell what was held back
    RedisAwayReserveSold,
    /// MariaDB is killed and started on its data
    MariadbKilled,
    /// Redis stands still for some seconds
    RedisPaused,
    /// The whole sale without a writer, then the backlog
    WriterOffThenBacklog,
    /// Redis forgets its functions again and again
    FunctionsFlushed,
    /// A link between one gateway and Redis swallows, delays and repeats
    LinkSwallowsDelaysRepeats,
    /// Calls reach Redis when their users have long been refused and new stock has come
    LateCopiesWhenStockComes,
    /// Few units in few shards, pulled by both gateways
    LastUnitsPulledByTwo,
    /// A third gateway starts in mid-sale and never says "sold out" wrongly
    ColdGatewayMidSale,
    /// The writer dies between its commit and telling Redis, again and again
    RedeliveryAfterCommit,
    /// Preheat and loads are repeated in mid-sale
    PreheatRepeatedMidSale,
    /// The stock keys of one shard are deleted; the operator closes the shard
    ShardKeysDeleted,
    /// Redis loses acknowledged data: its file is cut; live gateways hand in
    AofTruncated,
    /// Redis loses acknowledged data: a replica that was cut off is promoted; live gateways hand in
    ReplicaPromotedAfterCut,
    /// A replica is promoted and the old master lives on with one gateway, which is cut off from the database
    OldMasterLivesOn,
    /// A master of a cluster is killed; its replica is promoted
    ClusterMasterKilled,
    /// The slot of a shard moves to another master, back and forth
    SlotMovedWhileSelling,
    /// A gateway and Redis die at once, and Redis loses acknowledged data
    GatewayAndRedisKilled,
    /// A gateway is silent through a recovery in which Redis loses what it had acknowledged, and comes back
    GatewaySilentAndRedisKilled,
    /// Redis is gone, the activity is sold from the database by command; Redis is back with old data, and sells it again
    RedisGoneTakeover,
    /// Orders are recorded and settled in turns, by writers that die at it, the rest by `rushgate backfill`
    RecordOnly,
    /// Every named crash point of gateway and writer that a sale passes
    CrashPoints,
    /// Notices twice, out of order, forged, before the settlement and after the close; three writers sweep
    PaymentsRaceTheSweeper,
    /// The payment centre is away for the whole time to pay, and comes back
    PayCentreAway,
    /// The clocks of a gateway and of a writer are ten minutes ahead
    ClocksAhead,
    /// Every named crash point of payments, closes, cancels and restocks
    PaymentCrashPoints,
    /// Redis is away while thousands of orders are closed; releases come late and again, when units are sold again
    RedisAwayWhileClosing,
    /// Redis and the database are both away; nobody is told anything that is not so
    RedisAndDatabaseAway,
}

/// What came of a drill.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) audited: Audited,
    pub(crate) closed_ms: Option<u64>,
    pub(crate) notes: Vec<String>,
}

impl Drill {
    pub(crate) fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    /// As on the command line and in the table.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) async fn run(self, premises: &Arc<Premises>, seed: u64, logs: bool) -> Result<Ended> {
        let scene = Scene::new(premises, seed, logs);
        match self {
            Self::GatewayKilled => processes::gateway_killed(scene).await,
            Self::WriterKilled => processes::writer_killed(scene).await,
            Self::RedisKilledAlways => redis_faults::redis_killed_always(scene).await,
            Self::RedisAwayReserveSold => redis_faults::redis_away_reserve_sold(scene).await,
            Self::MariadbKilled => processes::mariadb_killed(scene).await,
            Self::RedisPaused => redis_faults::redis_paused(scene).await,
            Self::WriterOffThenBacklog => processes::writer_off_then_backlog(scene).await,
            Self::FunctionsFlushed => redis_faults::functions_flushed(scene).await,
            Self::LinkSwallowsDelaysRepeats => links::link_swallows_delays_repeats(scene).await,
            Self::LateCopiesWhenStockComes => links::late_copies_when_stock_comes(scene).await,
            Self::LastUnitsPulledByTwo => stock::last_units_pulled_by_two(scene).await,
            Self::ColdGatewayMidSale => stock::cold_gateway_mid_sale(scene).await,
            Self::RedeliveryAfterCommit => processes::redelivery_after_commit(scene).await,
            Self::PreheatRepeatedMidSale => stock::preheat_repeated_mid_sale(scene).await,
            Self::ShardKeysDeleted => redis_faults::shard_keys_deleted(scene).await,
            Self::AofTruncated => losses::aof_truncated(scene).await,
            Self::ReplicaPromotedAfterCut => losses::replica_promoted_after_cut(scene).await,
            Self::OldMasterLivesOn => losses::old_master_lives_on(scene).await,
            Self::ClusterMasterKilled => cluster::cluster_master_killed(scene).await,
            Self::SlotMovedWhileSelling => cluster::slot_moved_while_selling(scene).await,
            Self::GatewayAndRedisKilled => losses::gateway_and_redis_killed(scene).await,
            Self::GatewaySilentAndRedisKilled => losses::gateway_silent_and_redis_killed(scene).await,
            Self::RedisGoneTakeover => takeover::redis_gone_takeover(scene).await,
            Self::RecordOnly => record_only::record_only(scene).await,
            Self::CrashPoints => crash_points::crash_points(scene).await,
            Self::PaymentsRaceTheSweeper => payments::payments_race_the_sweeper(scene).await,
            Self::PayCentreAway => payments::pay_centre_away(scene).await,
            Self::ClocksAhead => payments::clocks_ahead(scene).await,
            Self::PaymentCrashPoints => payment_crashes::payment_crash_points(scene).await,
            Self::RedisAwayWhileClosing => outages::redis_away_while_closing(scene).await,
            Self::RedisAndDatabaseAway => outages::redis_and_database_away(scene).await,
        }
    }
}

/// One run of a drill: where it plays and the choices of its seed.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) premises: Arc<Premises>,
    pub(crate) seed: u64,
    pub(crate) random: fastrand::Rng,
    pub(crate) promise: Promise,
    pub(crate) notes: Vec<String>,
    logs: bool,
    /// Closures that the logs had told of when the first sale began.
    closed_before: Option<usize>,
}

impl Scene {
    fn new(premises: &Arc<Premises>, seed: u64, logs: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // Neighbouring seeds start alike.
        random.u64(..);
        Self {
            premises: Arc::clone(premises),
            seed,
            random,
            promise: Promise::default(),
            notes: Vec::new(),
            logs,
            closed_before: None,
        }
    }

    pub(crate) async fn shop(&self, plan: ShopPlan) -> Result<Shop> {
        Shop::open(&self.premises, plan).await
    }

    /// Stock for most of the usual crowd, so that there are units for as long as people come.
    pub(crate) fn ample_stock(&self) -> Vec<u32> {
        if self.premises.is_quick { vec![500, 300, 200] } else { vec![1_200, 800, 500] }
    }

    /// Lets the usual crowd in over a longer time.
    pub(crate) async fn long_sale(&mut self, shop: &Shop) -> Result<Sale> {
        let usual = Crowd::new(shop, self.seed);
        self.sale_of(shop, &Crowd { spread: usual.spread * 3, ..usual }).await
    }

    /// Lets the usual crowd in.
    pub(crate) async fn sale(&mut self, shop: &Shop) -> Result<Sale> {
        self.sale_of(shop, &Crowd::new(shop, self.seed)).await
    }

    pub(crate) async fn sale_of(&mut self, shop: &Shop, crowd: &Crowd) -> Result<Sale> {
        let sale = Sale::begin(shop, crowd).await?;
        self.closed_before.get_or_insert(shop.closed_ms().len());
        Ok(sale)
    }

    /// A moment while there are still units: so many users were told QUEUED.
    pub(crate) async fn some_moment(&mut self, shop: &Shop, sale: &mut Sale) -> Result<()> {
        let moment = self.random.u64(1..=(shop.units() / 2).max(1));
        sale.queued(moment).await
    }

    /// A length of time between two.
    pub(crate) fn between(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(self.random.u64(least_ms..=most_ms))
    }

    /// As `between`, half as long in the tests.
    pub(crate) fn outage(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        let by = if self.premises.is_quick { 2 } else { 1 };
        self.between(least_ms / by, most_ms / by)
    }

    /// Waits for the sales to be over and settled, then audits them.
    pub(crate) async fn conclude(mut self, shop: &mut Shop, sales: Vec<Sale>) -> Result<Ended> {
        let (audited, _) = self.look(shop, sales, Told::default()).await?;
        let closed_ms = shop.closed_ms().into_iter().skip(self.closed_before.unwrap_or(0)).max();
        Ok(Ended { audited, closed_ms, notes: self.notes })
    }

    /// Waits for the sales to be over and settled, then audits them and those before.
    pub(crate) async fn look(
        &mut self,
        shop: &mut Shop,
        mut sales: Vec<Sale>,
        mut told: Told,
    ) -> Result<(Audited, Told)> {
        for sale in &mut sales {
            sale.answered().await?;
        }
        let left = settled(shop, SETTLED_MAX).await?;
        for sale in sales {
            told.users.extend(sale.close().await?.users);
        }
        let (shards, sql) = (redis_side::read(shop).await?, sql_side::read(&shop.database).await?);
        let mut said = BTreeMap::new();
        for gateway in 0..shop.gateways.len() {
            if shop.gateway(gateway)?.is_running() {
                said.insert(gateway, results(shop, gateway, asked(&told)).await?);
            }
        }
        let of_money = match &shop.till {
            Some(till) => {
                let payments = till.stat("orders_paid") + till.stat("paid_late");
                Some((pay_side::read(&shop.database).await?, till.taken(), payments))
            }
            None => None,
        };
        let money = of_money.as_ref().map(|(side, taken, payments)| {
            self.promise.closed.extend(closed_rightly(side));
            Money { side, taken, payments: *payments }
        });
        let evidence = Evidence {
            planned: &shop.plan.stock,
            told: &told,
            shards: &shards,
            sql: &sql,
            results: &said,
            promise: &self.promise,
            money: money.as_ref(),
        };
        let mut audited = audit(&evidence);
        audited.add("not settled", left);
        for program in shop.gateways.iter().chain(&shop.writers) {
            if program.log().contains("panicked at") {
                audited.violations.push(format!("{} panicked", program.name()));
            }
        }
        if self.logs && !audited.violations.is_empty() {
            self.notes.push(shop.tails());
        }
        Ok((audited, told))
    }
}
