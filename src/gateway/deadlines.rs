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

/// A time is [`NEVER_MS`] while its deadline does not run, which takes half the room of an `Option`: every idle
/// connection has these.
#[derive(Debug)]
pub(super) struct Deadlines {
    handshake_ms: u64,
    /// The last complete frame.
    heard_ms: u64,
    /// The first byte of the incomplete frame.
    frame_since_ms: u64,
    /// Since when the reader has taken nothing of what waits for it.
    blocked_since_ms: u64,
    /// GOAWAY was sent, or the client's last frame was read.
    close_ms: u64,
    /// When GOAWAY was sent.
    went_away_ms: u64,
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
            frame_since_ms: NEVER_MS,
            blocked_since_ms: NEVER_MS,
            close_ms: NEVER_MS,
            went_away_ms: NEVER_MS,
            is_stalled: false,
        }
    }

    /// A complete frame came.
    pub(super) const fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// What was read ended in the middle of a frame that began just now.
    pub(super) const fn frame_began(&mut self, now_ms: u64) {
        self.frame_since_ms = now_ms;
    }

    /// What was read ended with a frame.
    pub(super) const fn frame_ended(&mut self) {
        self.frame_since_ms = NEVER_MS;
    }

    /// The reader takes nothing.
    pub(super) fn blocked(&mut self, now_ms: u64) {
        self.blocked_since_ms = self.blocked_since_ms.min(now_ms);
        self.is_stalled = true;
    }

    /// The reader took something.
    pub(super) const fn moved(&mut self) {
        self.blocked_since_ms = NEVER_MS;
    }

    /// The reader took everything: what it sent meanwhile is read only now.
    pub(super) fn unblocked(&mut self, now_ms: u64) {
        self.blocked_since_ms = NEVER_MS;
        if std::mem::take(&mut self.is_stalled) {
            self.heard_ms = now_ms;
            if self.frame_since_ms != NEVER_MS {
                self.frame_since_ms = now_ms;
            }
        }
    }

    /// Closed then at the latest.
    pub(super) fn close_after(&mut self, now_ms: u64, timeout: Duration) {
        self.close_ms = self.close_ms.min(after(now_ms, timeout));
    }

    /// GOAWAY was sent.
    pub(super) const fn went_away(&mut self, now_ms: u64) {
        self.went_away_ms = now_ms;
    }

    /// When something may be overdue next.
    pub(super) fn next_ms(&self, settings: &Settings, standing: Standing) -> u64 {
        [
            self.handshake_late_ms(standing),
            self.idle_late_ms(settings, standing),
            self.frame_late_ms(settings),
            after(self.blocked_since_ms, settings.write_timeout),
            self.close_ms,
            self.last_words_ms(standing),
        ]
        .into_iter()
        .fold(NEVER_MS, u64::min)
    }

    /// What is overdue now: how the connection ends, and what the client is told where it may still hear.
    pub(super) fn overdue(
        &self,
        now_ms: u64,
        settings: &Settings,
        standing: Standing,
    ) -> Option<(Ending, Option<&'static str>)> {
        if now_ms >= after(self.blocked_since_ms, settings.write_timeout) {
            return Some((Ending::SlowReader, None));
        }
        if now_ms >= self.close_ms.min(self.last_words_ms(standing)) {
            return Some((Ending::Drained, None));
        }
        let (ending, message) = if now_ms >= self.handshake_late_ms(standing) {
            (Ending::HandshakeTimeout, "HELLO and AUTH did not come in time")
        } else if now_ms >= self.frame_late_ms(settings) {
            (Ending::FrameTimeout, "the frame did not become complete in time")
        } else if now_ms >= self.idle_late_ms(settings, standing) {
            (Ending::Idle, "nothing came for 1.5 times the keepalive interval")
        } else {
            return None;
        };
        Some((ending, Some(message)))
    }

    const fn handshake_late_ms(&self, standing: Standing) -> u64 {
        if standing.is_authenticated { NEVER_MS } else { self.handshake_ms }
    }

    /// When an authenticated client has been silent for too long; not while nothing is read from it.
    fn idle_late_ms(&self, settings: &Settings, standing: Standing) -> u64 {
        if standing.is_authenticated && !self.is_stalled {
            after(self.heard_ms, idle_timeout(settings))
        } else {
            NEVER_MS
        }
    }

    /// When a frame has been incomplete for too long; not while nothing is read.
    fn frame_late_ms(&self, settings: &Settings) -> u64 {
        if self.is_stalled { NEVER_MS } else { after(self.frame_since_ms, settings.frame_timeout) }
    }

    /// When the last words are over: GOAWAY was sent, all is answered and nothing comes any more.
    fn last_words_ms(&self, standing: Standing) -> u64 {
        if standing.is_answered && self.went_away_ms != NEVER_MS {
            after(self.went_away_ms.max(self.heard_ms), LAST_WORDS)
        } else {
            NEVER_MS
        }
    }
}

/// Never, if it is since never.
fn after(since_ms: u64, timeout: Duration) -> u64 {
    since_ms.saturating_add(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
}

fn idle_timeout(settings: &Settings) -> Duration {
    settings.keepalive.saturating_mul(3).checked_div(2).unwrap_or(settings.keepalive)
}
