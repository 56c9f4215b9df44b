//! A writer: its tasks, from the start to a stop that leaves nothing half done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::archive::Archive;
use super::backfill::Backfills;
use super::chore;
use super::conservation::Conservation;
use super::context::{Context, Stop};
use super::counters::Counters;
use super::finisher::Finisher;
use super::follow_modes::FollowModes;
use super::loads::{Loads, Preheats};
use super::modes::Modes;
use super::monitor::Monitor;
use super::owed::{Ledger, Outbox};
use super::pace::Pace;
use super::payments::{Cancels, Life, Notices, Overdues, Parked};
use super::put_back::PutBack;
use super::reader::Reader;
use super::settings::Settings;
use super::settler::{Settler, WAITING_BATCHES};
use super::shard_sums::ShardSums;
use super::upkeep::{Processes, Recoveries, Trims};
use crate::stock::calls::ProcessNumber;
use crate::store::redis::RedisShards;
use crate::store::sql::mysql::MySqlInstallation;
use crate::store::{Registration, StoreError, watched};

/// How long the end of the registration may take: without it the process falls silent, and that is enough.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(2);

/// A running writer. Dropping it ends its tasks where they are, as a crash would.
#[derive(Debug)]
pub struct Writer {
    sql: MySqlInstallation,
    process: ProcessNumber,
    counters: Arc<Counters>,
    notices: Option<Notices<MySqlInstallation>>,
    stop_timeout: Duration,
    stop: watch::Sender<Option<Instant>>,
    /// Settler and finisher: whether each came to its end.
    line: Vec<JoinHandle<bool>>,
    others: JoinSet<()>,
}

/// How a writer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Everything it had read is settled and acknowledged.
    Done,
    /// Some of what it had read stays pending in the feeds: another writer takes it over.
    LeftBehind,
}

impl Writer {
    /// Starts the tasks of a process that is registered and whose heartbeat is kept.
    pub fn start(
        redis: RedisShards,
        sql: MySqlInstallation,
        registration: Registration,
        settings: Settings,
    ) -> Self {
        let (stop, stopping) = watch::channel(None);
        let context = Context {
            redis,
            sql: sql.clone(),
            counters: Arc::default(),
            modes: Arc::<Modes>::default(),
            pace: Arc::new(Pace::new(settings.rows_per_s, settings.batch_rows_max)),
            put_back: Arc::new(PutBack::new(registration.generation)),
            consumer: registration.process.0.to_string().into(),
            stop: Stop(stopping),
            settings: Arc::new(settings),
        };
        let (batches, to_settle) = mpsc::channel(WAITING_BATCHES);
        let (settled, to_finish) = mpsc::channel(WAITING_BATCHES);
        let settler = Settler::new(context.clone(), to_settle, settled);
        let finisher = Finisher::new(context.clone(), to_finish);
        // What one of these held when it panicked would stay pending, and the others wait for it: another process takes over.
        let line = vec![
            tokio::spawn(watched::vital("settling", settler.run())),
            tokio::spawn(watched::vital("telling Redis what is settled", finisher.run())),
        ];
        let mut others = JoinSet::new();
        others.spawn(watched::vital("reading the feeds", Reader::new(context.clone(), batches).run()));
        others.spawn(chore::run(FollowModes, context.clone()));
        others.spawn(chore::run(Backfills::default(), context.clone()));
        others.spawn(chore::run(Preheats, context.clone()));
        others.spawn(chore::run(Loads, context.clone()));
        others.spawn(chore::run(Ledger::default(), context.clone()));
        others.spawn(chore::run(Outbox::default(), context.clone()));
        others.spawn(chore::run(Archive::default(), context.clone()));
        others.spawn(chore::run(Trims, context.clone()));
        others.spawn(chore::run(Processes::default(), context.clone()));
        others.spawn(chore::run(Recoveries, context.clone()));
        others.spawn(chore::run(Monitor, context.clone()));
        others.spawn(chore::run(Conservation::default(), context.clone()));
        others.spawn(chore::run(ShardSums::default(), context.clone()));
        others.spawn(chore::run(Cancels::default(), context.clone()));
        let life = Life::of_writer(&context);
        others.spawn(chore::run(Parked::default(), life.clone()));
        for overdues in Overdues::tasks(&life.settings) {
            others.spawn(chore::run(overdues, life.clone()));
        }
        let notices = life.notices();
        Self {
            notices,
            sql,
            process: registration.process,
            counters: Arc::clone(&context.counters),
            stop_timeout: context.settings.stop_timeout,
            stop,
            line,
            others,
        }
    }

    /// This process.
    pub const fn process(&self) -> ProcessNumber {
        self.process
    }

    /// What it counts.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Who takes payment notices, if a key is there to check them with. Works until the process ends.
    pub fn notices(&self) -> Option<Notices<MySqlInstallation>> {
        self.notices.clone()
    }

    /// Reads no more, settles and acknowledges what was read, and ends the registration.
    pub async fn stop(mut self) -> Stopped {
        let deadline = Instant::now().checked_add(self.stop_timeout).unwrap_or_else(Instant::now);
        self.stop.send_replace(Some(deadline));
        let mut all_done = true;
        for task in std::mem::take(&mut self.line) {
            let until = tokio::time::Instant::from_std(deadline);
            all_done &= matches!(tokio::time::timeout_at(until, task).await, Ok(Ok(true)));
        }
        while let Ok(Some(_)) =
            tokio::time::timeout_at(tokio::time::Instant::from_std(deadline), self.others.join_next()).await
        {
        }
        self.others.abort_all();
        match tokio::time::timeout(RETIRE_TIMEOUT, self.sql.retire(self.process)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tell_not_retired(self.process, &error),
            Err(_) => {
                tell_not_retired(self.process, &StoreError::Unavailable("no answer in time".to_owned()));
            }
        }
        if all_done { Stopped::Done } else { Stopped::LeftBehind }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.line.iter().for_each(JoinHandle::abort);
    }
}

fn tell_not_retired(process: ProcessNumber, error: &StoreError) {
    tracing::warn!(process = process.0, %error, "the registration could not be ended; it runs out by itself");
}
