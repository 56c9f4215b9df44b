//! The drill's payment centre, and what buyers do about their orders: pay at once, about the pay-by, when the order has
//! long been closed, or never; or cancel.
//!
//! It is the stand-in that `rushgate-loadgen paycenter` runs, in this process, behind a link on which it may be away. Who is
//! told that his money was taken is written down: the audit wants every unit of it in SQL.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rushgate::client::{Client, OnBehalf};
use rushgate::payment::Keys;
use rushgate::payment::http::Target;
use rushgate::protocol::{ActivityId, Order, OrderNumber, Request};
use rushgate::rehearsal::{PayCentre, PayFaults};
use rushgate_servers::{Database, FaultyLink};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::error::{DrillError, Result};
use crate::layout::{ACTIVITY, PRICE_MINOR};
use crate::pay_side;

const KEY: &str = "the key that both sides of a drill's payments sign with";
/// How far around the pay-by people pay who pay then.
const ABOUT: Duration = Duration::from_millis(700);
/// How long after it those come who are too late.
const LATE: Duration = Duration::from_secs(2);
const CANCEL_MAX: Duration = Duration::from_secs(10);

/// How orders of a drill are paid.
#[derive(Clone, Debug)]
pub(crate) struct PayPlan {
    /// From the settlement to the pay-by.
    pub(crate) pay_within: Duration,
    /// How badly the payment centre works.
    pub(crate) faults: PayFaults,
    /// Share of buyers who do nothing about their orders.
    pub(crate) never_percent: u64,
    /// Orders in one question of a writer.
    pub(crate) ask_orders_max: u32,
}

impl PayPlan {
    /// A good payment centre; a quarter of the buyers does nothing.
    pub(crate) fn new(seed: u64, pay_within: Duration) -> Self {
        let faults = PayFaults { seed, ..PayFaults::default() };
        Self { pay_within, faults, never_percent: 25, ask_orders_max: 200 }
    }
}

/// What a buyer does about his order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Never,
    /// Mostly before the order is settled.
    AtOnce,
    AboutPayBy,
    WhenClosed,
    Cancels,
}

/// An order that somebody was told to be his.
#[derive(Clone, Copy, Debug)]
struct Bought {
    user: u64,
    number: u64,
    quantity: u16,
}

/// What the payment centre took and refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// Amounts by order number.
    pub(crate) paid: BTreeMap<u64, u64>,
    /// Orders that it called closed.
    pub(crate) refused: BTreeSet<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Till {
    inner: Arc<Inner>,
    link: FaultyLink,
    door: Door,
    config: String,
    _buyers: JoinSet<()>,
}

/// Through which buyers hear of their orders. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    orders: mpsc::UnboundedSender<Bought>,
    till: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    centre: PayCentre,
    plan: PayPlan,
    is_open: watch::Sender<bool>,
    taken: Mutex<Taken>,
    /// Buyers who have not done yet what they mean to do.
    about_to: AtomicU64,
}

impl Inner {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same in every run of a seed.
    fn habit(&self, user: u64) -> (Habit, fastrand::Rng) {
        let seed = self.plan.faults.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ user;
        let mut random = fastrand::Rng::with_seed(seed);
        random.u64(..);
        if random.u64(..100) < self.plan.never_percent {
            return (Habit::Never, random);
        }
        let habit = match random.u8(..100) {
            0..40 => Habit::AtOnce,
            40..75 => Habit::AboutPayBy,
            75..85 => Habit::WhenClosed,
            _ => Habit::Cancels,
        };
        (habit, random)
    }
}

