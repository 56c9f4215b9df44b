//! What a flood says at its end: a table for people, one JSON object for machines.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use rushgate::rehearsal::FunnelReport;
use serde_json::{Map, Value, json};

use super::FloodArgs;
use super::lane::LaneEnd;
use super::wire::Wire;
use crate::output::Failure;
use crate::tally::{ByStatus, Reasons, exact, histogram, per_second, quantile_us, tenths_us};

/// What [`FloodReport::json`] holds; part of the help.
pub(super) const JSON_FIELDS: &str = "\
Fields of the JSON object; requests are those planned after the warm-up, times are in microseconds:
  wire, work, mode         rushgate or echo; what is asked; app or service
  connections, depth       as asked for
  open_loop                whether there is a --rate
  offered_per_s            the --rate, or null
  achieved_per_s           answered / seconds
  p50_us .. max_us         p50, p99, p999, max: from the planned time to the answer; requests without an answer count
                           with the age they had at the end
  service_p50_us, service_p99_us
                           from writing to the answer, of answered requests; in the closed loop the same as above
  sent                     requests written = answered + errors
  answered, by_status      answers, and how many of each outcome by its name (`echo` is the one outcome of an echo)
  errors                   written and not answered
  unsent                   open loop: came due and never found a free place
  pushes                   frames that nobody asked for
  funnel                   what the gateways of --admin counted of all BUYs, those of the warm-up included: written, by the
                           rung where they ended, and what came of those who passed; null without --admin
  connections_lost         connections that ended, by why
  seconds                  from the end of the warm-up to the end of sending, or to the last answer if that came later
  server_cpu_ns            CPU time of all --pid in that time / answered; null without --pid, when one of them ended, or
                           when it could not be read for half of that time. From /proc/PID/task/*/schedstat (ns); from
                           /proc/PID/stat (steps of 10 ms) where the kernel has none, or when threads ended meanwhile
  generator_cpu_ns         the same of this process, which waits awake
  generator_busy           share of the time in which this process (its busiest thread) had something to do, or waited for
                           a core to do it: near 1 it is the generator that cannot go faster";

/// All threads, added up. Of the requests planned after the warm-up: `sent` = `answered` + `errors`.
#[derive(Debug)]
pub(super) struct FloodReport {
    wire: Wire,
    work: &'static str,
    is_service: bool,
    connections: u32,
    connections_left: usize,
    depth: u16,
    rate_per_s: Option<u64>,
    seconds: f64,
    busy: f64,
    latency_ns: Histogram<u64>,
    service_ns: Histogram<u64>,
    by_status: ByStatus,
    sent: u64,
    errors: u64,
    unsent: u64,
    pushes: u64,
    lost: Reasons,
    /// What the server's processes used while it was measured; `None`: not asked, or one is gone.
    pub(super) server_used_ns: Option<u64>,
    /// What this process used.
    pub(super) generator_used_ns: Option<u64>,
    /// How long after the warm-up their use was first read.
    pub(super) read_late: Duration,
    /// Requests written, those of the warm-up included.
    pub(super) written: u64,
    /// Where they ended in the gateways' funnel; `None`: not asked.
    pub(super) funnel: Option<FunnelReport>,
    is_server_asked: bool,
}

impl FloodReport {
    pub(super) fn new(args: &FloodArgs, ends: Vec<LaneEnd>) -> Result<Self, Failure> {
        let mut report = Self {
            wire: args.wire,
            work: args.work.name(),
            is_service: args.service,
            connections: args.connections,
            connections_left: 0,
            depth: args.depth,
            rate_per_s: args.rate,
            seconds: 0.0,
            busy: 0.0,
            latency_ns: histogram()?,
            service_ns: histogram()?,
            by_status: ByStatus::default(),
            sent: 0,
            errors: 0,
            unsent: 0,
            pushes: 0,
            lost: Reasons::default(),
            server_used_ns: None,
            generator_used_ns: None,
            read_late: Duration::ZERO,
            written: 0,
            funnel: None,
            is_server_asked: !args.pid.is_empty(),
        };
        for LaneEnd { book, measured_ns, idle_ns, connections_left } in ends {
            report.connections_left = report.connections_left.saturating_add(connections_left);
            report.seconds = report.seconds.max(exact(measured_ns) / 1e9);
            if measured_ns > 0 {
                report.busy = report.busy.max(1.0 - (exact(idle_ns) / exact(measured_ns)).min(1.0));
            }
            // Same bounds on both sides: adding cannot fail.
            let _ = report.latency_ns.add(&book.latency_ns);
            let _ = report.service_ns.add(&book.service_ns);
            report.by_status.merge(&book.by_status);
            report.sent = report.sent.saturating_add(book.sent);
            report.written = report.written.saturating_add(book.written);
            report.errors = report.errors.saturating_add(book.errors);
            report.unsent = report.unsent.saturating_add(book.unsent);
            report.pushes = report.pushes.saturating_add(book.pushes);
            report.lost.merge(book.lost);
        }
        if args.rate.is_none() {
            // Sent as soon as it was planned.
            report.service_ns = report.latency_ns.clone();
        }
        Ok(report)
    }

    fn achieved_per_s(&self) -> f64 {
        per_second(self.by_status.total(), self.seconds)
    }

    const fn mode(&self) -> &'static str {
        if self.is_service { "service" } else { "app" }
    }

    /// Outcomes by name: an echo has none but that it came.
    fn outcomes(&self) -> Vec<(String, u64)> {
        match self.wire {
            Wire::Rushgate => self.by_status.named(),
            Wire::Echo => vec![("echo".to_owned(), self.by_status.total())],
        }
    }

    /// CPU time for each answer; `None` as well when it was read for less than half of the time.
    fn each_ns(&self, used_ns: Option<u64>) -> Option<f64> {
        let read_for = self.seconds - self.read_late.as_secs_f64();
        let answered = exact(self.by_status.total()) * read_for / self.seconds;
        let is_known = answered > 0.0 && read_for * 2.0 > self.seconds;
        used_ns.filter(|_| is_known).map(|used_ns| (exact(used_ns) / answered * 10.0).round() / 10.0)
    }

    pub(super) fn json(&self) -> Value {
        let (latency, service) = (&self.latency_ns, &self.service_ns);
        json!({
            "wire": self.wire.name(),
            "work": self.work,
            "mode": self.mode(),
            "connections": self.connections,
            "depth": self.depth,
            "open_loop": self.rate_per_s.is_some(),
            "offered_per_s": self.rate_per_s,
            "achieved_per_s": self.achieved_per_s(),
            "p50_us": quantile_us(latency, 0.5),
            "p99_us": quantile_us(latency, 0.99),
            "p999_us": quantile_us(latency, 0.999),
            "max_us": tenths_us(latency.max()),
            "service_p50_us": quantile_us(service, 0.5),
            "service_p99_us": quantile_us(service, 0.99),
            "sent": self.sent,
            "answered": self.by_status.total(),
            "by_status": self.outcomes().into_iter().map(|(name, count)| (name, Value::from(count))).collect::<Map<_, _>>(),
            "seconds": self.seconds,
            "errors": self.errors,
            "unsent": self.unsent,
            "pushes": self.pushes,
            "funnel": self.funnel_json(),
            "connections_lost": self.lost.json(),
            "server_cpu_ns": self.each_ns(self.server_used_ns),
            "generator_cpu_ns": self.each_ns(self.generator_used_ns),
            "generator_busy": (self.busy * 1000.0).round() / 1000.0,
        })
    }

    fn funnel_json(&self) -> Value {
        let counted = self.funnel.as_ref().and_then(|funnel| funnel.counted.as_ref());
        let Some(Value::Object(mut funnel)) = counted.and_then(|counted| serde_json::to_value(counted).ok())
        else {
            return Value::Null;
        };
        funnel.insert("written".to_owned(), self.written.into());
        Value::Object(funnel)
    }

    /// Why the run is no good measurement; empty when it is.
    pub(super) fn complaints(&self, addr: SocketAddr) -> Vec<String> {
        let mut lines = Vec::new();
        let lost = self.lost.total();
        if lost > 0 && self.connections_left == 0 {
            lines.push(format!(
                "the {} at {addr} went away; connections: {}",
                self.wire.server(),
                self.lost.line()
            ));
        } else if lost > 0 {
            lines.push(format!("{lost} of {} connections ended: {}", self.connections, self.lost.line()));
        }
        if self.errors > 0 {
            lines.push(format!("{} of {} requests were not answered", self.errors, self.sent));
        }
        if self.is_server_asked && self.server_used_ns.is_none() {
            lines.push(
                "a process of --pid ended before the measurement did: its CPU time is not known".to_owned(),
            );
        }
        if self.by_status.total() == 0 {
            lines.push("nothing was answered".to_owned());
        }
        lines
    }
}

impl fmt::Display for FloodReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20} {:>16}", "wire", self.wire.name())?;
        writeln!(f, "{:<20} {:>16}", "work", self.work)?;
        writeln!(f, "{:<20} {:>16}", "connections", format!("{} {}", self.connections, self.mode()))?;
        writeln!(f, "{:<20} {:>16}", "depth", self.depth)?;
        match self.rate_per_s {
            Some(rate) => writeln!(f, "{:<20} {rate:>16}", "offered/s")?,
            None => writeln!(f, "{:<20} {:>16}", "offered/s", "closed loop")?,
        }
        writeln!(f, "{:<20} {:>16.1}", "achieved/s", self.achieved_per_s())?;
        writeln!(f, "{:<20} {:>16.3}", "seconds", self.seconds)?;
        let (latency, service) = (&self.latency_ns, &self.service_ns);
        for (name, quantile) in
            [("latency p50 µs", 0.5), ("latency p99 µs", 0.99), ("latency p99.9 µs", 0.999)]
        {
            writeln!(f, "{name:<20} {:>16.1}", quantile_us(latency, quantile))?;
        }
        writeln!(f, "{:<20} {:>16.1}", "latency max µs", tenths_us(latency.max()))?;
        writeln!(f, "{:<20} {:>16.1}", "service p50 µs", quantile_us(service, 0.5))?;
        writeln!(f, "{:<20} {:>16.1}", "service p99 µs", quantile_us(service, 0.99))?;
        for (name, used_ns) in
            [("server CPU ns", self.server_used_ns), ("generator CPU ns", self.generator_used_ns)]
        {
            if let Some(each_ns) = self.each_ns(used_ns) {
                // For each answer.
                writeln!(f, "{name:<20} {each_ns:>16.1}")?;
            }
        }
        writeln!(f, "{:<20} {:>15.1}%", "generator busy", self.busy * 100.0)?;
        for (name, count) in self.outcomes() {
            writeln!(f, "{name:<20} {count:>16}")?;
        }
        if self.unsent > 0 {
            // Said aloud: the latencies hold these at the age they had at the end, a lower bound.
            writeln!(f, "{:<20} {:>16}", "due, never sent", self.unsent)?;
        }
        write!(f, "{:<20} {:>16}", "not answered", self.errors)?;
        match &self.funnel {
            Some(funnel) => write!(f, "\n\nwith the warm-up:\n{funnel}"),
            None => Ok(()),
        }
    }
}
