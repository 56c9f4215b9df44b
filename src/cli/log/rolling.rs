//! The log file: begun anew when it is long or old, the oldest ones deleted when all together are too long.
//!
//! Used by the one thread that writes it. Nothing here ends or stops a process: what cannot be written is lost and
//! counted, standard error is told once, and the file is tried again. `NAME` is written to; `NAME.2026-11-30T11-22-33Z` is
//! what was written until then. One process writes a file: the others find `NAME.lock` held. Of the crates,
//! tracing-appender rotates by time and bounds the number of files, others go by size or by time and number; none bounds
//! the bytes of all files together, which is what a disk has.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// After the file could not be written, and between two lines about that.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(10);
const TELL_EVERY: Duration = Duration::from_secs(3600);

/// Where, and how much.
#[derive(Clone, Debug)]
pub(in crate::cli) struct RollingSettings {
    pub(in crate::cli) path: PathBuf,
    pub(in crate::cli) file_bytes_max: u64,
    pub(in crate::cli) rotate_after: Duration,
    pub(in crate::cli) total_bytes_max: u64,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
    since: SystemTime,
    /// Held while the file is ours.
    _lock: File,
}

/// See the module. `E` is where it is told that the file cannot be written.
#[derive(Debug)]
pub(super) struct Rolling<E> {
    settings: RollingSettings,
    open: Option<Open>,
    try_at: Option<SystemTime>,
    told_at: Option<SystemTime>,
    /// Lines that were lost since one was written.
    lost: u64,
    errors: E,
}

impl<E: Write> Rolling<E> {
    pub(super) const fn new(settings: RollingSettings, errors: E) -> Self {
        Self { settings, open: None, try_at: None, told_at: None, lost: 0, errors }
    }

    /// Writes one line; false if it is lost.
    pub(super) fn write(&mut self, line: &[u8], now: SystemTime) -> bool {
        let written = self.try_write(line, now);
        if let Err(error) = &written {
            self.open = None;
            self.lost = self.lost.saturating_add(1);
            self.tell(error, now);
        }
        matches!(written, Ok(true))
    }

