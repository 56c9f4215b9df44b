//! What a connection may be late with, and until when.
//!
//! Plain data of one connection; it reads no clock and wakes nobody. All times are monotonic milliseconds.

use std::time::Duration;

use super::counters::Ending;
use super::roster::NEVER_MS;
use super::settings::Settings;

/// After GOAWAY a connection on which all is answered closes when nothing came for so long: what the client sent
/// before it heard GOAWAY still gets its `GOING_AWAY`.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// `None` while a deadline does not run.
#[derive(Debug)]
pub(super) struct Deadlines {
    handshake_ms: u64,
    /// The last complete frame.
    heard_ms: u64,
    /// The first byte of the incomplete frame.
    frame_since_ms: Option<u64>,
    /// Since when the reader has taken nothing of what waits for it.
    blocked_since_ms: Option<u64>,
    /// GOAWAY was sent, or the client's last frame was read.
    close_ms: Option<u64>,
    /// When GOAWAY was sent.
    went_away_ms: Option<u64>,
    /// Replies wait for a slow reader and nothing is read from it: what it sends meanwhile is not late.
    is_stalled: bool,
}

/// What the connection is at the moment, as far as deadlines depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) is_authenticated: bool,
    /// Nothing waits to be written, and no BUY is in flight.
    pub(super) is_answered: bool,
}

impl Deadlines {
    pub(super) fn new(now_ms: u64, settings: &Settings) -> Self {
        Self {
            handshake_ms: after(now_ms, settings.handshake_timeout),
            heard_ms: now_ms,
            frame_since_ms: None,
            blocked_since_ms: None,
            close_ms: None,
            went_away_ms: None,
            is_stalled: false,
        }
    }

    /// A complete frame came.
    pub(super) const fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// What was read ended with a frame, or in the middle of one that began just now.
    pub(super) const fn frame_began(&mut self, since_ms: Option<u64>) {
        self.frame_since_ms = since_ms;
    }

    /// The reader takes nothing.
    pub(super) fn blocked(&mut self, now_ms: u64) {
        self.blocked_since_ms.get_or_insert(now_ms);
        self.is_stalled = true;
    }

    /// The reader took something.
    pub(super) const fn moved(&mut self) {
        self.blocked_since_ms = None;
    }

    /// The reader took everything: what it sent meanwhile is read only now.
    pub(super) fn unblocked(&mut self, now_ms: u64) {
        self.blocked_since_ms = None;
        if std::mem::take(&mut self.is_stalled) {
            self.heard_ms = now_ms;
            self.frame_since_ms = self.frame_since_ms.map(|_| now_ms);
        }
    }

    /// Closed then at the latest.
    pub(super) fn close_after(&mut self, now_ms: u64, timeout: Duration) {
        let close_ms = after(now_ms, timeout);
        self.close_ms = Some(self.close_ms.map_or(close_ms, |known_ms| known_ms.min(close_ms)));
    }

    /// GOAWAY was sent.
    pub(super) const fn went_away(&mut self, now_ms: u64) {
        self.went_away_ms = Some(now_ms);
    }

    /// When something may be overdue next.
    pub(super) fn next_ms(&self, settings: &Settings, standing: Standing) -> u64 {
        let handshake = (!standing.is_authenticated).then_some(self.handshake_ms);
        let idle = self.idle_since_ms(standing).map(|since_ms| after(since_ms, idle_timeout(settings)));
        let frame = self.frame_late_since_ms().map(|since_ms| after(since_ms, settings.frame_timeout));
        let blocked = self.blocked_since_ms.map(|since_ms| after(since_ms, settings.write_timeout));
        [handshake, idle, frame, blocked, self.close_ms, self.last_words_ms(standing)]
            .into_iter()
            .flatten()
            .fold(NEVER_MS, u64::min)
    }

    /// What is overdue now: how the connection ends, and what the client is told where it may still hear.
    pub(super) fn overdue(
        &self,
        now_ms: u64,
        settings: &Settings,
        standing: Standing,
    ) -> Option<(Ending, Option<&'static str>)> {
        let over = |since_ms: Option<u64>, timeout| {
            since_ms.is_some_and(|since_ms| now_ms >= after(since_ms, timeout))
        };
        let past = |at_ms: Option<u64>| at_ms.is_some_and(|at_ms| now_ms >= at_ms);
        if over(self.blocked_since_ms, settings.write_timeout) {
            return Some((Ending::SlowReader, None));
        }
        if past(self.close_ms) || past(self.last_words_ms(standing)) {
            return Some((Ending::Drained, None));
        }
        let (ending, message) = if !standing.is_authenticated && now_ms >= self.handshake_ms {
            (Ending::HandshakeTimeout, "HELLO and AUTH did not come in time")
        } else if over(self.frame_late_since_ms(), settings.frame_timeout) {
            (Ending::FrameTimeout, "the frame did not become complete in time")
        } else if over(self.idle_since_ms(standing), idle_timeout(settings)) {
            (Ending::Idle, "nothing came for 1.5 times the keepalive interval")
        } else {
            return None;
        };
        Some((ending, Some(message)))
    }

    /// When the last words are over: GOAWAY was sent, all is answered and nothing comes any more.
    fn last_words_ms(&self, standing: Standing) -> Option<u64> {
        let went_away_ms = self.went_away_ms?;
        standing.is_answered.then(|| after(went_away_ms.max(self.heard_ms), LAST_WORDS))
    }

    /// Since when an authenticated client is silent; not while nothing is read from it.
    fn idle_since_ms(&self, standing: Standing) -> Option<u64> {
        (standing.is_authenticated && !self.is_stalled).then_some(self.heard_ms)
    }

    /// Since when a frame is incomplete; not while nothing is read.
    fn frame_late_since_ms(&self) -> Option<u64> {
        self.frame_since_ms.filter(|_| !self.is_stalled)
    }
}

fn after(since_ms: u64, timeout: Duration) -> u64 {
    since_ms.saturating_add(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
}

fn idle_timeout(settings: &Settings) -> Duration {
    settings.keepalive.saturating_mul(3).checked_div(2).unwrap_or(settings.keepalive)
}
