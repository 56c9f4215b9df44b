//! The rules of the house, read off the sources: which way imports run, how long files are, what is not left
//! behind. A rule that is broken names the file and the line.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each part of the library with the parts that it may import. ARCHITECTURE.md draws it.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("stock", &["protocol"]),
    ("store", &["stock", "protocol"]),
    ("admission", &["protocol"]),
    ("client", &["protocol"]),
    ("config", &["admission"]),
    ("gateway", &["admission", "store", "stock", "protocol"]),
    ("admin", &["store", "stock", "protocol"]),
    ("rehearsal", &["client", "admission", "protocol"]),
    (
        "cli",
        &["rehearsal", "gateway", "admin", "config", "admission", "client", "store", "stock", "protocol"],
    ),
];

/// Crates that only one part of the library may use.
const ONLY_IN: &[(&str, &[&str])] =
    &[("sqlx", &["store/sql", "rehearsal"]), ("axum", &["admin"]), ("jsonwebtoken", &["admission"])];

/// Lines before a file's tests.
const LINES_MAX: usize = 400;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn library() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    found.sort();
    assert!(found.len() > 50, "the sources were not found: {}", found.len());
    found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// The part that a file belongs to.
fn part(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// Every `crate::part` that a line names, comments left out.
fn imported(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap();
    let mut parts = Vec::new();
    for after in code.split("crate::").skip(1) {
        let grouped = after.strip_prefix('{').map(|group| group.split('}').next().unwrap().split(','));
        let names: Vec<&str> = grouped.map_or_else(|| vec![after], Iterator::collect);
        for name in names {
            let name: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                parts.push(name);
            }
        }
    }
    parts
}

#[test]
fn imports_run_one_way() {
    let may: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let mut broken = Vec::new();
    for (file, text) in library() {
        let here = part(&file);
        if matches!(here, "lib" | "main") {
            continue;
        }
        let allowed = may.get(here).unwrap_or_else(|| panic!("{file}: part {here:?} is not in the layout"));
        for (number, line) in text.lines().enumerate() {
            for other in imported(line) {
                if other != here && !allowed.contains(&other.as_str()) {
                    broken.push(format!("src/{file}:{}: {here} imports {other}", number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "imports against the layout:\n{}", broken.join("\n"));
}

#[test]
fn the_layout_has_no_circle() {
    // Listed lowest first: each part may import only what stands before it.
    for (index, (name, allowed)) in MAY_IMPORT.iter().enumerate() {
        for other in *allowed {
            let below = MAY_IMPORT.iter().take(index).any(|(lower, _)| lower == other);
            assert!(below, "{name} may import {other}, which does not stand below it");
        }
    }
}

#[test]
fn the_import_check_sees_what_it_must_see() {
    assert_eq!(imported("use crate::stock::{Board, Left};"), ["stock"]);
    assert_eq!(imported("use crate::{gateway, store::sql};"), ["gateway", "store"]);
    assert_eq!(imported("    let x = crate::config::Config::default(); // crate::admin"), ["config"]);
    assert!(imported("pub(crate) fn x() {}").is_empty());
}

#[test]
fn each_outside_crate_has_its_place() {
    let mut broken = Vec::new();
    for (file, text) in library() {
        for (name, places) in ONLY_IN {
            let uses =
                text.lines().any(|line| line.split("//").next().unwrap().contains(&format!("{name}::")));
            if uses && !places.iter().any(|place| file.starts_with(place)) {
                broken.push(format!("src/{file} uses {name}, which belongs to {places:?}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn files_are_short_and_nothing_is_left_unfinished() {
    let unfinished = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("db", "g!("),
        concat!("#[ig", "nore"),
    ];
    let mut broken = Vec::new();
    for (file, text) in library() {
        if file.ends_with("/tests.rs") || file.contains("/tests/") {
            continue;
        }
        let before_tests = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        if before_tests > LINES_MAX {
            broken.push(format!("src/{file}: {before_tests} lines before its tests, at most {LINES_MAX}"));
        }
        for word in unfinished {
            if text.contains(word) {
                broken.push(format!("src/{file}: {word}"));
            }
        }
        if !text.starts_with("//!") {
            broken.push(format!("src/{file}: says nothing about itself at its head"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
