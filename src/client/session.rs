//! One connection to a gateway, shared by any number of tasks.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::pending::Pending;
use super::shared::Shared;
use super::tls::Wire;
use super::{Answer, ClientError, EndReason, Identity, OnBehalf, Push, ServerClock, Settings, connection};
use crate::protocol::frame::{FRAME_BYTES_MAX_BEFORE_AUTH, HEADER_BYTES};
use crate::protocol::{
    ActivityId, ConnectionKind, DEVICE_BYTES_MAX, Opcode, OrderNumber, Reply, Request, SkuId, StatusClass,
    UserId,
};

/// What the gateway said in HELLO's and AUTH's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Names the connection in the gateway's logs.
    pub connection_id: u64,
    /// Something has to be sent at least this often; the session sees to it.
    pub keepalive_ms: u32,
    /// The connection's user; `None` on a service connection.
    pub user: Option<UserId>,
    /// App or service.
    pub kind: ConnectionKind,
    /// Unix milliseconds at which the token expires.
    pub expires_at_ms: u64,
    /// Greatest number of BUYs unanswered at a time; the session waits rather than exceed it.
    pub in_flight_max: u16,
}

/// A fresh session, and the requests that left in its first write.
#[derive(Debug)]
pub struct Connected {
    /// The session.
    pub session: Session,
    /// The gateway's terms.
    pub welcome: Welcome,
    /// One per first request, in order.
    pub first: Vec<Pending>,
}

