//! The users: each buys once, some twice at once, some again after the answer.
//!
//! One task per connection open at once (app mode) or per user at work on a shared one (service mode); each takes
//! the next user when it is done with one. A task never fails: what goes wrong is what its user was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::history::{Asked, End, Event, Listening, UserHistory};
use super::listeners::Listeners;
use super::plan::{Mode, Part, SalePlan};
use super::stage::Stage;
use crate::client::{Client, Exchange, OnBehalf, Outcome, Patience, Purchase, Push};
use crate::protocol::{Opcode, Reply, Status, UserId};

/// INSUFFICIENT so many times sends a user away.
const INSUFFICIENT_MAX: u32 = 8;
/// Pushes a service connection may be behind.
const SERVICE_PUSHES_MAX: usize = 16_384;
/// Pushes a user may be behind.
const APP_PUSHES_MAX: usize = 8;

/// What one task has to tell: users by index.
pub(super) type Told = Vec<(u32, UserHistory)>;

/// What was pushed on shared connections: users by id.
type Pushed = Vec<(UserId, Event)>;

/// Lets every user of the plan buy; what they were told, and what was pushed on shared connections.
pub(super) async fn buy_all(stage: &Arc<Stage>) -> (Told, Pushed) {
    let mut tasks = JoinSet::new();
    for task in 0..stage.plan.open_at_once() {
        let stage = Arc::clone(stage);
        match stage.plan.mode {
            Mode::App => tasks.spawn(async move { (app_task(&stage, task).await, Vec::new()) }),
            Mode::Service => tasks.spawn(async move { service_connection(&stage, task).await }),
        };
    }
    let (mut told, mut pushed) = (Vec::new(), Vec::new());
    for (users, pushes) in tasks.join_all().await {
        told.extend(users);
        pushed.extend(pushes);
    }
    (told, pushed)
}

async fn app_task(stage: &Stage, task: usize) -> Told {
    let mut told = Vec::new();
    while let Some(index) = stage.take_user() {
        let part = stage.plan.part(index);
        let (pushes, mut pushed) = mpsc::channel(APP_PUSHES_MAX);
        let client = stage.client(Some(part.user), pushes);
        let listeners = Listeners::open(stage, &part).await;
        let mut events = Vec::new();
        let end = buy(stage, task, &client, &part, None, &mut events).await;
        if matches!(end, End::Won(_)) {
            wait_for_push(stage, task, &mut pushed, &mut events).await;
            ask_result(stage, task, &client, None, Asked::Result, &mut events).await;
        }
        client.close().await;
        while let Ok(push) = pushed.try_recv() {
            note_push(stage, task, &push, &mut events);
        }
        let listening = listen(stage, task, listeners, end, &mut events).await;
        told.push((index, finish(&part, end, listening, events)));
        stage.progress.step();
    }
    told
}

/// What a user who listens elsewhere hears there, if there is anything to be heard.
async fn listen(
    stage: &Stage,
    task: usize,
    listeners: Listeners,
    end: End,
    events: &mut Vec<Event>,
) -> Listening {
    if matches!(end, End::Won(_)) {
        return listeners.hear(stage, task, events).await;
    }
    listeners.close().await;
    Listening::default()
}

async fn wait_for_push(
    stage: &Stage,
    task: usize,
    pushed: &mut mpsc::Receiver<Push>,
    events: &mut Vec<Event>,
) {
    let until = Instant::now().checked_add(stage.plan.push_wait);
    let Some(until) = until else { return };
    while let Ok(Some(push)) = timeout_at(until, pushed.recv()).await {
        if note_push(stage, task, &push, events) {
            return;
        }
    }
}

/// Writes a `RESULT_PUSH` down; `false` for any other push.
fn note_push(stage: &Stage, task: usize, push: &Push, events: &mut Vec<Event>) -> bool {
    let Reply::Order(order) = &push.reply else { return false };
    events.push(stage.recorder.record_push(task, push.status, order, push.received_at));
    true
}

async fn service_connection(stage: &Arc<Stage>, task: usize) -> (Told, Pushed) {
    let (pushes, pushed) = mpsc::channel(SERVICE_PUSHES_MAX);
    let client = Arc::new(stage.client(None, pushes));
    let push_count = Arc::new(AtomicUsize::new(0));
    let collector = tokio::spawn(collect_pushes(Arc::clone(stage), task, pushed, Arc::clone(&push_count)));
    let mut tasks = JoinSet::new();
    for _ in 0..stage.plan.in_flight.min(users_per_connection(&stage.plan)) {
        let (stage, client) = (Arc::clone(stage), Arc::clone(&client));
        tasks.spawn(async move { service_task(&stage, task, &client).await });
    }
    let told: Told = tasks.join_all().await.into_iter().flatten().collect();
    let won = told.iter().filter(|(_, user)| user.was_queued()).count();
    let until = Instant::now().checked_add(stage.plan.push_wait);
    while push_count.load(Ordering::Relaxed) < won && until.is_some_and(|until| Instant::now() < until) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.close().await;
    drop(client);
    (told, collector.await.unwrap_or_default())
}

