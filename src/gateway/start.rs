//! Starting a gateway, and ending it.
//!
//! Runs on the caller's task. A start that fails leaves nothing running.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::allow_lists::AllowLists;
use super::clock::Clock;
use super::conversation::Conversation;
use super::counters::Counters;
use super::desk::{Desk, Sells};
use super::door::{Door, Ticket};
use super::explain::Explain;
use super::funnel::Funnel;
use super::on_sale::Ties;
use super::ports::{self, ListenError};
use super::reserve::Reserve;
use super::risk::RiskState;
use super::sale_clock::SaleClock;
use super::slices::{Sharing, SharingState};
use super::stock_task::{StockState, StockTask};
use super::subscribers::Subscribers;
use super::switches::{Obeyed, SwitchState};
use super::tasks::Tasks;
use super::tls::TlsError;
use super::unpaid::UnpaidBook;
use super::{
    Core, Settings, cancels, catalogue, conduct, key_file, lookups, reserve_task, risk, sessions, slices,
    tls, worker_thread,
};
use crate::admission::identity::Verifier;
use crate::admission::limits::{KeyCounts, Limits};
use crate::stock::calls::ProcessNumber;
use crate::stock::{Board, Buyers, Stock};
use crate::store::{GatewayStore, Registration, ReservationStore, StoreError};

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is in use, or not ours to bind.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system gave no thread or no epoll.
    #[error("cannot start a worker thread: {0}; raise the limits on processes and descriptors")]
    Worker(io::Error),
    /// The store did not answer.
    #[error("cannot start on this store: {0}")]
    Store(#[from] StoreError),
}

/// A running gateway. Dropping it ends its tasks where they stand, and its workers with their connections.
#[derive(Debug)]
pub struct Gateway {
    core: Arc<Core>,
    process: ProcessNumber,
    addrs: ports::Addrs,
    stock_state: watch::Receiver<StockState>,
    reserve_state: Option<watch::Receiver<StockState>>,
    tasks: Tasks,
}

impl Gateway {
    /// Registers with the store, learns every shard, then opens the port.
    pub async fn start<S: GatewayStore>(
        settings: Settings,
        limits: Limits,
        verifier: Verifier,
        store: Arc<S>,
    ) -> Result<Self, StartError> {
        let tls = settings.tls.as_ref().map(tls::Acceptor::new).transpose()?;
        let (addrs, listeners) = ports::bind(&settings)?;
        let registration = register(store.as_ref()).await?;
        store.drive_loads().await?;
        let version = store.version().await?;
        let (board, buyers) = (Arc::new(Board::default()), Arc::new(Buyers::default()));
        let (lists, rates) = (AllowLists::default(), Arc::new(limits.rates()));
        let ties = Ties { board: &board, claims: verifier.claim_names(), lists: &lists };
        let ((lookups, lookup_task), (cancels, cancel_task)) =
            (lookups::new(&settings), cancels::new(&settings.stock));
        let (conduct, conduct_tasks) = conduct::new(&settings);
        let (sessions, session_task) = sessions::new();
        let funnel = Funnel {
            on_sale: ArcSwap::from_pointee(catalogue::on_sale(store.as_ref(), &ties, rates).await?),
            limits,
            risk: risk::rung(&settings.risk),
            explain: Explain::new(settings.risk.explain_slots),
            buyers: Arc::clone(&buyers),
            board: Arc::clone(&board),
            door: Arc::new(Door::new(settings.stock.queue_items_max)),
            gate: store.gate(),
            reserve: store.reserve().map(|_| Reserve::new(settings.stock.queue_items_max)),
            lookups,
            cancels,
            unpaid: UnpaidBook::default(),
        };
        let stock = engine(&settings, &registration, &board, &buyers);
        let core = Arc::new(Core {
            settings,
            clock: Clock::default(),
            verifier,
            funnel,
            subscribers: Subscribers::default(),
            counters: Counters::default(),
            conduct,
            switches: SwitchState::default(),
            risk: RiskState::default(),
            allow_lists: lists,
            sharing: SharingState::default(),
            sessions,
            tls,
            connections: AtomicUsize::new(0),
            connection_closed: Notify::new(),
            connection_ids: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            draining: watch::Sender::new(false),
            stopped: watch::Sender::new(false),
        });
        // Before anything reads the clock: it never moves back, so that this machine's time, read once, would stay.
        let sale_clock = SaleClock::default().start(Arc::clone(&core), Arc::clone(&store)).await?;
        let (state, mut stock_state) = watch::channel(StockState::default());
        let (desk, of_store) = (desk(&core, board), Arc::clone(&store));
        let stock_task = StockTask::new(Arc::clone(&core), desk, of_store, stock, state);
        let mut tasks = Tasks::default();
        tasks.spawn("the stock task", stock_task.run());
        tasks.extend(sale_clock);
        if stock_state.wait_for(|state| state.is_known).await.is_err() {
            return Err(StoreError::Unavailable("the stock task ended".to_owned()).into());
        }
        let reserve_state = follow_reserve(&core, store.reserve(), &registration, &mut tasks);
        tasks.spawn("looking up orders", lookup_task.run(Arc::clone(&core), Arc::clone(&store)));
        tasks.spawn("cancels", cancel_task.run(core.counters.sheet(), Arc::clone(&store)));
        tasks.extend([session_task.start(&core, &store)]);
        conduct_tasks.start(&core, &store, registration.process, &mut tasks);
        tasks.extend(slices::start(&core, &store, registration.process).await?);
        catalogue::follow(&core, store, version, &mut tasks).await?;
        let gateway = Self { core, process: registration.process, addrs, stock_state, reserve_state, tasks };
        start_threads(&gateway.core, listeners).map_err(StartError::Worker)?;
        Ok(gateway)
    }

