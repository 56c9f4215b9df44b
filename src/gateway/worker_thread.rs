//! A worker's thread: its own runtime, its own listeners, its own connections. Where one core is there for everything, a single
//! worker lives on the runtime that started the gateway: a winner then passes no other thread.
//!
//! Tasks: one listener for each port, one per connection, the post, the sweep of the roster. When the gateway is dropped or has
//! drained, the thread ends and its connections with it; where the runtime goes on without the worker, each is closed.

use std::io;
use std::sync::Arc;

use tokio::time::MissedTickBehavior;

use super::listener::{self, Port};
use super::roster::SWEEP_INTERVAL;
use super::tasks::Tasks;
use super::worker::Worker;
use super::{Core, Settings};
use crate::store::watched;

/// Tasks that a worker runs before it asks the kernel again for what is ready, and the most that it is told at a
/// time: all of a crowded moment in one call.
const EVENTS_PER_POLL: usize = 1024;
const TASKS_PER_POLL: u32 = 256;

/// How many workers there are to be.
pub(super) fn count(settings: &Settings) -> usize {
    match settings.worker_threads {
        0 => cores(),
        count => count,
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts a worker for each set of listeners; they end when the gateway has stopped.
pub(super) fn start_all(
    core: &Arc<Core>,
    listeners: Vec<Vec<(Port, std::net::TcpListener)>>,
) -> io::Result<()> {
    let shares_runtime = core.settings.shares_runtime && listeners.len() == 1;
    for (number, listeners) in listeners.into_iter().enumerate() {
        let worker = Arc::new(Worker::new(Arc::clone(core)));
        if shares_runtime {
            let listeners = on_this_runtime(listeners)?;
            tokio::spawn(watched::vital("a worker", async move {
                let tasks = serve(&worker, listeners).await;
                close_all(&worker).await;
                drop(tasks);
            }));
        } else {
            start(worker, number, listeners)?;
        }
    }
    Ok(())
}

/// Starts the thread.
fn start(
    worker: Arc<Worker>,
    number: usize,
    listeners: Vec<(Port, std::net::TcpListener)>,
) -> io::Result<()> {
    let runtime = worker_runtime()?;
    let listeners = {
        let _entered = runtime.enter();
        on_this_runtime(listeners)?
    };
    let serve = move || drop(runtime.block_on(watched::vital("a worker", serve(&worker, listeners))));
    std::thread::Builder::new().name(format!("rushgate-{number}")).spawn(serve).map(drop)
}

/// A runtime of one thread, this one, that suits connections.
pub fn worker_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_io_events_per_tick(EVENTS_PER_POLL)
        .event_interval(TASKS_PER_POLL)
        .build()
}

fn on_this_runtime(
    listeners: Vec<(Port, std::net::TcpListener)>,
) -> io::Result<Vec<(Port, tokio::net::TcpListener)>> {
    let convert = |(port, listener)| Ok((port, tokio::net::TcpListener::from_std(listener)?));
    listeners.into_iter().map(convert).collect()
}

/// Until the gateway has stopped: then nothing is accepted any more. What wakes connections goes on as long as what is
/// returned.
async fn serve(worker: &Arc<Worker>, listeners: Vec<(Port, tokio::net::TcpListener)>) -> Tasks {
    let (mut accepting, mut waking) = (Tasks::default(), Tasks::default());
    for (port, listener) in listeners {
        let worker = Arc::clone(worker);
        accepting.spawn("accepting connections", async move { listener::run(&worker, listener, port).await });
    }
    let (post, sweeping) = (Arc::clone(&worker.post), Arc::clone(worker));
    waking.spawn("the post", async move { post.deliver().await });
    waking.spawn("the sweep of deadlines", async move { sweep(&sweeping).await });
    // An error means that the gateway is gone.
    let _ = worker.core.stopped.subscribe().wait_for(|stopped| *stopped).await;
    waking
}

/// Closes what is still connected: nobody else does while the runtime goes on.
async fn close_all(worker: &Worker) {
    while !worker.roster.is_empty() {
        worker.roster.wake_all();
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
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
