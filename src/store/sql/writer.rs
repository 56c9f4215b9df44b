//! The writer task: the only one that changes the database while a process serves it.
//!
//! One tokio task per open store. It collects the calls that arrive while the last commit was on its way to
//! the disk, executes them in one `BEGIN IMMEDIATE` transaction (group commit), publishes their events and only
//! then answers. A caller that gives up changes nothing: its call is executed and the reply stored.
//! When a transaction fails (disk full, database locked), every call in it is answered "unavailable", nothing
//! is published, and the connection is replaced; the truth is in SQL alone, so there is nothing to undo. The rows
//! that a committed transaction has left are not read again by the next one, unless another connection has changed the
//! database in between.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::mpsc;

use super::batch::Batch;
use super::error::Failure;
use super::feed::Feeds;
use super::jobs::{CallJob, Job};
use super::lock::FolderLock;
use super::rows::{self, Wanted};
use super::{loads, registration, risk, switches};
use crate::protocol::{ActivityId, OrderNumber, UserId};
use crate::stock::calls::{Call, CallBody, Item, Reply, ShardId};
use crate::store::failures::{Failures, Say};
use crate::store::switches::NewSwitch;
use crate::store::{Registration, StoreError};

/// Calls in one transaction at most; bounds what the first one waits for.
const CALLS_MAX: usize = 64;
/// A transaction with this many items takes no further call.
const ITEMS_ENOUGH: usize = 4096;

/// More rows than this are not kept for the next transaction: it would walk over those that it does not need.
const KNOWN_ROWS_MAX: usize = 4096;

/// What a transaction looks up before it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// Callers send whom they know no mark of, under fresh order numbers. As long as there is enough for all of them,
    /// neither is looked up: the orders' keys refuse the transaction where it is not so.
    Callers,
    /// Marks and the owners of order numbers are looked up.
    Nobody,
}

#[derive(Debug)]
pub(super) struct Writer {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
    /// What the last transaction of this connection has left, and the database's version in it. Whatever else the
    /// connection is used for forgets it.
    known: Option<(i64, Batch)>,
    jobs: mpsc::Receiver<Job>,
    pub(super) feeds: Arc<Feeds>,
    failures: Failures,
    /// Held until the connection is closed.
    lock: FolderLock,
}

impl Writer {
    pub(super) fn new(
        options: SqliteConnectOptions,
        connection: SqliteConnection,
        jobs: mpsc::Receiver<Job>,
        feeds: Arc<Feeds>,
        lock: FolderLock,
    ) -> Self {
        Self {
            options,
            connection: Some(connection),
            known: None,
            jobs,
            feeds,
            failures: Failures::default(),
            lock,
        }
    }

    /// Runs until every sender is gone or [`Job::Close`] came.
    pub(super) async fn run(mut self) {
        let mut next = None;
        loop {
            let job = match next.take() {
                Some(job) => job,
                None => match self.jobs.recv().await {
                    Some(job) => job,
                    None => break,
                },
            };
            match job {
                Job::Call(first) => next = self.group(first).await,
                Job::Register(answer) => {
                    let result = self.register().await;
                    let _ = answer.send(self.settle(result).await);
                }
                Job::DriveLoads(answer) => {
                    let result = self.drive_loads().await;
                    let _ = answer.send(self.settle(result).await);
                }
                Job::SetSwitch { new, answer } => {
                    let result = self.set_switch(&new).await;
                    let _ = answer.send(self.settle(result).await);
                }
                Job::ChangeRisk { step, answer } => {
                    let result = self.change_risk(&step).await;
                    let _ = answer.send(self.settle(result).await);
                }
                Job::Life(job) => self.live(job).await,
                Job::Close => self.jobs.close(),
            }
        }
        if let Err(error) = self.disconnect().await {
            tracing::warn!(%error, "the database connection did not close cleanly");
        }
        drop(self.lock);
    }

