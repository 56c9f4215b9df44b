//! What is observed of users while they ask: how much, and on which device a back end says that they are.
//!
//! Runs on the connection's task, inside one wake, as a part of the session; nothing here waits or refuses. Whatever rung a
//! request ends at, it counts: one that a limit refuses is as much a request as one that buys. Where it comes from does
//! not, before its user's rate has let it through: nobody who is refused pushes others out of what is remembered.

use super::clock::Now;
use super::session::{Session, Speaker};
use crate::protocol::{Request, UserId};

impl Session {
    #[inline]
    pub(super) fn observe(&self, now: Now, request: &Request<'_>, speaker: &Speaker<'_>) {
        let counts = matches!(
            request,
            Request::Buy { .. } | Request::Result { .. } | Request::Cancel { .. } | Request::Activity { .. }
        );
        if !counts {
            return;
        }
        let (conduct, user) = (&self.worker.core.conduct, speaker.user);
        if let Some(flag) = conduct.behaviour.request(now.mono_ns, user) {
            conduct.flags.raise(flag, &self.worker.sheet);
        }
    }

    /// A request has passed the rates: the device that a back end names is counted. That of an app was when it
    /// authenticated.
    #[inline]
    pub(super) fn sight(&self, now: Now, device: Option<&str>, user: UserId) {
        if let Some(device) = device.filter(|_| self.is_service()) {
            self.worker.core.conduct.devices.seen(now, device, user, &self.worker.sheet);
        }
    }
}
