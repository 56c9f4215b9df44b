//! The users of a drill: each buys once, some twice at once, some again after the answer; a few hold a connection of
//! their own and wait there for the result. What each was told is written down in the order of telling.
//!
//! One task per user; they begin spread over the sale's time, so that a fault finds some before, some in the middle
//! of, and some after their purchase.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rushgate::admission::identity::{IdentityKind, Minter};
use rushgate::client::{
    Client, Exchange, Identity, Known, OnBehalf, Outcome, Patience, Purchase, Push, Settings,
};
use rushgate::protocol::{ActivityId, ActivityState, Order, Reply, Request, SkuId, Status, UserId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::error::{DrillError, Result};
use crate::layout::ACTIVITY;
use crate::shop::Shop;
use crate::till::Door;
use crate::told::{Asked, Heard, Told, UserTold, order_in};

const TOKEN_VALID_FOR: Duration = Duration::from_secs(86_400);
const CONNECTIONS: usize = 6;
/// One user in so many has a connection of his own.
const APP_EVERY: u64 = 40;
const PUSHES_MAX: usize = 16_384;
/// A moment of the sale that the drill waits for.
const MOMENT_MAX: Duration = Duration::from_secs(60);
const KNOWN_MAX: Duration = Duration::from_secs(20);
const ASKED_AT_ONCE: usize = 64;

/// Who comes.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    pub(crate) users: u64,
    pub(crate) first_user: u64,
    /// All have come by then.
    pub(crate) spread: Duration,
    /// How long a user goes on trying.
    pub(crate) patience: Duration,
    /// Share of users (percent) who want two units.
    pub(crate) pairs_percent: u8,
    /// Every service connection speaks with one gateway alone, whatever happens to it.
    pub(crate) is_pinned: bool,
    /// To these gateways only; none: all.
    pub(crate) gateways: Option<Vec<usize>>,
    pub(crate) seed: u64,
}

impl Crowd {
    pub(crate) fn new(shop: &Shop, seed: u64) -> Self {
        let is_quick = shop.premises.is_quick;
        Self {
            users: if is_quick { 1_200 } else { 3_000 },
            first_user: 1,
            spread: Duration::from_millis(if is_quick { 700 } else { 1_500 }),
            patience: Duration::from_secs(25),
            pairs_percent: 15,
            is_pinned: false,
            gateways: None,
            seed,
        }
    }
}

/// What was told so far.
#[derive(Debug, Default)]
struct Book {
    by_user: Mutex<BTreeMap<u64, Vec<Heard>>>,
    next_place: AtomicU64,
    /// To where orders are paid.
    till: Option<Door>,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Heard>>> {
        self.by_user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, user: u64, heard: Heard) {
        if let (Some(till), Some(order)) = (&self.till, &heard.order) {
            till.hear(user, order);
        }
        let place = self.next_place.fetch_add(1, Ordering::Relaxed);
        self.lock().entry(user).or_default().push(Heard { place, ..heard });
    }
}

/// A sale that is going on.
#[derive(Debug)]
pub(crate) struct Sale {
    buying: JoinSet<(u64, UserTold)>,
    collecting: JoinSet<()>,
    book: Arc<Book>,
    queued: watch::Receiver<u64>,
    answered: BTreeMap<u64, UserTold>,
    clients: Vec<Arc<Client>>,
}

/// What one user sets out to do.
#[derive(Clone, Copy, Debug)]
struct Part {
    user: u64,
    sku: u16,
    quantity: u16,
    copies: usize,
    buys_again: bool,
    begins_at: Instant,
    until: Instant,
}

impl Sale {
    /// Waits until every gateway sells, then lets the crowd in.
    pub(crate) async fn begin(shop: &Shop, crowd: &Crowd) -> Result<Self> {
        let minter = Arc::new(shop.minter()?);
        let gateways: Vec<usize> = crowd.gateways.clone().unwrap_or_else(|| (0..shop.addrs.len()).collect());
        let addrs: Vec<SocketAddr> =
            gateways.iter().filter_map(|nth| shop.addrs.get(*nth).copied()).collect();
        for addr in &addrs {
            is_open(&minter, *addr).await?;
        }
        let till = shop.till.as_ref().map(crate::till::Till::door);
        let book = Arc::new(Book { till, ..Book::default() });
        let (count, queued) = watch::channel(0);
        let mut sale = Self {
            buying: JoinSet::new(),
            collecting: JoinSet::new(),
            book,
            queued,
            answered: BTreeMap::new(),
            clients: Vec::new(),
        };
        let mut doors = Vec::new();
        for nth in 0..CONNECTIONS {
            let gateway = gateways.get(nth % gateways.len().max(1)).copied().filter(|_| crowd.is_pinned);
            let to =
                gateway.and_then(|gateway| shop.addrs.get(gateway)).map_or(addrs.clone(), |addr| vec![*addr]);
            doors.push((sale.client(&minter, &to, IdentityKind::Service, 0), gateway));
        }
        let mut random = fastrand::Rng::with_seed(crowd.seed ^ 0x5EED_0FB1);
        let (now, skus) = (Instant::now(), shop.plan.stock.clone());
        for index in 0..crowd.users {
            let part = part(crowd, &skus, &mut random, index, now);
            let has_own = index % APP_EVERY == 0 && !crowd.is_pinned;
            let (client, gateway) = if has_own {
                let kind = IdentityKind::App(UserId(part.user));
                (sale.client(&minter, &addrs, kind, part.user), None)
            } else {
                let door = usize::try_from(index).ok().and_then(|index| doors.get(index % CONNECTIONS));
                door.cloned().ok_or_else(|| DrillError::Malformed("no connection".to_owned()))?
            };
            let (book, count) = (Arc::clone(&sale.book), count.clone());
            sale.buying.spawn(async move {
                let end = buy(&client, &part, !has_own, &book, &count).await;
                cancel(&client, part.user, !has_own, &book, &end).await;
                let told =
                    UserTold { sku: part.sku, quantity: part.quantity, gateway, heard: Vec::new(), end };
                (part.user, told)
            });
        }
        Ok(sale)
    }

