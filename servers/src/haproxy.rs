//! One HAProxy with a configuration of the test's.
//!
//! The configuration names ports and addresses by HAProxy's own environment variables, in double quotes:
//! `bind "127.0.0.1:${FRONT}"`. So the same text can be what operators are given. A statistics socket is added, by
//! which readiness is asked and commands are given.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::process::{ServerFolder, ServerProcess, find_program};
use crate::{ReservedPort, ServerError};

const NAME: &str = "haproxy";
const READY_MAX: Duration = Duration::from_secs(30);
const PORT_TRIES: usize = 5;

/// A haproxy of its own. Killed when dropped.
#[derive(Debug)]
pub struct HaProxy {
    // Dropped in this order: the process, then the folder that it writes, then the ports.
    process: ServerProcess,
    folder: ServerFolder,
    listens: Vec<(String, ReservedPort)>,
}

impl HaProxy {
    /// Starts with this configuration and waits until it listens. Each of `listens` is a variable that gets a free
    /// port; `environment` holds variables with their values.
    ///
    /// # Errors
    /// When haproxy is not installed, does not like the configuration, or does not answer in time; the message
    /// shows its log.
    pub async fn start(
        config: &str,
        listens: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self, ServerError> {
        let mut tries_left = PORT_TRIES;
        loop {
            tries_left = tries_left.saturating_sub(1);
            match Self::start_once(config, listens, environment).await {
                Err(error) if error.is_port_taken() && tries_left > 0 => {}
                outcome => return outcome,
            }
        }
    }

    async fn start_once(
        config: &str,
        listens: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self, ServerError> {
        let program = find_program("haproxy", "haproxy")?;
        let folder = ServerFolder::create(NAME)?;
        let (own, given) = (folder.path().join("socket.cfg"), folder.path().join("haproxy.cfg"));
        let socket = socket(folder.path());
        write(&own, &format!("global\n  stats socket \"{}\" level admin\n", socket.display()))?;
        write(&given, config)?;
        let mut variables: Vec<(String, String)> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut ports = Vec::new();
        for name in listens {
            let port = ReservedPort::reserve()?;
            variables.push(((*name).to_owned(), port.number().to_string()));
            ports.push(((*name).to_owned(), port));
        }
        let arguments = vec!["-db".into(), "-f".into(), own.into(), "-f".into(), given.into()];
        let process = ServerProcess::new(NAME, program, arguments, variables, folder.path());
        let haproxy = Self { process, folder, listens: ports };
        haproxy.process.spawn()?;
        haproxy.wait_ready().await?;
        Ok(haproxy)
    }

    async fn wait_ready(&self) -> Result<(), ServerError> {
        let waiting = self.process.waiting("did not answer `show info`", READY_MAX);
        // Not by connecting to a front end: what is behind it would see that connection.
        while !self.command("show info").await.is_ok_and(|answer| answer.contains("Pid:")) {
            waiting.again().await?;
        }
        Ok(())
    }

    /// The port of a variable in `listens`.
    ///
    /// # Errors
    /// When there is no such variable.
    pub fn port(&self, name: &str) -> Result<u16, ServerError> {
        let found = self.listens.iter().find(|(listen, _)| listen == name);
        found
            .map(|(_, port)| port.number())
            .ok_or_else(|| ServerError::malformed("HAProxy's ports", format!("none is called {name:?}")))
    }

    /// One command of the runtime API, such as `disable server gateways/one`; answers with what HAProxy printed.
    ///
    /// # Errors
    /// When it is down.
    pub async fn command(&self, command: &str) -> Result<String, ServerError> {
        let asked = async {
            let mut stream = UnixStream::connect(socket(self.folder.path())).await?;
            stream.write_all(format!("{command}\n").as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        asked.await.map_err(ServerError::io(format!("telling HAProxy {command:?}")))
    }

    /// The process's number while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Kills it without notice and waits until it is gone.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill9(&self) -> Result<(), ServerError> {
        self.process.kill9().await
    }

    /// Starts it again on the same ports, and waits until it listens. One that is still running is stopped first.
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

    /// Stops its clock (SIGSTOP): connections stay, nothing passes.
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

    /// CPU time used since the last start.
    ///
    /// # Errors
    /// When it is not running.
    pub fn cpu_time(&self) -> Result<Duration, ServerError> {
        self.process.cpu_time()
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("haproxy.sock")
}

fn write(path: &Path, text: &str) -> Result<(), ServerError> {
    fs::write(path, text).map_err(ServerError::io(format!("writing {}", path.display())))
}
