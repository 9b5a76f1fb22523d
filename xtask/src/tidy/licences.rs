//! That every package which we build with may be used under a licence that asks for no more than
//! ours do: to be named.

use serde_json::Value;

use super::Finding;
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

/// The finding's file: what names the packages.
const LOCK: &str = "Cargo.lock";

pub(super) fn check(metadata: &Value) -> Result<Vec<Finding>, Error> {
    let packages = metadata["packages"].as_array().ok_or(Error::Metadata { what: "packages" })?;
    let mut found = Vec::new();
    for package in packages {
        let [name, version] = ["name", "version"].map(|key| package[key].as_str().unwrap_or("?"));
        let message = match package["license"].as_str() {
            Some(licence) if allowed(licence) => continue,
            Some(licence) => format!("{name} {version}: {licence} is not on the list of ALLOWED"),
            None => format!("{name} {version} names no licence"),
        };
        found.push(Finding::new(LOCK, 1, message));
    }
    Ok(found)
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