    fn client(&mut self, minter: &Minter, to: &[SocketAddr], kind: IdentityKind, user: u64) -> Arc<Client> {
        let (pushes, pushed) = mpsc::channel(PUSHES_MAX);
        let client = Arc::new(client(minter, to, kind, pushes));
        self.collecting.spawn(collect(pushed, user, Arc::clone(&self.book)));
        self.clients.push(Arc::clone(&client));
        client
    }

    /// Waits until so many users were told QUEUED, or everybody was answered.
    pub(crate) async fn queued(&mut self, count: u64) -> Result<()> {
        let reached = timeout(MOMENT_MAX, self.queued.wait_for(|queued| *queued >= count)).await;
        // A closed channel: all have been answered.
        reached.map(drop).map_err(|_| DrillError::Late {
            what: format!("{count} users were not told QUEUED ({} were)", *self.queued.borrow()),
            waited: MOMENT_MAX,
        })
    }

    /// Waits until everybody has an answer or is out of patience.
    pub(crate) async fn answered(&mut self) -> Result<()> {
        while let Some(one) = self.buying.join_next().await {
            let (user, told) = one.map_err(|error| DrillError::Malformed(error.to_string()))?;
            self.answered.insert(user, told);
        }
        Ok(())
    }

    /// How much was told so far.
    pub(crate) fn place(&self) -> u64 {
        self.book.next_place.load(Ordering::Relaxed)
    }

    /// Numbers of the orders that users were told so far to be theirs.
    pub(crate) fn promised(&self) -> BTreeSet<u64> {
        let book = self.book.lock();
        let orders = book.values().flatten().filter_map(|heard| heard.order);
        orders.filter(|order| order.state.is_live()).map(|order| order.number.0).collect()
    }

    /// Closes the connections; what everybody was told.
    pub(crate) async fn close(mut self) -> Result<Told> {
        self.answered().await?;
        for client in std::mem::take(&mut self.clients) {
            client.close().await;
        }
        self.collecting.shutdown().await;
        let mut told = Told { users: self.answered };
        let book = std::mem::take(&mut *self.book.lock());
        for (user, heard) in book {
            if let Some(told) = told.users.get_mut(&user) {
                told.heard = heard;
            }
        }
        Ok(told)
    }
}

fn part(crowd: &Crowd, skus: &[u32], random: &mut fastrand::Rng, index: u64, now: Instant) -> Part {
    // As many users for a SKU as it has units, in proportion.
    let mut at = random.u32(..skus.iter().sum::<u32>().max(1));
    let mut sku = 1_u16;
    for (units, nth) in skus.iter().zip(1_u16..) {
        sku = nth;
        if at < *units {
            break;
        }
        at -= units;
    }
    let wants_pair = random.u8(..100) < crowd.pairs_percent;
    let delay = crowd.spread.mul_f64(random.f64());
    Part {
        user: crowd.first_user + index,
        sku,
        quantity: if wants_pair { 2 } else { 1 },
        copies: if random.u8(..100) < 5 { 2 } else { 1 },
        buys_again: random.u8(..100) < 10,
        begins_at: now + delay,
        until: now + delay + crowd.patience,
    }
}

