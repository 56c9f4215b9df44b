//! From what the sources hold to a [`Config`]: check each value, let later ones win, check what hangs together.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::{Table, Value};

use super::problem::{ConfigErrors, Origin, Problem};
use super::rules::Fault;
use super::sources::{Findings, KeyFiles, Sources};
use super::{Config, cross};

/// A value longer than this is cut in a message.
const SHOWN_CHARS_MAX: usize = 200;

pub(super) fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let Findings { found, mut problems } =
        Findings::collect(sources).map_err(|problem| ConfigErrors::new(vec![problem]))?;
    let mut tree = Table::try_from(Config::default()).map_err(unexpected)?;
    let (mut origins, mut refused) = (BTreeMap::new(), BTreeSet::new());
    for item in found {
        let faults = item.key.rule.faults(item.key.path, &item.value);
        if faults.is_empty() {
            insert(&mut tree, item.key.path, item.value);
            origins.insert(item.key.path, item.origin);
        } else {
            refused.insert(item.key.path);
            problems.extend(faults.into_iter().map(|fault| problem(item.origin.clone(), &fault)));
        }
    }
    // Without the values at fault, so that the rest is looked at too.
    let config = Config::deserialize(tree).map_err(unexpected)?;
    let mut faults = cross::faults(&config);
    if sources.key_files == KeyFiles::Tried {
        faults.extend(cross::unreadable_key_files(&config));
    }
    // A value that was refused is not compared: its default stands in for it, which nobody has written.
    for fault in faults.into_iter().filter(|fault| !fault.keys.iter().any(|key| refused.contains(key))) {
        let origin = fault.keys.iter().find_map(|key| origins.get(key)).cloned().unwrap_or(Origin::Default);
        problems.push(problem(origin, &fault.fault));
    }
    if problems.is_empty() { Ok(config) } else { Err(ConfigErrors::new(problems)) }
}

fn problem(origin: Origin, fault: &Fault) -> Problem {
    let text = match &fault.value {
        Some(value) => format!("{} = {}: {}", fault.key, shown(value), fault.why),
        None => format!("{}: {}", fault.key, fault.why),
    };
    Problem { origin, text }
}

fn shown(value: &Value) -> String {
    let text = value.to_string().replace('\n', " ");
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text,
    }
}

fn insert(tree: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            tree.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = tree.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// The schema let pass what the structs refuse. A mistake of this program, but no reason to panic.
fn unexpected(error: impl std::fmt::Display) -> ConfigErrors {
    let text = format!("{}; this is a defect of rushgate, please report it", error.to_string().trim_end());
    ConfigErrors::new(vec![Problem { origin: Origin::Default, text }])
}