    pub(super) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Where clients connect.
    pub const fn local_addr(&self) -> SocketAddr {
        self.addrs.clients
    }

    /// Where balancers connect, if anywhere.
    pub const fn proxy_addr(&self) -> Option<SocketAddr> {
        self.addrs.balancers
    }

    /// Where clients connect that speak TLS, if anywhere.
    pub const fn tls_addr(&self) -> Option<SocketAddr> {
        self.addrs.tls_clients
    }

    /// Where balancers connect that pass TLS on, if anywhere.
    pub const fn tls_proxy_addr(&self) -> Option<SocketAddr> {
        self.addrs.tls_balancers
    }

    /// How TLS stands, where it is spoken.
    pub fn tls(&self) -> Option<TlsStatus> {
        let acceptor = self.core.tls.as_ref()?;
        Some(TlsStatus { expires_s: acceptor.expires_s(), handshakes: acceptor.handshakes() })
    }

    /// The number under which the store knows it.
    pub const fn process(&self) -> ProcessNumber {
        self.process
    }

    /// The switches that it obeys, and every change of them.
    pub fn switches(&self) -> watch::Receiver<Arc<Obeyed>> {
        self.core.switches.obeyed()
    }

    /// For how long the store has not confirmed them, in milliseconds.
    pub fn switches_age_ms(&self) -> u64 {
        self.core.switches.age_ms(self.core.clock.now().mono_ms())
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.core.connections.load(Ordering::Acquire)
    }

    /// Purchases accepted and not answered yet.
    pub fn unfinished(&self) -> usize {
        let funnel = &self.core.funnel;
        let at_the_doors =
            funnel.door.len().saturating_add(funnel.reserve.as_ref().map_or(0, |reserve| reserve.door.len()));
        let of_reserve = self.reserve_state.as_ref().map_or(0, |state| state.borrow().unfinished);
        self.stock_state.borrow().unfinished.saturating_add(of_reserve).saturating_add(at_the_doors)
    }

