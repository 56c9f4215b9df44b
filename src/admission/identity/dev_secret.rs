//! The secret that a data folder gets when no key is configured, so that `serve`, `token mint` and the load
//! generator, started on the same folder in any order, understand each other at once.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::key_file::{KeyError, secret_file};

/// Its name in the data folder.
pub const DEV_SECRET_FILE: &str = "auth.secret";

const RANDOM_BYTES: usize = 32;

/// The data folder's secret, created on the first call: 32 random bytes as hex, readable by the owner only.
///
/// Processes that race for the first call all get the same secret: each writes a file of its own and hangs it in
/// under the final name, which works for one of them only, and all then read that name.
pub fn dev_secret(data_dir: &Path) -> Result<Vec<u8>, KeyError> {
    let path = data_dir.join(DEV_SECRET_FILE);
    match secret_file(&path) {
        Err(KeyError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            create(data_dir, &path).map_err(|source| KeyError::Create { path: path.clone(), source })?;
            secret_file(&path)
        }
        result => result,
    }
}

fn create(data_dir: &Path, path: &Path) -> io::Result<()> {
    fs::create_dir_all(data_dir)?;
    let secret = random_hex()?;
    // Random as well, so that two processes (and two containers with the same process id) never share it.
    let own_path = data_dir.join(format!(".{DEV_SECRET_FILE}.{}", random_hex()?));
    let written = write_own(&own_path, &secret).and_then(|()| match fs::hard_link(&own_path, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    });
    let removed = fs::remove_file(&own_path);
    written?;
    removed?;
    File::open(data_dir)?.sync_all()
}

fn write_own(path: &Path, secret: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{secret}")?;
    file.sync_all()
}

/// From the operating system: this is a key, and nothing else in the process may be able to repeat it.
fn random_hex() -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut hex = String::new();
    for byte in bytes {
        write!(hex, "{byte:02x}").map_err(io::Error::other)?;
    }
    Ok(hex)
}