impl Till {
    /// Starts it; it tells writers on these ports.
    pub(crate) async fn start(plan: &PayPlan, folder: &Path, writers: &[u16]) -> Result<Self> {
        let key_file = folder.join("payment.key");
        fs::write(&key_file, KEY).map_err(DrillError::io("writing the key of the payment centre"))?;
        let malformed = |what: String| DrillError::Malformed(format!("the payment centre: {what}"));
        let keys = Keys::read(&key_file, None).map_err(|error| malformed(error.to_string()))?;
        let targets = writers.iter().map(|port| format!("http://127.0.0.1:{port}").parse::<Target>());
        let targets = targets.collect::<Result<Vec<_>, _>>().map_err(|error| malformed(error.to_string()))?;
        let io = || DrillError::io("starting the payment centre");
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io())?;
        let centre = PayCentre::start(listener, keys, targets, plan.faults.clone()).map_err(io())?;
        let link = FaultyLink::start(centre.address()).await?;
        let config = format!(
            "[payment]\nkey_file = \"{}\"\ncentre_url = \"http://{}\"\nask_timeout = \"500ms\"\nretry_max = \"1s\"\n\
             alarm_after = \"1s\"\nask_orders_max = {}\n",
            key_file.display(),
            link.address(),
            plan.ask_orders_max,
        );
        let till = Arc::new(Inner {
            centre,
            plan: plan.clone(),
            is_open: watch::channel(true).0,
            taken: Mutex::default(),
            about_to: AtomicU64::new(0),
        });
        let (orders, heard) = mpsc::unbounded_channel();
        let mut buyers = JoinSet::new();
        buyers.spawn(serve(Arc::clone(&till), heard));
        let door = Door { orders, till: Arc::clone(&till) };
        Ok(Self { inner: till, link, door, config, _buyers: buyers })
    }

    /// The section of a configuration.
    pub(crate) fn config(&self) -> &str {
        &self.config
    }

    pub(crate) fn door(&self) -> Door {
        self.door.clone()
    }

    pub(crate) fn pay_within(&self) -> Duration {
        self.inner.plan.pay_within
    }

    /// Nobody can pay any more, and nobody is answered.
    pub(crate) fn go_away(&self) {
        self.inner.is_open.send_replace(false);
        self.link.refuse(true);
        self.link.cut();
    }

    /// It is back, with what it knew.
    pub(crate) fn come_back(&self) {
        self.link.refuse(false);
        self.inner.is_open.send_replace(true);
    }

    pub(crate) fn taken(&self) -> Taken {
        self.inner.taken().clone()
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        self.inner.centre.stats().get(name).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    /// What has happened there, in words.
    pub(crate) fn told(&self) -> String {
        format!("the payment centre: {}", self.inner.centre.stats())
    }

    /// What is not over yet: orders that wait for their payment, payments that are not in SQL or wait there.
    pub(crate) async fn unfinished(&self, database: &Database) -> Result<Vec<String>> {
        let standing = pay_side::standing(database).await?;
        let about_to = self.inner.about_to.load(Ordering::Relaxed);
        let told = self.stat("orders_paid") + self.stat("paid_late");
        let checks = [
            (standing.unpaid > 0, format!("{} orders wait for their payment", standing.unpaid)),
            (standing.parked > 0, format!("{} payments wait for their order", standing.parked)),
            (about_to > 0, format!("{about_to} buyers are about to pay")),
            (standing.payments != told, format!("{} payments of {told} are in SQL", standing.payments)),
        ];
        Ok(checks.into_iter().filter_map(|(is_so, what)| is_so.then_some(what)).collect())
    }
}

impl Door {
    /// A buyer was told of his order.
    pub(crate) fn hear(&self, user: u64, order: &Order) {
        if order.state.is_live() {
            // Nobody listens only while everything ends.
            let _ = self.orders.send(Bought { user, number: order.number.0, quantity: order.quantity });
        }
    }

    /// A buyer who cancels does so. What he is told is not final, whatever it is.
    pub(crate) async fn cancel(
        &self,
        client: &Client,
        on_behalf: Option<&OnBehalf<'_>>,
        user: u64,
        order: OrderNumber,
    ) {
        if self.till.habit(user).0 == Habit::Cancels {
            let request = Request::Cancel { activity: ActivityId(ACTIVITY), order };
            let _ = client.ask(&request, on_behalf, Instant::now() + CANCEL_MAX).await;
        }
    }
}

async fn serve(till: Arc<Inner>, mut heard: mpsc::UnboundedReceiver<Bought>) {
    let (mut known, mut buyers) = (BTreeSet::new(), JoinSet::new());
    while let Some(bought) = heard.recv().await {
        if known.insert(bought.number) {
            till.about_to.fetch_add(1, Ordering::Relaxed);
            buyers.spawn(act(Arc::clone(&till), bought));
        }
        while buyers.try_join_next().is_some() {}
    }
}

async fn act(till: Arc<Inner>, bought: Bought) {
    pay(&till, bought).await;
    till.about_to.fetch_sub(1, Ordering::Relaxed);
}

async fn pay(till: &Inner, Bought { user, number, quantity }: Bought) {
    let (habit, mut random) = till.habit(user);
    let pay_by = till.plan.pay_within;
    let delay = match habit {
        Habit::Never | Habit::Cancels => return,
        Habit::AtOnce => ABOUT.mul_f64(random.f64() / 10.0),
        Habit::AboutPayBy => pay_by.saturating_sub(ABOUT) + ABOUT.mul_f64(2.0 * random.f64()),
        Habit::WhenClosed => pay_by + LATE,
    };
    sleep(delay).await;
    let mut is_open = till.is_open.subscribe();
    if is_open.wait_for(|is_open| *is_open).await.is_err() {
        return;
    }
    let amount_minor = PRICE_MINOR * u64::from(quantity);
    if till.centre.pay(OrderNumber(number), amount_minor) {
        till.taken().paid.insert(number, amount_minor);
    } else {
        till.taken().refused.insert(number);
    }
}
