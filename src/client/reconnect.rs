//! A client whose connection is replaced when it ends.
//!
//! Shared by any number of tasks. One of them connects, the others wait for it; whoever connects sends its own
//! request in the first write. Waits are full jitter and never shorter than the gateway's hint. Once a gateway has said
//! that it does not serve this program, none is asked again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    Answer, Backoff, ClientError, EndReason, Identity, OnBehalf, Pending, Push, ServerClock, Session,
    Settings,
};
use crate::protocol::{Opcode, Request};

/// Sessions to one or several gateways, one at a time.
#[derive(Debug)]
pub struct Client {
    addrs: Vec<SocketAddr>,
    settings: Settings,
    pushes: mpsc::Sender<Push>,
    live: Mutex<Live>,
    connecting: tokio::sync::Mutex<Connecting>,
    connects: AtomicU64,
    /// BUYs that left, or were about to: shared with whoever counts them over many clients.
    buys_sent: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Live {
    identity: Identity,
    session: Option<Arc<Session>>,
    clock: ServerClock,
    /// Set when a session is lost: not before this instant again.
    not_before: Option<Instant>,
    /// The gateway's last word on this program: connecting again would only hear it again.
    turned_away: Option<ClientError>,
}

#[derive(Debug)]
struct Connecting {
    backoff: Backoff,
    next_addr: usize,
}

impl Client {
    /// A client that connects when it is first used. Pushes go to `pushes`; those that find it full are lost.
    /// Several addresses are tried in turn, from a random one on.
    pub fn new(
        addrs: &[SocketAddr],
        identity: Identity,
        settings: Settings,
        pushes: mpsc::Sender<Push>,
    ) -> Self {
        let next_addr = if addrs.is_empty() { 0 } else { fastrand::usize(..addrs.len()) };
        Self {
            addrs: addrs.to_vec(),
            settings,
            pushes,
            live: Mutex::new(Live {
                identity,
                session: None,
                clock: ServerClock::default(),
                not_before: None,
                turned_away: None,
            }),
            connecting: tokio::sync::Mutex::new(Connecting { backoff: Backoff::of_connections(), next_addr }),
            connects: AtomicU64::new(0),
            buys_sent: Arc::default(),
        }
    }

    /// Counts the BUYs that it sends there, each copy, whatever becomes of it: also those that left together with a
    /// HELLO or an AUTH that was refused.
    #[must_use]
    pub fn counting_buys(mut self, sent: Arc<AtomicU64>) -> Self {
        self.buys_sent = sent;
        self
    }

    /// Sends a request on the live session, or as part of a new one's first write, and waits for the answer.
    /// Connecting is tried until `until`.
    pub async fn ask(
        &self,
        request: &Request<'_>,
        on_behalf: Option<&OnBehalf<'_>>,
        until: Instant,
    ) -> Result<Answer, ClientError> {
        match self.start(request, on_behalf, 1, until).await?.pop() {
            Some(pending) => pending.await,
            None => Err(ClientError::Closed(EndReason::ClosedHere)),
        }
    }

    /// Queues `copies` of a request back to back. Fewer come back only if the session ended in between; at least
    /// one does. An error that is not [`ClientError::is_outcome_unknown`] means that nothing was sent.
    pub(super) async fn start(
        &self,
        request: &Request<'_>,
        on_behalf: Option<&OnBehalf<'_>>,
        copies: usize,
        until: Instant,
    ) -> Result<Vec<Pending>, ClientError> {
        loop {
            if let Some(session) = self.session() {
                match submit_copies(&session, request, on_behalf, copies).await {
                    Err(error) if error.is_for_another_connection() => self.forget(&session),
                    result => {
                        let queued = result.as_ref().map_or(0, Vec::len);
                        self.count_sent(request.opcode(), queued);
                        return result;
                    }
                }
            }
            let connecting = timeout_at(until, self.connecting.lock());
            let Ok(mut connecting) = connecting.await else {
                let why = ClientError::Connect { addr: self.addr(0)?, kind: std::io::ErrorKind::TimedOut };
                return Err(ClientError::Unreachable(Box::new(why)));
            };
            if self.session().is_some() {
                continue;
            }
            let first = vec![(*request, on_behalf.copied()); copies];
            return self.connect(&mut connecting, &first, until).await;
        }
    }

