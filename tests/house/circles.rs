//! Files that import each other, directly or by way of others: neither can be read, or changed, without the other.
//!
//! A door (`mod.rs`, `lib.rs`) is none of them: it declares a folder's files and passes their names on. Whoever imports
//! a name from a door imports the file that the door has it from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::sources::{is_tests, library, module, without_tests};
use super::use_trees::{Named, named};

type ModulePath = Vec<String>;

/// The names by which a file is tied to others, by these.
type Ties<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<String>>>;

fn is_door(file: &str) -> bool {
    file == "lib.rs" || file.ends_with("mod.rs")
}

fn module_path(file: &str) -> ModulePath {
    if file == "lib.rs" { Vec::new() } else { module(file).into_iter().map(str::to_owned).collect() }
}

/// A path as it leads from the root; `None` where it leads out of the crate.
fn absolute(here: &[String], path: &[String]) -> Option<ModulePath> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&here[..0], &path[1..]),
        "self" => (here, &path[1..]),
        "super" => (here.get(..here.len().checked_sub(ups)?)?, &path[ups..]),
        _ => (here, path),
    };
    Some([base, rest].concat())
}

/// The files by the modules that they are, and what doors have from elsewhere.
#[derive(Default)]
struct Modules<'a> {
    files: BTreeMap<ModulePath, &'a str>,
    passed_on: BTreeMap<ModulePath, BTreeMap<String, ModulePath>>,
}

impl<'a> Modules<'a> {
    fn of(library: &'a [(String, String)]) -> Self {
        let files = library.iter().filter(|(file, _)| !is_tests(file) && file != "main.rs");
        let files = files.map(|(file, _)| (module_path(file), file.as_str())).collect();
        let mut modules = Self { files, ..Self::default() };
        for (file, text) in library.iter().filter(|(file, _)| is_door(file)) {
            let door = module_path(file);
            let imports = modules.named_in(&door, text).into_iter().filter(|named| named.is_use);
            let names = imports.filter_map(|import| Some((import.local, absolute(&door, &import.path)?)));
            let names = names.collect();
            modules.passed_on.insert(door, names);
        }
        modules
    }

    /// The paths that begin with this crate's root, the parent, the module itself, or one of its own modules.
    fn named_in(&self, here: &[String], text: &str) -> Vec<Named> {
        let is_child = |path: &&ModulePath| path.len() == here.len() + 1 && path.starts_with(here);
        let children = self.files.keys().filter(is_child).filter_map(|path| path.last());
        let heads: Vec<&str> =
            ["crate", "super", "self"].into_iter().chain(children.map(String::as_str)).collect();
        named(&without_tests(text), &heads)
    }

    /// The file that a path leads to, past all doors, and the name in it.
    fn found(&self, mut path: ModulePath) -> Option<(&'a str, String)> {
        // Doors may have names from each other.
        for _ in 0..self.files.len() {
            let depth = (0..=path.len()).rev().find(|depth| self.files.contains_key(&path[..*depth]))?;
            let (module, rest) = path.split_at(depth);
            let from = rest.first().and_then(|name| self.passed_on.get(module)?.get(name));
            let Some(from) = from else {
                let name = path.get(depth).or(path.last())?;
                return Some((*self.files.get(module)?, name.clone()));
            };
            path = [from, &rest[1..]].concat();
        }
        None
    }
}

fn ties(library: &[(String, String)]) -> Ties<'_> {
    let modules = Modules::of(library);
    let mut ties = Ties::new();
    for (file, text) in library {
        if is_door(file) || is_tests(file) || file == "main.rs" {
            continue;
        }
        let here = module_path(file);
        for Named { path, .. } in modules.named_in(&here, text) {
            let found = absolute(&here, &path).and_then(|path| modules.found(path));
            if let Some((other, name)) = found.filter(|(other, _)| *other != file.as_str() && !is_door(other))
            {
                ties.entry(file.as_str()).or_default().entry(other).or_default().insert(name);
            }
        }
    }
    ties
}

fn reached<'a>(ties: &Ties<'a>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let others = ties.get(file).into_iter().flat_map(BTreeMap::keys);
        next.extend(others.copied().filter(|other| reached.insert(*other)));
    }
    reached
}

/// Every circle: its files, each with what it has from which others of them.
fn circles(ties: &Ties<'_>) -> Vec<String> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        ties.keys().map(|file| (*file, reached(ties, file))).collect();
    let reaches = |one: &str, other: &str| reach.get(one).is_some_and(|reached| reached.contains(other));
    let (mut told, mut circles) = (BTreeSet::new(), Vec::new());
    for file in reach.keys() {
        if told.contains(*file) || !reaches(file, file) {
            continue;
        }
        let of_circle = |other: &str| reaches(file, other) && reaches(other, file);
        let mut circle = String::new();
        for (one, others) in ties.iter().filter(|(one, _)| of_circle(one)) {
            told.insert(*one);
            for (other, names) in others.iter().filter(|(other, _)| of_circle(other)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let _ = writeln!(circle, "    {one} has {} from {other}", names.join(", "));
            }
        }
        circles.push(circle);
    }
    circles
}

