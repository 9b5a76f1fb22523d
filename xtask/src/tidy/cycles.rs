//! Neighbouring modules depend on each other in one direction only.
//!
//! Neighbours are the modules of one folder; each stands for all that lies below it. An edge goes
//! from a module to a neighbour whose items it names by `crate::`, `super::` or `self::`. A name
//! that a module has from another one, by a `use`, is that one's. A module and the folder that it
//! lies in are one thing to a reader, so edges between those do not count, nor do those of tests.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::{imports, paths};
use super::{File, Finding};

/// Neighbours that are one thing in several files: the folder, the files, and why. Edges among them
/// do not count. ARCHITECTURE.md names them.
const ONE: &[(&str, &[&str], &str)] = &[(
    "crates/world/src",
    &["restartable", "arch"],
    "the definition of each operation and its sections: the compiler holds them together",
)];

/// A module: its path below the crate's root.
type Module<'a> = Vec<&'a str>;

/// Where a module names a neighbour's items: the file and the line.
type Place<'a> = (&'a str, usize);

/// The neighbours that each module of one folder names, and where first.
type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Place<'a>>>;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(Module<'_>, &File)>> = BTreeMap::new();
    for file in files {
        if let Some((root, module)) = module(&file.path) {
            crates.entry(root).or_default().push((module, file));
        }
    }
    crates.into_values().flat_map(|modules| of_crate(&modules)).collect()
}

/// The folder of sources that a file lies in, and which module it is there.
fn module(path: &str) -> Option<(&str, Module<'_>)> {
    let (root, below) = path.split_once("/src/")?;
    let mut module: Vec<_> = below.strip_suffix(".rs")?.split('/').collect();
    if matches!(module.last(), Some(&("mod" | "lib" | "main"))) {
        module.pop();
    }
    Some((root, module))
}

fn of_crate(modules: &[(Module<'_>, &File)]) -> Vec<Finding> {
    let tests: Vec<_> = modules.iter().flat_map(|(module, file)| for_tests(module, file)).collect();
    let is_test = |module: &[&str]| tests.iter().any(|test| module.starts_with(test));
    let modules: Vec<_> = modules.iter().filter(|(module, _)| !is_test(module)).collect();
    let mut known: Known<'_> = BTreeMap::new();
    for (module, file) in &modules {
        // A library and its program have one root.
        known.entry(module).or_default().add(file);
    }
    let mut folders: BTreeMap<&[&str], Edges<'_>> = BTreeMap::new();
    for (module, file) in &modules {
        for (line, target) in named(module, file) {
            let Some(target) = home(&known, &target) else { continue };
            let shared = module.iter().zip(target).take_while(|(a, b)| a == b).count();
            let whole = |part| whole(&file.path, &module[..shared], part);
            if let (Some(from), Some(to)) = (module.get(shared), target.get(shared))
                && whole(from) != whole(to)
            {
                let (from, to) = (whole(from), whole(to));
                let edges = folders.entry(&module[..shared]).or_default();
                let place = (file.path.as_str(), line);
                edges.entry(from).or_default().entry(to).or_insert(place);
            }
        }
    }
    folders.values().flat_map(cycles).collect()
}

/// The first part of the one thing that a module of a folder is a part of; otherwise the module.
fn whole<'a>(file: &str, folder: &[&str], part: &'a str) -> &'a str {
    let (root, _) = file.split_once("/src/").unwrap_or_default();
    let folder = [&[root, "src"], folder].concat().join("/");
    let of = ONE.iter().find(|(whose, parts, _)| *whose == folder && parts.contains(&part));
    of.map_or(part, |(_, parts, _)| parts[0])
}

/// The modules that a module declares for tests alone.
fn for_tests<'a>(module: &[&'a str], file: &'a File) -> Vec<Module<'a>> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let (tokens, tests) = (rust.tokens(), rust.test_lines());
    let declared = tokens.windows(3).filter(|three| three[0].1 == "mod" && three[2].1 == ";");
    let declared = declared.filter(|three| tests[three[0].0 - 1]);
    declared.map(|three| [module, &[three[1].1]].concat()).collect()
}

/// The names of a module.
#[derive(Default)]
struct Names<'a> {
    /// Those that it has from elsewhere, each with its path as written.
    imported: BTreeMap<&'a str, Vec<&'a str>>,
    /// The modules that it has all names from.
    globs: Vec<Vec<&'a str>>,
    /// Those of its own items, at any depth.
    declared: BTreeSet<&'a str>,
}

