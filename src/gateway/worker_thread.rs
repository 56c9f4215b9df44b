//! A worker's thread: its own runtime, its own listeners, its own connections.
//!
//! Tasks: one listener for each port, one per connection, the post, the sweep of the roster. When the gateway is dropped or has
//! drained, the thread ends and its connections with it.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::listener::{self, Port};
use super::roster::SWEEP_INTERVAL;
use super::worker::Worker;

/// Tasks that a worker runs before it asks the kernel again for what is ready, and the most that it is told at a
/// time: all of a crowded moment in one call.
const EVENTS_PER_POLL: usize = 1024;
const TASKS_PER_POLL: u32 = 256;

/// Starts the thread, which ends when `stop` says so or is dropped.
pub(super) fn start(
    worker: Arc<Worker>,
    number: usize,
    listeners: Vec<(Port, std::net::TcpListener)>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_io_events_per_tick(EVENTS_PER_POLL)
        .event_interval(TASKS_PER_POLL)
        .build()?;
    let listeners = {
        let _entered = runtime.enter();
        let on_this_runtime = |(port, listener)| Ok((port, tokio::net::TcpListener::from_std(listener)?));
        listeners.into_iter().map(on_this_runtime).collect::<io::Result<Vec<_>>>()?
    };
    let serve = move || runtime.block_on(serve(worker, listeners, stop));
    std::thread::Builder::new().name(format!("rushgate-{number}")).spawn(serve).map(drop)
}

async fn serve(
    worker: Arc<Worker>,
    listeners: Vec<(Port, tokio::net::TcpListener)>,
    mut stop: watch::Receiver<bool>,
) {
    for (port, listener) in listeners {
        let accepting = Arc::clone(&worker);
        tokio::spawn(async move { listener::run(&accepting, listener, port).await });
    }
    let (post, sweeping) = (Arc::clone(&worker.post), worker);
    tokio::spawn(async move { post.deliver().await });
    tokio::spawn(async move { sweep(&sweeping).await });
    // An error means that the gateway is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Wakes connections at their deadlines, and all of them when the gateway drains.
async fn sweep(worker: &Worker) {
    let mut draining = worker.core.draining.subscribe();
    let mut told_all = false;
    let mut tick = tokio::time::interval(SWEEP_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = draining.wait_for(|draining| *draining), if !told_all => {
                told_all = true;
                worker.roster.wake_all();
            }
        }
        worker.core.clock.follow_wall_clock();
        worker.roster.wake_due(worker.core.clock.now().mono_ms());
    }
}
