//! Asking for results after the sale, on fresh connections: what a user reads who looks the next morning.
//!
//! Everybody who won or cannot know is asked, and a sample of the others, who should hold nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::buyer::ask_result;
use super::history::{Asked, End, Event, UserHistory};
use super::plan::Mode;
use super::progress::Phase;
use super::stage::Stage;
use crate::client::Client;

/// Service connections used for asking; more would not be faster.
const SERVICE_CONNECTIONS_MAX: usize = 8;

/// Asks, and adds the answers to the histories.
pub(super) async fn ask_results(stage: &Arc<Stage>, users: &mut [UserHistory]) {
    let to_ask: Arc<[u32]> = select(stage, users).into();
    stage.progress.begin(Phase::AskingResults, u64::try_from(to_ask.len()).unwrap_or(u64::MAX));
    // It may be back by now.
    stage.set_gone(false);
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let connections = stage.plan.open_at_once();
    match stage.plan.mode {
        Mode::App => {
            for task in 0..connections.min(to_ask.len()) {
                let queue = Queue { indices: Arc::clone(&to_ask), next: Arc::clone(&next) };
                tasks.spawn(app_task(Arc::clone(stage), task, queue));
            }
        }
        Mode::Service => {
            for task in 0..connections.min(SERVICE_CONNECTIONS_MAX) {
                let client = Arc::new(stage.client(None, mpsc::channel(1).0));
                for _ in 0..stage.plan.in_flight.min(to_ask.len()) {
                    let queue = Queue { indices: Arc::clone(&to_ask), next: Arc::clone(&next) };
                    tasks.spawn(service_task(Arc::clone(stage), task, Arc::clone(&client), queue));
                }
            }
        }
    }
    for (index, events) in tasks.join_all().await.into_iter().flatten() {
        if let Some(user) = usize::try_from(index).ok().and_then(|index| users.get_mut(index)) {
            user.events.extend(events);
        }
    }
    stage.progress.end();
}

/// Whom to ask, by index.
fn select(stage: &Stage, users: &[UserHistory]) -> Vec<u32> {
    let has_to_be_asked = |user: &UserHistory| {
        matches!(user.end, End::Won(_) | End::Unknown)
            || user.events.iter().any(|event| event.got.order().is_some() || event.got.is_unknown())
    };
    let (mut to_ask, mut others) = (Vec::new(), Vec::new());
    for (user, index) in users.iter().zip(0_u32..) {
        if has_to_be_asked(user) { to_ask.push(index) } else { others.push(index) }
    }
    let mut random = fastrand::Rng::with_seed(stage.plan.seed);
    to_ask.extend(random.choose_multiple(others, stage.plan.loser_sample));
    to_ask
}

struct Queue {
    indices: Arc<[u32]>,
    next: Arc<AtomicUsize>,
}

impl Queue {
    fn take(&self) -> Option<u32> {
        self.indices.get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }
}

async fn app_task(stage: Arc<Stage>, task: usize, queue: Queue) -> Vec<(u32, Vec<Event>)> {
    let mut told = Vec::new();
    while let Some(index) = queue.take() {
        let client = stage.client(Some(stage.plan.part(index).user), mpsc::channel(1).0);
        told.push((index, ask(&stage, task, &client, index).await));
        client.close().await;
    }
    told
}

async fn service_task(
    stage: Arc<Stage>,
    task: usize,
    client: Arc<Client>,
    queue: Queue,
) -> Vec<(u32, Vec<Event>)> {
    let mut told = Vec::new();
    while let Some(index) = queue.take() {
        told.push((index, ask(&stage, task, &client, index).await));
    }
    told
}

async fn ask(stage: &Stage, task: usize, client: &Client, index: u32) -> Vec<Event> {
    let mut events = Vec::new();
    if !stage.is_gone() {
        let on_behalf = Stage::on_behalf(&stage.plan.part(index));
        let on_behalf = (stage.plan.mode == Mode::Service).then_some(&on_behalf);
        ask_result(stage, task, client, on_behalf, Asked::FinalResult, &mut events).await;
        if events.iter().all(|event| event.got.status().is_none()) {
            stage.set_gone(true);
        }
    }
    stage.progress.step();
    events
}
