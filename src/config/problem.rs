//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A file, and the line in it if the problem has one.
    File(PathBuf, Option<usize>),
    /// An environment variable.
    Env(String),
    /// `--set` with this argument's key (or all of it, if it has none).
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("built-in default"),
            Self::File(path, Some(line)) => write!(f, "{} line {line}", path.display()),
            Self::File(path, None) => path.display().fmt(f),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(key) => write!(f, "--set {key}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub origin: Origin,
    /// What: `key = value: why; allowed: …`.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

/// Everything that is wrong, at least one thing; one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<Problem>);

impl ConfigErrors {
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| match problem.origin {
            Origin::File(_, line) => (0, line.unwrap_or(0)),
            Origin::Env(_) => (1, 0),
            Origin::Flag(_) => (2, 0),
            Origin::Default => (3, 0),
        });
        Self(problems)
    }

    /// In the order of the sources: lines of the file, environment, flags.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// The known name that is most probably meant: nearest by edits, the same name in another section, or one that
/// begins so.
pub(super) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| {
            let edits = edits(wrong, name);
            let distance = if last_part(name) == last_part(wrong) {
                edits.min(1)
            } else if wrong.len() >= 4 && name.starts_with(wrong) {
                edits.min(2)
            } else {
                edits
            };
            (distance, name)
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= 2.max(wrong.chars().count() / 4))
        .map(|(_, name)| name)
}

fn last_part(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// Levenshtein's distance: characters inserted, removed or replaced.
fn edits(from: &str, to: &str) -> usize {
    // Distances from the beginning of `from` read so far to each beginning of `to`.
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (read, wrong) in from.chars().enumerate() {
        let (mut diagonal, mut left) = (read, read.saturating_add(1));
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, right) in row.iter_mut().skip(1).zip(to.chars()) {
            let replaced = diagonal.saturating_add(usize::from(wrong != right));
            diagonal = *cell;
            left = replaced.min(left.saturating_add(1)).min(cell.saturating_add(1));
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (from, to, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
        {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let known = ["gateway.keepalive", "stock.patience", "limits.per_user.burst"];
        assert_eq!(nearest("gateway.keep_alive", known), Some("gateway.keepalive"));
        assert_eq!(nearest("gateway.patience", known), Some("stock.patience"));
        assert_eq!(nearest("limits.peruser.burst", known), Some("limits.per_user.burst"));
        assert_eq!(nearest("gateway.keep", known), Some("gateway.keepalive"));
        assert_eq!(nearest("colour", known), None);
    }
}
