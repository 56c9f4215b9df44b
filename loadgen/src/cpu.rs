//! The CPU time of processes, read from /proc at the two ends of what is measured.
//!
//! Runs on the thread that waits for what is measured. `schedstat` of every thread counts nanoseconds, but forgets
//! threads that ended; `stat` remembers them and counts in steps of 10 ms. Both are read: `schedstat` is believed
//! unless `stat` shows more than its steps explain, and where the kernel has no `schedstat`, `stat` is.

use std::fs;

use crate::output::Failure;

/// Linux tells user space hundredths of a second on every machine that Rushgate runs on (`getconf CLK_TCK`).
const TICK_NS: u64 = 10_000_000;
/// User and system time are each cut to whole ticks, at both ends.
const STAT_ERROR_NS: u64 = 2 * TICK_NS;
/// Fields of `stat` between the command's closing bracket and utime.
const FIELDS_BEFORE_UTIME: usize = 11;

/// What one process had used at some moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// All threads that there are; `None` without `schedstat`.
    schedstat_ns: Option<u64>,
    /// All threads that there were.
    stat_ns: u64,
}

impl Reading {
    fn of(pid: u32) -> Option<Self> {
        Some(Self {
            stat_ns: stat_ns(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?,
            schedstat_ns: schedstat_ns(pid),
        })
    }

    /// What was used from `self` until `end`.
    fn until(self, end: Self) -> u64 {
        let stat_ns = end.stat_ns.saturating_sub(self.stat_ns);
        match (self.schedstat_ns, end.schedstat_ns) {
            (Some(began_ns), Some(ended_ns)) => {
                let schedstat_ns = ended_ns.saturating_sub(began_ns);
                if stat_ns > schedstat_ns.saturating_add(STAT_ERROR_NS) { stat_ns } else { schedstat_ns }
            }
            _ => stat_ns,
        }
    }
}

/// `stat` as the kernel writes it; the command's name may hold blanks and brackets.
fn stat_ns(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(FIELDS_BEFORE_UTIME);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(user.saturating_add(system).saturating_mul(TICK_NS))
}

fn schedstat_ns(pid: u32) -> Option<u64> {
    let mut sum_ns: Option<u64> = None;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // A thread that ends meanwhile is missing, as if it had been missing before.
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        let ran_ns: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        sum_ns = Some(sum_ns.unwrap_or(0).saturating_add(ran_ns));
    }
    sum_ns
}

/// Processes whose time is added up.
#[derive(Debug)]
pub(crate) struct Processes(Vec<(u32, Reading)>);

impl Processes {
    /// Reads each for the first time.
    pub(crate) fn begin(pids: &[u32]) -> Result<Self, Failure> {
        let reading = |pid: &u32| {
            Reading::of(*pid).map(|reading| (*pid, reading)).ok_or_else(|| {
                Failure::cannot_start(format!(
                    "cannot read /proc/{pid}/stat; --pid wants the process id of a server on this machine"
                ))
            })
        };
        pids.iter().map(reading).collect::<Result<_, _>>().map(Self)
    }

    /// Reads each again: what is measured begins now.
    pub(crate) fn begin_again(&mut self) {
        for (pid, reading) in &mut self.0 {
            // One that is gone stays as it was, and is missed at the end.
            *reading = Reading::of(*pid).unwrap_or(*reading);
        }
    }

    /// What all of them used together since then; `None` if one is gone, or none was asked about.
    pub(crate) fn used_ns(&self) -> Option<u64> {
        let mut sum_ns: Option<u64> = None;
        for (pid, began) in &self.0 {
            sum_ns = Some(sum_ns.unwrap_or(0).saturating_add(began.until(Reading::of(*pid)?)));
        }
        sum_ns
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// What the calling thread has used.
    fn thread_ns() -> u64 {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split_ascii_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn the_time_of_a_process_is_that_of_all_its_threads_also_of_those_that_ended() {
        let mut processes = Processes::begin(&[std::process::id()]).map_err(|_| "unreadable").unwrap();
        processes.begin_again();
        let burn = || {
            while thread_ns() < 300_000_000 {}
            thread_ns()
        };
        let burnt_ns = std::thread::spawn(burn).join().unwrap();
        let used_ns = processes.used_ns().unwrap();
        assert!(used_ns >= burnt_ns.saturating_sub(STAT_ERROR_NS), "{used_ns} of {burnt_ns}");
    }

    #[test]
    fn a_name_with_blanks_and_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 2854 6549 7 0 103 20 9 2 20 0 1 0 1150024";
        assert_eq!(stat_ns(stat), Some(1_230_000_000));
        assert_eq!(stat_ns("7 (cut) S 1"), None);
    }

    #[test]
    fn threads_that_ended_are_counted_by_the_coarser_clock() {
        let reading = |schedstat_ns, stat_ns| Reading { schedstat_ns, stat_ns };
        let began = reading(Some(500), 0);
        assert_eq!(began.until(reading(Some(15_000_500), 30_000_000)), 15_000_000, "within the steps");
        assert_eq!(began.until(reading(Some(100), 90_000_000)), 90_000_000, "a thread ended");
        assert_eq!(reading(None, 10_000_000).until(reading(None, 40_000_000)), 30_000_000);
    }

    #[test]
    fn a_process_that_is_not_there_is_told() {
        assert!(Processes::begin(&[u32::MAX]).is_err());
        assert_eq!(Processes::begin(&[]).map_err(|_| "unreadable").unwrap().used_ns(), None);
    }
}
