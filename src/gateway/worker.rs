//! A worker: one thread with its own runtime, its own listener and its own connections.
//!
//! The connections of a worker stay on its thread for their life: nothing is stolen, nothing of theirs is shared with
//! another worker but what all connections share anyway (funnel, limits, subscribers). Tasks of a worker: one
//! listener, one per connection, the post, the sweep of the roster. When the gateway is dropped or has drained, the
//! thread ends and its connections with it.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::Core;
use super::counters::Sheet;
use super::listener;
use super::post::Post;
use super::roster::{Roster, SWEEP_INTERVAL};

/// Tasks that a worker runs before it asks the kernel again for what is ready, and the most that it is told at a
/// time: all of a crowded moment in one call.
const EVENTS_PER_POLL: usize = 1024;
const TASKS_PER_POLL: u32 = 256;

/// What the connections of one worker share.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) core: Arc<Core>,
    pub(super) sheet: Arc<Sheet>,
    pub(super) roster: Roster,
    pub(super) post: Arc<Post>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.core.counters.retire(&self.sheet);
    }
}

impl Worker {
    pub(super) fn new(core: Arc<Core>) -> Self {
        let sheet = core.counters.sheet();
        Self { core, sheet, roster: Roster::default(), post: Arc::default() }
    }

    /// Starts the thread, which ends when `stop` says so or is dropped.
    pub(super) fn start(
        self: Arc<Self>,
        number: usize,
        listener: std::net::TcpListener,
        stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_io_events_per_tick(EVENTS_PER_POLL)
            .event_interval(TASKS_PER_POLL)
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let serve = move || runtime.block_on(self.serve(listener, stop));
        std::thread::Builder::new().name(format!("rushgate-{number}")).spawn(serve).map(drop)
    }

    async fn serve(self: Arc<Self>, listener: tokio::net::TcpListener, mut stop: watch::Receiver<bool>) {
        let (accepting, delivering, sweeping) = (Arc::clone(&self), Arc::clone(&self), Arc::clone(&self));
        tokio::spawn(async move { listener::run(&accepting, listener).await });
        tokio::spawn(async move { delivering.post.deliver().await });
        tokio::spawn(async move { sweeping.sweep().await });
        // An error means that the gateway is gone.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// Wakes connections at their deadlines, and all of them when the gateway drains.
    async fn sweep(&self) {
        let mut draining = self.core.draining.subscribe();
        let mut told_all = false;
        let mut tick = tokio::time::interval(SWEEP_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = draining.wait_for(|draining| *draining), if !told_all => {
                    told_all = true;
                    self.roster.wake_all();
                }
            }
            self.core.clock.follow_wall_clock();
            self.roster.wake_due(self.core.clock.now().mono_ms());
        }
    }
}
