//! What any process that runs until it is stopped tells of itself as a program: faults, and what became of its log.

use super::log::LogCounts;
use super::metric_text::single;
use crate::store::watched;

pub(super) fn put_process(text: &mut String, log: Option<&LogCounts>) {
    let (left_out, dropped) = log.map(LogCounts::read).unwrap_or_default();
    for (name, help, value) in [
        ("rushgate_panics_total", "Panics of any thread or task: faults of this program", watched::panics()),
        (
            "rushgate_log_lines_left_out_total",
            "Lines of the log left out because there were many of their kind",
            left_out,
        ),
        (
            "rushgate_log_lines_dropped_total",
            "Lines dropped because the log file was slower than what was logged",
            dropped,
        ),
    ] {
        single(text, name, "counter", help, value);
    }
}