    async fn connect(
        &self,
        connecting: &mut Connecting,
        first: &[(Request<'_>, Option<OnBehalf<'_>>)],
        until: Instant,
    ) -> Result<Vec<Pending>, ClientError> {
        loop {
            if let Some(error) = self.lock().turned_away.clone() {
                return Err(error);
            }
            let not_before = self.lock().not_before.take();
            if let Some(at) = not_before {
                sleep_until(at.min(until)).await;
            }
            let addr = self.addr(connecting.next_addr)?;
            let identity = self.lock().identity.clone();
            self.connects.fetch_add(1, Ordering::Relaxed);
            let pushes = self.pushes.clone();
            let error = match Session::connect(addr, &identity, self.settings.clone(), first, pushes).await {
                Ok(connected) => {
                    connecting.backoff.reset();
                    let mut live = self.lock();
                    live.clock.learn_from(connected.session.clock());
                    live.session = Some(Arc::new(connected.session));
                    drop(live);
                    self.count_first(first);
                    return Ok(connected.first);
                }
                Err(error) => error,
            };
            if !matches!(
                error,
                ClientError::Connect { .. } | ClientError::Tls { .. } | ClientError::Identity(_)
            ) {
                self.count_first(first);
            }
            connecting.next_addr = connecting.next_addr.wrapping_add(1);
            let wait = connecting.backoff.next_wait(error.hint_ms());
            let at = Instant::now().checked_add(wait);
            self.lock().not_before = at;
            if error.is_final() {
                self.lock().turned_away = Some(error.clone());
            }
            if !error.is_for_another_connection() {
                return Err(error);
            }
            if at.is_none_or(|at| at >= until) {
                return Err(ClientError::Unreachable(Box::new(error)));
            }
        }
    }

    /// Stops using a session that ended or drains.
    pub(super) fn forget(&self, session: &Arc<Session>) {
        let mut live = self.lock();
        if !live.session.as_ref().is_some_and(|known| Arc::ptr_eq(known, session)) {
            return;
        }
        live.session = None;
        live.clock.learn_from(session.clock());
        let now = Instant::now();
        // Everybody was told the same instant, so the spread goes on top of it.
        let base = session.reconnect_at().unwrap_or(now).max(now);
        live.not_before = base.checked_add(Backoff::of_connections().next_wait(0));
    }

    /// Stops using the present session because the gateway asked for another connection.
    pub(super) fn move_on(&self, hint_ms: u32) {
        if let Some(session) = self.session() {
            self.forget(&session);
            let wait = Backoff::of_connections().next_wait_above(hint_ms);
            let mut live = self.lock();
            live.not_before = live.not_before.max(Instant::now().checked_add(wait));
        }
    }

    /// The session in use, if one is connected.
    pub fn session(&self) -> Option<Arc<Session>> {
        self.lock().session.clone()
    }

    /// Connects now if no session lives, trying until `until`.
    pub async fn connected(&self, until: Instant) -> Result<Arc<Session>, ClientError> {
        loop {
            match self.session() {
                Some(session) if session.is_usable() => return Ok(session),
                Some(session) => self.forget(&session),
                None => {}
            }
            // The heartbeat request makes the new session prove itself before it is handed out.
            match self.ask(&Request::Ping { client_time: 0 }, None, until).await {
                Ok(_) => {}
                Err(error) if error.is_outcome_unknown() && Instant::now() < until => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The token for the next connections; the live one is not touched.
    pub fn set_token(&self, token: String) {
        self.lock().identity.token = token;
    }

    /// The server's time in Unix milliseconds; `None` before the first connection.
    pub fn server_now_ms(&self) -> Option<u64> {
        self.clock().at(Instant::now())
    }

    /// The best estimate of the server's clock over all connections so far.
    pub fn clock(&self) -> ServerClock {
        let live = self.lock();
        let mut clock = live.clock;
        if let Some(session) = &live.session {
            clock.learn_from(session.clock());
        }
        clock
    }

    /// How often connecting was tried.
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Waits for what is outstanding and closes the connection; the next request opens another.
    pub async fn close(&self) {
        let session = {
            let mut live = self.lock();
            let session = live.session.take();
            if let Some(session) = &session {
                live.clock.learn_from(session.clock());
            }
            session
        };
        if let Some(session) = session {
            session.close().await;
        }
    }

    /// What left in a connection's first write.
    fn count_first(&self, first: &[(Request<'_>, Option<OnBehalf<'_>>)]) {
        for (request, _) in first {
            self.count_sent(request.opcode(), 1);
        }
    }

    fn count_sent(&self, opcode: Opcode, copies: usize) {
        if opcode == Opcode::Buy {
            self.buys_sent.fetch_add(u64::try_from(copies).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    fn addr(&self, index: usize) -> Result<SocketAddr, ClientError> {
        let index = index.checked_rem(self.addrs.len()).unwrap_or(0);
        self.addrs.get(index).copied().ok_or(ClientError::Identity("no gateway address was given"))
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn submit_copies(
    session: &Session,
    request: &Request<'_>,
    on_behalf: Option<&OnBehalf<'_>>,
    copies: usize,
) -> Result<Vec<Pending>, ClientError> {
    let mut pending = Vec::with_capacity(copies);
    for _ in 0..copies {
        match session.submit(request, on_behalf).await {
            Ok(queued) => pending.push(queued),
            Err(error) if pending.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(pending)
}