/// Tasks beyond this would find no user.
fn users_per_connection(plan: &SalePlan) -> usize {
    usize::try_from(plan.users).unwrap_or(usize::MAX).div_ceil(plan.open_at_once().max(1))
}

async fn collect_pushes(
    stage: Arc<Stage>,
    task: usize,
    mut pushed: mpsc::Receiver<Push>,
    count: Arc<AtomicUsize>,
) -> Pushed {
    let mut events = Vec::new();
    while let Some(push) = pushed.recv().await {
        let (Reply::Order(order), Some(user)) = (&push.reply, push.user) else { continue };
        events.push((user, stage.recorder.record_push(task, push.status, order, push.received_at)));
        count.fetch_add(1, Ordering::Relaxed);
    }
    events
}

async fn service_task(stage: &Stage, task: usize, client: &Client) -> Told {
    let mut told = Vec::new();
    let mut events = Vec::new();
    while let Some(index) = stage.take_user() {
        let part = stage.plan.part(index);
        let on_behalf = Stage::on_behalf(&part);
        let listeners = Listeners::open(stage, &part).await;
        let end = buy(stage, task, client, &part, Some(on_behalf), &mut events).await;
        let listening = listen(stage, task, listeners, end, &mut events).await;
        told.push((index, finish(&part, end, listening, std::mem::take(&mut events))));
        stage.progress.step();
    }
    told
}

/// One user's purchase, with its double and its repetition.
async fn buy(
    stage: &Stage,
    task: usize,
    client: &Client,
    part: &Part,
    on_behalf: Option<OnBehalf<'_>>,
    events: &mut Vec<Event>,
) -> End {
    if stage.is_gone() {
        return End::Unreachable;
    }
    let mut purchase = Purchase {
        activity: stage.plan.activity,
        sku: stage.plan.sku,
        quantity: part.quantity,
        on_behalf,
        copies: if part.is_doubled { 2 } else { 1 },
    };
    let mut buys = 0_u64;
    let mut observe = |exchange: Exchange<'_>| {
        buys = buys.saturating_add(u64::from(exchange.asked == Opcode::Buy));
        let asked = if exchange.asked == Opcode::Buy { Asked::Buy } else { Asked::Result };
        events.push(stage.recorder.record(task, &exchange, asked));
    };
    let patience = || Patience {
        until: Instant::now().checked_add(stage.plan.patience).unwrap_or_else(Instant::now),
        insufficient_max: INSUFFICIENT_MAX,
    };
    let mut end = end_of(client.buy_until_final(&purchase, patience(), &mut observe).await);
    if part.is_retried && is_answered(end) {
        purchase.copies = 1;
        let again = end_of(client.buy_until_final(&purchase, patience(), &mut observe).await);
        if is_answered(again) && !matches!(end, End::Won(_)) {
            end = again;
        }
    }
    if let End::Won(order) = end {
        stage.won(order, part.quantity);
    }
    stage.recorder.user_done();
    stage.recorder.record_retries(task, buys.saturating_sub(1));
    if is_without_gateway(end) {
        stage.set_gone(true);
    }
    end
}

/// Asks RESULT until it is known.
pub(super) async fn ask_result(
    stage: &Stage,
    task: usize,
    client: &Client,
    on_behalf: Option<&OnBehalf<'_>>,
    asked: Asked,
    events: &mut Vec<Event>,
) {
    let until = Instant::now().checked_add(stage.plan.patience).unwrap_or_else(Instant::now);
    let mut observe = |exchange: Exchange<'_>| events.push(stage.recorder.record(task, &exchange, asked));
    client.result_until_known(stage.plan.activity, on_behalf, until, &mut observe).await;
}

/// Drops the events of users about whom nothing but a plain refusal is to be said.
fn finish(part: &Part, end: End, listening: Listening, mut events: Vec<Event>) -> UserHistory {
    let is_plain = !part.is_doubled
        && !part.is_retried
        && !matches!(end, End::Won(_))
        && events.iter().all(|event| event.got.order().is_none() && !event.got.is_unknown());
    if is_plain {
        events = Vec::new();
    }
    UserHistory { quantity: part.quantity, listening, end, events }
}

const fn end_of(outcome: Outcome) -> End {
    match outcome {
        Outcome::Won(order) => End::Won(order.number),
        Outcome::Refused(status) => End::Refused(status),
        Outcome::GaveUp(status) => End::GaveUp(status),
        Outcome::Fault(status) => End::Fault(status),
        Outcome::Unknown => End::Unknown,
        Outcome::Unreachable => End::Unreachable,
    }
}

const fn is_answered(end: End) -> bool {
    matches!(end, End::Won(_) | End::Refused(_))
}

fn is_without_gateway(end: End) -> bool {
    match end {
        End::Unreachable => true,
        End::GaveUp(status) => status == Status::GoingAway.code(),
        End::Won(_) | End::Refused(_) | End::Fault(_) | End::Unknown => false,
    }
}
