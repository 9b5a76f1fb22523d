//! That every package which we build with may be used under a licence that asks for no more than
//! ours do: to be named. And that each package of ours has the texts of its licences.

use serde_json::Value;

use super::{File, Finding};
use crate::error::Error;

/// As SPDX names them.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// What only `xtask` uses, with its licence. No part of it is in a program that a user gets, and
/// what it generates is ours.
const TOOLS: &[(&str, &str)] = &[("cbindgen", "MPL-2.0")];

/// The finding's file: what names the packages.
const LOCK: &str = "Cargo.lock";

pub(super) fn check(metadata: &Value) -> Result<Vec<Finding>, Error> {
    let packages = metadata["packages"].as_array().ok_or(Error::Metadata { what: "packages" })?;
    let mut found = Vec::new();
    for package in packages {
        let [name, version] = ["name", "version"].map(|key| package[key].as_str().unwrap_or("?"));
        let message = match package["license"].as_str() {
            Some(licence) if allowed(licence) || TOOLS.contains(&(name, licence)) => continue,
            Some(licence) => format!("{name} {version}: {licence} is not on the list of ALLOWED"),
            None => format!("{name} {version} names no licence"),
        };
        found.push(Finding::new(LOCK, 1, message));
    }
    Ok(found)
}

/// The texts of our licences, at the root and in each package that is published. There they are
/// copies and no links, which a checkout may not have, and which an archive may not follow.
const TEXTS: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];

/// That each published package has the root's texts.
pub(super) fn copies(files: &[File]) -> Vec<Finding> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| &file.text);
    let mut found = Vec::new();
    for file in files {
        let folder = file.path.strip_suffix("/Cargo.toml").filter(|it| it.starts_with("crates/"));
        let Some(folder) = folder.filter(|_| !file.text.contains("publish = false")) else {
            continue;
        };
        for name in TEXTS {
            let path = format!("{folder}/{name}");
            if text(&path) != text(name) {
                found.push(Finding::new(&path, 1, format!("it differs from {name} at the root")));
            }
        }
    }
    found
}

/// Whether an expression of SPDX leaves a choice that is allowed. What is no such expression
/// is not.
fn allowed(expression: &str) -> bool {
    // A bar is how `OR` was written once.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    any(&mut tokens) && tokens.next().is_none()
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// `OR` binds weakest.
fn any(tokens: &mut Tokens<'_>) -> bool {
    let mut one = all(tokens);
    while tokens.next_if_eq(&"OR").is_some() {
        one |= all(tokens);
    }
    one
}

fn all(tokens: &mut Tokens<'_>) -> bool {
    let mut every = single(tokens);
    while tokens.next_if_eq(&"AND").is_some() {
        every &= single(tokens);
    }
    every
}

fn single(tokens: &mut Tokens<'_>) -> bool {
    if tokens.next_if_eq(&"(").is_some() {
        let inside = any(tokens);
        return tokens.next_if_eq(&")").is_some() && inside;
    }
    let known = tokens.next().is_some_and(|name| ALLOWED.contains(&name));
    // An exception only ever gives more.
    if tokens.next_if_eq(&"WITH").is_some() && tokens.next().is_none() {
        return false;
    }
    known
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_published_package_without_the_texts_is_found() {
        let texts = |folder: &str, mit| {
            [("LICENSE-APACHE", "apache"), ("LICENSE-MIT", mit)]
                .map(|(name, text)| File::new(&format!("{folder}{name}"), text))
        };
        let found = |manifest, copies: [File; 2]| {
            let manifest = File::new("crates/x/Cargo.toml", manifest);
            let files: Vec<_> =
                texts("", "mit").into_iter().chain(copies).chain([manifest]).collect();
            super::copies(&files).len()
        };
        assert_eq!(found("[package]", texts("crates/x/", "mit")), 0);
        assert_eq!(found("[package]", texts("crates/x/", "another")), 1);
        assert_eq!(found("[package]", texts("crates/y/", "mit")), 2);
        assert_eq!(found("[package]\npublish = false", texts("crates/y/", "mit")), 0);
    }

    #[test]
    fn one_allowed_choice_is_enough() {
        for licence in [
            "MIT",
            "MIT OR GPL-3.0-only",
            "GPL-2.0-only OR (MIT AND Zlib)",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "MIT/Apache-2.0",
        ] {
            assert!(allowed(licence), "{licence}");
        }
    }

    #[test]
    fn what_asks_for_more_is_found() {
        for licence in [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR Apache-2.0) AND MPL-2.0",
            "(MIT",
            "MIT Apache-2.0",
            "MIT WITH",
            "",
        ] {
            assert!(!allowed(licence), "{licence}");
        }
        let packages = json!({ "packages": [
            { "name": "a", "version": "1.0.0", "license": "MIT" },
            { "name": "b", "version": "1.0.0", "license": "AGPL-3.0-only" },
            { "name": "c", "version": "1.0.0", "license": null },
        ] });
        let found = check(&packages).expect("cargo's format");
        let messages: Vec<_> = found.iter().map(|finding| &*finding.message).collect();
        assert_eq!(messages.len(), 2);
        assert!(messages[0].starts_with("b 1.0.0: AGPL") && messages[1].starts_with("c 1.0.0"));
        assert!(check(&json!({})).is_err());
    }
}