    /// One group commit. Returns a job that was met while collecting and is not a call.
    async fn group(&mut self, first: CallJob) -> Option<Job> {
        let mut group = vec![first];
        let mut other = None;
        let mut result = self.execute(&mut group, &mut other, Trust::Callers).await;
        if result.as_ref().is_err_and(Failure::is_unique_violation) {
            // Some user has a mark that his gateway did not know of, or some caller used an order number twice. Look
            // up every mark and who owns each number, so that the neighbours do not suffer.
            result = self.execute(&mut group, &mut other, Trust::Nobody).await;
        }
        match result {
            Ok(replies) => {
                self.succeed();
                for (job, reply) in group.into_iter().zip(replies) {
                    let _ = job.answer.send(Ok(reply));
                }
            }
            Err(failure) => {
                self.fail(&failure).await;
                for job in group {
                    let _ = job.answer.send(Err(failure.to_store_error()));
                }
            }
        }
        other
    }

    async fn execute(
        &mut self,
        group: &mut Vec<CallJob>,
        other: &mut Option<Job>,
        trust: Trust,
    ) -> Result<Vec<Reply>, Failure> {
        let feeds = Arc::clone(&self.feeds);
        let known = self.known.take();
        let (connection, jobs) = self.connect().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        collect(jobs, group, other);
        let version = rows::data_version(&mut transaction).await?;
        let mut batch = match known.filter(|(known_version, _)| *known_version == version) {
            Some((_, batch)) => {
                rows::load_more(&mut transaction, &wanted(group), batch.go_on(now_ms())).await?
            }
            None => rows::load(&mut transaction, &wanted(group), now_ms()).await?,
        };
        if trust == Trust::Nobody || !batch.suffices_for(group.iter().map(|job| &job.call)) {
            let numbers = if trust == Trust::Nobody { order_numbers(group) } else { Vec::new() };
            rows::read_marks(&mut transaction, &marks(group), &numbers, &mut batch).await?;
        }
        batch.trusts_numbers = trust == Trust::Callers;
        batch.expect_orders(group.iter().map(|job| items(&job.call).len()).sum());
        // Before a stored reply tells of a seq that the feed has never shown.
        feeds.align(&batch.seq);
        let replies = group.iter().map(|job| batch.execute(&job.call)).collect();
        rows::store(&mut transaction, &batch).await?;
        transaction.commit().await?;
        feeds.publish(std::mem::take(&mut batch.events));
        self.known = Some((version, batch)).filter(|(_, batch)| batch.rows() <= KNOWN_ROWS_MAX);
        Ok(replies)
    }

    async fn register(&mut self) -> Result<Registration, Failure> {
        registration::register(self.connect().await?.0, now_ms()).await
    }

    async fn set_switch(&mut self, new: &NewSwitch) -> Result<u64, Failure> {
        switches::set(self.connect().await?.0, new, now_ms()).await
    }

    async fn change_risk(&mut self, step: &risk::Step) -> Result<risk::Done, Failure> {
        risk::change(self.connect().await?.0, step, now_ms()).await
    }

    /// Applies every pending load; how many there were.
    async fn drive_loads(&mut self) -> Result<u64, Failure> {
        let mut applied = 0_u64;
        loop {
            let feeds = Arc::clone(&self.feeds);
            let some = loads::apply_some(self.connect().await?.0, now_ms()).await?;
            // Also when nothing was pending: the commit before may have failed only in appearance.
            feeds.align(&some.seq_before);
            if some.loads == 0 {
                return Ok(applied);
            }
            applied = applied.saturating_add(some.loads);
            feeds.publish(some.events);
        }
    }

