//! Process numbers, heartbeats, and what a renewal tells (rules 11, 12 and 17 of the stock protocol).
//!
//! Every time is the database's. A process registers before its first call and renews every half second; nobody
//! else writes its row.

use sqlx::MySqlPool;

use super::MySqlInstallation;
use super::failure::{Failure, retried};
use crate::stock::PROCESS_MAX;
use crate::stock::calls::{Gen, ProcessNumber, SHARDS};
use crate::store::{Registration, StoreError};

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// Serves clients and hands in what it knows at a recovery.
    Gateway = 1,
    /// Settles orders.
    Writer = 2,
}

/// What a process learns when it renews its heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The installation's generation.
    pub generation: Gen,
    /// A recovery that runs under this generation, if one does.
    pub recovery: Option<RecoveryNotice>,
    /// What the switch `stock.mode` is set to, if it ever was.
    pub stock_mode: Option<String>,
    /// The last question what gateways know, if it was asked a moment ago.
    pub look: Option<u64>,
}

/// A running recovery: gateways hand in their marks of the closed shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryNotice {
    /// Its generation.
    pub generation: Gen,
    /// The shards that it rebuilds.
    pub closed: [bool; SHARDS],
    /// Each shard's last completed recovery; who holds nothing newer of a shard hands in nothing for it.
    pub rebuilt: [Gen; SHARDS],
}

/// A process whose heartbeat is older does not count as live.
const LIVE_MS: u64 = 3_000;

impl MySqlInstallation {
    /// A new process number, and the generation. Before the process's first call.
    pub async fn register(&self, kind: ProcessKind) -> Result<Registration, StoreError> {
        retried!(self.options.call_timeout; register(&self.pool, kind))
    }

    /// Renews the heartbeat. `None`: the database does not know this process, or it was retired; it registers anew
    /// under another number.
    pub async fn renew(&self, process: ProcessNumber) -> Result<Option<Renewal>, StoreError> {
        retried!(self.options.call_timeout; renew(&self.pool, process))
    }

    /// The process ends: nobody waits for its heartbeat.
    pub async fn retire(&self, process: ProcessNumber) -> Result<(), StoreError> {
        retried!(self.options.call_timeout; retire(&self.pool, process))
    }

    /// The number of the last recovery.
    pub async fn generation(&self) -> Result<Gen, StoreError> {
        retried!(self.options.call_timeout; generation(&self.pool))
    }

    /// Gateways that renewed within three seconds.
    pub async fn live_gateways(&self) -> Result<Vec<ProcessNumber>, StoreError> {
        retried!(self.options.call_timeout; live(&self.pool))
    }

    /// Processes that have been silent for `silent_ms`, ended or not, by ascending number, from after one, at most
    /// `limit`; their stored replies may be forgotten after an hour.
    pub async fn silent_processes(
        &self,
        silent_ms: u64,
        after: Option<ProcessNumber>,
        limit: u32,
    ) -> Result<Vec<ProcessNumber>, StoreError> {
        retried!(self.options.call_timeout; silent(&self.pool, silent_ms, after, limit))
    }
}

async fn register(pool: &MySqlPool, kind: ProcessKind) -> Result<Registration, Failure> {
    let inserted = sqlx::query(concat!(
        "INSERT INTO processes (kind, started_at_ms, heartbeat_ms) VALUES (?, ",
        now_ms!(),
        ", ",
        now_ms!(),
        ")"
    ))
    .bind(kind as u8)
    .execute(pool)
    .await?;
    let number = inserted.last_insert_id();
    let process = u32::try_from(number).ok().filter(|number| *number <= PROCESS_MAX).ok_or_else(|| {
        Failure::Corrupt(format!("all {PROCESS_MAX} process numbers are used up: {number}"))
    })?;
    Ok(Registration { process: ProcessNumber(process), generation: generation(pool).await? })
}

async fn generation(pool: &MySqlPool) -> Result<Gen, Failure> {
    let generation: u64 = sqlx::query_scalar("SELECT gen FROM installation").fetch_one(pool).await?;
    Ok(Gen(generation))
}

