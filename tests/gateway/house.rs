//! A gateway in this process on a free port, with a real store in a folder of its own; all gone when dropped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rushgate::admin::activities::{Activities, NewActivity, NewSku};
use rushgate::admission::identity::{
    IdentityKind, IdentitySettings, MintKey, MintSettings, Minter, Verifier, VerifyKey,
};
use rushgate::admission::limits::{IpOverride, Limits, LimitsSettings, Rate};
use rushgate::gateway::{Ending, Event, Gateway, Rung, Settings};
use rushgate::store::catalog::Eligibility;
use rushgate::store::sql::{OpenOptions, SqliteStore, Synchronous};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::gated::{Gate, Gated};
use super::wire::{Client, user};

/// The secret that the AUTH vector is signed with.
pub(crate) const SECRET: &[u8] = b"an example secret, 32 bytes long";
pub(crate) const SALE: u32 = 1001;
pub(crate) const SKU: u16 = 3;
/// The burst of a user's limit where a test uses it up.
pub(crate) const TIGHT_USER: u32 = 20;

pub(crate) struct House {
    /// Before the runtime, so that its tasks are told to end first.
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) runtime: Runtime,
    pub(crate) admin: Activities,
    /// Lets calls through to the store, or holds them.
    pub(crate) gate: Gate,
    pub(crate) dir: TempDir,
}

/// What a house is built with.
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) limits: LimitsSettings,
    activities: Vec<NewActivity>,
    identity: Box<dyn FnOnce(&mut IdentitySettings)>,
}

pub(crate) fn rate(rate_per_s: u32, burst: u32) -> Rate {
    Rate { rate_per_s, burst }
}

pub(crate) fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// An activity that is open now.
pub(crate) fn sale(id: u32, skus: &[(u16, u64)], per_user_limit: u64) -> NewActivity {
    let skus = skus.iter().map(|&(sku, stock)| NewSku {
        id: u64::from(sku),
        name: format!("article {sku}"),
        price_minor: 999,
        stock,
    });
    NewActivity {
        id: u64::from(id),
        name: format!("sale {id}"),
        entry_open: true,
        opens_at_ms: now_ms() - 60_000,
        closes_at_ms: now_ms() + 3_600_000,
        per_user_limit,
        buy_again_max: 0,
        pay_within_ms: NewActivity::PAY_WITHIN_MS,
        eligibility: Eligibility::default(),
        skus: skus.collect(),
    }
}

impl Plan {
    /// One open activity with so many units of one SKU, at most five for each user.
    pub(crate) fn new(stock: u64) -> Self {
        Self::with(vec![sale(SALE, &[(SKU, stock)], 5.min(stock.max(1)))])
    }

    pub(crate) fn with(activities: Vec<NewActivity>) -> Self {
        let mut settings = Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Settings::default() };
        // A machine that runs many tests at once may not read feeds for a while.
        settings.stock.view_lag_ms_max = 20_000;
        let limits = LimitsSettings {
            per_ip: rate(2000, 4000),
            per_user: rate(100_000, 100_000),
            result_per_user: rate(100_000, 100_000),
            per_ip_overrides: vec![IpOverride { cidr: "127.0.0.0/8".parse().unwrap(), rate: Rate::OFF }],
            keys_max: 10_000,
            ..LimitsSettings::default()
        };
        Self { settings, limits, activities, identity: Box::new(|_| ()) }
    }

    pub(crate) fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) fn limits(mut self, change: impl FnOnce(&mut LimitsSettings)) -> Self {
        change(&mut self.limits);
        self
    }

    pub(crate) fn identity(mut self, change: impl FnOnce(&mut IdentitySettings) + 'static) -> Self {
        self.identity = Box::new(change);
        self
    }

    pub(crate) fn open(self) -> House {
        self.open_in(TempDir::new().unwrap())
    }

    pub(crate) fn open_in(self, dir: TempDir) -> House {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let data_dir = dir.path().join("data");
        let secret = dir.path().join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        let admin = Activities::new(&data_dir);
        let (gate, gateway) = runtime.block_on(async {
            for activity in &self.activities {
                admin.create(activity).await.unwrap();
            }
            let mut options = OpenOptions::new(&data_dir);
            options.synchronous = Synchronous::Off;
            let store = SqliteStore::open(&options).await.unwrap();
            let (store, gate) = Gated::new(store);
            let mut identity = IdentitySettings::new(VerifyKey::SecretFile(secret), "rushgate");
            (self.identity)(&mut identity);
            let verifier = Verifier::new(&identity).unwrap();
            let limits = Limits::new(&self.limits);
            let gateway = Gateway::start(self.settings, limits, verifier, Arc::new(store)).await.unwrap();
            (gate, gateway)
        });
        House { gateway: Arc::new(gateway), runtime, admin, gate, dir }
    }
}

