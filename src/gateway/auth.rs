//! AUTH: who speaks on a connection.
//!
//! Runs on the connection's task, inside one wake, like the rest of the session. A token that is refused ends the
//! connection; one that is good, but of another user or kind, leaves it as it was.

use bytes::BytesMut;

use super::clock::Now;
use super::counters::Ending;
use super::session::{Flow, Session, Stage};
use crate::admission::identity::IdentityKind;
use crate::protocol::{ConnectionKind, Frame, Reply, Status};

impl Session {
    /// A token: the connection is its user's, or its back end's, from now on.
    pub(super) fn on_auth(&mut self, now: Now, frame: &Frame<'_>, token: &[u8], out: &mut BytesMut) -> Flow {
        let verified = self.worker.core.verifier.verify(token, self.peer.addr, now.sale_ms / 1000);
        let identity = match verified {
            Ok(identity) => identity,
            Err(error) => {
                self.worker.sheet.token_refused(error);
                tracing::debug!(connection = self.peer.id, %error, "token refused");
                self.refuse(frame, super::token_status(error), out);
                return Flow::Close(Ending::BadToken);
            }
        };
        let expires_at_ms = identity.expires_at_ms;
        let (next, user, kind) = match identity.kind {
            IdentityKind::App(user) => (Stage::App { user, expires_at_ms }, Some(user), ConnectionKind::App),
            IdentityKind::Service => (Stage::Service { expires_at_ms }, None, ConnectionKind::Service),
        };
        let fits = match (self.stage, next) {
            (Stage::App { user, .. }, Stage::App { user: again, .. }) => user == again,
            (Stage::Service { .. }, Stage::Service { .. }) => true,
            (was, _) => was == Stage::Greeted,
        };
        if !fits || (user.is_some() && !self.may_be_an_app()) {
            self.refuse(frame, Status::Unexpected, out);
            return Flow::Go;
        }
        if let (Stage::Greeted, Some(user)) = (self.stage, user) {
            self.worker.core.subscribers.subscribe(user, &self.peer, false);
            self.seen_on_device(now, user);
        }
        self.stage = next;
        self.claims = identity.claims;
        let reply = Reply::Auth { user, expires_at_ms, kind, in_flight_max: self.in_flight_max() };
        self.reply(frame, Status::Ok, 0, &reply, out);
        Flow::Go
    }
}