/// One authenticated connection. Dropping it lets outstanding requests be answered, then closes.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Session {
    /// Connects and authenticates; HELLO, AUTH and `first` leave in one write. BUYs among `first` count as in
    /// flight, but are not held back. Pushes go to `pushes`; those that find it full are lost.
    ///
    /// An error with [`ClientError::is_outcome_unknown`] leaves the outcome of `first` unknown.
    pub async fn connect(
        addr: SocketAddr,
        identity: &Identity,
        settings: Settings,
        first: &[(Request<'_>, Option<OnBehalf<'_>>)],
        pushes: mpsc::Sender<Push>,
    ) -> Result<Connected, ClientError> {
        check_identity(identity)?;
        let wire = open_wire(addr, &settings).await?;
        let (handshake_timeout, request_timeout) = (settings.handshake_timeout, settings.request_timeout);
        let shared = Arc::new(Shared::new(settings));
        let hello = Request::Hello { version: identity.version, device: &identity.device };
        let auth = Request::Auth { token: identity.token.as_bytes() };
        let hello = shared.queue(&hello, None, handshake_timeout)?;
        let auth = shared.queue(&auth, None, handshake_timeout)?;
        let mut pending = Vec::with_capacity(first.len());
        for (request, on_behalf) in first {
            pending.push(shared.queue(request, on_behalf.as_ref(), request_timeout)?);
        }
        let task = tokio::spawn(connection::run(wire, Arc::clone(&shared), pushes));
        let welcome = match shake_hands(&shared, hello, auth).await {
            Ok(welcome) => welcome,
            Err(error) => {
                task.abort();
                return Err(error);
            }
        };
        let first_buys = first.iter().filter(|(request, _)| request.opcode() == Opcode::Buy).count();
        let permits = usize::from(welcome.in_flight_max.max(1)).saturating_sub(first_buys);
        shared.permits.add_permits(permits);
        let session = Self { shared, task: Mutex::new(Some(task)) };
        Ok(Connected { session, welcome, first: pending })
    }

    /// Queues a request; waits while as many BUYs are unanswered as the gateway admits. An error means that
    /// nothing was sent.
    pub async fn submit(
        &self,
        request: &Request<'_>,
        on_behalf: Option<&OnBehalf<'_>>,
    ) -> Result<Pending, ClientError> {
        let request_timeout = self.shared.settings.request_timeout;
        if request.opcode() != Opcode::Buy {
            return self.shared.queue(request, on_behalf, request_timeout);
        }
        let permits = &self.shared.permits;
        let permit = match permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => match timeout(request_timeout, permits.acquire()).await {
                Ok(Ok(permit)) => permit,
                Ok(Err(_)) => return Err(self.why_closed()),
                Err(_) => {
                    let in_flight = self.shared.lock().slots.len();
                    return Err(ClientError::InFlightFull { in_flight });
                }
            },
        };
        let pending = self.shared.queue(request, on_behalf, request_timeout)?;
        // The reply gives it back.
        permit.forget();
        Ok(pending)
    }

    /// Sends a request and waits for its answer.
    pub async fn ask(
        &self,
        request: &Request<'_>,
        on_behalf: Option<&OnBehalf<'_>>,
    ) -> Result<Answer, ClientError> {
        self.submit(request, on_behalf).await?.await
    }

    /// BUY on an app connection.
    pub async fn buy(&self, activity: ActivityId, sku: SkuId, quantity: u16) -> Result<Answer, ClientError> {
        self.ask(&Request::Buy { activity, sku, quantity }, None).await
    }

    /// BUY for a user of a service connection.
    pub async fn buy_for(
        &self,
        on_behalf: &OnBehalf<'_>,
        activity: ActivityId,
        sku: SkuId,
        quantity: u16,
    ) -> Result<Answer, ClientError> {
        self.ask(&Request::Buy { activity, sku, quantity }, Some(on_behalf)).await
    }

    /// RESULT; `on_behalf` on service connections.
    pub async fn result(
        &self,
        activity: ActivityId,
        on_behalf: Option<&OnBehalf<'_>>,
    ) -> Result<Answer, ClientError> {
        self.ask(&Request::Result { activity }, on_behalf).await
    }

    /// CANCEL of an unpaid order of one's own; `on_behalf` on service connections.
    pub async fn cancel(
        &self,
        activity: ActivityId,
        order: OrderNumber,
        on_behalf: Option<&OnBehalf<'_>>,
    ) -> Result<Answer, ClientError> {
        self.ask(&Request::Cancel { activity, order }, on_behalf).await
    }

    /// ACTIVITY; `on_behalf` on service connections.
    pub async fn activity(
        &self,
        activity: ActivityId,
        on_behalf: Option<&OnBehalf<'_>>,
    ) -> Result<Answer, ClientError> {
        self.ask(&Request::Activity { activity }, on_behalf).await
    }

    /// PING; also a sample of the server's clock.
    pub async fn ping(&self) -> Result<Answer, ClientError> {
        self.ask(&Request::Ping { client_time: fastrand::u64(..) }, None).await
    }

    /// CHALLENGE; `NOT_REQUIRED` where the activity asks for none.
    pub async fn challenge(
        &self,
        activity: ActivityId,
        on_behalf: Option<&OnBehalf<'_>>,
    ) -> Result<Answer, ClientError> {
        self.ask(&Request::Challenge { activity }, on_behalf).await
    }

    /// TOKEN; `NOT_REQUIRED` where the activity asks for none.
    pub async fn token(
        &self,
        activity: ActivityId,
        sku: SkuId,
        on_behalf: Option<&OnBehalf<'_>>,
    ) -> Result<Answer, ClientError> {
        self.ask(&Request::Token { activity, sku }, on_behalf).await
    }

    /// AUTH again with a fresh token of the same user, before the old one expires.
    pub async fn authenticate_again(&self, token: &str) -> Result<Answer, ClientError> {
        self.ask(&Request::Auth { token: token.as_bytes() }, None).await
    }

    /// Whether new requests can be sent: not ended, not draining, not closed.
    pub fn is_usable(&self) -> bool {
        self.shared.lock().check_open().is_ok()
    }

    /// Why it ended; `None` while it lives.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.shared.lock().ended
    }

    /// After the gateway's GOAWAY: when to connect again at the earliest.
    pub fn reconnect_at(&self) -> Option<Instant> {
        self.shared.lock().reconnect_at
    }

    /// What this connection knows of the server's clock.
    pub fn clock(&self) -> ServerClock {
        self.shared.lock().clock
    }

    /// Pushes lost because nobody took them in time.
    pub fn pushes_dropped(&self) -> u64 {
        self.shared.lock().pushes_dropped
    }

    /// Waits for what is outstanding, says GOAWAY and closes. When this returns, the socket is closed.
    pub async fn close(&self) {
        self.start_closing();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut task) = task else { return };
        let settings = &self.shared.settings;
        let limit = settings.request_timeout.saturating_add(settings.close_timeout);
        if timeout(limit, &mut task).await.is_err() {
            task.abort();
            self.shared.end(EndReason::ClosedHere);
        }
    }

    fn start_closing(&self) {
        self.shared.lock().closing = true;
        self.shared.wake.notify_one();
    }

    fn why_closed(&self) -> ClientError {
        self.shared.lock().check_open().err().unwrap_or(ClientError::Closed(EndReason::ClosedHere))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.start_closing();
    }
}

