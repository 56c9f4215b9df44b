//! The rules of the house, read off the sources: which way imports run, how long files are, what is not left
//! behind. A rule that is broken names the file and the line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

#[path = "house/circles.rs"]
mod circles;
#[path = "house/sources.rs"]
mod sources;
#[path = "house/use_trees.rs"]
mod use_trees;

use std::collections::BTreeMap;

use sources::{code, is_tests, library, module, part};
use use_trees::{Named, named};

/// Each part of the library with the parts that it may import. ARCHITECTURE.md draws it.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("stock", &["protocol"]),
    ("payment", &["protocol"]),
    ("store", &["payment", "stock", "protocol"]),
    ("admission", &["protocol"]),
    ("client", &["protocol"]),
    ("config", &["admission"]),
    ("gateway", &["admission", "store", "stock", "protocol"]),
    ("orders", &["store", "payment", "stock", "protocol"]),
    ("admin", &["admission", "store", "payment", "stock", "protocol"]),
    ("rehearsal", &["client", "admission", "payment", "protocol"]),
    (
        "cli",
        &[
            "rehearsal",
            "gateway",
            "orders",
            "admin",
            "config",
            "admission",
            "client",
            "store",
            "payment",
            "stock",
            "protocol",
        ],
    ),
];

/// Crates that only one part of the library may use.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("sqlx", &["store/sql", "rehearsal"]),
    ("redis", &["store/redis"]),
    ("axum", &["admin", "rehearsal"]),
    ("hyper", &["admin", "payment"]),
    ("hmac", &["payment"]),
    ("jsonwebtoken", &["admission"]),
    ("ed25519_dalek", &["admission"]),
];

/// Lines before a file's tests.
const LINES_MAX: usize = 400;

/// Every part of the library that a file names, by `crate::` or by as many `super::` as lead to the root, with the
/// line on which the path begins.
fn imported(file: &str, text: &str) -> Vec<(usize, String)> {
    let code = code(text);
    // Tests inside a file are a module of their own, which is one deeper.
    let tests_at = code.find("\nmod tests {").unwrap_or(code.len());
    let mut parts = Vec::new();
    for Named { at, path, .. } in named(&code, &["crate", "super"]) {
        let depth = module(file).len() + usize::from(at > tests_at);
        let line = code[..at].matches('\n').count() + 1;
        let ups = path.iter().take_while(|name| *name == "super").count();
        let from_root = if path[0] == "crate" { path.get(1) } else { path.get(ups) };
        if let Some(name) = from_root.filter(|_| path[0] == "crate" || ups == depth) {
            parts.push((line, name.clone()));
        }
    }
    parts.sort();
    parts.dedup();
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
        for (line, other) in imported(&file, &text) {
            if other != here && !allowed.contains(&other.as_str()) {
                broken.push(format!("src/{file}:{line}: {here} imports {other}"));
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
    let parts = |file: &str, text: &str| -> Vec<String> {
        imported(file, text).into_iter().map(|(_, part)| part).collect()
    };
    let a = "stock/lane.rs";
    assert_eq!(parts(a, "use crate::stock::{Board, Left};"), ["stock"]);
    assert_eq!(parts(a, "use crate::{gateway, store::sql};"), ["gateway", "store"]);
    assert_eq!(parts(a, "    let x = crate::config::Config::default(); // crate::admin"), ["config"]);
    assert_eq!(parts(a, "fn f(x: &crate::cli::A, y: crate::admin::B) {}"), ["admin", "cli"]);
    assert!(parts(a, "pub(crate) fn x() {}\nuse mycrate::gateway;\n").is_empty());

    // Over several lines, with groups in groups.
    let lines = "//! Head.\nuse crate::{\n    gateway::{\n        self, Door, // crate::admin\n    },\n    store,\n};\n";
    let found = imported(a, lines);
    assert_eq!(found.iter().map(|(_, part)| part.as_str()).collect::<Vec<_>>(), ["gateway", "store"]);
    assert!(found.iter().all(|(line, _)| *line == 2), "{found:?}");
    assert_eq!(parts(a, "use crate::{\n    store as kept, *,\n    cli as _,\n};"), ["cli", "store"]);
    assert_eq!(parts(a, "use crate::\n    gateway::Door;\nuse std::fmt;"), ["gateway"]);
    assert!(parts(a, "use std::{\n    fmt,\n    io,\n};\nstruct Gateway {\n    store: u8,\n}").is_empty());

    // By way of the parents.
    assert_eq!(parts(a, "use super::super::gateway;"), ["gateway"]);
    assert_eq!(parts(a, "use super::{calls, super::{gateway, store::sql}};"), ["gateway", "store"]);
    assert!(parts(a, "use super::calls;\nuse super::super::super::gateway;").is_empty());
    assert_eq!(parts("stock/mod.rs", "use super::gateway;"), ["gateway"]);
    assert_eq!(parts("stock.rs", "use super::gateway;"), ["gateway"]);
    assert!(parts("store/sql/feed.rs", "use super::super::catalog;").is_empty());
    let tests = "use super::calls;\n#[cfg(test)]\nmod tests {\n    use super::super::view;\n    use super::super::super::cli;\n}";
    assert_eq!(parts(a, tests), ["cli"]);
}

/// Whether a path begins with this crate's name; modules of ours may have the same.
fn is_used(name: &str, code: &str) -> bool {
    let path = format!("{name}::");
    code.match_indices(&path).any(|(at, _)| {
        !code[..at].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | ':'))
    })
}

#[test]
fn a_crate_is_told_from_a_module_of_the_same_name() {
    for code in
        ["use redis::Value;", "    redis::cmd(\"PING\")", "let a: Option<redis::Value> = b(&redis::c);"]
    {
        assert!(is_used("redis", code), "{code}");
    }
    for code in ["use crate::store::redis::RedisShards;", "pub mod redis;", "credis::a()"] {
        assert!(!is_used("redis", code), "{code}");
    }
}

#[test]
fn each_outside_crate_has_its_place() {
    let mut broken = Vec::new();
    for (file, text) in library() {
        for (name, places) in ONLY_IN {
            let uses = text.lines().any(|line| is_used(name, line.split("//").next().unwrap()));
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
        if is_tests(&file) {
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
