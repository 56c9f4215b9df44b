//! What all tasks of a rehearsed sale share: the plan, the clock, tokens, and who is next.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::plan::{LISTENING_USERS_MAX, Part, SalePlan};
use super::progress::{Progress, Silent};
use super::recorder::Recorder;
use crate::admission::identity::{IdentityKind, Minter};
use crate::client::{Client, Identity, OnBehalf, Push, Settings};
use crate::protocol::{OrderNumber, UserId};

/// Tokens outlive every rehearsal.
const TOKEN_VALID_FOR: Duration = Duration::from_secs(86_400);
/// What all tasks of a sale share.
pub(super) struct Stage {
    pub(super) plan: SalePlan,
    /// Its clock starts with the sale.
    pub(super) recorder: Arc<Recorder>,
    pub(super) progress: Arc<dyn Progress>,
    minter: Arc<Minter>,
    /// Who buys, by index; `None`: everybody.
    who: Option<Vec<u32>>,
    next_user: AtomicU32,
    /// A user's whole patience passed without a gateway: the others do not wait as long again.
    gone: AtomicBool,
    listening: Arc<Semaphore>,
}

impl Stage {
    pub(super) fn new(
        plan: SalePlan,
        recorder: Recorder,
        progress: Arc<dyn Progress>,
        minter: Arc<Minter>,
    ) -> Self {
        let listening = Arc::new(Semaphore::new(LISTENING_USERS_MAX));
        let (next_user, gone) = (AtomicU32::new(0), AtomicBool::new(false));
        let recorder = Arc::new(recorder);
        Self { plan, recorder, progress, minter, who: None, next_user, gone, listening }
    }

    /// The same for some users, who come back; nobody is told how far they are.
    pub(super) fn next_wave(&self, who: Vec<u32>) -> Self {
        let mut plan = self.plan.clone();
        plan.connections = plan.connections.min(who.len()).max(1);
        Self {
            plan,
            recorder: Arc::clone(&self.recorder),
            progress: Arc::new(Silent),
            minter: Arc::clone(&self.minter),
            who: Some(who),
            next_user: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            listening: Arc::clone(&self.listening),
        }
    }

    /// A user has won this order: he pays for it, where winners do.
    pub(super) fn won(&self, order: OrderNumber, quantity: u16) {
        if let Some(life) = &self.plan.life {
            life.won(self.plan.seed, order, quantity);
        }
    }

    /// A client of one user, or of a back end.
    pub(super) fn client(&self, user: Option<UserId>, pushes: mpsc::Sender<Push>) -> Client {
        self.client_at(&self.plan.addrs, user, pushes)
    }

    /// The same, of these gateways.
    pub(super) fn client_at(
        &self,
        addrs: &[SocketAddr],
        user: Option<UserId>,
        pushes: mpsc::Sender<Push>,
    ) -> Client {
        let kind = user.map_or(IdentityKind::Service, IdentityKind::App);
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // The sale has minted one token before it began. Should a later one fail, the gateway refuses the empty
        // token, and the user's history says so.
        let token = self.minter.mint(kind, now_s, TOKEN_VALID_FOR).unwrap_or_default();
        let settings = Settings { tls: self.plan.tls.clone(), ..Settings::default() };
        let client = Client::new(addrs, Identity::back_end(token), settings, pushes);
        client.counting_buys(self.recorder.buys_sent())
    }

    /// Waits until one more user may listen elsewhere.
    pub(super) async fn may_listen(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.listening).acquire_owned().await.ok()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(super) fn set_gone(&self, is_gone: bool) {
        self.gone.store(is_gone, Ordering::Relaxed);
    }

    pub(super) fn on_behalf(part: &Part) -> OnBehalf<'static> {
        OnBehalf { user: part.user, client_addr: Some(part.client_addr), device: None, claims: None }
    }

    /// The next user's index, until all have been taken.
    pub(super) fn take_user(&self) -> Option<u32> {
        let nth = self.next_user.fetch_add(1, Ordering::Relaxed);
        match &self.who {
            Some(who) => who.get(usize::try_from(nth).ok()?).copied(),
            None => (nth < self.plan.users).then_some(nth),
        }
    }
}
