//! Cuts an append-only file at the boundary of a command.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use crate::ServerError;

/// Cuts off the newest increment in the folder the last `commands_from_end` commands that name `part`, and what is between
/// and behind them.
pub(super) fn truncate(folder: &Path, part: &str, commands_from_end: usize) -> Result<usize, ServerError> {
    let file = newest_increment(folder)?;
    let bytes = fs::read(&file).map_err(ServerError::io(format!("reading {}", file.display())))?;
    let ends = command_ends(&bytes).map_err(|at| {
        ServerError::malformed(file.display().to_string(), format!("no command at byte {at}"))
    })?;
    let begins = std::iter::once(0).chain(ends.iter().copied());
    let named: Vec<usize> = begins
        .zip(&ends)
        .filter(|(begin, end)| bytes.get(*begin..**end).is_some_and(|command| names(command, part)))
        .map(|(begin, _)| begin)
        .collect();
    let left = named.len().checked_sub(commands_from_end).ok_or_else(|| {
        ServerError::malformed(
            file.display().to_string(),
            format!(
                "it has {} commands that name {part:?}, {commands_from_end} cannot be cut off",
                named.len()
            ),
        )
    })?;
    let Some(length) = named.get(left).copied() else { return Ok(left) };
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|file| file.set_len(length))
        .map_err(ServerError::io(format!("cutting {}", file.display())))?;
    Ok(left)
}

fn names(command: &[u8], part: &str) -> bool {
    part.is_empty() || command.windows(part.len()).any(|bytes| bytes == part.as_bytes())
}

/// `appendonly.aof.N.incr.aof` with the highest N.
fn newest_increment(folder: &Path) -> Result<PathBuf, ServerError> {
    let entries = fs::read_dir(folder)
        .map_err(ServerError::io(format!("reading {} (is persistence on?)", folder.display())))?;
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let number: u64 = name.strip_suffix(".incr.aof")?.rsplit('.').next()?.parse().ok()?;
            Some((number, path))
        })
        .max()
        .map(|(_, path)| path)
        .ok_or_else(|| {
            ServerError::malformed(folder.display().to_string(), "no increment of the append-only file")
        })
}

/// Where each command ends; SELECT belongs to the command after it, MULTI … EXEC is one. An unfinished command at
/// the end is none. `Err` holds the place of what is no command.
fn command_ends(bytes: &[u8]) -> Result<Vec<usize>, usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    let mut inside_a_transaction = false;
    while at < bytes.len() {
        let Some((name, end)) = command_at(bytes, at)? else { break };
        at = end;
        match name.to_ascii_uppercase().as_slice() {
            b"SELECT" => {}
            b"MULTI" => inside_a_transaction = true,
            b"EXEC" => {
                inside_a_transaction = false;
                ends.push(end);
            }
            _ if inside_a_transaction => {}
            _ => ends.push(end),
        }
    }
    Ok(ends)
}

/// The name of the command that begins at `at`, and where it ends; `None` when the file ends inside it.
fn command_at(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, usize> {
    let Some((arguments, mut end)) = number_at(bytes, at, b'*')? else { return Ok(None) };
    let mut name: &[u8] = &[];
    for argument in 0..arguments {
        let Some((length, begin)) = number_at(bytes, end, b'$')? else { return Ok(None) };
        let close = begin.saturating_add(length);
        let Some(value) = bytes.get(begin..close) else { return Ok(None) };
        end = close.saturating_add(2);
        if end > bytes.len() {
            return Ok(None);
        }
        if argument == 0 {
            name = value;
        }
    }
    Ok(Some((name, end)))
}

/// Reads `<mark><number>\r\n`: the number, and where the line ends.
fn number_at(bytes: &[u8], at: usize, mark: u8) -> Result<Option<(usize, usize)>, usize> {
    let Some(rest) = bytes.get(at..) else { return Ok(None) };
    let Some(length) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = rest.get(..length).unwrap_or_default();
    let number = line
        .strip_prefix(&[mark])
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .ok_or(at)?;
    Ok(Some((number, at.saturating_add(length).saturating_add(2))))
}
