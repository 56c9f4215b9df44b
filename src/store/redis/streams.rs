//! Reading streams: commands that block for a while, and the shape of their answers. Knows no shard's state.

use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::time::Instant;

use super::answers::{bytes, list, text};
use super::link::Link;
use super::trouble::{self, Remedy};
use super::types::EntryId;
use crate::stock::calls::{Gen, SHARDS};

/// The longest one command blocks; a connection that is gone unnoticed is noticed after this.
pub(super) const BLOCK_MAX: Duration = Duration::from_secs(1);
/// An entry as Redis gave it.
pub(super) type RawEntry = (EntryId, Vec<u8>);
/// A key and its entries.
pub(super) type RawStream = (Vec<u8>, Vec<RawEntry>);
/// What is left until a deadline; none is far away.
pub(super) fn until(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Appends `BLOCK`; Redis takes 0 as for ever.
pub(super) fn put_block(command: &mut Cmd, block: Option<Duration>) {
    if let Some(millis) = block.map(|block| block.as_millis()).filter(|millis| *millis > 0) {
        command.arg("BLOCK").arg(millis.to_string());
    }
}

/// Sends one command that may block for a while.
pub(super) async fn blocking(
    link: &Link,
    command: Cmd,
    block: Duration,
    within: Duration,
) -> Result<Value, RedisError> {
    let mut commands = Pipeline::with_capacity(1);
    commands.add_command(command);
    let mut again = true;
    loop {
        let sent = link.send(&commands, within.saturating_add(block)).await;
        let answer = sent.and_then(|answers| answers.into_iter().next().unwrap_or_default().extract_error());
        match answer {
            // Closed while idle: once more on a new connection.
            Err(error) if again && trouble::remedy(&error, false) == Remedy::Refresh => again = false,
            answer => return answer,
        }
    }
}

/// The answer of `XREAD` and `XREADGROUP`: entries per key.
pub(super) fn streams(answer: Value) -> Result<Vec<RawStream>, String> {
    if answer == Value::Nil {
        return Ok(Vec::new());
    }
    let torn = || "an answer that lists no entries".to_owned();
    let mut streams = Vec::with_capacity(SHARDS);
    for stream in list(answer).ok_or_else(torn)? {
        let mut parts = list(stream).ok_or_else(torn)?.into_iter();
        let key = parts.next().and_then(bytes).ok_or_else(torn)?;
        let mut entries = Vec::new();
        for entry in parts.next().and_then(list).ok_or_else(torn)? {
            let mut parts = list(entry).ok_or_else(torn)?.into_iter();
            let id = parts.next().and_then(entry_id).ok_or_else(torn)?;
            // An entry that was deleted has no fields; one of somebody else's has others.
            let body = parts.next().and_then(list).and_then(|fields| bytes(fields.into_iter().nth(1)?));
            entries.push((id, body.unwrap_or_default()));
        }
        streams.push((key, entries));
    }
    Ok(streams)
}

/// `generation-seq`.
pub(super) fn entry_id(id: Value) -> Option<EntryId> {
    let id = text(id)?;
    let (generation, seq) = id.split_once('-')?;
    Some(EntryId { generation: Gen(generation.parse().ok()?), seq: seq.parse().ok()? })
}
