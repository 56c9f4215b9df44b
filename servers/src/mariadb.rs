//! One MariaDB server with durable defaults, a user `rushgate`, and a database for each test that asks.
//!
//! Making an empty data folder takes seconds, so it is made once for a machine, user and version, under a lock, and
//! copied for each start.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::spawn_blocking;

use crate::process::{ServerFolder, ServerProcess, find_program};
use crate::{ReservedPort, ServerError};

const NAME: &str = "mariadb";
const USER: &str = "rushgate";
const PASSWORD: &str = "rushgate-tests";
const READY_MAX: Duration = Duration::from_secs(60);
const PORT_TRIES: usize = 5;
/// The same for the template and for each start: another size would be converted at the start.
const LOG_FILE_SIZE: &str = "--innodb-log-file-size=16M";

/// A database of its own for a test, with what it takes to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Always 127.0.0.1.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// A user that may do everything in this database, and nothing with the server (no SUPER).
    pub user: String,
    /// Its password.
    pub password: String,
    /// The database's name.
    pub name: String,
}

impl Database {
    /// `mysql://user:password@host:port/name`.
    pub fn url(&self) -> String {
        format!("mysql://{}:{}@{}:{}/{}", self.user, self.password, self.host, self.port, self.name)
    }
}

/// A mariadbd of its own. Killed when dropped.
#[derive(Debug)]
pub struct MariaDb {
    // Dropped in this order: the process, then the folder that it writes, then the port.
    process: ServerProcess,
    folder: ServerFolder,
    port: ReservedPort,
    client: PathBuf,
}

impl MariaDb {
    /// Starts a server and waits until it answers SELECT 1.
    ///
    /// # Errors
    /// When MariaDB is not installed, ends, or does not answer in time; the message shows its log.
    pub async fn start() -> Result<Self, ServerError> {
        Self::start_with(&[]).await
    }

    /// Starts with more options of mariadbd (`--name=value`).
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_with(more: &[&str]) -> Result<Self, ServerError> {
        let template = spawn_blocking(template).await.map_err(|error| {
            ServerError::malformed("the making of MariaDB's data folder", error.to_string())
        })??;
        let mut tries_left = PORT_TRIES;
        loop {
            tries_left = tries_left.saturating_sub(1);
            match Self::start_once(&template, more).await {
                Err(error) if error.is_port_taken() && tries_left > 0 => {}
                outcome => return outcome,
            }
        }
    }

    async fn start_once(template: &Path, more: &[&str]) -> Result<Self, ServerError> {
        let program = find_program("mariadbd", "mariadb-server")?;
        let client = find_program("mariadb", "mariadb-client")?;
        let port = ReservedPort::reserve()?;
        let folder = ServerFolder::create(NAME)?;
        copy_folder(template, &folder.path().join("data"))?;
        let arguments = arguments(folder.path(), port.number(), more);
        let process = ServerProcess::new(NAME, program, arguments, Vec::new(), folder.path());
        let server = Self { process, folder, port, client };
        server.process.spawn()?;
        server.wait_ready().await?;
        // Databases of tests are the user's; the server is not: a SUPER user would write past `read_only`.
        server
            .sql(&format!(
                "CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; \
                 GRANT ALL ON `{USER}\\_%`.* TO {USER}@'127.0.0.1'"
            ))
            .await?;
        Ok(server)
    }

    async fn wait_ready(&self) -> Result<(), ServerError> {
        let waiting = self.process.waiting("did not answer SELECT 1", READY_MAX);
        // The client costs a process, so it is started only when something listens.
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).await.is_err()
            || self.sql("SELECT 1").await.is_err()
        {
            waiting.again().await?;
        }
        Ok(())
    }

    /// Where it listens: always 127.0.0.1.
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// The port it listens on, the same after each restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The folder of its data and of its log.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The process's number while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }

    /// A fresh, empty database.
    ///
    /// # Errors
    /// When it is down.
    pub async fn create_database(&self) -> Result<Database, ServerError> {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        let name = format!("{USER}_{}", GIVEN.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE `{name}`")).await?;
        Ok(Database {
            host: self.host().to_owned(),
            port: self.port(),
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            name,
        })
    }

    /// Runs statements as the server's administrator, by its own client over its socket. The answer has a line a
    /// row, columns parted by tabs, without names.
    ///
    /// # Errors
    /// When it is down, or refuses a statement.
    pub async fn sql(&self, statements: &str) -> Result<String, ServerError> {
        let mut command = Command::new(&self.client);
        command
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--connect-timeout=5"])
            .arg(option("socket", &self.socket()))
            .arg("--execute")
            .arg(statements)
            .stdin(Stdio::null());
        let ran = spawn_blocking(move || command.output()).await;
        let output = ran
            .map_err(|error| ServerError::malformed("MariaDB's client", error.to_string()))?
            .map_err(ServerError::io("starting MariaDB's client"))?;
        if !output.status.success() {
            return Err(ServerError::Refused {
                name: NAME,
                command: statements.to_owned(),
                answer: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("mariadb.sock")
    }

    /// Kills it without notice and waits until it is gone.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&self) -> Result<(), ServerError> {
        self.process.kill9().await
    }

    /// Asks it to stop (SIGTERM) and waits until it is gone.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop_gracefully(&self) -> Result<(), ServerError> {
        self.process.stop().await
    }

    /// Starts it again on the same folder and port, and waits until it has recovered. One that is still running is
    /// stopped first, in order.
    ///
    /// # Errors
    /// As `start`.
    pub async fn restart(&self) -> Result<(), ServerError> {
        if self.process.id().is_some() {
            self.process.stop().await?;
        }
        self.process.spawn()?;
        self.wait_ready().await
    }

    /// Stops its clock (SIGSTOP): connections stay, nothing is answered.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn pause(&self) -> Result<(), ServerError> {
        self.process.pause().await
    }

    /// Lets it run on (SIGCONT).
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.process.resume()
    }

    /// Refuses writes (error 1290), as a server does that was demoted; or takes them again.
    ///
    /// # Errors
    /// When it is down.
    pub async fn set_read_only(&self, read_only: bool) -> Result<(), ServerError> {
        self.sql(&format!("SET GLOBAL read_only = {}", if read_only { "ON" } else { "OFF" })).await.map(drop)
    }

    /// CPU time used since the last start.
    ///
    /// # Errors
    /// When it is not running.
    pub fn cpu_time(&self) -> Result<Duration, ServerError> {
        self.process.cpu_time()
    }
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(path);
    option
}

