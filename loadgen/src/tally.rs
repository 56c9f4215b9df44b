//! Counting answers and latencies; one of each per thread, added up at the end.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{Map, Value};

use crate::output::Failure;
use crate::work::status_name;

/// Ten minutes; what takes longer counts as that.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// A histogram of nanoseconds, three digits exact.
pub(crate) fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
        .map_err(|error| Failure::cannot_start(format!("latencies cannot be recorded: {error}")))
}

/// A quantile in microseconds, to a tenth; 0 when nothing was recorded.
pub(crate) fn quantile_us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    tenths_us(histogram.value_at_quantile(quantile))
}

/// Nanoseconds as microseconds, to a tenth.
pub(crate) fn tenths_us(ns: u64) -> f64 {
    // Ten minutes in tenths of a microsecond fit a u32 twice over; more is shown as the most.
    f64::from(u32::try_from(ns.saturating_add(50) / 100).unwrap_or(u32::MAX)) / 10.0
}

/// A count per second, to a tenth.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds <= 0.0 { 0.0 } else { (exact(count) / seconds * 10.0).round() / 10.0 }
}

/// A count as a float; exact up to 2⁵³, far above anything counted here.
pub(crate) fn exact(count: u64) -> f64 {
    let high = u32::try_from(count >> 32).unwrap_or(u32::MAX);
    let low = u32::try_from(count & 0xFFFF_FFFF).unwrap_or(u32::MAX);
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

/// Answers by status code. A run meets few codes: the search is short.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByStatus(Vec<(u16, u64)>);

impl ByStatus {
    pub(crate) fn add(&mut self, code: u16, more: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count = count.saturating_add(more),
            None => self.0.push((code, more)),
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(code, count)| self.add(*code, *count));
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Names and counts, by code.
    pub(crate) fn named(&self) -> Vec<(String, u64)> {
        let mut counts = self.0.clone();
        counts.sort_unstable();
        counts.into_iter().map(|(code, count)| (status_name(code), count)).collect()
    }

    pub(crate) fn json(&self) -> Value {
        self.named().into_iter().map(|(name, count)| (name, Value::from(count))).collect::<Map<_, _>>().into()
    }
}

/// What went wrong, by words, and how often.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reasons(BTreeMap<String, u64>);

impl Reasons {
    pub(crate) fn add(&mut self, reason: String, more: u64) {
        let count = self.0.entry(reason).or_default();
        *count = count.saturating_add(more);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(reason, count)| self.add(reason, count));
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// One line for people; empty when nothing went wrong.
    pub(crate) fn line(&self) -> String {
        let parts: Vec<_> = self.0.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        parts.join(", ")
    }

    pub(crate) fn json(&self) -> Value {
        self.0
            .iter()
            .map(|(reason, count)| (reason.clone(), Value::from(*count)))
            .collect::<Map<_, _>>()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_are_shown_as_they_are() {
        assert!((tenths_us(23_449) - 23.4).abs() < 1e-9);
        assert!((exact(10_000_000_000) - 1e10).abs() < 1e-9);
        assert!((per_second(3, 2.0) - 1.5).abs() < 1e-9);
        let mut by_status = ByStatus::default();
        by_status.add(0x1001, 2);
        by_status.add(0x0001, 1);
        by_status.add(0x1001, 1);
        by_status.add(0x1FFF, 1);
        let named = by_status.named();
        let expected =
            [("QUEUED", 1), ("SOLD_OUT", 3), ("0x1fff", 1)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(named, expected);
        assert_eq!(by_status.total(), 5);
    }
}