    pub(super) async fn connect(
        &mut self,
    ) -> Result<(&mut SqliteConnection, &mut mpsc::Receiver<Job>), Failure> {
        self.known = None;
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => SqliteConnection::connect_with(&self.options).await?,
        };
        Ok((self.connection.insert(connection), &mut self.jobs))
    }

    pub(super) async fn settle<T>(&mut self, result: Result<T, Failure>) -> Result<T, StoreError> {
        match result {
            Ok(value) => {
                self.succeed();
                Ok(value)
            }
            Err(failure) => {
                self.fail(&failure).await;
                Err(failure.to_store_error())
            }
        }
    }

    fn succeed(&mut self) {
        if let Some(failures) = self.failures.succeeded() {
            tracing::info!("the store recovered after {failures} failures");
        }
    }

    /// After a failure the connection's state is not known: close it (which rolls back) and connect anew.
    async fn fail(&mut self, failure: &Failure) {
        match self.failures.failed(Instant::now()) {
            Say::Nothing => {}
            Say::First => {
                tracing::warn!(error = %failure, "a transaction of the store failed; its callers repeat their calls");
            }
            Say::Summary(failures) => {
                tracing::warn!(
                    error = %failure, failures,
                    "transactions of the store failed since the last such line; this is the last one's error"
                );
            }
        }
        // That it does not close cleanly either follows from the failure, which was told.
        let _ = self.disconnect().await;
    }

    async fn disconnect(&mut self) -> Result<(), sqlx::Error> {
        match self.connection.take() {
            Some(connection) => connection.close().await,
            None => Ok(()),
        }
    }
}

/// Takes the calls that are waiting, up to the group's size.
fn collect(jobs: &mut mpsc::Receiver<Job>, group: &mut Vec<CallJob>, other: &mut Option<Job>) {
    let mut items: usize = group.iter().map(|job| weight(&job.call)).sum();
    while other.is_none() && group.len() < CALLS_MAX && items < ITEMS_ENOUGH {
        match jobs.try_recv() {
            Ok(Job::Call(job)) => {
                items = items.saturating_add(weight(&job.call));
                group.push(job);
            }
            Ok(job) => *other = Some(job),
            Err(_) => return,
        }
    }
}

fn weight(call: &Call) -> usize {
    match &call.body {
        CallBody::Reserve { bring_in, items } => bring_in.len().saturating_add(items.len()),
        CallBody::MoveOut { .. } => 1,
    }
}

/// The rows a group of calls touches.
fn wanted(group: &[CallJob]) -> Wanted {
    let mut wanted = Wanted::default();
    for CallJob { call, .. } in group {
        let shard = call.shard;
        wanted.calls.push((call.process, shard));
        match &call.body {
            CallBody::Reserve { bring_in, items } => {
                for announced in bring_in {
                    wanted.stock.push((shard, announced.sku));
                    wanted.transfers.push((announced.source, announced.sku));
                }
                for item in items {
                    // Nearly always the same as just before.
                    if wanted.stock.last() != Some(&(shard, item.sku)) {
                        wanted.stock.push((shard, item.sku));
                    }
                }
            }
            CallBody::MoveOut { sku, .. } => wanted.stock.push((shard, *sku)),
        }
    }
    wanted.stock.sort_unstable();
    wanted.stock.dedup();
    wanted.transfers.extend_from_slice(&wanted.stock);
    wanted.transfers.sort_unstable();
    wanted.transfers.dedup();
    wanted.calls.sort_unstable();
    wanted.calls.dedup();
    wanted
}

/// Everybody a group of calls is about, by where his mark is.
fn marks(group: &[CallJob]) -> Vec<(ShardId, ActivityId, UserId)> {
    let mut marks = Vec::new();
    for CallJob { call, .. } in group {
        marks.extend(items(call).iter().map(|item| (call.shard, item.sku.activity, item.user)));
    }
    marks.sort_unstable();
    marks.dedup();
    marks
}

/// The order numbers of a group of calls.
fn order_numbers(group: &[CallJob]) -> Vec<OrderNumber> {
    group.iter().flat_map(|job| items(&job.call)).map(|item| item.order).collect()
}

fn items(call: &Call) -> &[Item] {
    match &call.body {
        CallBody::Reserve { items, .. } => items,
        CallBody::MoveOut { .. } => &[],
    }
}

/// The system clock; what stands before 1970 counts as 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