#[test]
fn no_two_files_import_each_other() {
    let library = library();
    let ties = ties(&library);
    let count: usize = ties.values().map(BTreeMap::len).sum();
    assert!(count > library.len(), "imports were not found: {count}");
    let circles = circles(&ties);
    assert!(circles.is_empty(), "files that import each other:\n{}", circles.join("\n"));
}

/// What such a star brings in cannot be read off the file.
#[test]
fn nothing_is_imported_by_a_star() {
    let stars =
        library().into_iter().filter(|(file, text)| !is_tests(file) && without_tests(text).contains("::*"));
    let files: Vec<String> = stars.map(|(file, _)| file).collect();
    assert!(files.is_empty(), "name what is imported: {files:?}");
}

/// The circles of a library of these files.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let library: Vec<_> = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
    circles(&ties(&library))
}

#[test]
fn the_circle_check_sees_what_it_must_see() {
    let doors = [
        ("lib.rs", "pub mod a;\nmod b;\npub use a::One;\n"),
        (
            "a/mod.rs",
            "mod one;\nmod two;\npub use self::two::{Two, Other as Another};\nuse crate::b::Bee;\npub use one::One;\n",
        ),
        ("b.rs", "mod leaf;\npub struct Bee;\n"),
    ];
    let with = |more: &[(&'static str, &'static str)]| circles_of(&[&doors[..], more].concat());
    let one_and_two = |one, two| with(&[("a/one.rs", one), ("a/two.rs", two)]);
    assert!(with(&[]).is_empty());

    // By whichever way the names come.
    let circle = ["    a/one.rs has Two from a/two.rs\n    a/two.rs has One from a/one.rs\n"];
    for one in [
        "use super::two::Two;",
        "use super::Two;",
        "use crate::a::{self, Two};",
        "use crate::{\n    a::{\n        two::{Two},\n    },\n};",
        "fn f(two: &crate::a::Two) {}",
        "use super::two::Two as Second;",
    ] {
        for two in ["use super::one::One;", "use crate::One;", "fn f() -> super::One {}"] {
            assert_eq!(one_and_two(one, two), circle, "{one} {two}");
        }
    }
    let renamed = one_and_two("use super::Another;", "use super::One;");
    assert_eq!(renamed, ["    a/one.rs has Other from a/two.rs\n    a/two.rs has One from a/one.rs\n"]);
    let whole = one_and_two("use super::two;\nfn f() { two::f() }", "use crate::a::One;");
    assert_eq!(whole, ["    a/one.rs has two from a/two.rs\n    a/two.rs has One from a/one.rs\n"]);

    // A file and the files of its folder, and what goes around by way of others.
    let below = with(&[("b/leaf.rs", "use super::Bee;"), ("b.rs", "mod leaf;\nfn f() { leaf::f() }")]);
    assert_eq!(below, ["    b.rs has f from b/leaf.rs\n    b/leaf.rs has Bee from b.rs\n"]);
    let around =
        [("a/one.rs", "use super::Two;"), ("a/two.rs", "use super::Bee;"), ("b.rs", "use crate::One;")];
    let told = "    a/one.rs has Two from a/two.rs\n    a/two.rs has Bee from b.rs\n    b.rs has One from a/one.rs\n";
    assert_eq!(with(&around), [told]);

    // No circle: one way, by tests, by words alone, by names that are others'.
    assert!(one_and_two("use super::Two;", "use super::Bee;").is_empty());
    for one in [
        "// super::Two\n",
        "use std::two::Two;\nfn one() {}",
        "#[cfg(test)]\nmod tests {\n    use super::super::Two;\n}\n",
        "#[cfg(test)]\nuse super::Two;\nfn f() {}\n",
        "use super::a::Two;\nfn f() { super_two::Two }",
    ] {
        assert!(one_and_two(one, "use super::One;").is_empty(), "{one}");
    }
    let tests = [("a/one.rs", "#[cfg(test)]\nmod tests;\n"), ("a/one/tests.rs", "use crate::a::two::Two;")];
    assert!(with(&[&tests[..], &[("a/two.rs", "use super::One;")]].concat()).is_empty());
    // But what stands behind an item for tests counts.
    let behind =
        "impl A {\n    #[cfg(test)]\n    fn f() {\n        g();\n    }\n\n    fn h(two: super::Two) {}\n}\n";
    assert_eq!(one_and_two(behind, "use super::One;"), circle);
}
