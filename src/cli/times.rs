//! What time it is, and how times are written on the command line and read from it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::parse_duration;

/// Unix milliseconds of `now`, `+DURATION` or an RFC 3339 time.
pub(super) fn parse_time(text: &str) -> Result<u64, String> {
    let now = SystemTime::now();
    let time = if text == "now" {
        now
    } else if let Some(after) = text.strip_prefix('+') {
        let after = parse_duration(after).map_err(|error| error.to_string())?;
        now.checked_add(after).ok_or_else(|| format!("{text} is beyond all time"))?
    } else {
        humantime::parse_rfc3339_weak(text)
            .map_err(|error| format!("{error}; write now, +10m or 2026-11-11T00:00:00Z"))?
    };
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| format!("{text} is before 1970"))?;
    Ok(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// As [`parse_time`] reads it, to the second.
pub(super) fn time_text(unix_ms: u64) -> String {
    UNIX_EPOCH
        .checked_add(Duration::from_millis(unix_ms))
        .map_or_else(|| unix_ms.to_string(), |time| humantime::format_rfc3339_seconds(time).to_string())
}

pub(super) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
