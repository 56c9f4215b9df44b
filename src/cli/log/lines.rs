//! What a line of the log looks like: as tracing formats it, then whose it is and what was left out before it.
//!
//! Runs on whatever thread logs. Errors, warnings and information are limited by kind; what was asked for to look at
//! single requests (debug, trace) is not.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::Registry;

use super::limiter::{Limiter, Verdict};

/// What all lines of a process share. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limiter: Mutex<Limiter<Kind>>,
    start: Instant,
    /// Such as `gateway=12`, once it is known.
    who: OnceLock<String>,
}

/// A place in the source.
#[derive(Clone, Debug)]
struct Kind(&'static Metadata<'static>);

impl Kind {
    fn id(&self) -> Identifier {
        self.0.callsite()
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Kind {}

impl std::hash::Hash for Kind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl Lines {
    pub(super) fn new() -> Self {
        let (limiter, who) = (Mutex::default(), OnceLock::new());
        Self(Arc::new(Shared { limiter, start: Instant::now(), who }))
    }

    /// Whose lines these are.
    pub(super) fn are_of(&self, who: String) {
        let _ = self.0.who.set(who);
    }

    fn limiter(&self) -> MutexGuard<'_, Limiter<Kind>> {
        self.0.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Lines that were left out, since the start.
    pub(super) fn left_out(&self) -> u64 {
        self.limiter().left_out()
    }

    /// A line for each kind of which some were left out and no other line tells.
    pub(super) fn untold(&self) -> Vec<String> {
        let (untold, now) = (self.limiter().untold(self.now()), std::time::SystemTime::now());
        let line = |(kind, left_out): (Kind, u64)| {
            let (Kind(metadata), now) = (kind, humantime::format_rfc3339_micros(now));
            let (level, target, who) = (metadata.level(), metadata.target(), self.0.who.get());
            let who = who.map_or_else(String::new, |who| format!(" {who}"));
            let at = metadata.line().unwrap_or_default();
            format!(
                "{now} {level:>5} {target}: more lines like those of line {at} left_out={left_out}{who}\n"
            )
        };
        untold.into_iter().map(line).collect()
    }
}

/// Formats lines, or leaves them out.
#[derive(Debug)]
pub(super) struct Limited {
    pub(super) lines: Lines,
    pub(super) format: Format,
}

impl<N> FormatEvent<Registry, N> for Limited
where
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, Registry, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (lines, metadata) = (&self.lines, event.metadata());
        let mut left_out = 0;
        if *metadata.level() <= Level::INFO {
            match lines.limiter().came(&Kind(metadata), lines.now()) {
                // Nothing is written.
                Verdict::LeftOut => return Ok(()),
                Verdict::Logged { left_out: some } => left_out = some,
            }
        }
        let mut text = String::new();
        self.format.format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(text.trim_end_matches('\n'))?;
        if left_out > 0 {
            write!(writer, " left_out={left_out}")?;
        }
        if let Some(who) = lines.0.who.get() {
            write!(writer, " {who}")?;
        }
        writer.write_char('\n')
    }
}
