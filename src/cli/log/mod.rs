//! The log: lines of `tracing`, limited by kind, to standard error or to files that are rotated.
//!
//! A command logs straight to standard error. So does a process without `log.file`; with one, its lines go through a
//! bounded queue to a thread of its own, so that nothing that serves waits for a disk. That thread also tells what was
//! left out of kinds of which nothing more comes. It ends with the process, after what was logged until then.

mod limiter;
mod lines;
mod queue;
mod rolling;

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Format;

use self::lines::{Limited, Lines};
use self::queue::Queue;
use self::rolling::{Rolling, RollingSettings};
use super::Failure;
use crate::admission::switches::LogLevel;
use crate::config;
use crate::store::watched;

/// Between two looks for what nothing has told.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the end of a process may wait for its last lines to be written.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Chooses anew what is logged.
pub(super) struct LogControl {
    default: String,
    reload: Box<dyn Fn(EnvFilter) + Send + Sync>,
}

impl LogControl {
    /// Everything of this level and above; what it was started with for `Default`.
    pub(super) fn set(&self, level: LogLevel) {
        let filter = match level {
            LogLevel::Default => filter(&self.default),
            LogLevel::Error => EnvFilter::new("error"),
            level => EnvFilter::new(format!("rushgate={},warn", level.name())),
        };
        (self.reload)(filter);
    }
}

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default))
}

/// Logs of a command go to stderr; `RUST_LOG` chooses, `default` otherwise. A second call in one process changes nothing.
pub(super) fn start_logging(default: &str) -> LogControl {
    begin(default, &Lines::new(), io::stderr().is_terminal(), io::stderr)
}

fn begin<W>(default: &str, lines: &Lines, colours: bool, writer: W) -> LogControl
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let format = Limited { lines: lines.clone(), format: Format::default().with_ansi(colours) };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(default))
        .with_ansi(colours)
        .with_writer(writer)
        .event_format(format)
        .with_filter_reloading();
    let handle = subscriber.reload_handle();
    let _ = subscriber.try_init();
    // It fails only when there is nobody who logs.
    let reload = Box::new(move |filter| drop(handle.reload(filter)));
    LogControl { default: default.to_owned(), reload }
}

/// The log of a process that serves until it is stopped. Dropped, it waits a moment for its last lines.
#[derive(Debug)]
pub(super) struct ProcessLog {
    lines: Lines,
    queue: Queue,
    ended: mpsc::Receiver<()>,
}

/// What became of lines, for metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LogCounts {
    lines: Lines,
    queue: Queue,
}

impl LogCounts {
    /// Lines left out because there were many like them, and lines dropped because there was no room.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.lines.left_out(), self.queue.dropped())
    }
}

impl ProcessLog {
    /// Begins it, and has panics of any thread logged.
    pub(super) fn start(settings: &config::Log, default: &str) -> Result<(Self, LogControl), Failure> {
        let (lines, queue) = (Lines::new(), Queue::default());
        let (control, file) = match &settings.file {
            None => (begin(default, &lines, io::stderr().is_terminal(), io::stderr), None),
            Some(path) => {
                let bytes = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
                let rolling = RollingSettings {
                    path: path.clone(),
                    file_bytes_max: bytes(settings.file_bytes_max),
                    rotate_after: settings.rotate_after,
                    total_bytes_max: bytes(settings.total_bytes_max),
                };
                let rolling = Rolling::new(rolling, io::stderr());
                (begin(default, &lines, false, queue.clone()), Some(rolling))
            }
        };
        let (tell, ended) = mpsc::channel();
        let writing = Writing { lines: lines.clone(), queue: queue.clone(), file };
        let run = move || {
            writing.run();
            drop(tell);
        };
        thread::Builder::new()
            .name("rushgate-log".to_owned())
            .spawn(run)
            .map_err(|error| Failure::cannot_start(format!("cannot start the log's thread: {error}")))?;
        log_panics();
        Ok((Self { lines, queue, ended }, control))
    }

    /// Whose lines these are, such as `gateway=12`.
    pub(super) fn is_of(&self, what: &str, number: u32) {
        self.lines.are_of(format!("{what}={number}"));
    }

    pub(super) fn counts(&self) -> LogCounts {
        LogCounts { lines: self.lines.clone(), queue: self.queue.clone() }
    }
}

impl Drop for ProcessLog {
    fn drop(&mut self) {
        self.queue.close();
        // Nothing is ever sent: the thread's end is what is waited for.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
    }
}

/// What the thread does.
struct Writing {
    lines: Lines,
    queue: Queue,
    file: Option<Rolling<io::Stderr>>,
}

impl Writing {
    fn run(mut self) {
        let mut dropped = 0;
        loop {
            let (lines, is_last) = self.queue.take(LOOK_INTERVAL);
            for line in lines {
                self.write(&line);
            }
            for line in self.lines.untold() {
                self.write(line.as_bytes());
            }
            let dropped_now = self.queue.dropped();
            if dropped_now > dropped {
                let lost = dropped_now.saturating_sub(dropped);
                self.write(
                    format!("{lost} lines were dropped: the log file is slower than what is logged\n")
                        .as_bytes(),
                );
                dropped = dropped_now;
            }
            if is_last {
                return;
            }
        }
    }

    fn write(&mut self, line: &[u8]) {
        match &mut self.file {
            Some(file) => {
                file.write(line, SystemTime::now());
            }
            None => {
                // Nowhere to tell it if stderr is gone.
                let _ = io::stderr().write_all(line);
            }
        }
    }
}

/// Has every panic logged and counted, in whatever thread or task.
fn log_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        watched::note_panic();
        let thread = thread::current();
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let said = watched::panic_text(panic.payload());
        tracing::error!(thread = thread.name().unwrap_or_default(), at, "panicked: {said}");
        // Whoever wants to see where it came from.
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            before(panic);
        }
    }));
}