/// The names of each module, by its path.
type Known<'a> = BTreeMap<&'a [&'a str], Names<'a>>;

impl<'a> Names<'a> {
    /// Adds those of a file. Those of tests are no others' to name.
    fn add(&mut self, file: &'a File) {
        const ITEMS: &[&str] =
            &["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
        let Some(rust) = &file.rust else { return };
        let tests = rust.test_lines();
        let mut tokens = rust.tokens();
        tokens.retain(|(line, _)| !tests[line - 1]);
        for import in imports(&tokens) {
            match import.path.split_last() {
                Some((&"*", path)) => self.globs.push(path.to_vec()),
                _ => drop(self.imported.insert(import.name, import.path)),
            }
        }
        let items = tokens.windows(2).filter(|two| ITEMS.contains(&two[0].1));
        self.declared.extend(items.map(|two| two[1].1));
    }

    fn has(&self, name: &str) -> bool {
        self.declared.contains(name) || self.imported.contains_key(name)
    }

    /// The path of a name that `module`, whose names these are, has from another module of its
    /// crate.
    fn origin(&self, known: &Known<'a>, module: &[&'a str], name: &'a str) -> Option<Module<'a>> {
        if let Some(import) = self.imported.get(name) {
            return self.absolute(known, module, import);
        }
        let mut globs = self.globs.iter().filter(|_| !self.declared.contains(name));
        globs.find_map(|glob| {
            let all = self.absolute(known, module, glob)?;
            known.get(all.as_slice())?.has(name).then(|| [&all[..], &[name]].concat())
        })
    }

    /// The path below the crate's root of one that is written in `module`. `None`: it leads to
    /// another crate.
    fn absolute(
        &self,
        known: &Known<'a>,
        module: &[&'a str],
        path: &[&'a str],
    ) -> Option<Module<'a>> {
        let child = |name| known.contains_key([module, &[name]].concat().as_slice());
        match path.first() {
            None | Some(&("crate" | "super")) => Some(below(module, path)),
            Some(&name) => (child(name) || self.has(name)).then(|| below(module, path)),
        }
    }
}

/// The module that has what a path below the root names: a name that a module has from another one
/// is followed there. `None`: the path leads round.
fn home<'a>(known: &Known<'a>, path: &[&'a str]) -> Option<&'a [&'a str]> {
    let mut path = path.to_vec();
    for _ in 0..=known.len() {
        let longest = (0..=path.len()).rev();
        let (module, names) = longest.map(|n| known.get_key_value(&path[..n])).find_map(|it| it)?;
        let next = path.get(module.len()).and_then(|name| names.origin(known, module, name));
        let Some(origin) = next else { return Some(module) };
        path = [&origin[..], &path[module.len() + 1..]].concat();
    }
    None
}

/// What a module names in its crate, as paths below the root, each with its line.
fn named<'a>(module: &[&'a str], file: &'a File) -> Vec<(usize, Module<'a>)> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let tests = rust.test_lines();
    let mut found = Vec::new();
    for (line, path) in paths(&rust.tokens(), &["crate", "super", "self"]) {
        if tests[line - 1] {
            continue;
        }
        found.push((line, below(module, &path)));
    }
    found
}

/// The path below the crate's root of one that is written in `module`. The readers of paths leave
/// `self` out, so a path that began with it has no root left.
fn below<'a>(module: &[&'a str], path: &[&'a str]) -> Module<'a> {
    let ups = path.iter().take_while(|&&part| part == "super").count();
    let base = match path.first() {
        Some(&"crate") => 0,
        _ => module.len().saturating_sub(ups),
    };
    let rest = path.iter().skip_while(|&&part| matches!(part, "crate" | "super"));
    module[..base].iter().chain(rest).copied().collect()
}

/// An edge that closes a cycle is one whose target reaches back to where it comes from.
fn cycles(edges: &Edges<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (from, targets) in edges {
        for (to, (file, line)) in targets {
            let Some(back) = way(edges, to, from) else {
                continue;
            };
            let message = format!("`{from}` names `{to}`, which leads back: {}", back.join(" -> "));
            found.push(Finding::new(file, *line, message));
        }
    }
    found
}

/// The shortest way from one module to another along the edges.
fn way<'a>(edges: &Edges<'a>, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![from]];
    let mut seen = BTreeSet::from([from]);
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let end = *way.last()?;
            if end == to {
                return Some(way);
            }
            for &next in edges.get(end).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next) {
                    longer.push([way.as_slice(), &[next]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    /// `file:line` of each finding in a crate of these files.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File::new(&format!("crates/x/src/{path}"), text);
        let found = check(&files.iter().map(file).collect::<Vec<_>>());
        let place = |finding: Finding| {
            format!("{}:{}", finding.file.trim_start_matches("crates/x/src/"), finding.line)
        };
        found.into_iter().map(place).collect()
    }

    #[test]
    fn two_modules_that_name_each_other_are_found() {
        let planted = [
            ("a.rs", "//! a\nuse crate::b::B;"),
            ("b.rs", "fn f() { super::a::g() }"),
            ("lib.rs", "mod a; mod b;"),
        ];
        assert_eq!(found(&planted), ["a.rs:2", "b.rs:1"]);
        let deeper = [("f/a.rs", "use super::super::g::G;"), ("g.rs", "use crate::f::a::A;")];
        assert_eq!(found(&deeper), ["f/a.rs:1", "g.rs:1"]);
    }

    #[test]
    fn a_name_is_that_of_the_module_that_a_use_has_it_from() {
        let planted = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::{B as C, D};"),
            ("a.rs", "//! a\nuse crate::C;"),
            ("b.rs", "use crate::A; pub struct B;"),
        ];
        assert_eq!(found(&planted), ["a.rs:2", "b.rs:1"]);
        // Through a folder, and from a parent that uses the name itself.
        let folder = [
            ("f/mod.rs", "mod a; mod b; pub mod g; use g::X;"),
            ("f/a.rs", "use super::X;"),
            ("f/g/mod.rs", "mod h; pub use h::*;"),
            ("f/g/h.rs", "use crate::f::a::A; pub enum X {}"),
            ("f/b.rs", "use super::{Arc, Y};"),
        ];
        assert_eq!(found(&folder), ["f/a.rs:1", "f/g/h.rs:1"]);
        let fine = [
            ("lib.rs", "mod a; mod b; pub use a::A; use std::b::Arc; use c; pub use c::Y;"),
            ("a.rs", "use crate::{Arc, Y, c};"),
            ("b.rs", "use crate::A; use super::*; fn f(_: super::A) {}"),
        ];
        assert_eq!(found(&fine), [""; 0]);
    }

    #[test]
    fn a_cycle_of_three_is_found_and_a_tail_is_not() {
        let planted = [
            ("a.rs", "use crate::{b, c::C};"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use crate::a::{self, A};"),
            ("d.rs", "use crate::a;"),
        ];
        assert_eq!(found(&planted), ["a.rs:1", "a.rs:1", "b.rs:1", "c.rs:1"]);
    }

    #[test]
    fn what_lies_below_a_module_counts_as_the_module() {
        let planted = [
            ("a/mod.rs", "mod deep;"),
            ("a/deep.rs", "use crate::b::B;"),
            ("b/mod.rs", "use self::low::L;"),
            ("b/low.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&planted), ["a/deep.rs:1", "b/low.rs:1"]);
    }

    #[test]
    fn a_folder_and_its_modules_may_name_each_other() {
        let fine = [
            ("a/mod.rs", "mod deep;\nuse self::deep::D;"),
            ("a/deep.rs", "use super::A;\nuse super::other::O;"),
            ("a/other.rs", "use crate::a::A;"),
            ("lib.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&fine), [""; 0]);
    }

    #[test]
    fn parts_of_one_thing_may_name_each_other_and_no_others() {
        let file = |name: &str, text| File::new(&format!("crates/world/src/{name}.rs"), text);
        let parts = [
            file("restartable", "use crate::arch::A;"),
            file("arch", "use crate::restartable::R;"),
        ];
        assert_eq!(check(&parts), []);
        // Also where the way back begins at another part.
        let other = [
            file("restartable", "use super::word::W;"),
            file("word", "use super::arch::A;"),
            file("arch", ""),
        ];
        assert_eq!(check(&other).len(), 2);
        let prose = workspace::read("ARCHITECTURE.md").unwrap();
        assert!(ONE.iter().all(|(folder, parts, why)| {
            let known = |part: &&str| {
                let path = workspace::root().join(folder).join(part);
                path.with_extension("rs").exists() || path.join("mod.rs").exists()
            };
            let mut names =
                parts.iter().map(|part| format!("`{part}`")).chain([format!("`{folder}`")]);
            parts.iter().all(known) && names.all(|name| prose.contains(&name)) && !why.is_empty()
        }));
    }

    #[test]
    fn tests_and_other_crates_are_free() {
        let fine = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "#[cfg(test)]\nmod tests {\n use crate::a::A;\n}"),
            ("c/mod.rs", "#[cfg(test)]\nmod laws;\nuse crate::b::B;"),
            ("c/laws/mod.rs", "use super::deep::D;"),
            ("c/laws/deep.rs", "use crate::c::laws::other::O;"),
            ("b/tests.rs", ""),
            ("c/laws/other.rs", "use super::deep::D;"),
        ];
        assert_eq!(found(&fine), [""; 0]);
        let other = [
            File::new("crates/x/src/a.rs", "use crate::b::B;"),
            File::new("crates/x/src/b.rs", ""),
            File::new("crates/y/src/b.rs", "use crate::a::A;"),
            File::new("crates/y/src/a.rs", ""),
        ];
        assert_eq!(check(&other), []);
    }
}
