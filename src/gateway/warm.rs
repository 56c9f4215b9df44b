//! What a session does ahead of time for frames that it has not come to yet.
//!
//! Runs on the connection's task, inside one wake; changes no outcome.

use super::session::Session;
use crate::protocol::frame::glance;
use crate::protocol::{Opcode, UserId};

/// Frames that are looked at ahead of time.
const WARM_FRAMES: usize = 64;

impl Session {
    /// Prepares for the frames at the front of `bytes`, as many as it returns. On a service connection each names
    /// another user, whose limiter, and place among those who were turned away, are far away in memory: they are fetched
    /// together.
    pub(super) fn warm(&self, bytes: &[u8]) -> usize {
        if !self.is_service() {
            return usize::MAX;
        }
        let (funnel, behaviour) = (&self.worker.core.funnel, &self.worker.core.conduct.behaviour);
        for (opcode, user) in glance(bytes).take(WARM_FRAMES) {
            let Some(user) = user.and_then(UserId::new) else { continue };
            match Opcode::from_wire(opcode) {
                Some(Opcode::Buy) => {
                    funnel.limits.warm(user);
                    funnel.explain.warm(user);
                }
                Some(Opcode::Result | Opcode::Activity) => funnel.limits.warm_result(user),
                _ => continue,
            }
            behaviour.warm(user);
        }
        WARM_FRAMES
    }
}
