//! One server process: started, asked whether it is ready, signalled, killed and started again.
//!
//! Runs in a process group of its own and writes its log into the server's folder. Dropping kills the group and
//! reaps the leader. Never waits for readiness by sleeping a fixed time: it asks until a deadline.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::error::tail;
use crate::{ServerError, orphans};

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(3);
/// For a killed process to be gone. Long, for machines that are busy; reached only when something is wrong.
const END_MAX: Duration = Duration::from_secs(30);

/// A folder in the temp folder, removed with its value or by the orphan guard.
#[derive(Debug)]
pub(crate) struct ServerFolder {
    folder: TempDir,
}

impl ServerFolder {
    pub(crate) fn create(name: &str) -> Result<Self, ServerError> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("rushgate-{name}-"))
            .tempdir()
            .map_err(ServerError::io("making a folder in the temp folder"))?;
        orphans::watch_folder(folder.path())?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for ServerFolder {
    fn drop(&mut self) {
        // The guard removes a folder that is already gone without complaint, so its failure loses nothing.
        let _ = orphans::forget_folder(self.folder.path());
    }
}

/// What a process is started with, each time.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl ServerProcess {
    pub(crate) fn new(
        name: &'static str,
        program: PathBuf,
        arguments: Vec<OsString>,
        environment: Vec<(String, String)>,
        folder: &Path,
    ) -> Self {
        let log = folder.join(format!("{name}.log"));
        Self { name, program, arguments, environment, log, child: Mutex::new(None) }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the process; whether it is ready is another question.
    pub(crate) fn spawn(&self) -> Result<(), ServerError> {
        let opened = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.log)
                .map_err(ServerError::io(format!("opening {}", self.log.display())))
        };
        let mut child = self.child();
        let started = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(opened()?)
            .stderr(opened()?)
            .process_group(0)
            .spawn()
            .map_err(ServerError::io(format!("starting {}", self.program.display())))?;
        let group = started.id();
        // Kept first: what is kept is killed on drop, also when the guard cannot be told.
        *child = Some(started);
        orphans::watch_group(group)
    }

    /// For a loop that asks a condition: `while !it_holds().await { waiting.again().await? }`.
    pub(crate) fn waiting(&self, what_did_not_happen: &'static str, within: Duration) -> Waiting<'_> {
        Waiting { process: self, what_did_not_happen, within, begun: Instant::now() }
    }

    pub(crate) fn late(&self, what_did_not_happen: &str, waited: Duration) -> ServerError {
        ServerError::Late {
            name: self.name,
            what: what_did_not_happen.to_owned(),
            waited,
            log_tail: tail(&self.log),
        }
    }

    /// The process's number while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Reaps a process that has ended.
    fn ended(&self) -> Result<Option<ExitStatus>, ServerError> {
        let mut child = self.child();
        let Some(running) = child.as_mut() else {
            return Err(ServerError::NotRunning { name: self.name });
        };
        // A zombie's number is not given away: it is taken off the guard's list first, reaped after that.
        if !is_zombie(running.id()) {
            return Ok(None);
        }
        orphans::forget_group(running.id())?;
        let status = running.wait().map_err(ServerError::io(format!("waiting for {}", self.name)))?;
        *child = None;
        Ok(Some(status))
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), ServerError> {
        let child = self.child();
        let group = child
            .as_ref()
            .and_then(|running| i32::try_from(running.id()).ok())
            .and_then(Pid::from_raw)
            .ok_or(ServerError::NotRunning { name: self.name })?;
        kill_process_group(group, signal)
            .map_err(|errno| ServerError::io(format!("signalling {}", self.name))(errno.into()))
    }

    /// Kills without notice, as the kernel does for want of memory, and waits until it is gone.
    pub(crate) async fn kill9(&self) -> Result<(), ServerError> {
        self.signal(Signal::KILL)?;
        self.wait_end().await
    }

    /// Asks to stop (SIGTERM) and waits until it is gone.
    pub(crate) async fn stop(&self) -> Result<(), ServerError> {
        self.signal(Signal::TERM)?;
        // A paused one hears the request only when it runs on.
        self.signal(Signal::CONT)?;
        self.wait_end().await
    }

    async fn wait_end(&self) -> Result<(), ServerError> {
        let begun = Instant::now();
        while self.ended()?.is_none() {
            if begun.elapsed() > END_MAX {
                return Err(self.late("did not end", END_MAX));
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Stops its clock: it keeps its sockets and answers nothing.
    pub(crate) async fn pause(&self) -> Result<(), ServerError> {
        self.signal(Signal::STOP)?;
        let waiting = self.waiting("was not stopped by SIGSTOP", END_MAX);
        while !self.is_paused() {
            waiting.again().await?;
        }
        Ok(())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.id().and_then(state_of).is_some_and(|state| state == "T")
    }

    pub(crate) fn resume(&self) -> Result<(), ServerError> {
        self.signal(Signal::CONT)
    }

    /// CPU time used since the last start, in user and kernel mode.
    pub(crate) fn cpu_time(&self) -> Result<Duration, ServerError> {
        let id = self.id().ok_or(ServerError::NotRunning { name: self.name })?;
        let malformed = || ServerError::malformed(format!("/proc/{id}/stat"), "no CPU times");
        let fields = stat_fields(id).ok_or_else(malformed)?;
        // Fields 14 and 15 of proc(5), 12th and 13th after the name.
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let used = ticks(11).zip(ticks(12)).map(|(user, kernel)| user.saturating_add(kernel));
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let nanoseconds = used
            .ok_or_else(malformed)?
            .saturating_mul(1_000_000_000)
            .checked_div(per_second)
            .ok_or_else(malformed)?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}

/// Waiting for a condition of a process, with a deadline.
pub(crate) struct Waiting<'a> {
    process: &'a ServerProcess,
    what_did_not_happen: &'static str,
    within: Duration,
    begun: Instant,
}

impl Waiting<'_> {
    /// Returns after a moment; fails at the deadline, and as soon as the process has ended.
    pub(crate) async fn again(&self) -> Result<(), ServerError> {
        let process = self.process;
        if let Some(status) = process.ended()? {
            return Err(ServerError::Ended { name: process.name, status, log_tail: tail(&process.log) });
        }
        if self.begun.elapsed() > self.within {
            return Err(process.late(self.what_did_not_happen, self.within));
        }
        sleep(POLL).await;
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let mut child = self.child();
        if let Some(mut running) = child.take() {
            // Nobody is left to tell about a failure, and the guard still has the group if forgetting it failed.
            if let Some(group) = i32::try_from(running.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = orphans::forget_group(running.id());
            let _ = running.wait();
        }
    }
}

/// The fields of /proc/PID/stat from the third on; the second, the name in parentheses, may hold anything.
fn stat_fields(id: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    Some(after_name.split_whitespace().map(str::to_owned).collect())
}

fn state_of(id: u32) -> Option<String> {
    stat_fields(id)?.into_iter().next()
}

fn is_zombie(id: u32) -> bool {
    state_of(id).is_none_or(|state| state == "Z" || state == "X")
}

/// Looks for a program on PATH and where Debian puts servers, which is not on a user's PATH.
pub(crate) fn find_program(program: &'static str, package: &'static str) -> Result<PathBuf, ServerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or(ServerError::Missing { program, package })
}