/// Generation, shards of a recovery, the switch `stock.mode`, a question what gateways know.
type NewsRow = (u64, Option<u16>, Option<String>, Option<u64>);

async fn renew(pool: &MySqlPool, process: ProcessNumber) -> Result<Option<Renewal>, Failure> {
    let renewed = sqlx::query(concat!(
        "UPDATE processes SET heartbeat_ms = ",
        now_ms!(),
        " WHERE number = ? AND ended_at_ms IS NULL"
    ))
    .bind(process.0)
    .execute(pool)
    .await?;
    if renewed.rows_affected() == 0 {
        return Ok(None);
    }
    // After the heartbeat: a recovery that begins in between waits for this process and is seen by its next renewal.
    let (current, closed, stock_mode, look): NewsRow = sqlx::query_as(concat!(
        "SELECT i.gen, r.closed, s.value, \
           (SELECT MAX(t.id) FROM takeover_looks t WHERE t.at_ms + 60000 >= ",
        now_ms!(),
        ") FROM installation i \
         LEFT JOIN recoveries r ON r.gen = i.gen AND r.state = 1 \
         LEFT JOIN switches s ON s.name = 'stock.mode'"
    ))
    .fetch_one(pool)
    .await?;
    let recovery = match closed {
        Some(closed) => Some(RecoveryNotice {
            generation: Gen(current),
            closed: shards_of(closed),
            rebuilt: rebuilt(pool).await?,
        }),
        None => None,
    };
    Ok(Some(Renewal { generation: Gen(current), recovery, stock_mode, look }))
}

async fn retire(pool: &MySqlPool, process: ProcessNumber) -> Result<(), Failure> {
    sqlx::query(concat!(
        "UPDATE processes SET ended_at_ms = ",
        now_ms!(),
        " WHERE number = ? AND ended_at_ms IS NULL"
    ))
    .bind(process.0)
    .execute(pool)
    .await?;
    Ok(())
}

async fn live(pool: &MySqlPool) -> Result<Vec<ProcessNumber>, Failure> {
    let numbers: Vec<u32> = sqlx::query_scalar(concat!(
        "SELECT number FROM processes WHERE kind = 1 AND ended_at_ms IS NULL AND heartbeat_ms + ? >= ",
        now_ms!(),
        " ORDER BY number"
    ))
    .bind(LIVE_MS)
    .fetch_all(pool)
    .await?;
    Ok(numbers.into_iter().map(ProcessNumber).collect())
}

async fn silent(
    pool: &MySqlPool,
    silent_ms: u64,
    after: Option<ProcessNumber>,
    limit: u32,
) -> Result<Vec<ProcessNumber>, Failure> {
    let numbers: Vec<u32> = sqlx::query_scalar(concat!(
        "SELECT number FROM processes WHERE number > ? AND heartbeat_ms + ? < ",
        now_ms!(),
        " ORDER BY number LIMIT ?"
    ))
    .bind(after.map_or(0, |process| process.0))
    .bind(silent_ms)
    .bind(limit)
    .fetch_all(pool)
    .await?;
    Ok(numbers.into_iter().map(ProcessNumber).collect())
}

async fn rebuilt(pool: &MySqlPool) -> Result<[Gen; SHARDS], Failure> {
    let rows: Vec<(u8, u64)> =
        sqlx::query_as("SELECT shard, gen FROM rebuilt_shards").fetch_all(pool).await?;
    let mut rebuilt = [Gen(0); SHARDS];
    for (shard, generation) in rows {
        if let Some(slot) = rebuilt.get_mut(usize::from(shard)) {
            *slot = Gen(generation);
        }
    }
    Ok(rebuilt)
}

/// Bit n: shard n.
pub(super) fn shards_of(mask: u16) -> [bool; SHARDS] {
    std::array::from_fn(|shard| (mask >> shard) & 1 == 1)
}

/// Bit n: shard n.
pub(super) fn mask_of(shards: &[bool; SHARDS]) -> u16 {
    shards.iter().rev().fold(0, |mask, set| (mask << 1) | u16::from(*set))
}