fn arguments(folder: &Path, port: u16, more: &[&str]) -> Vec<OsString> {
    let mut arguments = vec![
        OsString::from("--no-defaults"),
        option("datadir", &folder.join("data")),
        option("socket", &folder.join("mariadb.sock")),
        option("pid-file", &folder.join("mariadb.pid")),
        option("tmpdir", folder),
        format!("--port={port}").into(),
    ];
    arguments.extend(run_as_root().map(OsString::from));
    let settings = [
        "--bind-address=127.0.0.1",
        "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=1",
        "--max-connections=500",
        // Small and quick to start.
        LOG_FILE_SIZE,
        "--innodb-buffer-pool-size=64M",
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "--innodb-buffer-pool-load-at-startup=OFF",
        "--performance-schema=OFF",
        "--skip-log-bin",
    ];
    arguments.extend(settings.iter().chain(more).map(OsString::from));
    arguments
}

/// MariaDB runs as root only when told to.
fn run_as_root() -> Option<&'static str> {
    rustix::process::getuid().is_root().then_some("--user=root")
}

/// The folder to copy, made when it is missing. Blocks.
fn template() -> Result<PathBuf, ServerError> {
    let server = find_program("mariadbd", "mariadb-server")?;
    let install = find_program("mariadb-install-db", "mariadb-server")?;
    let version = Command::new(&server)
        .args(["--no-defaults", "--version"])
        .output()
        .map_err(ServerError::io("asking mariadbd for its version"))?;
    let version = String::from_utf8_lossy(&version.stdout);
    let version = version.split_whitespace().find(|word| word.contains("MariaDB")).unwrap_or("unknown");
    let uid = rustix::process::getuid().as_raw();
    let name = format!("rushgate-mariadb-template-{uid}-{version}");
    let path = std::env::temp_dir().join(&name);
    let _lock = lock(&std::env::temp_dir().join(format!("{name}.lock")))?;
    if path.is_dir() {
        return Ok(path);
    }
    // Made under another name and renamed: a half-made folder of a test that was killed is never taken.
    let making = std::env::temp_dir().join(format!("{name}.making"));
    if making.exists() {
        fs::remove_dir_all(&making).map_err(ServerError::io(format!("removing {}", making.display())))?;
    }
    let output = Command::new(install)
        .arg("--no-defaults")
        .arg(option("datadir", &making))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db", LOG_FILE_SIZE])
        .args(run_as_root())
        .output()
        .map_err(ServerError::io("starting mariadb-install-db"))?;
    if !output.status.success() {
        return Err(ServerError::Refused {
            name: "mariadb-install-db",
            command: making.display().to_string(),
            answer: [output.stdout, output.stderr].iter().map(|text| String::from_utf8_lossy(text)).collect(),
        });
    }
    fs::rename(&making, &path).map_err(ServerError::io(format!("renaming {}", making.display())))?;
    Ok(path)
}

/// Waits for the lock; the kernel lets go of it when the file is closed.
fn lock(path: &Path) -> Result<File, ServerError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(ServerError::io(format!("opening {}", path.display())))?;
    file.lock().map_err(ServerError::io(format!("locking {}", path.display())))?;
    Ok(file)
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), ServerError> {
    fs::create_dir(to).map_err(ServerError::io(format!("making {}", to.display())))?;
    let entries = fs::read_dir(from).map_err(ServerError::io(format!("reading {}", from.display())))?;
    for entry in entries {
        let entry = entry.map_err(ServerError::io(format!("reading {}", from.display())))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(ServerError::io(format!("copying {}", source.display())))?;
        }
    }
    Ok(())
}
