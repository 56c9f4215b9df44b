//! The drills: which there are, and what all of them do alike.

mod processes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use crate::audit::{Audited, Evidence, Promise, asked, audit};
use crate::buyers::{Crowd, Sale, results};
use crate::error::Result;
use crate::redis_side;
use crate::settled::settled;
use crate::shop::{Premises, Shop, ShopPlan};
use crate::sql_side;

/// For everything to recover and be settled.
const SETTLED_MAX: Duration = Duration::from_secs(40);

/// A drill, by the name of its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Drill {
    /// One of two gateways is killed, and comes back
    GatewayKilled,
    /// The writer is killed, and comes back
    WriterKilled,
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
    /// Closures that the logs had told of when the fault came.
    closed_before: usize,
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
            closed_before: 0,
        }
    }

    pub(crate) async fn shop(&self, plan: ShopPlan) -> Result<Shop> {
        Shop::open(&self.premises, plan).await
    }

    /// Lets the usual crowd in.
    pub(crate) async fn sale(&mut self, shop: &Shop) -> Result<Sale> {
        self.sale_of(shop, &Crowd::new(shop, self.seed)).await
    }

    pub(crate) async fn sale_of(&mut self, shop: &Shop, crowd: &Crowd) -> Result<Sale> {
        self.closed_before = shop.closed_ms().len();
        Sale::begin(shop, crowd).await
    }

    /// A moment while there are still units: so many users were told QUEUED.
    pub(crate) async fn some_moment(&mut self, shop: &Shop, sale: &mut Sale) -> Result<()> {
        let stock: u64 = shop.plan.stock.iter().map(|units| u64::from(*units)).sum();
        let moment = self.random.u64(1..=(stock / 2).max(1));
        sale.queued(moment).await
    }

    /// A length of time between two.
    pub(crate) fn between(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(self.random.u64(least_ms..=most_ms))
    }

    /// Waits for the sale to be over and settled, then audits it.
    pub(crate) async fn conclude(mut self, shop: &mut Shop, mut sale: Sale) -> Result<Ended> {
        sale.answered().await?;
        let mut left = settled(shop, SETTLED_MAX).await?;
        let told = sale.close().await?;
        let (shards, sql) = (redis_side::read(shop).await?, sql_side::read(&shop.database).await?);
        let mut said = BTreeMap::new();
        for gateway in 0..shop.gateways.len() {
            if shop.gateways.get_mut(gateway).is_some_and(|gateway| gateway.is_running()) {
                said.insert(gateway, results(shop, gateway, asked(&told)).await?);
            }
        }
        let evidence = Evidence {
            planned: &shop.plan.stock,
            told: &told,
            shards: &shards,
            sql: &sql,
            results: &said,
            promise: &self.promise,
        };
        let mut audited = audit(&evidence);
        left.append(&mut audited.violations);
        audited.violations = left;
        for program in shop.gateways.iter_mut().chain(&mut shop.writers) {
            if program.log().contains("panicked at") {
                audited.violations.push(format!("{} panicked", program.name()));
            }
        }
        if self.logs && !audited.violations.is_empty() {
            self.notes.push(shop.tails());
        }
        let closed_ms = shop.closed_ms().into_iter().skip(self.closed_before).max();
        Ok(Ended { audited, closed_ms, notes: self.notes })
    }
}
