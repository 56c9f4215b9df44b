//! Paths as the code names them: in use trees, whose groups are expanded, and wherever else one begins.

use std::collections::BTreeSet;

/// A path, and where it stands.
#[derive(Debug)]
pub(crate) struct Named {
    /// Where it begins.
    pub(crate) at: usize,
    /// It is imported, not only spoken of.
    pub(crate) is_use: bool,
    pub(crate) path: Vec<String>,
    /// How it is called from then on.
    pub(crate) local: String,
}

fn ends_a_name(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Every path of the code that begins with one of these names.
pub(crate) fn named(code: &str, heads: &[&str]) -> Vec<Named> {
    let mut begins = BTreeSet::new();
    for head in heads {
        let head = format!("{head}::");
        let ats = code.match_indices(&head).map(|(at, _)| at);
        begins.extend(ats.filter(|at| {
            let before = &code[..*at];
            !before.trim_end().ends_with("::") && !ends_a_name(before)
        }));
    }
    let (mut all, mut end) = (Vec::new(), 0);
    for at in begins {
        // What stands in a group belongs to the path that the group belongs to.
        if at < end {
            continue;
        }
        let (mut rest, mut trees) = (&code[at..], Vec::new());
        expand(&mut rest, &[], &mut trees);
        end = code.len() - rest.len();
        let is_use = code[..at].trim_end().strip_suffix("use").is_some_and(|before| !ends_a_name(before));
        all.extend(trees.into_iter().map(|(path, local)| Named { at, is_use, path, local }));
    }
    all
}

fn take_name<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    *rest = after;
    name
}

/// The paths of a use tree, each with its name here; reads to the end of the tree.
fn expand(rest: &mut &str, begun: &[String], trees: &mut Vec<(Vec<String>, String)>) {
    let mut path = begun.to_vec();
    let mut alias = "";
    loop {
        *rest = rest.trim_start();
        if let Some(group) = rest.strip_prefix('{') {
            *rest = group;
            expand_group(rest, &path, trees);
            return;
        }
        let name = take_name(rest);
        if !name.is_empty() {
            path.push(name.to_owned());
        }
        if let Some(after) = rest.trim_start().strip_prefix("as ") {
            *rest = after.trim_start();
            alias = take_name(rest);
        }
        match rest.trim_start().strip_prefix("::") {
            Some(after) => *rest = after,
            None => break,
        }
    }
    if path.len() > begun.len() {
        // `{self, …}` is the module itself.
        path.pop_if(|last| !begun.is_empty() && last == "self");
        let local =
            if alias.is_empty() { path.last().cloned().unwrap_or_default() } else { alias.to_owned() };
        trees.push((path, local));
    }
}

fn expand_group(rest: &mut &str, path: &[String], trees: &mut Vec<(Vec<String>, String)>) {
    loop {
        *rest = rest.trim_start();
        match rest.chars().next() {
            None => return,
            Some('}') => {
                *rest = &rest[1..];
                return;
            }
            Some(',') => *rest = &rest[1..],
            Some(_) => {
                let before = rest.len();
                expand(rest, path, trees);
                if rest.len() == before {
                    // Neither a name nor a group: `*`, or code that is no use tree.
                    *rest = rest.get(1..).unwrap_or_default();
                }
            }
        }
    }
}
