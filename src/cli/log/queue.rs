//! Lines on their way to the log file: bounded by bytes. Whoever logs never waits for a disk; what does not fit is dropped
//! and counted.
//!
//! Filled by every thread that logs, emptied by the one that writes the file. The lock is held to put one line down, or to
//! take all of them up.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait, together.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// The rest of a longer line is cut off.
const LINE_BYTES_MAX: usize = 8 << 10;

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    came: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<Box<[u8]>>,
    bytes: usize,
    /// Nothing more comes.
    is_closed: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a line down, or drops it.
    pub(super) fn put(&self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        let (line, is_cut) = match line.get(..LINE_BYTES_MAX) {
            Some(cut) => (cut, true),
            None => (line, false),
        };
        let mut own = line.to_vec();
        if is_cut {
            own.extend_from_slice(b" ...\n");
        }
        let mut waiting = self.waiting();
        let bytes = waiting.bytes.saturating_add(own.len());
        if bytes > WAITING_BYTES_MAX {
            drop(waiting);
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes = bytes;
        waiting.lines.push(own.into());
        drop(waiting);
        self.0.came.notify_one();
    }

    /// Takes what is there, after waiting so long for it; and whether nothing more comes.
    pub(super) fn take(&self, wait: Duration) -> (Vec<Box<[u8]>>, bool) {
        let waiting = self.waiting();
        let is_empty = |waiting: &mut Waiting| waiting.lines.is_empty() && !waiting.is_closed;
        let waited = self.0.came.wait_timeout_while(waiting, wait, is_empty);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.bytes = 0;
        (std::mem::take(&mut waiting.lines), waiting.is_closed)
    }

    /// Has the writing end, after what is there.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.0.came.notify_one();
    }

    /// Lines that found no room, since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_hangs_costs_lines_and_neither_time_nor_memory() {
        let queue = Queue::default();
        // Nobody takes anything.
        for _ in 0..100_000 {
            queue.put(&[b'x'; 100]);
        }
        assert!(queue.waiting().bytes <= WAITING_BYTES_MAX);
        let (lines, is_closed) = queue.take(Duration::ZERO);
        assert!(!is_closed);
        assert_eq!(queue.dropped().saturating_add(lines.len() as u64), 100_000);
        queue.put(b"there is room again\n");
        queue.close();
        assert_eq!(queue.take(Duration::from_secs(10)), (vec![(*b"there is room again\n").into()], true));
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let queue = Queue::default();
        queue.put(&vec![b'x'; 1 << 20]);
        let (lines, _) = queue.take(Duration::ZERO);
        assert!(lines.iter().all(|line| line.len() < LINE_BYTES_MAX + 10 && line.ends_with(b"...\n")));
    }
}
