//! What a serving process tells of itself on the admin port.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::admin::http::Probe;
use crate::gateway::{Ending, Gateway, Rung};

impl Probe for Gateway {
    fn not_ready(&self) -> Vec<&'static str> {
        Self::not_ready(self)
    }

    fn metrics(&self) -> String {
        let counters = self.counters();
        let mut text = String::new();
        let rungs = Rung::ALL.iter().map(|rung| (rung.name(), counters.rung_count(*rung)));
        family(
            &mut text,
            "rushgate_buys_total",
            "BUYs by the rung of the funnel where they ended",
            "rung",
            rungs,
        );
        let statuses = counters.status_counts().map(|(status, count)| (status.name(), count));
        family(&mut text, "rushgate_replies_total", "Replies by status", "status", statuses);
        let endings = Ending::ALL.iter().map(|ending| (ending.name(), counters.ending_count(*ending)));
        family(&mut text, "rushgate_connections_ended_total", "Ends of connections", "why", endings);
        for (name, help, value) in [
            ("rushgate_connections_accepted_total", "Connections accepted", &counters.accepted),
            ("rushgate_pushes_total", "RESULT_PUSH frames handed to a connection", &counters.pushes),
            ("rushgate_store_calls_total", "Calls that the store answered", &counters.calls_answered),
            (
                "rushgate_store_calls_repeated_total",
                "Calls without a reply, repeated",
                &counters.calls_repeated,
            ),
        ] {
            single(&mut text, name, "counter", help, value.load(Ordering::Relaxed));
        }
        let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        let keys = self.limiter_keys();
        for (name, help, value) in [
            ("rushgate_connections", "Connections open", count(self.connections())),
            (
                "rushgate_purchases_unfinished",
                "Purchases accepted and not answered",
                count(self.unfinished()),
            ),
            ("rushgate_limiter_ips", "Addresses that the limits remember", count(keys.ips)),
            ("rushgate_limiter_users", "Users that the limits remember", count(keys.users)),
        ] {
            single(&mut text, name, "gauge", help, value);
        }
        single(&mut text, "rushgate_ready", "gauge", "1 when clients may come", {
            u64::from(Self::not_ready(self).is_empty())
        });
        text
    }
}

fn single(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}

fn family<'a>(
    text: &mut String,
    name: &str,
    help: &str,
    label: &str,
    values: impl Iterator<Item = (&'a str, u64)>,
) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
    for (value, count) in values {
        let _ = writeln!(text, "{name}{{{label}=\"{value}\"}} {count}");
    }
}
