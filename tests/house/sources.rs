//! The sources of the library, and what of them is code.

use std::fs;
use std::path::{Path, PathBuf};

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

/// Each file of the library, by its path under `src`, with its text.
pub(crate) fn library() -> Vec<(String, String)> {
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
pub(crate) fn part(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The module that a file is, from the root.
pub(crate) fn module(file: &str) -> Vec<&str> {
    let path = file.strip_suffix(".rs").unwrap();
    path.strip_suffix("/mod").unwrap_or(path).split('/').collect()
}

/// Whether all of a file is tests.
pub(crate) fn is_tests(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

/// Comments left out, lines kept.
pub(crate) fn code(text: &str) -> String {
    text.lines().flat_map(|line| [line.split("//").next().unwrap(), "\n"]).collect()
}

/// The code without what is compiled for its tests alone.
pub(crate) fn without_tests(text: &str) -> String {
    let code = code(text);
    let (mut kept, mut lines) = (String::new(), code.lines());
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix("#[cfg(test)]") else {
            kept.extend([line, "\n"]);
            continue;
        };
        // An item ends on a line that stands no further to the right than it begins.
        let ends_item = |line: &str| {
            let item = line.trim_end().strip_prefix(indent);
            item.is_some_and(|item| !item.starts_with(' ') && item.ends_with([';', '}']))
        };
        let _ = lines.by_ref().find(|line| ends_item(line));
    }
    kept
}
