//! The first lines of commits: at most 72 characters, and in the imperative.
//!
//! Only commits that have not landed yet are looked at: those behind the main branch. What has
//! landed stays as it is.

use std::process::Stdio;

use super::Finding;
use crate::workspace;

/// How many characters a subject has at most.
const MOST: usize = 72;

/// Where landed commits are, the first that is known.
const LANDED: &[&str] = &["origin/main", "origin/HEAD", "main"];

/// Imperatives that look like other forms of a verb.
const IMPERATIVES: &[&str] = &[
    "Alias", "Bias", "Bring", "Embed", "Exceed", "Feed", "Focus", "Need", "Proceed", "Seed",
    "Shed", "Shred", "Speed", "Spring", "String",
];

/// A commit: its short name, and its subject.
pub(super) struct Commit {
    name: String,
    subject: String,
}

/// The commits that have not landed. `None`: which have landed is not known, as in a shallow clone
/// or without git.
pub(super) fn pending() -> Option<Vec<Commit>> {
    let git = |args: &[&str]| {
        let trust = format!("safe.directory={}", workspace::root().display());
        let mut git = workspace::command("git", &["-c", &trust]);
        // What git has to say of a branch that is not there is no news.
        let output = git.args(args).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let base = LANDED.iter().find_map(|landed| git(&["merge-base", "HEAD", landed]))?;
    let range = format!("{}..HEAD", base.trim());
    let lines = git(&["log", "--no-merges", "--format=%h %s", &range])?;
    let commit = |line: &str| {
        let (name, subject) = line.split_once(' ').unwrap_or((line, ""));
        Commit { name: name.to_owned(), subject: subject.to_owned() }
    };
    Some(lines.lines().map(commit).collect())
}

pub(super) fn check(commits: &[Commit]) -> Vec<Finding> {
    let mut found = Vec::new();
    for Commit { name, subject } in commits {
        // git quotes the whole subject of what it takes back.
        if subject.starts_with("Revert \"") {
            continue;
        }
        let mut complain =
            |what: String| found.push(Finding::new(&format!("commit {name}"), 1, what));
        let length = subject.chars().count();
        if length > MOST {
            complain(format!("its first line has {length} characters; {MOST} are the most"));
        }
        if subject.ends_with('.') {
            complain("its first line ends with a full stop".to_owned());
        }
        let first = subject.split([' ', ',']).next().unwrap_or_default();
        if !is_imperative(first) {
            complain(format!(
                "its first line begins with {first:?}, and not with `Add` or the like"
            ));
        }
    }
    found
}

/// Whether a word may be an imperative that begins a sentence: `Add`, and not `add`, `Added`,
/// `Adding`, `Adds` or `Locks:`.
fn is_imperative(word: &str) -> bool {
    let begins = word.starts_with(|c: char| c.is_uppercase());
    let is_word = word.chars().all(|c| c.is_alphanumeric() || c == '-');
    let third_person = word.ends_with('s') && !word.ends_with("ss");
    let other = third_person || word.ends_with("ed") || word.ends_with("ing");
    begins && is_word && (!other || IMPERATIVES.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(subject: &str) -> usize {
        check(&[Commit { name: "1234567".to_owned(), subject: subject.to_owned() }]).len()
    }

    #[test]
    fn subjects_in_other_forms_are_found() {
        for subject in [
            "add a lock",
            "Added a lock",
            "Adds a lock",
            "Adding a lock",
            "Locks: a queue",
            "Add a lock.",
            "",
            &format!("Add {}", "x".repeat(69)),
        ] {
            assert_eq!(found(subject), 1, "{subject:?}");
        }
        assert_eq!(found(&format!("locks: {}.", "x".repeat(70))), 3);
    }

    #[test]
    fn imperatives_pass() {
        for subject in [
            "Add a lock",
            "Pass the turn on",
            "Embed the code of charts",
            "Re-read the word",
            "Push, pop and resize a stack",
            &format!("Add {}", "ü".repeat(68)),
            &format!("Revert \"{}.\"", "x".repeat(72)),
        ] {
            assert_eq!(found(subject), 0, "{subject:?}");
        }
    }
}
