//! The Redis configurations that operators are given: a real Redis takes each, and does what it says.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rushgate_servers::ReservedPort;
use tempfile::TempDir;

use super::wire::eventually;

/// Asked through a socket in its folder; killed when dropped.
struct Configured {
    server: Child,
    folder: TempDir,
}

impl Configured {
    fn start(file: &Path) -> Self {
        let folder = TempDir::new().unwrap();
        // Only the cluster listens on ports at all: it refuses to do without.
        let (port, bus) = (ReservedPort::reserve().unwrap(), ReservedPort::reserve().unwrap());
        let is_cluster = file.ends_with("cluster.conf");
        let mut command = Command::new("redis-server");
        command.arg(file).arg("--dir").arg(folder.path()).arg("--unixsocket").arg(socket(&folder));
        command.args(["--bind", "127.0.0.1"]);
        command.args(["--port", &if is_cluster { port.number().to_string() } else { "0".to_owned() }]);
        if is_cluster {
            command.args(["--cluster-port", &bus.number().to_string()]);
        }
        let server = command.stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
        let started = Self { server, folder };
        eventually("Redis answers", || started.ask(&["ping"]).trim() == "PONG");
        started
    }

    fn ask(&self, command: &[&str]) -> String {
        let output =
            Command::new("redis-cli").arg("-s").arg(socket(&self.folder)).args(command).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn setting(&self, name: &str) -> String {
        self.ask(&["config", "get", name]).lines().nth(1).unwrap_or_default().to_owned()
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("redis.sock")
}

#[test]
fn every_configuration_is_taken_and_keeps_what_it_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/redis");
    for (name, settings) in [
        ("everysec.conf", &[("appendfsync", "everysec")][..]),
        ("always.conf", &[("appendfsync", "always")]),
        ("replica-wait.conf", &[("appendfsync", "everysec"), ("min-replicas-to-write", "1")]),
        ("cluster.conf", &[("appendfsync", "everysec"), ("cluster-require-full-coverage", "no")]),
    ] {
        let redis = Configured::start(&folder.join(name));
        for (setting, value) in
            [("appendonly", "yes"), ("maxmemory-policy", "noeviction"), ("save", "")].iter().chain(settings)
        {
            assert_eq!(redis.setting(setting), *value, "{name}: {setting}");
        }
    }
    let files = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(files, 4, "each file in deploy/redis is tried here");
}