    /// False: it is not tried yet.
    fn try_write(&mut self, line: &[u8], now: SystemTime) -> io::Result<bool> {
        if self.open.is_none() {
            if self.try_at.is_some_and(|try_at| now < try_at) {
                self.lost = self.lost.saturating_add(1);
                return Ok(false);
            }
            self.try_at = now.checked_add(TRY_AGAIN_AFTER);
            self.open = Some(open(&self.settings.path, now)?);
            prune(&self.settings)?;
        }
        let len = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let is_due = |open: &mut Open| {
            let is_long = open.bytes.saturating_add(len) > self.settings.file_bytes_max;
            let is_old = now.duration_since(open.since).is_ok_and(|age| age >= self.settings.rotate_after);
            open.bytes > 0 && (is_long || is_old)
        };
        if self.open.as_mut().is_some_and(is_due) {
            self.open = None;
            rotate(&self.settings.path, now)?;
            prune(&self.settings)?;
            self.open = Some(open(&self.settings.path, now)?);
        }
        let Some(open) = &mut self.open else { return Ok(false) };
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let text = format!("{lost} lines were lost while the log file could not be written\n");
            if let Err(error) = open.file.write_all(text.as_bytes()) {
                self.lost = lost;
                return Err(error);
            }
            open.bytes = open.bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        }
        open.file.write_all(line)?;
        open.bytes = open.bytes.saturating_add(len);
        Ok(true)
    }

    fn tell(&mut self, error: &io::Error, now: SystemTime) {
        let is_recent = |at: SystemTime| now.duration_since(at).is_ok_and(|age| age < TELL_EVERY);
        if self.told_at.is_some_and(is_recent) {
            return;
        }
        self.told_at = Some(now);
        let path = self.settings.path.display();
        // Where that is gone, too, there is nobody to tell.
        let _ = writeln!(
            self.errors,
            "rushgate: the log file {path} cannot be written: {error}; its lines are lost until it can, everything else \
             goes on; make room, or set log.file"
        );
    }
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn open(path: &Path, now: SystemTime) -> io::Result<Open> {
    let lock = OpenOptions::new().create(true).append(true).open(with(path, ".lock"))?;
    if lock.try_lock().is_err() {
        return Err(io::Error::other("another process writes it; give each a file of its own"));
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let known = file.metadata()?;
    let since = if known.len() == 0 { now } else { known.created().unwrap_or(now) };
    Ok(Open { file, bytes: known.len(), since, _lock: lock })
}

/// Gives what was written until now a name of its own.
fn rotate(path: &Path, now: SystemTime) -> io::Result<()> {
    let stamp = humantime::format_rfc3339_seconds(now).to_string().replace(':', "-");
    let names = (0..1000).map(|nth| match nth {
        0 => with(path, &format!(".{stamp}")),
        nth => with(path, &format!(".{stamp}-{nth:03}")),
    });
    let free = names.into_iter().find(|name| !name.exists());
    free.map_or_else(|| Err(io::Error::other("too many files in one second")), |free| fs::rename(path, free))
}

/// Deletes the oldest files until there is room for a whole new one.
fn prune(settings: &RollingSettings) -> io::Result<()> {
    let mut old = rotated(&settings.path)?;
    // By name, which is by time.
    old.sort_unstable();
    let mut sum = old.iter().fold(settings.file_bytes_max, |sum, (_, bytes)| sum.saturating_add(*bytes));
    for (path, bytes) in old {
        if sum <= settings.total_bytes_max {
            break;
        }
        fs::remove_file(path)?;
        sum = sum.saturating_sub(bytes);
    }
    Ok(())
}

/// What was written before, and how long each is.
fn rotated(path: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut prefix: OsString = path.file_name().unwrap_or(OsStr::new("")).to_owned();
    prefix.push(".");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let stamp = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        if stamp.is_some_and(is_stamp) {
            found.push((entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(found)
}

/// Nobody else's file is deleted because its name begins alike.
fn is_stamp(text: &[u8]) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00-00-00Z";
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        shape => byte == shape,
    };
    let (stamp, rest) = text.split_at(text.len().min(SHAPE.len()));
    let is_number = |rest: &[u8]| rest.len() == 3 && rest.iter().all(u8::is_ascii_digit);
    stamp.len() == SHAPE.len()
        && stamp.iter().zip(SHAPE).all(fits)
        && (rest.is_empty() || rest.strip_prefix(b"-").is_some_and(is_number))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]

    use std::time::UNIX_EPOCH;

    use tempfile::TempDir;

    use super::*;

    struct Place {
        dir: TempDir,
        now: SystemTime,
    }

    impl Place {
        fn new() -> Self {
            Self { dir: TempDir::new().unwrap(), now: UNIX_EPOCH + Duration::from_secs(1_800_000_000) }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("rushgate.log")
        }

        fn rolling(&self, file_bytes_max: u64, total_bytes_max: u64) -> Rolling<Vec<u8>> {
            let rotate_after = Duration::from_secs(3600);
            let path = self.path();
            let settings = RollingSettings { path, file_bytes_max, rotate_after, total_bytes_max };
            Rolling::new(settings, Vec::new())
        }

        /// All files but the lock, by name, and what they hold.
        fn files(&self) -> Vec<(String, String)> {
            let entries = fs::read_dir(self.dir.path()).unwrap().map(Result::unwrap);
            let mut files: Vec<_> = entries
                .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
                .filter(|(name, _)| name != "rushgate.log.lock")
                .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
                .collect();
            files.sort();
            files
        }
    }

    #[test]
    fn it_begins_anew_by_size_and_by_time_and_all_files_together_stay_below_the_cap() {
        let mut place = Place::new();
        let mut log = place.rolling(100, 350);
        // Somebody else's, that begins alike.
        fs::write(place.dir.path().join("rushgate.log.bak"), "kept").unwrap();
        for nth in 0..200 {
            assert!(log.write(format!("line {nth:04}\n").as_bytes(), place.now));
            let files = place.files();
            let bytes: usize =
                files.iter().filter(|(name, _)| !name.ends_with("bak")).map(|(_, t)| t.len()).sum();
            assert!(bytes <= 350, "{files:?}");
            assert!(files.iter().all(|(_, text)| text.len() <= 100));
            // Several in one second, and some later.
            place.now += Duration::from_millis(30);
        }
        let files = place.files();
        let all: String = files.iter().skip(1).chain(files.first()).map(|(_, text)| text.as_str()).collect();
        assert!(all.contains("line 0199") && !all.contains("line 0100"), "the oldest went: {files:?}");
        assert!(files.iter().any(|(_, text)| text == "kept"));
        // Nothing is due while nothing is written; then the old file is put away.
        place.now += Duration::from_secs(3600);
        assert!(log.write(b"an hour later\n", place.now));
        assert_eq!(fs::read_to_string(place.path()).unwrap(), "an hour later\n");
        assert_eq!(log.errors, b"");
    }

    #[test]
    fn a_restart_appends_and_counts_what_is_there() {
        // A file is as old as the disk says.
        let place = Place { now: SystemTime::now(), ..Place::new() };
        assert!(place.rolling(100, 1000).write(&[b'x'; 60], place.now));
        let mut again = place.rolling(100, 1000);
        assert!(again.write(&[b'y'; 30], place.now));
        assert_eq!(place.files().len(), 1);
        assert!(again.write(&[b'z'; 30], place.now));
        assert_eq!(place.files().len(), 2);
    }

    #[test]
    fn what_cannot_be_written_is_told_once_counted_and_tried_again() {
        let mut place = Place::new();
        let folder = place.dir.path().join("later");
        let mut log = place.rolling(1000, 10_000);
        log.settings.path = folder.join("rushgate.log");
        for _ in 0..50 {
            assert!(!log.write(b"lost\n", place.now));
            place.now += Duration::from_secs(1);
        }
        let told = String::from_utf8(log.errors.clone()).unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains("later/rushgate.log") && told.contains("log.file"), "{told}");
        fs::create_dir(&folder).unwrap();
        place.now += TRY_AGAIN_AFTER;
        assert!(log.write(b"here again\n", place.now));
        let text = fs::read_to_string(folder.join("rushgate.log")).unwrap();
        assert_eq!(text, "50 lines were lost while the log file could not be written\nhere again\n");
    }

    #[test]
    fn a_full_disk_is_told_once_and_nothing_else_happens() {
        let place = Place::new();
        let mut log = place.rolling(1000, 10_000);
        // Every write to it fails with "no space left on device".
        std::os::unix::fs::symlink("/dev/full", place.path()).unwrap();
        for _ in 0..10 {
            assert!(!log.write(b"lost\n", place.now));
        }
        let told = String::from_utf8(log.errors).unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert_eq!(log.lost, 10);
    }

    #[test]
    fn two_processes_do_not_write_one_file() {
        let place = Place::new();
        let (mut one, mut other) = (place.rolling(1000, 10_000), place.rolling(1000, 10_000));
        assert!(one.write(b"mine\n", place.now));
        assert!(!other.write(b"theirs\n", place.now));
        assert!(String::from_utf8(other.errors.clone()).unwrap().contains("another process"));
        drop(one);
        assert!(other.write(b"theirs\n", place.now + TRY_AGAIN_AFTER));
    }
}
