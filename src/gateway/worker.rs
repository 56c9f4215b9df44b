//! A worker: what the connections of one thread share.
//!
//! They stay on their thread for their life (see `worker_thread`): nothing is stolen, and nothing of theirs is shared with
//! another worker but what all connections share anyway (funnel, limits, subscribers).

use std::sync::Arc;

use super::Core;
use super::counters::Sheet;
use super::post::Post;
use super::proxy_trouble::ProxyTrouble;
use super::roster::Roster;

/// What the connections of one worker share.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) core: Arc<Core>,
    pub(super) sheet: Arc<Sheet>,
    pub(super) roster: Roster,
    pub(super) post: Arc<Post>,
    pub(super) proxy_trouble: ProxyTrouble,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.core.counters.retire(&self.sheet);
    }
}

impl Worker {
    pub(super) fn new(core: Arc<Core>) -> Self {
        let sheet = core.counters.sheet();
        Self {
            core,
            sheet,
            roster: Roster::default(),
            post: Arc::default(),
            proxy_trouble: ProxyTrouble::default(),
        }
    }
}