async fn buy(
    client: &Client,
    part: &Part,
    is_service: bool,
    book: &Book,
    count: &watch::Sender<u64>,
) -> Outcome {
    sleep_until(part.begins_at).await;
    let on_behalf = is_service.then_some(OnBehalf {
        user: UserId(part.user),
        client_addr: None,
        device: None,
        claims: None,
    });
    let mut purchase = Purchase {
        activity: ActivityId(ACTIVITY),
        sku: SkuId(part.sku),
        quantity: part.quantity,
        on_behalf,
        copies: part.copies,
    };
    let mut observe = |exchange: Exchange<'_>| {
        let heard = Heard::of_exchange(&exchange);
        book.note(part.user, heard);
        if heard.is(Status::Queued) {
            count.send_modify(|count| *count += 1);
        }
    };
    let patience = Patience { until: part.until, insufficient_max: 8 };
    let end = client.buy_until_final(&purchase, patience, &mut observe).await;
    if !part.buys_again || !matches!(end, Outcome::Won(_) | Outcome::Refused(_)) {
        return end;
    }
    purchase.copies = 1;
    match client.buy_until_final(&purchase, patience, &mut observe).await {
        again @ (Outcome::Won(_) | Outcome::Unknown) => again,
        _ => end,
    }
}

/// Whoever holds an order and does not want it any more says so.
async fn cancel(client: &Client, user: u64, is_service: bool, book: &Book, end: &Outcome) {
    if let (Some(till), Outcome::Won(order)) = (&book.till, end) {
        let of_user = OnBehalf { user: UserId(user), client_addr: None, device: None, claims: None };
        till.cancel(client, is_service.then_some(&of_user), user, order.number).await;
    }
}

/// Writes pushes down: of the user whose connection it is, or of the users of a shared one.
async fn collect(mut pushed: mpsc::Receiver<Push>, of_user: u64, book: Arc<Book>) {
    while let Some(push) = pushed.recv().await {
        let user = if of_user == 0 { push.user.map_or(0, |user| user.0) } else { of_user };
        if let Some(order) = order_in(&push.reply) {
            let status = Some(push.status);
            book.note(user, Heard { asked: Asked::Nothing, status, order: Some(order), place: 0 });
        }
    }
}

fn client(minter: &Minter, to: &[SocketAddr], kind: IdentityKind, pushes: mpsc::Sender<Push>) -> Client {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // A gateway refuses an empty token, and the user's history says so.
    let token = minter.mint(kind, now_s, TOKEN_VALID_FOR).unwrap_or_default();
    let settings = Settings {
        connect_timeout: Duration::from_secs(2),
        handshake_timeout: Duration::from_secs(4),
        request_timeout: Duration::from_secs(5),
        ..Settings::default()
    };
    Client::new(to, Identity::back_end(token), settings, pushes)
}

/// Waits until the gateway says that the activity is open.
async fn is_open(minter: &Minter, addr: SocketAddr) -> Result<()> {
    let client = client(minter, &[addr], IdentityKind::Service, mpsc::channel(1).0);
    let until = Instant::now() + MOMENT_MAX;
    let on_behalf = OnBehalf { user: UserId(1), client_addr: None, device: None, claims: None };
    let request = Request::Activity { activity: ActivityId(ACTIVITY) };
    loop {
        let answer = client.ask(&request, Some(&on_behalf), until).await;
        if let Ok(answer) = &answer
            && let Reply::Activity { info, .. } = &answer.reply
            && info.state == ActivityState::Open
        {
            client.close().await;
            return Ok(());
        }
        if Instant::now() >= until {
            let what = format!("the gateway at {addr} did not open the sale; it says {answer:?}");
            return Err(DrillError::Late { what, waited: MOMENT_MAX });
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// What every one of the users is told who asks that gateway for the result; users who got no answer are missing.
pub(crate) async fn results(
    shop: &Shop,
    gateway: usize,
    users: Vec<u64>,
) -> Result<BTreeMap<u64, Option<Order>>> {
    let addr = shop.addrs.get(gateway).copied();
    let addr = addr.ok_or_else(|| DrillError::Malformed(format!("no gateway {gateway}")))?;
    let asking = Arc::new(client(&shop.minter()?, &[addr], IdentityKind::Service, mpsc::channel(1).0));
    let until = Instant::now() + KNOWN_MAX;
    let mut tasks = JoinSet::new();
    let users = Arc::new(Mutex::new(users));
    for _ in 0..ASKED_AT_ONCE {
        let (asking, users) = (Arc::clone(&asking), Arc::clone(&users));
        tasks.spawn(async move {
            let mut known = Vec::new();
            loop {
                let Some(user) = users.lock().unwrap_or_else(PoisonError::into_inner).pop() else {
                    return known;
                };
                let on_behalf =
                    OnBehalf { user: UserId(user), client_addr: None, device: None, claims: None };
                let activity = ActivityId(ACTIVITY);
                match asking.result_until_known(activity, Some(&on_behalf), until, &mut |_| {}).await {
                    Known::Order(order) => known.push((user, Some(order))),
                    Known::NoOrder => known.push((user, None)),
                    Known::Unknown => {}
                }
            }
        });
    }
    let known = tasks.join_all().await.into_iter().flatten().collect();
    asking.close().await;
    Ok(known)
}
