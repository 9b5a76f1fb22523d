//! That the links of the pages which rustdoc made lead to what is there.
//!
//! Rustdoc itself says which names in brackets it does not know. It looks neither at links that are
//! written out, nor at the anchors of a page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::error::Error;
use crate::workspace;

/// What other pages may ask of a page, and what it asks of them.
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
    /// It does nothing but lead on to its first link, anchor and all: the page that an item has by
    /// its private path.
    leads_on: bool,
}

/// A link in the documentation of tracing, whose traits all our types have where loom is there.
const FOREIGN: &str = "dispatcher#setting-the-default-subscriber";

/// Removes the pages of crates, so that what is checked later was made now: rustdoc leaves pages of
/// items that went, and cargo makes no pages anew if it has made such before. The folders stay: of
/// a crate that has none rustdoc believes that it has no pages, and makes no links to it.
pub(crate) fn clear(folder: &Path, crates: &[String]) -> Result<(), Error> {
    for path in crates.iter().map(|name| folder.join(name)) {
        let removed = match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&path),
        };
        removed.map_err(|source| Error::Write { path, source })?;
    }
    Ok(())
}

/// Follows all links of the pages of crates.
pub(crate) fn check(folder: &Path, crates: &[String]) -> Result<(), Error> {
    let mut pages = BTreeMap::new();
    for file in crates.iter().map(|name| folder.join(name)).filter(|path| path.is_dir()) {
        collect(&file, &mut pages)?;
    }
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    let broken = broken(&pages)?;
    for (page, link) in &broken {
        let page = page.strip_prefix(folder).unwrap_or(page);
        println!("{}: the link {link} leads nowhere", page.display());
    }
    println!("docs: {links} links");
    if broken.is_empty() { Ok(()) } else { Err(Error::Links(broken.len())) }
}

fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<(), Error> {
    let read = |source| Error::Read { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|it| it == "html") {
            pages.insert(path.clone(), Page::new(&workspace::read(&path)?));
        }
    }
    Ok(())
}

/// The links that lead nowhere, each with its page. Reads pages that are linked to and were not
/// given, such as those of sources.
fn broken(pages: &BTreeMap<PathBuf, Page>) -> Result<Vec<(PathBuf, String)>, Error> {
    let (mut broken, mut others) = (Vec::new(), BTreeMap::new());
    for (path, page) in pages {
        for link in &page.links {
            let Some((to, anchor)) = target(path, link) else { continue };
            let to = match pages.get(&to) {
                Some(page) if page.leads_on => {
                    page.links.first().and_then(|on| target(&to, on)).map_or(to, |(on, _)| on)
                }
                _ => to,
            };
            if !pages.contains_key(&to) && !others.contains_key(&to) {
                let is_page = to.is_file() && to.extension().is_some_and(|it| it == "html");
                let page = is_page.then(|| workspace::read(&to)).transpose()?;
                others.insert(to.clone(), page.map(|text| Page::new(&text)));
            }
            let there = match pages.get(&to).or_else(|| others.get(&to)?.as_ref()) {
                Some(page) => anchor.is_empty() || page.has(anchor),
                None => anchor.is_empty() && to.exists(),
            };
            if !there {
                broken.push((path.clone(), link.clone()));
            }
        }
    }
    Ok(broken)
}

/// The file that a link of a page leads to, and the anchor there; `None` if it leads to no page of
/// ours.
fn target<'a>(page: &Path, link: &'a str) -> Option<(PathBuf, &'a str)> {
    // A name of an item is one of a crate without pages here: of ours rustdoc knows every name.
    if link.contains("::") || link == FOREIGN {
        return None;
    }
    if link.contains("://") || ["mailto:", "javascript:"].iter().any(|it| link.starts_with(it)) {
        return None;
    }
    let (to, anchor) = link.split_once('#').unwrap_or((link, ""));
    let (to, _) = to.split_once('?').unwrap_or((to, ""));
    let mut path = page.to_owned();
    if !to.is_empty() {
        path.pop();
        for part in to.split('/') {
            match part {
                "" | "." => {}
                ".." => _ = path.pop(),
                part => path.push(part),
            }
        }
    }
    Some((path, anchor))
}

impl Page {
    fn new(html: &str) -> Page {
        let mut links: Vec<_> =
            attributes(html, " href=").map(|link| link.replace("&amp;", "&")).collect();
        // An item of the standard library that is given on: its text, whose links lead from where
        // it stands there, is not ours.
        let source = html.split_once("<a class=\"src\" href=\"").map(|(_, rest)| rest);
        if source.is_some_and(|it| it.starts_with("https://doc.rust-lang.org/")) {
            links.clear();
        }
        Page {
            anchors: attributes(html, " id=").map(str::to_owned).collect(),
            links,
            leads_on: html.contains("http-equiv=\"refresh\""),
        }
    }

    fn has(&self, anchor: &str) -> bool {
        // Of source code, the first of some lines.
        let line = anchor.split_once('-').map_or(anchor, |(first, _)| first);
        let is_line = line.bytes().all(|byte| byte.is_ascii_digit());
        self.anchors.contains(anchor) || is_line && self.anchors.contains(line)
    }
}

/// The values of an attribute in a page, with quotes or without; not those in its scripts, whose
/// quotes are escaped.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    html.split(name).skip(1).filter_map(|rest| match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split(['>', ' ']).next().filter(|value| !value.starts_with('\\')),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let pages = pages.iter().map(|(path, html)| (PathBuf::from(path), Page::new(html)));
        let found = broken(&pages.collect()).expect("nothing is read");
        found.into_iter().map(|(page, link)| format!("{}: {link}", page.display())).collect()
    }

    #[test]
    fn links_to_what_is_there_are_followed() {
        let page = r##"<a href="#here" id="here">x</a> <a href="../b/index.html#there">y</a>
<a href="../b/">no page, which is there</a> <a href="https://x.org/y#z">z</a>
<a href="../src/a.rs.html#3-7">source</a> <a class="x" href="index.html?search=a">s</a>"##;
        let source = "<a href=#3 id=3 data-nosnippet>3</a>";
        let pages = [("a/index.html", page), ("b/index.html", r#"<h2 id="there">"#)];
        // A folder is asked of the machine, which has none of these.
        let all = [&pages[..], &[("src/a.rs.html", source)]].concat();
        assert_eq!(found(&all), ["a/index.html: ../b/"]);
    }

    #[test]
    fn what_leads_on_and_what_is_not_ours_is_known() {
        let on = r#"<meta http-equiv="refresh" content="0;URL=b.html"><a href="b.html">b</a>"#;
        let std = r#"<a class="src" href="https://doc.rust-lang.org/x.html"> <a href="../std/y">"#;
        let script = r#"<script>{"a":"<a href=\"c.html\">c</a>"}</script>"#;
        let page = r##"<a href="on.html#b"> <a href="on.html#c">"##.to_owned() + script;
        let b = r#"<h2 id="b"> <a href="super::Span::current()"> <a href="https://x.org/y">"#;
        let all = [("a.html", &*page), ("b.html", b), ("on.html", on), ("std.html", std)];
        assert_eq!(found(&all), ["a.html: on.html#c"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = r##"<a href="#none"> <a href="none.html"> <a href="../src/a.rs.html#4">
<a href="index.html#one-2">"##;
        let all = [("a/index.html", page), ("src/a.rs.html", "<a href=#3 id=3>3</a>")];
        let links = ["#none", "none.html", "../src/a.rs.html#4", "index.html#one-2"];
        assert_eq!(found(&all), links.map(|link| format!("a/index.html: {link}")));
    }
}