fn check_identity(identity: &Identity) -> Result<(), ClientError> {
    // AUTH is the header, the token's two bytes of length and the token.
    if identity.token.len() > FRAME_BYTES_MAX_BEFORE_AUTH.saturating_sub(HEADER_BYTES).saturating_sub(2) {
        return Err(ClientError::Identity(
            "the token is longer than 998 bytes and does not fit AUTH's frame",
        ));
    }
    if identity.device.len() > DEVICE_BYTES_MAX {
        return Err(ClientError::Identity("the device id is longer than 64 bytes"));
    }
    Ok(())
}

async fn open_wire(addr: SocketAddr, settings: &Settings) -> Result<Wire, ClientError> {
    let opened = timeout(settings.connect_timeout, async {
        let stream = TcpStream::connect(addr).await.map_err(|error| connect_failed(addr, &error))?;
        stream.set_nodelay(true).map_err(|error| connect_failed(addr, &error))?;
        let Some(tls) = &settings.tls else { return Ok(Wire::Left(stream)) };
        let shaken = tls.connect(stream).await;
        shaken.map_err(|error| ClientError::Tls { addr, why: error.to_string() })
    });
    opened.await.unwrap_or(Err(ClientError::Connect { addr, kind: io::ErrorKind::TimedOut }))
}

fn connect_failed(addr: SocketAddr, error: &io::Error) -> ClientError {
    ClientError::Connect { addr, kind: error.kind() }
}

async fn shake_hands(shared: &Shared, hello: Pending, auth: Pending) -> Result<Welcome, ClientError> {
    let hello = handshake_step(shared, Opcode::Hello, hello).await?;
    let Reply::Hello { connection_id, keepalive_ms, .. } = hello.reply else {
        return Err(ClientError::BadReply { status: hello.status });
    };
    let auth = handshake_step(shared, Opcode::Auth, auth).await?;
    let Reply::Auth { user, expires_at_ms, kind, in_flight_max } = auth.reply else {
        return Err(ClientError::BadReply { status: auth.status });
    };
    Ok(Welcome { connection_id, keepalive_ms, user, kind, expires_at_ms, in_flight_max })
}

async fn handshake_step(shared: &Shared, at: Opcode, pending: Pending) -> Result<Answer, ClientError> {
    match pending.await {
        Ok(answer) if answer.class() == StatusClass::Ok => Ok(answer),
        Ok(answer) => {
            let message = match answer.reply {
                Reply::Error { message } => message,
                Reply::Upgrade { min_version } => upgrade_advice(min_version),
                _ => String::new(),
            };
            Err(ClientError::Refused { at, status: answer.status, hint_ms: answer.hint_ms, message })
        }
        // An ERROR in place of HELLO's or AUTH's reply: the gateway read no further.
        Err(ClientError::Lost(EndReason::Told(_))) => {
            let told = shared.lock().told.clone();
            Err(told.map_or(ClientError::Lost(EndReason::PeerClosed), |told| ClientError::Refused {
                at,
                status: told.status,
                hint_ms: told.hint_ms,
                message: told.message,
            }))
        }
        Err(error) => Err(error),
    }
}

fn upgrade_advice(min_version: [u16; 3]) -> String {
    match min_version {
        [0, 0, 0] => "this platform is not served here".to_owned(),
        [major, minor, patch] => {
            format!("version {major}.{minor}.{patch} or later of this program is needed")
        }
    }
}
