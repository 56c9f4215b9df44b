//! Metrics as text, in the Prometheus text format. Writing to a String does not fail.

use std::fmt::Write as _;

pub(super) fn single(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}

pub(super) fn family<'a>(
    text: &mut String,
    name: &str,
    help: &str,
    label: &str,
    values: impl Iterator<Item = (&'a str, u64)>,
) {
    labelled(text, (name, "counter", help), label, values);
}

pub(super) fn labelled<'a>(
    text: &mut String,
    (name, kind, help): (&str, &str, &str),
    label: &str,
    values: impl Iterator<Item = (&'a str, u64)>,
) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (value, count) in values {
        let _ = writeln!(text, "{name}{{{label}=\"{value}\"}} {count}");
    }
}
