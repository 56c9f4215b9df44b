//! What Redis's errors mean, in a clear sentence each: what, where, what to do. Nothing was stored in any of these
//! cases, so the caller repeats what it did.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::store::StoreError;

/// What to do about a failed attempt before telling the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Load the library on that node and repeat.
    LoadLibrary,
    /// The shard is served by this node: note it and repeat there.
    Moved(String),
    /// The shard is on its way to this node: repeat there, asking.
    Ask(String),
    /// Wait a moment and repeat.
    Wait,
    /// Ask again who serves what, and repeat.
    Refresh,
    /// Tell the caller.
    None,
}

pub(super) fn remedy(error: &RedisError, is_cluster: bool) -> Remedy {
    if error.detail().is_some_and(|detail| detail.contains("unction not found"))
        || error.to_string().contains("Function not found")
    {
        return Remedy::LoadLibrary;
    }
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved) => {
            error.redirect_node().map_or(Remedy::Refresh, |(node, _)| Remedy::Moved(node.to_owned()))
        }
        ErrorKind::Server(ServerErrorKind::Ask) => {
            error.redirect_node().map_or(Remedy::Refresh, |(node, _)| Remedy::Ask(node.to_owned()))
        }
        ErrorKind::Server(ServerErrorKind::TryAgain) => Remedy::Wait,
        ErrorKind::Server(
            ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown | ServerErrorKind::ReadOnly,
        ) if is_cluster => Remedy::Refresh,
        // A master whose machine is gone answers nothing, not even that it is gone: its replica may serve by now.
        _ if is_cluster && (error.is_timeout() || error.is_io_error()) => Remedy::Refresh,
        // A connection that had been idle was closed by somebody in between: once more on a new one.
        _ if is_lost(error) => Remedy::Refresh,
        _ => Remedy::None,
    }
}

/// Whether the connection is of no use any more.
pub(super) fn is_lost(error: &RedisError) -> bool {
    !error.is_timeout() && (error.is_connection_dropped() || error.is_unrecoverable_error())
}

/// Whether this is the answer of a server that is no master any more.
pub(super) fn is_demoted(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    matches!(error.kind(), Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
}

/// The caller's error. `what` says what was done where: "reserving in shard 3".
pub(super) fn told(error: &RedisError, what: &str, node: &str) -> StoreError {
    let said = error.to_string();
    let sentence = match error.code() {
        Some("WRONGTYPE") => {
            return StoreError::Corrupt(format!(
                "{what}: a key at {node} is of another type than rushgate's; nothing was changed"
            ));
        }
        Some("CORRUPT") => {
            let detail = error.detail().unwrap_or(&said);
            return StoreError::Corrupt(format!("{what} at {node}: {detail}; nothing was changed"));
        }
        _ if said.contains("XADD") => {
            return StoreError::Corrupt(format!(
                "{what}: the feed at {node} goes beyond the shard's count of events: the count went back, or somebody \
                 wrote to it; nothing was changed; only a recovery of the shard mends it ({said})"
            ));
        }
        Some("OOM") => {
            "has no memory left (maxmemory); nothing was stored; give it more, or let writers catch up"
        }
        Some("MISCONF") => {
            "cannot persist and refuses writes; nothing was stored; look at its log and its disk"
        }
        Some("BUSY") => {
            "is busy with somebody's slow script; nothing was stored; SCRIPT KILL or FUNCTION KILL ends it"
        }
        Some("LOADING") => "is loading its data; nothing was stored",
        Some("READONLY") => "is a replica; nothing was stored; name the master",
        Some("MASTERDOWN") => "has lost its master; nothing was stored",
        Some("CLUSTERDOWN") => "belongs to a cluster that is down; nothing was stored",
        Some("TRYAGAIN") => "is handing the shard's slot over; nothing was stored",
        Some("NOREPLICAS") => {
            "has fewer replicas in reach than min-replicas-to-write asks for; nothing was stored"
        }
        Some("NOAUTH" | "WRONGPASS") => "refuses the password; nothing was stored; mend name and password",
        Some("NOPERM") => {
            "does not allow this user what rushgate needs; nothing was stored; mend the user's rights"
        }
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            "refuses the password; nothing was stored; mend name and password"
        }
        _ if error.is_timeout() => "did not answer in time; the outcome is unknown",
        _ if is_lost(error) => "cannot be reached, or closed the connection; the outcome is unknown",
        _ => "refused it",
    };
    StoreError::Unavailable(format!("{what}: Redis at {node} {sentence} ({said})"))
}