impl House {
    /// Ends the gateway and its store; the folder stays.
    pub(crate) fn stop(self) -> (TempDir, PathBuf) {
        let Self { gateway, runtime, dir, .. } = self;
        drop(gateway);
        drop(runtime);
        let data_dir = dir.path().join("data");
        (dir, data_dir)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.gateway.local_addr()
    }

    pub(crate) fn minter(&self, secret: &[u8], audience: &str) -> Minter {
        let path = self.dir.path().join("minting");
        std::fs::write(&path, secret).unwrap();
        let settings =
            MintSettings { key: MintKey::SecretFile(path), audience: audience.to_owned(), issuer: None };
        Minter::new(&settings).unwrap()
    }

    pub(crate) fn mint(&self, kind: IdentityKind, valid_for_s: u64) -> String {
        let minter = self.minter(SECRET, "rushgate");
        minter.mint(kind, now_ms() / 1000, Duration::from_secs(valid_for_s)).unwrap()
    }

    pub(crate) fn token(&self, id: u64) -> String {
        self.mint(IdentityKind::App(user(id)), 3600)
    }

    pub(crate) fn app(&self, id: u64) -> Client {
        Client::login(self.addr(), &self.token(id))
    }

    pub(crate) fn service(&self) -> Client {
        Client::login(self.addr(), &self.mint(IdentityKind::Service, 3600))
    }

    /// What the operator does beside the running gateway.
    pub(crate) fn operate<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Units sold, and orders, by the database.
    pub(crate) fn sold(&self) -> (u64, u64) {
        let detail = self.operate(self.admin.show(u64::from(SALE))).unwrap();
        let orders = detail.skus.iter().flat_map(|sku| sku.orders.values()).sum();
        (detail.skus.iter().map(|sku| sku.sold).sum(), orders)
    }

    /// Every counter that is not zero.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let counters = self.gateway.counters();
        let rungs =
            Rung::ALL.iter().map(|rung| (format!("rung {}", rung.name()), counters.rung_count(*rung)));
        let endings = Ending::ALL
            .iter()
            .map(|ending| (format!("ending {}", ending.name()), counters.ending_count(*ending)));
        let statuses = counters.status_counts().map(|(status, count)| (status.name().to_owned(), count));
        let accepted = counters.event_count(Event::Accepted);
        let pushes = counters.event_count(Event::Push);
        let looked_up = counters.event_count(Event::LookedUp);
        let devices = [
            ("device_refused", Event::DeviceRefused),
            ("device_counted", Event::DeviceCounted),
            ("device_forgotten", Event::DeviceForgotten),
            ("flagged", Event::Flagged),
        ];
        let devices = devices.map(|(name, event)| (name.to_owned(), counters.event_count(event)));
        let obeyed = counters.event_count(Event::SwitchObeyed);
        let ignored = counters.event_count(Event::SwitchIgnored);
        let others = [
            ("accepted".to_owned(), accepted),
            ("pushes".to_owned(), pushes),
            ("looked_up".to_owned(), looked_up),
            ("switch_obeyed".to_owned(), obeyed),
            ("switch_ignored".to_owned(), ignored),
            ("auth_rate_limited".to_owned(), counters.event_count(Event::AuthRateLimited)),
        ];
        rungs
            .chain(endings)
            .chain(statuses)
            .chain(others)
            .chain(devices)
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts().get(name).copied().unwrap_or_default()
    }
}

/// By how much the counters rose.
pub(crate) fn risen(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let rise = |(name, count): (&String, &u64)| {
        let rise = count - before.get(name).copied().unwrap_or_default();
        (rise > 0).then(|| (name.clone(), rise))
    };
    after.iter().filter_map(rise).collect()
}