    /// Why the gateway should not be sent clients; empty when it may.
    pub fn not_ready(&self) -> Vec<&'static str> {
        let state = *self.stock_state.borrow();
        let now_ms = self.core.clock.now().mono_ms();
        if let Some(reserve) = self.reserve_state.as_ref().filter(|_| self.sells_the_reserve()) {
            let patience = Duration::from_millis(self.core.settings.stock.unconfirmed_after_ms);
            let reasons = reserve_task::not_ready(*reserve.borrow(), now_ms, patience);
            return self.core.is_draining().then_some("draining").into_iter().chain(reasons).collect();
        }
        let answer_by_ms =
            |sent_ms: u64| sent_ms.saturating_add(self.core.settings.stock.unconfirmed_after_ms);
        let reasons = [
            (self.core.is_draining(), "draining"),
            (!state.is_known, "a shard is not known yet"),
            (state.is_fenced, "another process uses this one's number; restart this one"),
            (!self.core.funnel.board.is_fresh(now_ms), "the feeds lag behind their bound"),
            (
                state.oldest_call_ms.is_some_and(|sent_ms| answer_by_ms(sent_ms) < now_ms),
                "the store does not answer calls",
            ),
        ];
        reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect()
    }

    /// Whether everything is sold from the reserve in the database.
    pub fn sells_the_reserve(&self) -> bool {
        self.core.funnel.gate.is_all_database()
    }

    /// How the limits are shared with other gateways.
    pub fn sharing(&self) -> Sharing {
        self.core.sharing.read(self.core.clock.now())
    }

    /// How full the memory of the rate limits is.
    pub fn limiter_keys(&self) -> KeyCounts {
        self.core.funnel.limits.key_counts()
    }

    /// How many keys tokens are checked with.
    pub fn token_keys(&self) -> usize {
        self.core.verifier.key_count()
    }

    /// A conversation that no socket belongs to: what would a client at `from` be answered?
    pub fn conversation(&self, from: IpAddr) -> Conversation {
        Conversation::apart(&self.core, from)
    }

    /// Ends it where it stands, as the death of its process would: nothing is told to anybody.
    pub fn stop(&self) {
        self.tasks.abort();
        self.core.stopped.send_replace(true);
    }

    /// Ends it: accepts nothing more, says GOAWAY, answers everything accepted, closes what is left after the
    /// drain timeout. True if everything accepted was answered.
    pub async fn drain(&self) -> bool {
        self.core.drain();
        let timeout = self.core.settings.drain_timeout.saturating_add(Duration::from_secs(1));
        let closed = async {
            loop {
                let next = self.core.connection_closed.notified();
                if self.connections() == 0 {
                    return;
                }
                next.await;
            }
        };
        // Who is still there is closed with the tasks.
        let _ = tokio::time::timeout(timeout, closed).await;
        let unconfirmed_after = Duration::from_millis(self.core.settings.stock.unconfirmed_after_ms);
        let (mut stock_state, mut reserve_state) = (self.stock_state.clone(), self.reserve_state.clone());
        let answered = async {
            while self.unfinished() > 0 {
                if !reserve_task::changed(&mut stock_state, reserve_state.as_mut()).await {
                    return;
                }
            }
        };
        let answered = tokio::time::timeout(unconfirmed_after, answered).await.is_ok();
        self.stop();
        answered && self.unfinished() == 0
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How TLS stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsStatus {
    /// When the certificate is not good any more, in Unix seconds.
    pub expires_s: u64,
    /// Handshakes under way.
    pub handshakes: usize,
}

/// Those that follow files, and those that serve.
fn start_threads(core: &Arc<Core>, listeners: Vec<ports::Listeners>) -> io::Result<()> {
    key_file::follow(core)?;
    tls::follow(core)?;
    worker_thread::start_all(core, listeners)
}

async fn register<S: GatewayStore>(store: &S) -> Result<Registration, StoreError> {
    let registration = store.register().await?;
    let (process, generation) = (registration.process.0, registration.generation.0);
    tracing::info!(process, generation, "registered with the store");
    Ok(registration)
}

/// What the stock task sells from.
fn desk(core: &Core, board: Arc<Board>) -> Desk {
    let (door, gate) = (Arc::clone(&core.funnel.door), Arc::clone(&core.funnel.gate));
    Desk { door, board, gate, sells: Sells::Store }
}

/// The reserve's stock task, where there is a reserve.
fn follow_reserve<R: ReservationStore>(
    core: &Arc<Core>,
    store: Option<Arc<R>>,
    registration: &Registration,
    tasks: &mut Tasks,
) -> Option<watch::Receiver<StockState>> {
    let (store, reserve) = (store?, core.funnel.reserve.as_ref()?);
    let stock = engine(&core.settings, registration, &reserve.board, &reserve.buyers).of_reserve();
    Some(reserve_task::start(core, reserve, store, stock, tasks))
}

/// What decides about stock.
fn engine(
    settings: &Settings,
    registration: &Registration,
    board: &Arc<Board>,
    buyers: &Arc<Buyers>,
) -> Stock<Ticket> {
    let Registration { process, generation, .. } = *registration;
    let (board, buyers) = (Arc::clone(board), Arc::clone(buyers));
    Stock::new(settings.stock, process, generation, buyers, board, fastrand::u64(..))
}
