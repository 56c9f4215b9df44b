//! Reads the answers of functions. What does not look as this version's functions answer is told as corrupt: the
//! library under this name is somebody else's.

use redis::Value;

use super::codec::Fields;
use super::types::Guarded;
use crate::stock::calls::{Gen, ShardId};
use crate::store::StoreError;

pub(super) fn malformed(what: &str, shard: ShardId, problem: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("{what} in shard {} was answered with {problem}", shard.number()))
}

pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

pub(super) fn text(value: Value) -> Option<String> {
    bytes(value).and_then(|bytes| String::from_utf8(bytes).ok())
}

pub(super) fn number(value: Value) -> Option<u64> {
    text(value)?.parse().ok()
}

pub(super) fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

/// A list that begins with a letter: the letter and the rest.
pub(super) fn tagged(value: Value) -> Option<(u8, std::vec::IntoIter<Value>)> {
    let mut values = list(value)?.into_iter();
    let tag = bytes(values.next()?)?;
    Some((*tag.first()?, values))
}

/// The answer of a writer's function: what follows the `D`.
pub(super) fn guarded(what: &str, shard: ShardId, value: Value) -> Result<Guarded<Vec<u8>>, StoreError> {
    let answer = bytes(value).ok_or_else(|| malformed(what, shard, "no text"))?;
    match answer.split_first() {
        Some((b'D', rest)) => Ok(Guarded::Done(rest.to_vec())),
        Some((b'R', [])) => Ok(Guarded::Recovering),
        Some((b'G', rest)) => Fields::of(rest)
            .u64()
            .map(|current| Guarded::Gen(Gen(current)))
            .map_err(|problem| malformed(what, shard, problem)),
        _ => Err(malformed(what, shard, "an unknown letter")),
    }
}

impl<T> Guarded<T> {
    pub(super) fn try_map<U>(
        self,
        map: impl FnOnce(T) -> Result<U, StoreError>,
    ) -> Result<Guarded<U>, StoreError> {
        Ok(match self {
            Self::Done(value) => Guarded::Done(map(value)?),
            Self::Gen(current) => Guarded::Gen(current),
            Self::Recovering => Guarded::Recovering,
        })
    }
}
