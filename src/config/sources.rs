//! Where values come from: a file, the environment, flags. Finding them and naming the place; not judging them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Value;
use toml::de::{DeTable, DeValue};

use super::problem::{Origin, Problem, nearest};
use super::schema::{self, KEYS, Key};

/// Read from the working directory if it is there and no other file is named.
pub const DEFAULT_FILE: &str = "rushgate.toml";

/// All variables that begin so are ours; `RUSHGATE_STOCK_PATIENCE` sets `stock.patience`.
pub const ENV_PREFIX: &str = "RUSHGATE_";

/// Which file to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConfigFile {
    /// None.
    #[default]
    None,
    /// This one, if it exists.
    IfPresent(PathBuf),
    /// This one; that it is missing is an error.
    Required(PathBuf),
}

/// What is done with the key files that the configuration names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyFiles {
    /// Nothing.
    #[default]
    Unopened,
    /// Each is opened; one that cannot be read is a problem like any other.
    Tried,
}

/// Everything that a configuration is made from. Nothing else is looked at, so a test that gives no environment
/// depends on none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The file.
    pub file: ConfigFile,
    /// Variables; those that do not begin with [`ENV_PREFIX`] do not matter.
    pub env: Vec<(OsString, OsString)>,
    /// Flags `section.key=value`, in order.
    pub set: Vec<String>,
    /// Whether the key files are looked at too.
    pub key_files: KeyFiles,
}

impl Sources {
    /// What a command looks at: the file given by `--config` or else [`DEFAULT_FILE`], the process's
    /// environment, the `--set` flags, and the key files that these name.
    pub fn of_process(config: Option<PathBuf>, set: Vec<String>) -> Self {
        let file = match config {
            Some(path) => ConfigFile::Required(path),
            None => ConfigFile::IfPresent(PathBuf::from(DEFAULT_FILE)),
        };
        Self { file, env: std::env::vars_os().collect(), set, key_files: KeyFiles::Tried }
    }
}

/// A value and where it stands, before anybody looked whether it is allowed.
pub(super) struct Found {
    pub(super) key: &'static Key,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// What the sources hold, in the order in which later wins, and what is wrong with them already.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) found: Vec<Found>,
    pub(super) problems: Vec<Problem>,
}

impl Findings {
    /// `Err`: the file cannot be read at all, so that nothing sensible could be said of the rest.
    pub(super) fn collect(sources: &Sources) -> Result<Self, Problem> {
        let mut findings = Self::default();
        findings.read_file(&sources.file)?;
        findings.read_env(&sources.env);
        findings.read_flags(&sources.set);
        Ok(findings)
    }

    fn problem(&mut self, origin: Origin, text: String) {
        self.problems.push(Problem { origin, text });
    }

    fn read_file(&mut self, file: &ConfigFile) -> Result<(), Problem> {
        let (path, required) = match file {
            ConfigFile::None => return Ok(()),
            ConfigFile::IfPresent(path) => (path, false),
            ConfigFile::Required(path) => (path, true),
        };
        let unusable = |line, text| Problem { origin: Origin::File(path.clone(), line), text };
        let content = match fs::read_to_string(path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !required => return Ok(()),
            Err(error) => return Err(unusable(None, format!("cannot be read: {error}"))),
        };
        let root = DeTable::parse(&content).map_err(|error| {
            let line = error.span().map(|span| line_at(&content, span.start));
            unusable(line, format!("not TOML: {}", error.message()))
        })?;
        let file = FileText { path, content: &content };
        self.walk(&file, "", root.into_inner());
        Ok(())
    }

    /// Takes what stands below `section` of a file.
    fn walk(&mut self, file: &FileText<'_>, section: &str, table: DeTable<'_>) {
        for (name, value) in table {
            let path = if section.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{section}.{}", name.get_ref())
            };
            let origin = file.origin_at(name.span().start);
            if let Some(key) = schema::find(&path) {
                match Value::deserialize(value.into_deserializer()) {
                    Ok(value) => self.found.push(Found { key, value, origin }),
                    Err(error) => {
                        let text = format!("{path}: {}; allowed: {}", error.message(), key.rule.allowed());
                        self.problem(origin, text);
                    }
                }
                continue;
            }
            let is_section = schema::keys_below(&path).next().is_some();
            match value.into_inner() {
                DeValue::Table(inner) if is_section => self.walk(file, &path, inner),
                _ => self.problem(origin, schema::unknown(&path)),
            }
        }
    }

    fn read_env(&mut self, env: &[(OsString, OsString)]) {
        let mut ours: Vec<_> = env
            .iter()
            .filter(|(name, _)| name.as_encoded_bytes().starts_with(ENV_PREFIX.as_bytes()))
            .collect();
        // Environments have no order that means anything; messages should not depend on it.
        ours.sort();
        for (name, value) in ours {
            let origin = Origin::Env(name.to_string_lossy().into_owned());
            let Some(key) = KEYS.iter().find(|key| name.to_str() == Some(&env_name(key.path))) else {
                self.problem(origin, unknown_env(&name.to_string_lossy()));
                continue;
            };
            match value.to_str() {
                Some(text) => self.found.push(Found { key, value: key.rule.value_of_text(text), origin }),
                None => self.problem(origin, format!("{}: its value is not UTF-8", key.path)),
            }
        }
    }

    fn read_flags(&mut self, flags: &[String]) {
        for flag in flags {
            let Some((path, text)) = flag.split_once('=') else {
                let text = "a flag has the form --set section.key=value".to_owned();
                self.problem(Origin::Flag(flag.clone()), text);
                continue;
            };
            let origin = Origin::Flag(path.to_owned());
            match schema::find(path) {
                Some(key) => self.found.push(Found { key, value: key.rule.value_of_text(text), origin }),
                None => self.problem(origin, schema::unknown(path)),
            }
        }
    }
}

struct FileText<'a> {
    path: &'a Path,
    content: &'a str,
}

impl FileText<'_> {
    fn origin_at(&self, offset: usize) -> Origin {
        Origin::File(self.path.to_owned(), Some(line_at(self.content, offset)))
    }
}

/// Lines are counted from 1.
fn line_at(content: &str, offset: usize) -> usize {
    let before = content.bytes().take(offset);
    before.filter(|byte| *byte == b'\n').count().saturating_add(1)
}

/// The variable that sets a key.
pub(super) fn env_name(path: &str) -> String {
    format!("{ENV_PREFIX}{}", path.replace('.', "_").to_ascii_uppercase())
}

fn unknown_env(name: &str) -> String {
    let known: Vec<String> = KEYS.iter().map(|key| env_name(key.path)).collect();
    match nearest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("sets no key; did you mean {meant}?"),
        None => {
            format!(
                "sets no key; the variable for stock.patience is {}, and so on",
                env_name("stock.patience")
            )
        }
    }
}
