//! What is observed of users while they ask: how much, and on which device a back end says that they are.
//!
//! Runs on the connection's task, inside one wake, as a part of the session; nothing here waits or refuses. Whatever rung a
//! request ends at, it counts: one that a limit refuses is as much a request as one that buys.

use super::clock::Now;
use super::session::{Session, Speaker};
use crate::protocol::Request;

impl Session {
    #[inline]
    pub(super) fn observe(&self, now: Now, request: &Request<'_>, speaker: &Speaker<'_>) {
        if !matches!(request, Request::Buy { .. } | Request::Result { .. } | Request::Activity { .. }) {
            return;
        }
        let (conduct, user) = (&self.worker.core.conduct, speaker.user);
        if let Some(flag) = conduct.behaviour.request(now.mono_ns, user) {
            conduct.flags.raise(flag, &self.worker.sheet);
        }
        // That of an app was seen when it authenticated.
        if let Some(device) = speaker.device.filter(|_| self.is_service()) {
            conduct.devices.seen(now, device, user, &self.worker.sheet);
        }
    }
}
