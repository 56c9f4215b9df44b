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
    /// another user, whose limiter is far away in memory: they are fetched together.
    pub(super) fn warm(&self, bytes: &[u8]) -> usize {
        if !self.is_service() {
            return usize::MAX;
        }
        let limits = &self.worker.core.funnel.limits;
        for (opcode, user) in glance(bytes).take(WARM_FRAMES) {
            match (Opcode::from_wire(opcode), user.and_then(UserId::new)) {
                (Some(Opcode::Buy), Some(user)) => limits.warm(user),
                (Some(Opcode::Result | Opcode::Activity), Some(user)) => limits.warm_result(user),
                _ => {}
            }
        }
        WARM_FRAMES
    }
}
