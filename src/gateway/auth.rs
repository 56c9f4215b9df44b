//! AUTH: who speaks on a connection.
//!
//! Runs on the connection's task, inside one wake, like the rest of the session. A token that is refused ends the
//! connection; one that is good, but of another user or kind, leaves it as it was. The token of a session is looked up
//! by a task: meanwhile nothing that came behind it is taken up, so that AUTH is answered first, as always.

use bytes::BytesMut;
use tokio::sync::oneshot::error::TryRecvError;

use super::clock::Now;
use super::counters::{Ending, Event};
use super::reply_parts::{busy_hint_ms, with_jitter};
use super::session::Session;
use super::stage::{Flow, Stage, Waiting};
use crate::admission::identity::{Identity, IdentityError, IdentityKind, SessionFields};
use crate::protocol::{ConnectionKind, Frame, Head, Opcode, Reply, Status, encode};
use crate::store::StoreError;
use crate::store::sessions::{SessionKey, StoredSession};

impl Session {
    /// A token: the connection is its user's, or its back end's, from now on.
    pub(super) fn on_auth(&mut self, now: Now, frame: &Frame<'_>, token: &[u8], out: &mut BytesMut) -> Flow {
        let core = &self.worker.core;
        if let Err(retry_after_ms) = core.funnel.limits.check_auth(now.mono_ns, self.peer.addr) {
            // Before the token is looked at: that is what costs.
            self.worker.sheet.event(Event::AuthRateLimited, 1);
            let hint_ms = with_jitter(retry_after_ms);
            self.tell_auth(frame.request_id, Status::RateLimited, hint_ms, &Reply::Empty, out);
            return Flow::Go;
        }
        let verifier = &core.verifier;
        if let Some(digest) = verifier.session_of(token) {
            return self.look_up(frame.request_id, SessionKey(digest), out);
        }
        let verified = verifier.verify(token, self.peer.addr, now.sale_ms / 1000);
        self.admit(now, frame.request_id, verified, out)
    }

    /// Whether an AUTH waits for the store: nothing more is taken up then.
    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    fn look_up(&mut self, request_id: u32, key: SessionKey, out: &mut BytesMut) -> Flow {
        match self.worker.core.sessions.ask(&self.peer, key) {
            Some(found) => {
                // Counted, so that a gateway that drains waits for it.
                self.peer.begin();
                self.waiting = Some(Box::new(Waiting { request_id, found }));
            }
            None => self.tell_auth(request_id, Status::Busy, busy_hint_ms(), &Reply::Empty, out),
        }
        Flow::Go
    }

    /// Answers the AUTH that waits, if the store has answered; `None`: not yet.
    pub(super) fn hear(&mut self, now: Now, out: &mut BytesMut) -> Option<Flow> {
        let Some(waiting) = &mut self.waiting else { return Some(Flow::Go) };
        let request_id = waiting.request_id;
        let found = match waiting.found.try_recv() {
            Ok(found) => found,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Closed) => Err(StoreError::Unavailable("the lookup broke off".to_owned())),
        };
        self.waiting = None;
        self.peer.abandon();
        let verified = match found {
            Ok(Some(session)) => self.verify_session(&session, now),
            Ok(None) => Err(IdentityError::UnknownSession),
            Err(StoreError::Corrupt(_)) => Err(IdentityError::BadSession),
            Err(StoreError::Unavailable(_)) => {
                self.tell_auth(request_id, Status::Busy, busy_hint_ms(), &Reply::Empty, out);
                return Some(Flow::Go);
            }
        };
        Some(self.admit(now, request_id, verified, out))
    }

    fn verify_session(&self, session: &StoredSession, now: Now) -> Result<Identity, IdentityError> {
        let StoredSession { user, exp, scope, claims } = session;
        let session = SessionFields { user, exp, scope, claims };
        self.worker.core.verifier.verify_session(&session, self.peer.addr, now.sale_ms / 1000)
    }

    fn admit(
        &mut self,
        now: Now,
        request_id: u32,
        verified: Result<Identity, IdentityError>,
        out: &mut BytesMut,
    ) -> Flow {
        let Identity { kind, expires_at_ms, claims } = match verified {
            Ok(identity) => identity,
            Err(error) => {
                self.worker.sheet.token_refused(error);
                tracing::debug!(connection = self.peer.id, %error, "token refused");
                self.tell_auth(request_id, super::token_status(error), 0, &Reply::Empty, out);
                return Flow::Close(Ending::BadToken);
            }
        };
        let (next, user, kind) = match kind {
            IdentityKind::App(user) => (Stage::App { user, expires_at_ms }, Some(user), ConnectionKind::App),
            IdentityKind::Service => (Stage::Service { expires_at_ms }, None, ConnectionKind::Service),
        };
        let fits = match (self.stage, next) {
            (Stage::App { user, .. }, Stage::App { user: again, .. }) => user == again,
            (Stage::Service { .. }, Stage::Service { .. }) => true,
            (was, _) => was == Stage::Greeted,
        };
        if !fits || (user.is_some() && !self.may_be_an_app()) {
            self.tell_auth(request_id, Status::Unexpected, 0, &Reply::Empty, out);
            return Flow::Go;
        }
        if let (Stage::Greeted, Some(user)) = (self.stage, user) {
            self.worker.core.subscribers.subscribe(user, &self.peer, false);
            self.seen_on_device(now, user);
        }
        self.stage = next;
        self.claims = claims;
        let reply = Reply::Auth { user, expires_at_ms, kind, in_flight_max: self.in_flight_max() };
        self.tell_auth(request_id, Status::Ok, 0, &reply, out);
        Flow::Go
    }

    fn tell_auth(&self, request_id: u32, status: Status, hint_ms: u32, reply: &Reply, out: &mut BytesMut) {
        self.worker.sheet.status(status);
        let head = Head::reply(Opcode::Auth, request_id, status, hint_ms);
        encode(out, head, |_| {}, |body| reply.write(body));
    }
}
