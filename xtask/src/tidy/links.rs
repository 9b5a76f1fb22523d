//! That what documents point to is there: the files that they link to, the headings in them, and
//! the paths that they and comments name. Nothing is asked of the network: of a link to another
//! site the form alone is checked, and [`external`] lists all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, Finding};

/// The folders that paths of this repository begin with.
const ROOTS: &[&str] = &["crates/", "docs/", "examples/", "xtask/src/"];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let tree = Tree(files.iter().map(|file| file.path.as_str()).collect());
    let mut found = Vec::new();
    for file in files {
        let document = file.path.ends_with(".md");
        let text = match &file.rust {
            Some(rust) => &rust.comments,
            None if document => &file.text,
            None => continue,
        };
        let mut fenced = false;
        for (at, line) in text.lines().enumerate() {
            let mut complain = |message| found.push(Finding::new(&file.path, at + 1, message));
            let named = ROOTS.iter().flat_map(|root| paths(line, root));
            for path in named.filter(|path| !tree.has(path)) {
                complain(format!("there is no {path}"));
            }
            fenced ^= line.starts_with("```");
            if document && !fenced {
                for target in targets(line) {
                    if let Some(message) = broken(&file.path, target, files, &tree) {
                        complain(message);
                    }
                }
            }
        }
    }
    found
}

/// The links of documents to other sites, each with the documents that have it.
pub(super) fn external(files: &[File]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut links: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for target in file.text.lines().flat_map(targets).filter(|it| is_external(it)) {
            links.entry(target).or_default().insert(&*file.path);
        }
    }
    links
}

fn is_external(target: &str) -> bool {
    ["https:", "http:", "mailto:"].iter().any(|scheme| target.starts_with(scheme))
}

/// Whether a link to another site is written as one: `https`, a host with a dot, and no characters
/// that end an address.
fn is_well_formed(target: &str) -> bool {
    if let Some(address) = target.strip_prefix("mailto:") {
        return address.split_once('@').is_some_and(|(_, host)| host.contains('.'));
    }
    let Some(rest) = target.strip_prefix("https://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
    host.contains('.') && host.chars().all(is_host) && !rest.contains([' ', '<', '>', '"', '`'])
}

/// The paths of all files.
struct Tree<'a>(BTreeSet<&'a str>);

impl Tree<'_> {
    /// Whether there is a file or a folder of this name; one that begins like it, if that ends in
    /// a `*`.
    fn has(&self, path: &str) -> bool {
        let (start, whole) = match path.split_once('*') {
            Some((start, _)) => (start, false),
            None => (path.trim_end_matches('/'), true),
        };
        let mut from = self.0.range(start..).take_while(|path| path.starts_with(start));
        from.any(|path| !whole || matches!(path[start.len()..].chars().next(), None | Some('/')))
    }
}

/// Why a link of the document at `path` leads nowhere, if it does.
fn broken(path: &str, target: &str, files: &[File], tree: &Tree<'_>) -> Option<String> {
    if is_external(target) {
        let message = || format!("the link {target} does not have the form https://host/...");
        return (!is_well_formed(target)).then(message);
    }
    let (to, heading) = target.split_once('#').unwrap_or((target, ""));
    let to = if to.is_empty() { path.to_owned() } else { resolved(path, to) };
    if !tree.has(&to) {
        return Some(format!("the link {target} leads to {to}, which is not there"));
    }
    // The README of a package is shown where the rest of the repository is not.
    let package = path.strip_suffix("README.md").filter(|it| it.starts_with("crates/"));
    if package.is_some_and(|package| !to.starts_with(package)) {
        return Some(format!("the link {target} leads out of the package"));
    }
    let file = files.iter().find(|file| file.path == to);
    let headings = |file: &File| file.text.lines().any(|line| anchor(line) == Some(heading.into()));
    (!heading.is_empty() && !file.is_some_and(headings))
        .then(|| format!("the link {target} leads to a heading that {to} does not have"))
}

