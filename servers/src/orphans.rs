//! Kills what a test process leaves behind when no destructor ran: servers in a `static`, a test binary that was
//! killed or that aborted.
//!
//! One shell per process, started with the first server, reads the process groups and folders to look after from a
//! pipe that only this process holds. At the end of the pipe, this process is gone: the shell kills the groups that
//! are still on its list and removes their folders. A group is taken off the list before its leader is reaped, so
//! that a number that the kernel gave away again is never killed. (`PR_SET_PDEATHSIG` would not do: it fires at the
//! end of the thread that started the server, which is the end of one test.)

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::ServerError;

const SCRIPT: &str = r#"
groups= folders=
without() { left=; for item in $1; do [ "$item" = "$2" ] || left="$left$item
"; done; }
IFS='
'
while IFS=' ' read -r what item; do
  case $what in
    +group) groups="$groups$item
";;
    -group) without "$groups" "$item"; groups=$left;;
    +folder) folders="$folders$item
";;
    -folder) without "$folders" "$item"; folders=$left;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
for folder in $folders; do rm -rf -- "$folder"; done
"#;

static GUARD: Mutex<Option<ChildStdin>> = Mutex::new(None);

fn tell(line: &str) -> Result<(), ServerError> {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    let pipe = match guard.take() {
        Some(pipe) => guard.insert(pipe),
        None => guard.insert(start()?),
    };
    pipe.write_all(line.as_bytes()).map_err(ServerError::io("telling the orphan guard"))
}

fn start() -> Result<ChildStdin, ServerError> {
    let mut shell = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "rushgate-servers-orphan-guard"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A group of its own: the terminal's interrupt, which ends the tests, must not end it.
        .process_group(0)
        .spawn()
        .map_err(ServerError::io("starting the orphan guard /bin/sh"))?;
    shell.stdin.take().ok_or_else(|| ServerError::malformed("the orphan guard", "it has no standard input"))
}

/// Kills a process group when this process ends, however it ends: for processes that a test or a drill starts itself,
/// each with `process_group(0)`.
///
/// # Errors
/// When the guard cannot be started or told.
pub fn watch_group(group: u32) -> Result<(), ServerError> {
    tell(&format!("+group {group}\n"))
}

/// The group has ended. To be called before its leader is reaped, so that a number that is given away again is never
/// killed.
///
/// # Errors
/// When the guard cannot be told.
pub fn forget_group(group: u32) -> Result<(), ServerError> {
    tell(&format!("-group {group}\n"))
}

/// Removes the folder when this process ends.
pub(crate) fn watch_folder(folder: &Path) -> Result<(), ServerError> {
    tell(&format!("+folder {}\n", folder.display()))
}

/// The folder is gone, or is its owner's again.
pub(crate) fn forget_folder(folder: &Path) -> Result<(), ServerError> {
    tell(&format!("-folder {}\n", folder.display()))
}
