//! The file of `rushgate risk import`: a subject a line, and behind tabs its effect and for how long.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Failure;
use crate::admin::risk::until_ms;
use crate::admission::risk::{Effect, Subject};
use crate::config::parse_duration;

/// Several million entries.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// Faults that are told.
const FAULTS_MAX: usize = 10;

/// What holds where a line does not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    pub(super) effect: Effect,
    pub(super) until_ms: u64,
    pub(super) now_ms: u64,
}

/// All of a file, or of stdin (`-`).
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let source: io::Result<Box<dyn Read>> = if path == Path::new("-") {
        Ok(Box::new(io::stdin()))
    } else {
        File::open(path).map(|file| Box::new(file) as Box<dyn Read>)
    };
    let read =
        source.and_then(|source| source.take(FILE_BYTES_MAX.saturating_add(1)).read_to_string(&mut text));
    match read {
        Ok(bytes) if u64::try_from(bytes).is_ok_and(|bytes| bytes <= FILE_BYTES_MAX) => Ok(text),
        Ok(_) => Err(Failure::cannot_start(format!(
            "{} has more than {FILE_BYTES_MAX} bytes; split it; nothing was changed",
            path.display()
        ))),
        Err(error) => Err(Failure::cannot_start(format!(
            "cannot read {}: {error}; nothing was changed",
            path.display()
        ))),
    }
}

/// Whom the lines list, how, and until when. `Err`: every fault, up to some.
pub(super) fn entries(text: &str, defaults: &Defaults) -> Result<Vec<(Subject, Effect, u64)>, String> {
    let (mut entries, mut faults, mut faulty) = (Vec::new(), String::new(), 0_usize);
    for (nth, text) in text.lines().enumerate() {
        let text = text.trim_end_matches(['\r', ' ']);
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match entry(text, defaults) {
            Ok(entry) => entries.push(entry),
            Err(why) => {
                faulty = faulty.saturating_add(1);
                if faulty <= FAULTS_MAX {
                    let _ = writeln!(faults, "line {}: {why}", nth.saturating_add(1));
                }
            }
        }
    }
    if faulty > 0 {
        let lines = if faulty == 1 { "line is" } else { "lines are" };
        return Err(format!("{faulty} {lines} no entry; nothing was changed\n{faults}"));
    }
    Ok(entries)
}

fn entry(line: &str, defaults: &Defaults) -> Result<(Subject, Effect, u64), String> {
    let mut parts = line.split('\t');
    let subject: Subject = parts.next().unwrap_or_default().parse().map_err(|why| format!("{why}"))?;
    let effect = match parts.next().unwrap_or_default() {
        "" => defaults.effect,
        text => text.parse().map_err(|why| format!("{why}"))?,
    };
    let until_ms = match parts.next().unwrap_or_default() {
        "" => defaults.until_ms,
        text => {
            let time = parse_duration(text).map_err(|why| format!("{why}"))?;
            until_ms(defaults.now_ms, Some(time)).map_err(|why| format!("{why}"))?
        }
    };
    match parts.next() {
        None => Ok((subject, effect, until_ms)),
        Some(_) => Err("a line has at most three parts: subject, effect, for how long".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const DEFAULTS: Defaults = Defaults { effect: Effect::Block, until_ms: 0, now_ms: 1_000 };

    #[test]
    fn a_line_says_whom_and_what_it_does_not_say_is_as_the_options_are() {
        let text = "# farms\n\nuser:42\r\nip:10.0.0.0/8\tslow\ndevice:a, b\tblock\t2h \nuser:7\t\t1s\n";
        let read: Vec<_> = entries(text, &DEFAULTS)
            .unwrap()
            .into_iter()
            .map(|(subject, effect, until_ms)| (subject.to_string(), effect, until_ms))
            .collect();
        let due = [
            ("user:42", Effect::Block, 0),
            ("ip:10.0.0.0/8", Effect::Slow, 0),
            ("device:a, b", Effect::Block, 7_201_000),
            ("user:7", Effect::Block, 2_000),
        ];
        assert_eq!(read, due.map(|(subject, effect, until_ms)| (subject.to_owned(), effect, until_ms)));
    }

    #[test]
    fn every_fault_is_told_with_its_line() {
        let text =
            "user:1\nuser:x\nuser:2\tban\nuser:3\tblock\tsoon\nuser:4\tblock\t0s\nuser:5\tslow\t1h\tme\n";
        let error = entries(text, &DEFAULTS).unwrap_err();
        for says in [
            "5 lines are no entry; nothing was changed",
            "line 2: \"user:x\" is no user",
            "line 3: \"ban\" is no effect",
            "line 4: ",
            "line 5: ",
            "line 6: a line has at most three parts",
        ] {
            assert!(error.contains(says), "{says}: {error}");
        }
        let many = "nobody\n".repeat(1000);
        assert_eq!(entries(&many, &DEFAULTS).unwrap_err().lines().count(), FAULTS_MAX + 1);
    }
}
