//! One process of the real binary: a gateway or a writer.
//!
//! Its output goes to a file, which tells when it works and how long shards were closed. Dropping kills it, and so does
//! the end of this process, however that comes.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::{Instant, sleep};

use crate::error::{DrillError, Result};

const READY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
const TAIL_LINES: usize = 25;
/// SIGABRT: what a crash point ends with.
const ABORTED: i32 = 6;

/// A process that can be killed and started again as it was.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    binary: PathBuf,
    arguments: Vec<String>,
    /// Set besides what every process has.
    environment: Vec<(String, String)>,
    log: PathBuf,
    /// Bytes of the log before this start.
    log_from: usize,
    child: Option<Child>,
}

impl Program {
    /// Starts nothing yet.
    pub(crate) fn new(binary: &Path, name: &str, arguments: Vec<String>, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            binary: binary.to_owned(),
            arguments,
            environment: Vec::new(),
            log: folder.join(format!("{name}.log")),
            log_from: 0,
            child: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its wall clock is ahead of the machine's, from its next start on.
    pub(crate) fn set_clock_ahead(&mut self, by: Duration) -> Result<()> {
        let preload = fake_time_library()?;
        let ahead = format!("+{}s", by.as_secs());
        let variables =
            [("LD_PRELOAD", preload.as_str()), ("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("FAKETIME", &ahead)];
        self.environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Ok(())
    }

    /// Starts it; `crash_point` is where it is to die, if anywhere.
    pub(crate) fn spawn(&mut self, crash_point: Option<&str>) -> Result<()> {
        self.log_from = self.log().len();
        let open = || OpenOptions::new().create(true).append(true).open(&self.log);
        let (out, err) = open()
            .and_then(|out| Ok((out, open()?)))
            .map_err(DrillError::io(format!("opening {}", self.log.display())))?;
        let mut command = Command::new(&self.binary);
        command.args(&self.arguments).env_clear().stdin(Stdio::null()).stdout(out).stderr(err);
        command.env("RUST_BACKTRACE", "1").envs(self.environment.iter().cloned());
        command.envs(crash_point.map(|name| ("RUSHGATE_CRASH_POINT", name)));
        command.process_group(0);
        let child = command.spawn().map_err(DrillError::io(format!("starting {}", self.binary.display())))?;
        let group = child.id();
        self.child = Some(child);
        Ok(rushgate_servers::watch_group(group)?)
    }

    /// Waits until it says that it works.
    pub(crate) async fn works(&mut self) -> Result<()> {
        if self.works_or_crashes().await? {
            return Ok(());
        }
        Err(self.failure("aborted while it was being started".to_owned()))
    }

    /// Waits until it says that it works; `false` when it has died at its crash point before that.
    pub(crate) async fn works_or_crashes(&mut self) -> Result<bool> {
        let begun = Instant::now();
        while self.admin().is_none() {
            match self.ended()? {
                Some(status) if status.signal() == Some(ABORTED) => return Ok(false),
                Some(status) => {
                    return Err(self.failure(format!("ended with {status} while it was being started")));
                }
                None => {}
            }
            if begun.elapsed() > READY_MAX {
                return Err(self.failure(format!("did not start within {READY_MAX:?}")));
            }
            sleep(POLL).await;
        }
        Ok(true)
    }

    /// Starts it and waits until it works.
    pub(crate) async fn start(&mut self) -> Result<()> {
        self.spawn(None)?;
        self.works().await
    }

    /// Where its operators' port is, once it works.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        let log = self.log();
        let said = log.get(self.log_from..)?;
        let line = said.lines().find(|line| line.starts_with("rushgate ") && line.contains("(admin: "))?;
        line.rsplit("(admin: ").next()?.trim_end().strip_suffix(')')?.parse().ok()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let Some(mut child) = self.child.take_if(|child| has_ended(child)) else { return Ok(None) };
        rushgate_servers::forget_group(child.id())?;
        child.wait().map(Some).map_err(DrillError::io(format!("waiting for {}", self.name)))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.ended(), Ok(None)) && self.child.is_some()
    }

    /// kill -9, and waits until it is gone.
    pub(crate) fn kill9(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            rushgate_servers::forget_group(child.id())?;
            child
                .kill()
                .and_then(|()| child.wait())
                .map_err(DrillError::io(format!("killing {}", self.name)))?;
        }
        Ok(())
    }

    /// Waits until it has died at its crash point; `false` when it did not come by in time and lives on.
    pub(crate) async fn crashed(&mut self, within: Duration) -> Result<bool> {
        let begun = Instant::now();
        loop {
            match self.ended()? {
                Some(status) if status.signal() == Some(ABORTED) => return Ok(true),
                Some(status) => {
                    return Err(self.failure(format!("ended with {status}, not at its crash point")));
                }
                None if begun.elapsed() > within => return Ok(false),
                None => sleep(POLL).await,
            }
        }
    }

    /// SIGTERM, and waits until it has ended in order.
    pub(crate) async fn stop(&mut self, within: Duration) -> Result<()> {
        self.signal(Signal::TERM)?;
        let begun = Instant::now();
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(self.failure(format!("was asked to stop and ended with {status}")));
                }
                None if begun.elapsed() > within => {
                    return Err(self.failure(format!("was asked to stop and did not within {within:?}")));
                }
                None => sleep(POLL).await,
            }
        }
    }

    /// SIGSTOP: it keeps its sockets and does nothing.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let process =
            self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok()).and_then(Pid::from_raw);
        let process = process.ok_or_else(|| self.failure("is not running".to_owned()))?;
        kill_process(process, signal)
            .map_err(|errno| DrillError::io(format!("signalling {}", self.name))(errno.into()))
    }

    /// Everything it wrote, over all its starts.
    pub(crate) fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    pub(crate) fn failure(&self, what: String) -> DrillError {
        DrillError::Process { name: self.name.clone(), what, log_tail: self.log_tail() }
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }
}

/// Debian puts it into the architecture's folder.
fn fake_time_library() -> Result<String> {
    let folders = fs::read_dir("/usr/lib").map_err(DrillError::io("looking for libfaketime"))?;
    let folders = folders.filter_map(std::result::Result::ok).map(|entry| entry.path());
    let library = folders
        .flat_map(|folder| [folder.join("faketime"), folder])
        .map(|folder| folder.join("libfaketimeMT.so.1"))
        .find(|library| library.exists());
    let missing = || DrillError::Malformed("no libfaketime; apt-get install faketime".to_owned());
    library.map(|library| library.display().to_string()).ok_or_else(missing)
}

/// Whether it has ended and is not reaped yet.
fn has_ended(child: &Child) -> bool {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    process.is_some_and(|process| !matches!(waitid(WaitId::Pid(process), options), Ok(None)))
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.kill9();
    }
}
