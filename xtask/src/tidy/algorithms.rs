//! Algorithms take atomics, locks, clocks and threads from their world, never from std.

use super::lexer::paths;
use super::{File, Finding};

const FOLDER: &str = "crates/coreline/src/";

pub(super) fn check(file: &File) -> Vec<Finding> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    if !file.path.starts_with(FOLDER) {
        return Vec::new();
    }
    let tokens = rust.tokens();
    let mut found = Vec::new();
    for (line, path) in paths(&tokens, &["std", "core", "alloc"]) {
        if !allowed(&path[1..]) {
            let message = format!("`{}` is the world's to give", path.join("::"));
            found.push(Finding::new(&file.path, line, message));
        }
    }
    for (at, &(line, token)) in tokens.iter().enumerate() {
        if token == "thread_local" && tokens.get(at + 1).is_some_and(|next| next.1 == "!") {
            found.push(Finding::new(&file.path, line, "`thread_local!`: use WorldLocal"));
        }
    }
    found
}

/// Whether algorithms may use this path below std, core or alloc.
fn allowed(path: &[&str]) -> bool {
    match path {
        // Sharing and durations are values; the rest of these modules acts on the real machine.
        ["sync", "Arc" | "Weak", ..] | ["time", "Duration", ..] => true,
        ["sync" | "time" | "thread" | "process" | "env" | "fs" | "io" | "net", ..] => false,
        ["hint", "spin_loop", ..] => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn what_acts_on_the_real_machine_is_found() {
        for planted in [
            "use std::sync::atomic::AtomicU32;",
            "use core::sync::{Arc, atomic::Ordering};",
            "use std::{sync::Mutex, fmt};",
            "use std::sync;",
            "fn f() { std::thread::yield_now() }",
            "fn f() { ::core::hint::spin_loop() }",
            "use std::time::{Duration, Instant};",
            "std::thread_local! { static A: u8 = 0; }",
        ] {
            let found = lines_found(check, "crates/coreline/src/lock/osq.rs", planted);
            assert_eq!(found, [1], "{planted}");
        }
    }

    #[test]
    fn values_and_other_folders_pass() {
        let values = "use std::sync::{Arc, Weak};\nuse core::{fmt, mem, time::Duration};\n\
                      //! std::sync::Mutex\nuse coreline_world::Ordering;";
        assert_eq!(lines_found(check, "crates/coreline/src/lib.rs", values), [0; 0]);
        let threads = "use std::thread;";
        assert_eq!(lines_found(check, "crates/coreline/tests/laws.rs", threads), [0; 0]);
        assert_eq!(lines_found(check, "crates/sim/src/lib.rs", threads), [0; 0]);
    }
}
