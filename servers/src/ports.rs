//! Ports that stay a server's own while it is down.
//!
//! Binding port 0 and releasing it gives a port of the kernel's ephemeral range. That range is a trap for a server
//! that is killed and started again: a client that keeps connecting to the dead port is in time given that very
//! port as its source, connects to itself, and the server cannot bind any more. So ports are taken from below the
//! range, and a lock on a file per port keeps other tests off it, whatever process they run in; the kernel lets go
//! of the lock when the process ends.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::PathBuf;

use crate::ServerError;

/// Below Linux's ephemeral range (32768 and up), above the ports of installed services.
const RANGE: Range<u16> = 12_000..32_000;
const TRIES_MAX: usize = 1_000;

/// A port of 127.0.0.1 that nothing listened on, and that no other test is given while this value lives.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    _lock: File,
}

impl ReservedPort {
    /// Reserves a port that is free now.
    ///
    /// # Errors
    /// When the folder of the locks cannot be made, or no port was found free.
    pub fn reserve() -> Result<Self, ServerError> {
        let locks = locks_folder();
        fs::create_dir_all(&locks).map_err(ServerError::io(format!("making {}", locks.display())))?;
        for _ in 0..TRIES_MAX {
            let port = fastrand::u16(RANGE);
            // A lock file of another user, a lock that is held and a port that is taken all mean: another one.
            let opened = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(locks.join(port.to_string()));
            let Ok(lock) = opened else { continue };
            if lock.try_lock().is_err() {
                continue;
            }
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(Self { port, _lock: lock });
            }
        }
        Err(ServerError::malformed("the ports of 127.0.0.1", format!("none of {RANGE:?} was found free")))
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.port
    }
}

fn locks_folder() -> PathBuf {
    std::env::temp_dir().join("rushgate-ports")
}
