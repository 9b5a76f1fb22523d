//! Algorithms take atomics, locks, clocks and threads from their world, never from std.

use super::lexer::paths;
use super::{File, Finding};

/// All that lies here is for every world.
const FOLDERS: &[&str] = &["crates/coreline/src/", "crates/world/src/"];

/// Worlds, which are made of what algorithms must not touch.
const WORLDS: &[&str] = &[
    "crates/world/src/arch/",
    "crates/world/src/model/",
    "crates/world/src/native/",
    "crates/sim/src/",
];

/// What the seam itself takes, to give it to algorithms, to keep what it gives, or to compare.
const TAKEN: &[(&str, &[&str])] = &[
    ("crates/world/src/conformance/words.rs", &["core", "sync", "atomic"]),
    ("crates/world/src/lib.rs", &["core", "sync", "atomic", "Ordering"]),
    ("crates/world/src/statics.rs", &["core", "sync", "atomic", "AtomicPtr"]),
    ("crates/world/src/why.rs", &["std", "io"]),
];

/// What the type parameter of an algorithm is bounded by. A program, which may be about the real
/// machine as well, is bounded by `Testbed`.
const BOUNDS: &[&str] = &["World", "ConstWorld", "Words", "Restartable"];

/// Whether the file holds algorithms: it lies where they do, or something in it is generic over a
/// world, wherever it lies.
pub(super) fn holds_algorithms(file: &File) -> bool {
    let starts = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    let Some(rust) = &file.rust else {
        return false;
    };
    let is_source = file.path.starts_with("crates/") && file.path.contains("/src/");
    if !is_source || starts(WORLDS) {
        return false;
    }
    let tokens = rust.tokens();
    // A parameter begins with a capital, a field of such a type with none.
    let is_bound = |three: &[(usize, &str)]| {
        three[0].1.starts_with(char::is_uppercase)
            && three[1].1 == ":"
            && BOUNDS.contains(&three[2].1)
    };
    starts(FOLDERS) || tokens.windows(3).any(is_bound)
}

pub(super) fn check(file: &File) -> Vec<Finding> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    if !holds_algorithms(file) {
        return Vec::new();
    }
    let tokens = rust.tokens();
    let mut found = Vec::new();
    for (line, path) in paths(&tokens, &["std", "core", "alloc"]) {
        let taken = TAKEN.iter().any(|(at, prefix)| file.path == *at && path.starts_with(prefix));
        if !taken && !allowed(&path[1..]) {
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
    fn an_algorithm_is_found_wherever_it_lies() {
        let planted = "use std::thread;\nstruct Slots<T, W: World>(T, W);";
        for path in [
            "crates/coreline/src/percpu/slots.rs",
            "crates/world/src/restartable/slots.rs",
            "crates/scenarios/src/tenants/queue.rs",
            "crates/rivals/src/class/queue.rs",
        ] {
            assert_eq!(lines_found(check, path, planted), [1], "{path}");
        }
        let seam = "use std::thread;\npub trait Clock {}";
        assert_eq!(lines_found(check, "crates/world/src/clock.rs", seam), [1]);
        let field = "use std::thread;\nstruct Options { world: World }";
        assert_eq!(lines_found(check, "crates/lab/src/run/mod.rs", field), [0; 0]);
        let program = planted.replace("W: World", "W: Testbed");
        assert_eq!(lines_found(check, "crates/scenarios/src/storm.rs", &program), [0; 0]);
        assert_eq!(lines_found(check, "crates/world/src/native/words.rs", planted), [0; 0]);
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
