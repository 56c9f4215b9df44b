//! A folder to run the binary in, and the processes that run there.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rushgate::admission::identity::{IdentityKind, MintKey, MintSettings, Minter};
use serde_json::Value;
use tempfile::TempDir;

use super::wire::{Client, eventually, user};

pub(crate) const SALE: u32 = 7;
pub(crate) const SKU: u16 = 1;

pub(crate) struct House {
    pub(crate) dir: TempDir,
}

/// A process of the binary, whatever has become of it; killed when dropped.
pub(crate) struct Started {
    process: Child,
    out: PathBuf,
    log: PathBuf,
}

/// A serving process; killed when dropped.
pub(crate) struct Serving {
    started: Started,
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl House {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    /// With an open activity of so much stock.
    pub(crate) fn with_sale(stock: u64) -> Self {
        let house = Self::new();
        let sku = format!("{SKU}:{stock}:999");
        house.done(&["activity", "create", "--id", "7", "--name", "a sale", "--sku", &sku]);
        house
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("rushgate-data")
    }

    /// The binary, in the folder, with nothing of this process's environment that it would heed.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate"));
        command.args(args);
        self.prepared(command)
    }

    /// `sh -c`, with `$RUSHGATE` for the binary.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut command = self.prepared(command);
        command.env("RUSHGATE", env!("CARGO_BIN_EXE_rushgate"));
        command
    }

    fn prepared(&self, mut command: Command) -> Command {
        command.current_dir(self.dir.path()).env_clear().stdin(Stdio::null());
        // The shell needs it.
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that has to succeed; its stdout.
    #[track_caller]
    pub(crate) fn done(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {}, {error}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that has to refuse to start; its message.
    #[track_caller]
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        refusal(args, &self.run(args))
    }

    /// Runs a command whose arguments are not those of one; what it says about that.
    #[track_caller]
    pub(crate) fn refused_by_usage(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    #[track_caller]
    pub(crate) fn serve(&self, set: &[&str]) -> Serving {
        self.serve_on("127.0.0.1:0", set)
    }

    #[track_caller]
    pub(crate) fn serve_on(&self, listen: &str, set: &[&str]) -> Serving {
        let listen = format!("gateway.listen={listen}");
        let mut command = self.command(&["serve", "--set", &listen, "--set", "admin.listen=127.0.0.1:0"]);
        for setting in set {
            command.args(["--set", setting]);
        }
        self.start(command)
    }

    /// Waits until it says where it serves.
    #[track_caller]
    pub(crate) fn start(&self, command: Command) -> Serving {
        let mut started = Started::new(self, command);
        let mut line = String::new();
        eventually("it says where it serves, or ends", || {
            let has_ended = started.has_ended();
            line = started.said();
            has_ended || line.ends_with('\n')
        });
        let said = line
            .strip_prefix("rushgate serves on ")
            .and_then(|line| line.trim_end().strip_suffix(')'))
            .and_then(|line| line.split_once(" (admin: "));
        let Some((addr, admin)) = said else { panic!("it said {line:?} and {}", started.log()) };
        Serving { addr: addr.parse().unwrap(), admin: admin.parse().unwrap(), started }
    }

    pub(crate) fn minter(&self) -> Minter {
        let key = MintKey::DevSecret(self.data_dir());
        Minter::new(&MintSettings { key, audience: "rushgate".to_owned(), issuer: None }).unwrap()
    }

    pub(crate) fn token(&self, id: u64) -> String {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        self.minter().mint(IdentityKind::App(user(id)), now_s, Duration::from_secs(3600)).unwrap()
    }

    pub(crate) fn app(&self, serving: &Serving, id: u64) -> Client {
        Client::login(serving.addr, &self.token(id))
    }

    /// (total, free, sold, orders) of the sale's article, by the operator's command.
    pub(crate) fn figures(&self) -> (u64, u64, u64, u64) {
        let shown: Value = serde_json::from_str(&self.done(&["activity", "show", "7", "--json"])).unwrap();
        let sku = &shown["skus"][0];
        let number = |key: &str| sku[key].as_u64().unwrap();
        let orders = sku["orders"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        (number("total"), number("free") + number("in_transit"), number("sold"), orders)
    }
}

#[track_caller]
pub(crate) fn refusal(args: &[&str], output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} printed {:?}", String::from_utf8_lossy(&output.stdout));
    let messages = error.lines().filter(|line| line.starts_with("rushgate: ")).count();
    assert_eq!(messages, 1, "{args:?}: {error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

/// Status line and body of a request to an admin port.
#[track_caller]
pub(crate) fn get(admin: SocketAddr, path: &str) -> (String, String) {
    request(admin, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

/// The same, of a body of this type that is sent there.
#[track_caller]
pub(crate) fn post(admin: SocketAddr, path: &str, kind: &str, body: &str) -> (String, String) {
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n");
    request(admin, &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()))
}

#[track_caller]
fn request(admin: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(super::wire::PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

impl Started {
    /// What it says goes to files, so that nobody has to read it and nobody waits for it without a deadline.
    #[track_caller]
    pub(crate) fn new(house: &House, mut command: Command) -> Self {
        let name = fastrand::u64(..);
        let file = |kind: &str| house.dir.path().join(format!("{kind}-{name}"));
        let (out, log) = (file("out"), file("log"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&log).unwrap());
        Self { process: command.spawn().unwrap(), out, log }
    }

    fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// What it wrote to stdout.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    /// What it wrote to stderr.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// How it ends, when that has been asked of it.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        eventually("the process ends", || self.has_ended());
        self.process.wait().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    pub(crate) fn pid(&self) -> u32 {
        self.started.pid()
    }

    pub(crate) fn signal(&self, name: &str) {
        self.started.signal(name);
    }

    pub(crate) fn kill(mut self) {
        self.started.process.kill().unwrap();
        self.started.process.wait().unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        !self.started.has_ended()
    }

    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.started.ended()
    }

    pub(crate) fn log(&self) -> String {
        self.started.log()
    }

    /// Status line and body of a request to the admin port.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        get(self.admin, path)
    }

    /// One number of /metrics.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").1;
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}
