//! The server's clock as a client knows it.

use std::time::Duration;

use tokio::time::Instant;

/// An estimate older than this gives way to a newer one with a longer round trip (clocks drift apart).
const STALE_AFTER: Duration = Duration::from_secs(600);

/// What HELLO and PING replies said of the server's clock. The sample with the least round trip wins: the true
/// time cannot be further off than half of it. Needs no wall clock of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerClock(Option<Sample>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    at: Instant,
    server_ms: u64,
    round_trip: Duration,
}

impl ServerClock {
    /// Takes a reply's server time into account; `sent_at` and `received_at` are of that request.
    pub fn learn(&mut self, server_time_ms: u64, sent_at: Instant, received_at: Instant) {
        let round_trip = received_at.saturating_duration_since(sent_at);
        let half_ms = u64::try_from(round_trip.as_millis()).unwrap_or(u64::MAX) / 2;
        let sample =
            Sample { at: received_at, server_ms: server_time_ms.saturating_add(half_ms), round_trip };
        self.learn_from(Self(Some(sample)));
    }

    /// Takes another connection's estimate if it is better.
    pub fn learn_from(&mut self, other: Self) {
        let Some(new) = other.0 else { return };
        let better = self.0.is_none_or(|old| {
            new.round_trip <= old.round_trip || new.at.saturating_duration_since(old.at) > STALE_AFTER
        });
        if better {
            self.0 = Some(new);
        }
    }

    /// The server's time in Unix milliseconds at `now`; `None` before the first sample.
    pub fn at(&self, now: Instant) -> Option<u64> {
        let sample = self.0?;
        let passed = now.saturating_duration_since(sample.at).as_millis();
        Some(sample.server_ms.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// When the server's clock will show `server_ms`; `now` if it already does or nothing is known.
    pub fn instant_of(&self, server_ms: u64, now: Instant) -> Instant {
        let left_ms = self.at(now).map_or(0, |server_now| server_ms.saturating_sub(server_now));
        now.checked_add(Duration::from_millis(left_ms)).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]
    use super::*;

    #[test]
    fn the_sample_with_the_least_round_trip_wins_until_it_is_stale() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let mut clock = ServerClock::default();
        assert_eq!(clock.at(start), None);
        clock.learn(1_000_000, start, start + ms(10));
        assert_eq!(clock.at(start + ms(10)), Some(1_000_005));
        clock.learn(5_000_000, start, start + ms(50));
        assert_eq!(clock.at(start + ms(110)), Some(1_000_105), "a longer round trip says less");
        clock.learn(2_000_000, start + ms(200), start + ms(202));
        assert_eq!(clock.at(start + ms(202)), Some(2_000_001));
        assert_eq!(clock.instant_of(2_000_101, start + ms(202)), start + ms(302));
        let late = start + Duration::from_secs(700);
        clock.learn(9_000_000, late, late + ms(50));
        assert_eq!(clock.at(late + ms(50)), Some(9_000_025), "a stale sample gives way");
    }
}