/// What a link leads to from the file at `path`.
fn resolved(path: &str, to: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "." | "" => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The targets of the links in a line of Markdown, and of a reference, which is a line of its own.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    inline.map(|(target, _)| target).chain(reference.map(|(_, target)| target.trim()))
}

/// The name that a heading is linked to by.
fn anchor(line: &str) -> Option<String> {
    let text = line.trim_start_matches('#');
    if text.len() == line.len() || !text.starts_with(' ') {
        return None;
    }
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect())
}

/// The paths below `root` that a line names; of `a/{b,c}.md` both.
fn paths(line: &str, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, _) in line.match_indices(root) {
        let inside = |c: char| c.is_alphanumeric() || "._-/}".contains(c);
        if line[..start].chars().next_back().is_some_and(inside) {
            continue;
        }
        let mut braced = false;
        let end = line[start..].find(|c: char| {
            braced = (braced || c == '{') && c != '}';
            !(c.is_alphanumeric() || "._-/{}*".contains(c) || braced && c == ',')
        });
        let path = &line[start..end.map_or(line.len(), |end| start + end)];
        let path = path.trim_end_matches('.');
        match path.split_once('{').zip(path.split_once('}')) {
            Some(((before, _), (inner, after))) => {
                let choices = inner[before.len() + 1..].split(',');
                found.extend(choices.map(|choice| format!("{before}{choice}{after}")));
            }
            None => found.push(path.to_owned()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<(usize, String)> {
        let files: Vec<_> = files.iter().map(|(path, text)| File::new(path, text)).collect();
        check(&files).into_iter().map(|it| (it.line, it.message)).collect()
    }

    #[test]
    fn what_is_there_is_not_found() {
        let document = "\
[a](../README.md), [b](b.md#two-words-1), [c](https://example.org/x), [d](#own), `crates/x/src`
## Own
```sh
[e](nowhere.md)
```
See docs/{a,b}.md. Also docs/golden/*.txt, docs/golden/<arch>, target/docs/x and
[f](b.md).
";
        let others = [
            ("README.md", "[a](docs/a.md)"),
            ("docs/b.md", "# Two words: 1\n"),
            ("docs/golden/x.txt", ""),
            ("crates/x/src/lib.rs", "//! As docs/b.md says.\nconst A: &str = \"docs/c.md\";"),
            ("crates/x/README.md", "[a](src/lib.rs)"),
        ];
        let files: Vec<_> = others.into_iter().chain([("docs/a.md", document)]).collect();
        assert_eq!(messages(&files), []);
    }

    #[test]
    fn links_to_other_sites_are_checked_by_form_and_listed() {
        let good = "[a](https://a.org/x#y) [b](mailto:a@b.org)\n[c]: https://c.org:8/?q=1\n";
        let bad = "[a](http://a.org)\n[b](https://localhost)\n[c]: https://c.org/a b\n[d]: no.md\n";
        assert_eq!(messages(&[("a.md", good)]), []);
        let found = messages(&[("a.md", bad)]);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let files =
            [File::new("a.md", good), File::new("b.md", "[x](https://a.org/x#y) [y](a.md)")];
        let listed: Vec<_> =
            external(&files).into_iter().map(|(to, from)| (to, from.len())).collect();
        let expected =
            [("https://a.org/x#y", 2), ("https://c.org:8/?q=1", 1), ("mailto:a@b.org", 1)];
        assert_eq!(listed, expected);
    }

    #[test]
    fn what_is_not_there_is_found() {
        let document = "[a](c.md)\n[b](b.md#three)\nsee docs/c.md\ndocs/{b,c}.md\n[c](#none)\n";
        let files = [
            ("docs/a.md", document),
            ("docs/b.md", "## Two\n"),
            ("crates/x/src/lib.rs", "\n// As docs/d.md says.\n"),
            ("crates/x/README.md", "[a](../../docs/b.md)\n"),
        ];
        let found = messages(&files);
        let lines: Vec<_> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 2, 1], "{found:?}");
        assert!(found[6].1.contains("out of the package"), "{found:?}");
    }
}
