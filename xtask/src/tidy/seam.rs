//! The seam: which files may name an operating system or a processor.

use super::lexer::paths;
use super::{File, Finding};

/// These folders and files may.
const FREE: &[&str] = &[
    "crates/world/src/native/",
    "crates/world/src/arch/",
    "crates/world/tests/",
    // Signals and forks, which other worlds do not have.
    "crates/coreline/tests/native",
    // Sets the compiled fast paths beside hand-written assembly.
    "crates/fastpaths/",
    // Forks a child, which has the socket of an endpoint.
    "crates/metrics/tests/endpoint.rs",
    // Stands in for functions of the C library.
    "crates/preload/",
    // Times what the C library offers, and its own threads.
    "crates/rivals/src/native.rs",
    // Tests a header for Linux, which shares nothing but rseq areas with the crates.
    "cpp/",
    "xtask/",
];

/// Selects the folders above with `cfg(target_os)`, and may hold nothing else of this kind.
const SELECTOR: &str = "crates/world/src/lib.rs";

/// Names of operating systems and their libraries, and the `cfg` keys that tell machines apart.
const WORDS: &[&str] = &[
    "libc",
    "linux",
    "macos",
    "rustix",
    "target_arch",
    "target_family",
    "target_os",
    "unix",
    "windows",
];

/// Macros that hold assembly.
const ASSEMBLY: &[&str] = &["asm", "global_asm", "naked_asm"];

pub(super) fn check(file: &File) -> Vec<Finding> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    if FREE.iter().any(|free| file.path.starts_with(free)) {
        return Vec::new();
    }
    let tokens = rust.tokens();
    let mut found = Vec::new();
    for (at, &(line, token)) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).map(|token| token.1);
        let before = at.checked_sub(1).map(|at| tokens[at].1);
        let assembly = ASSEMBLY.contains(&token) && next == Some("!");
        // `slice.windows(2)` is a method.
        let named = WORDS.contains(&token) && before != Some(".");
        if (assembly || named) && !(file.path == SELECTOR && token == "target_os") {
            let message = format!("`{token}` belongs to world/src/native or world/src/arch");
            found.push(Finding::new(&file.path, line, message));
        }
    }
    for (line, path) in paths(&tokens, &["std", "core"]) {
        if let Some(module @ ("os" | "arch")) = path.get(1).copied() {
            let message = format!("`{}::{module}` belongs to world/src/native", path[0]);
            found.push(Finding::new(&file.path, line, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    const PLANTED: &[&str] = &[
        "fn f() { unsafe { core::hint::black_box(asm!(\"nop\")) } }",
        "global_asm!(\"nop\");",
        "use std::os::fd::AsRawFd;",
        "use std::{fmt, os::fd::AsRawFd};",
        "use core::arch::x86_64::_mm_pause;",
        "#[cfg(target_os = \"linux\")] fn f() {}",
        "#[cfg(unix)] fn f() {}",
        "fn f() { if cfg!(target_arch = \"aarch64\") {} }",
        "fn f() -> i32 { unsafe { libc::getpid() } }",
    ];

    #[test]
    fn naming_a_machine_is_found() {
        for planted in PLANTED {
            let found = lines_found(check, "crates/sim/src/lib.rs", &format!("\n{planted}"));
            assert_eq!(found, [2], "{planted}");
        }
    }

    #[test]
    fn the_native_world_may_name_it() {
        let text = PLANTED.join("\n");
        for path in ["crates/world/src/native/mod.rs", "crates/world/src/arch/x86_64.rs"] {
            assert_eq!(lines_found(check, path, &text), [0; 0], "{path}");
        }
        assert_ne!(lines_found(check, "crates/world/src/word.rs", &text), [0; 0]);
    }

    #[test]
    fn the_selector_may_only_select() {
        let text = "#[cfg(target_os = \"linux\")]\nmod native;\n#[cfg(target_arch = \"x86\")]";
        assert_eq!(lines_found(check, SELECTOR, text), [3]);
    }

    #[test]
    fn comments_strings_and_methods_do_not_count() {
        let text = "//! linux, asm!\nfn f() { s.windows(2); \"libc\"; r#\"unix\"#; } /* libc */";
        assert_eq!(lines_found(check, "crates/lab/src/main.rs", text), [0; 0]);
        assert_eq!(lines_found(check, "README.md", "asm!(libc)"), [0; 0]);
    }
}
