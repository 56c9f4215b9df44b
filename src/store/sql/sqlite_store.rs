//! [`SqliteStore`]: what a serving process holds of the embedded store.
//!
//! Cheap to share behind an `Arc`; every method may be called from any task. It only sends jobs to the writer
//! task, reads from the pool, and copies out of the feeds.

use std::sync::Arc;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::devices::Sightings;
use super::error::{Failure, OpenError};
use super::feed::Feeds;
use super::jobs::{Answer, CallJob, Job};
use super::open::{self, IfMissing, OpenOptions};
use super::operator::OperatorConnection;
use super::read;
use super::writer::{Writer, now_ms};
use crate::protocol::{ActivityId, UserId};
use crate::stock::calls::{Call, Event, Gen, Mark, Reply, ShardId, Snapshot};
use crate::store::catalog::{Activity, Catalogue, Ended};
use crate::store::slices::SliceStore;
use crate::store::watched;
use crate::store::{FeedPositions, FeedRead, GatedStore, Registration, ReservationStore, StoreError};

/// Jobs that wait for the writer task; senders wait when it is full.
const JOBS_MAX: usize = 1024;

/// The embedded store, opened by the one process that serves its folder.
#[derive(Debug)]
pub struct SqliteStore {
    jobs: mpsc::Sender<Job>,
    feeds: Arc<Feeds>,
    pub(super) readers: SqlitePool,
    /// This process has set a switch.
    pub(super) switch_set: Notify,
    pub(super) sightings: Sightings,
    /// This process has changed a risk list.
    pub(super) risk_changed: Notify,
    generation: Gen,
    /// Closed when the writer task has ended.
    ended: watch::Receiver<()>,
}

impl SqliteStore {
    /// Opens (or creates) a data folder for serving: locks it, brings the schema up to date, raises the
    /// generation, starts the writer task.
    pub async fn open(options: &OpenOptions) -> Result<Self, OpenError> {
        let failed = |failure: Failure| OpenError::from_failure(&options.data_dir, failure);
        let (lock, mut connection) = open::open_to_serve(options).await?;
        let generation = open::raise_generation(&mut connection, now_ms()).await.map_err(failed)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(options.read_connections.max(1))
            .acquire_timeout(Duration::from_secs(30))
            .connect_with(open::reading(options))
            .await
            .map_err(|error| failed(error.into()))?;
        let feeds = Arc::new(Feeds::new(Gen(generation), options.feed_events_max));
        let (jobs, waiting) = mpsc::channel(JOBS_MAX);
        let writer = Writer::new(open::writing(options), connection, waiting, Arc::clone(&feeds), lock);
        let (running, ended) = watch::channel(());
        tokio::spawn(watched::vital("the embedded store", async move {
            writer.run().await;
            drop(running);
        }));
        let (generation, switch_set, risk_changed) = (Gen(generation), Notify::new(), Notify::new());
        let sightings = Sightings::default();
        Ok(Self { jobs, feeds, readers, switch_set, sightings, risk_changed, generation, ended })
    }

    /// Opens a data folder for one operator's command, whether or not a process serves it. Neither takes the
    /// folder nor raises the generation.
    pub async fn open_for_operator(
        data_dir: &std::path::Path,
        if_missing: IfMissing,
    ) -> Result<OperatorConnection, OpenError> {
        OperatorConnection::open(data_dir, if_missing).await
    }

    /// The generation this opening began.
    pub fn generation(&self) -> Gen {
        self.generation
    }

    /// Finishes what is queued, closes the database and releases the folder. Later calls are unavailable.
    pub async fn close(&self) {
        self.readers.close().await;
        // An error means that another caller closes it: wait for the same end.
        let _ = self.jobs.send(Job::Close).await;
        // Nothing is ever sent; the error comes when the writer task has let go of the folder.
        let _ = self.ended.clone().changed().await;
    }

    pub(super) async fn ask<T>(&self, job: impl FnOnce(Answer<T>) -> Job) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.jobs.send(job(answer)).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}

impl ReservationStore for SqliteStore {
    async fn register(&self) -> Result<Registration, StoreError> {
        self.ask(Job::Register).await
    }

    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        if i64::try_from(call.number).is_err() {
            return Err(StoreError::Corrupt(format!("call number {} is beyond 2^63", call.number)));
        }
        let call = call.clone();
        self.ask(|answer| Job::Call(CallJob { call, answer })).await
    }

    async fn snapshot(&self, shard: ShardId) -> Result<Snapshot, StoreError> {
        Ok(read::snapshot(&self.readers, shard).await?)
    }

    async fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        Ok(self.feeds.read(after, wait).await)
    }

    fn events_at_hand(&self, after: &FeedPositions) -> Vec<(ShardId, Vec<Event>)> {
        self.feeds.events(after)
    }
}

/// Its file is on this machine: what it does not answer, it does not answer to anybody.
impl GatedStore for SqliteStore {
    type Reserve = Self;
}

/// One gateway serves a folder: its rates are its own.
impl SliceStore for SqliteStore {}

impl Catalogue for SqliteStore {
    async fn version(&self) -> Result<u64, StoreError> {
        Ok(read::catalog_version(&self.readers).await?)
    }

    async fn activities(&self) -> Result<Vec<Activity>, StoreError> {
        Ok(read::activities(&self.readers).await?)
    }

    async fn ended(&self) -> Result<Vec<Ended>, StoreError> {
        Ok(read::ended(&self.readers).await?)
    }

    async fn order_of(&self, user: UserId, activity: ActivityId) -> Result<Option<Mark>, StoreError> {
        Ok(read::order_of(&self.readers, user, activity).await?)
    }

    async fn drive_loads(&self) -> Result<u64, StoreError> {
        self.ask(Job::DriveLoads).await
    }
}
