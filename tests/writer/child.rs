//! A writer process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::house::World;

/// Killed when dropped.
pub(crate) struct WriterProcess {
    child: Child,
    admin: Option<SocketAddr>,
    log: PathBuf,
}

impl WriterProcess {
    /// Starts one; `writer` is more of its section of the configuration, `crash_point` where it is to die.
    pub(crate) fn start(world: &World, writer: &str, crash_point: Option<&str>) -> Self {
        let config = world.config(writer);
        let log = config.with_extension("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate"));
        command.arg("writer").arg("--config").arg(&config).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(crash_point.map(|name| ("RUSHGATE_CRASH_POINT", name)));
        Self { child: command.spawn().unwrap(), admin: None, log }
    }

    /// Waits until it works; blocks.
    pub(crate) fn works(mut self) -> Self {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let admin = line.split("admin: ").nth(1).and_then(|rest| rest.trim_end().strip_suffix(')'));
        self.admin = Some(admin.unwrap_or_else(|| panic!("{line:?}\n{}", self.log())).parse().unwrap());
        self
    }

    pub(crate) fn working(world: &World, writer: &str) -> Self {
        Self::start(world, writer, None).works()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end; blocks.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it has died at its crash point.
    #[track_caller]
    pub(crate) fn crashed(&mut self) {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.ended();
        assert_eq!(status.signal(), Some(6), "{status}:\n{}", self.log());
    }

    pub(crate) fn terminate(&self) {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// Stops it in order.
    #[track_caller]
    pub(crate) fn stopped(mut self) {
        self.terminate();
        let status = self.ended();
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Where its admin port is.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.unwrap()
    }

    /// Status and body.
    pub(crate) fn http(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin.unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.http("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Counted since its start.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.metric(&format!("rushgate_writer_{name}_total"))
    }
}

impl Drop for WriterProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of writer {}:\n{}", self.child.id(), self.log());
        }
    }
}

impl WriterProcess {
    /// Lets it settle everything, then stops it.
    pub(crate) async fn settled_by(self, world: &World) {
        world.drained().await;
        self.stopped();
    }
}
