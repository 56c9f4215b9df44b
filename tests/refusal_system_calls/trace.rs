//! The binary under strace, and what its worker's trace says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::house::{House, Serving};

/// One file a thread, and the first bytes of what is read in hexadecimal.
const STRACE: &str = r#"exec strace -ff -qq -xx -s 16 -e signal=none -o "$TRACES" "$RUSHGATE" serve "$@""#;

/// One system call of a thread.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// It returned an error, such as EAGAIN.
    pub(crate) failed: bool,
    /// As strace wrote it, for a test that fails.
    #[allow(dead_code, reason = "printed by Debug")]
    line: String,
}

/// A gateway that strace started.
pub(crate) struct Traced {
    pub(crate) serving: Serving,
    /// strace writes a file for each thread: this, and the thread's number.
    traces: PathBuf,
    pid: u32,
    has_ended: bool,
}

impl Traced {
    /// strace is the parent: systems that let nobody else look allow that.
    pub(crate) fn serve(house: &House, set: &[&str]) -> Self {
        let found = Command::new("strace").arg("-V").output();
        assert!(found.is_ok_and(|found| found.status.success()), "strace is missing: apt-get install strace");
        let traces = house.dir.path().join(format!("trace-{}", fastrand::u64(..)));
        let mut command = house.shell(STRACE);
        command.env("TRACES", &traces).args(["rushgate", "--set", "gateway.listen=127.0.0.1:0"]);
        command.args(["--set", "admin.listen=127.0.0.1:0"]);
        for setting in set {
            command.args(["--set", setting]);
        }
        let serving = house.start(command);
        let pid = Self::files(&traces).iter().map(|(thread, _)| *thread).min().expect("strace wrote nothing");
        Self { serving, traces, pid, has_ended: false }
    }

    /// Ends the gateway; what the thread that was told `begin` and `end` called between the two.
    pub(crate) fn calls_between(mut self, begin: u32, end: u32) -> Vec<Call> {
        assert!(self.signal("TERM"), "the gateway is gone: {}", self.serving.log());
        assert!(self.serving.ended().success(), "{}", self.serving.log());
        self.has_ended = true;
        let (begin, end) = (marker(begin), marker(end));
        let files = Self::files(&self.traces);
        let worker = files.into_iter().map(|(_, path)| fs::read_to_string(path).unwrap());
        let worker = worker.into_iter().find(|text| text.contains(&begin)).expect("no thread was marked");
        let lines = worker.lines().skip_while(|line| !line.contains(&begin)).skip(1);
        lines.take_while(|line| !line.contains(&end)).map(Call::parse).collect()
    }

    /// To the gateway itself. Its parent would leave it running.
    fn signal(&self, name: &str) -> bool {
        let pid = self.pid.to_string();
        Command::new("kill").args(["-s", name, &pid]).status().is_ok_and(|status| status.success())
    }

    /// Thread and file.
    fn files(traces: &Path) -> Vec<(u32, PathBuf)> {
        let prefix = traces.file_name().unwrap().to_str().unwrap();
        let files = fs::read_dir(traces.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
        let thread = |path: &PathBuf| {
            path.file_name()?.to_str()?.strip_prefix(prefix)?.strip_prefix('.')?.parse().ok()
        };
        files.filter_map(|path| Some((thread(&path)?, path))).collect()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if !self.has_ended {
            self.signal("KILL");
        }
    }
}

impl Call {
    fn parse(line: &str) -> Self {
        let (name, rest) = line.split_once('(').unwrap_or((line, ""));
        let result = rest.rsplit_once(" = ").map_or("", |(_, result)| result);
        Self { name: name.to_owned(), failed: result.starts_with('-'), line: line.to_owned() }
    }
}

/// How a request id shows in the bytes that were read.
fn marker(id: u32) -> String {
    let [a, b, c, d] = id.to_be_bytes();
    format!("\\x{a:02x}\\x{b:02x}\\x{c:02x}\\x{d:02x}")
}
