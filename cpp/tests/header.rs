//! Compiles C++ programs with the compilers of this machine, and runs them.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

#[path = "../compilers.rs"]
mod compilers;

/// What every program must compile with.
const WARNINGS: [&str; 8] = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
    "-fno-exceptions",
    "-fno-rtti",
];

/// Has the C library register no thread.
const UNREGISTERED: [(&str, &str); 1] = [("GLIBC_TUNABLES", "glibc.pthread.rseq=0")];
const SWITCHED_OFF: [(&str, &str); 1] = [("CORELINE_RSEQ", "off")];

/// Says so on standard error, past what captures the output of tests.
fn skip(why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED, tests of the C++ header: {why}");
}

/// Calls `f` with each compiler, and a folder of its own.
fn with_each_compiler(test: &str, f: impl Fn(&str, &Path)) {
    let compilers = compilers::all();
    if compilers.is_empty() {
        skip("there is no C++ compiler; install g++ or set CXX");
    }
    for (number, compiler) in compilers.iter().enumerate() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{number}"));
        fs::create_dir_all(&folder).unwrap();
        f(compiler, &folder);
    }
}

/// Compiles, links and returns a program. Flags that come last win.
fn build(compiler: &str, folder: &Path, name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let mut compile = Command::new(compiler);
    compile.current_dir(env!("CARGO_MANIFEST_DIR"));
    compile.args(["-std=c++17", "-O2", "-pthread", "-Iinclude"]).args(WARNINGS).args(flags);
    let output = compile.args(sources).arg("-ldl").arg("-o").arg(&program).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{compile:?}: {errors}");
    program
}

/// Runs a program that says `ok` last, and returns what it says.
fn passes(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.env_remove("CORELINE_RSEQ").env_remove("GLIBC_TUNABLES");
    let output = command.args(arguments).envs(settings.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_ok = output.status.success() && text.ends_with("ok\n");
    assert!(is_ok, "{command:?}: {}\n{text}{errors}", output.status);
    text
}

#[test]
fn totals_are_exact() {
    with_each_compiler("totals", |compiler, folder| {
        for flags in [
            &["-O2"][..],
            &["-O0"],
            &["-O2", "-DCORELINE_COUNTER_ATOMICS"],
            &["-O2", "-U__linux__"],
        ] {
            let program = build(compiler, folder, "totals", &["tests/programs/totals.cpp"], flags);
            passes(&program, &[], &[]);
            passes(&program, &["one CPU"], &[]);
            passes(&program, &[], &UNREGISTERED);
            passes(&program, &[], &SWITCHED_OFF);
        }
    });
}

#[test]
fn a_section_that_is_aborted_at_any_instruction_starts_over() {
    with_each_compiler("injected", |compiler, folder| {
        for optimisation in ["-O1", "-O2", "-O3"] {
            let flags: &[&str] = match cfg!(target_arch = "x86_64") {
                true => &[optimisation, "-mno-red-zone"],
                false => &[optimisation],
            };
            let source = "tests/programs/injected.cpp";
            let program = build(compiler, folder, "injected", &[source], flags);
            passes(&program, &[], &SWITCHED_OFF);
            let text = passes(&program, &[], &[]);
            passes(&program, &[], &UNREGISTERED);
            // README.md has the numbers: 14 and 15.
            let count = |name: &str| -> usize {
                let line = text.lines().find(|line| line.starts_with(name)).unwrap();
                line.split(' ').rev().nth(1).unwrap().parse().unwrap()
            };
            if cfg!(target_arch = "x86_64") && optimisation == "-O2" {
                let found = [count("increment: "), count("add to a set: ")];
                assert!(found[0] <= 16 && found[1] <= 17, "{compiler}: {found:?} instructions");
            }
        }
    });
}

#[test]
fn copies_of_the_header_share_counters_and_go() {
    with_each_compiler("objects", |compiler, folder| {
        let object = |name, visibility| {
            let flags = ["-fPIC", "-shared", visibility];
            build(compiler, folder, name, &["tests/programs/object.cpp"], &flags)
        };
        let objects = [
            object("a.so", "-fvisibility=hidden"),
            object("b.so", "-fvisibility=default"),
            object("c.so", "-DCORELINE_COUNTER_ATOMICS"),
        ];
        let program = build(compiler, folder, "objects", &["tests/programs/objects.cpp"], &[]);
        let [a, b, c] = objects.each_ref().map(|path| path.to_str().unwrap());
        for pair in [[a, b], [b, a], [a, c], [c, b]] {
            for settings in [&[][..], &UNREGISTERED, &SWITCHED_OFF] {
                passes(&program, &pair, settings);
            }
        }
    });
}

#[test]
fn threads_without_a_registration_count() {
    with_each_compiler("refused", |compiler, folder| {
        let program = build(compiler, folder, "refused", &["tests/programs/refused.cpp"], &[]);
        for what in ["all", "pretend", "some"] {
            passes(&program, &[what], &UNREGISTERED);
        }
    });
}

#[test]
fn a_counter_that_is_destroyed_during_an_addition_stays_so() {
    with_each_compiler("destroyed", |compiler, folder| {
        let flags: &[&str] = if cfg!(target_arch = "x86_64") { &["-mno-red-zone"] } else { &[] };
        let source = "tests/programs/destroyed.cpp";
        passes(&build(compiler, folder, "destroyed", &[source], flags), &[], &[]);
    });
}

#[test]
fn a_fiber_does_not_write_to_its_former_thread() {
    with_each_compiler("fibers", |compiler, folder| {
        for optimisation in ["-O1", "-O2"] {
            let source = "tests/programs/fibers.cpp";
            let program = build(compiler, folder, "fibers", &[source], &[optimisation]);
            passes(&program, &[], &[]);
        }
    });
}

#[test]
fn spare_slots_are_taken_without_a_walk() {
    with_each_compiler("spare", |compiler, folder| {
        passes(&build(compiler, folder, "spare", &["tests/programs/spare.cpp"], &[]), &[], &[]);
    });
}

#[test]
fn a_counter_without_memory_counts() {
    with_each_compiler("memory", |compiler, folder| {
        let program = build(compiler, folder, "memory", &["tests/programs/memory.cpp"], &[]);
        passes(&program, &[], &[]);
        passes(&program, &[], &SWITCHED_OFF);
    });
}

/// Two files with the same inline functions, in each dialect and by each kind of linking.
#[test]
fn every_dialect_compiles_and_links() {
    with_each_compiler("dialects", |compiler, folder| {
        for flags in [
            &["-std=c++17", "-O0"][..],
            &["-std=c++17", "-O1", "-static"],
            &["-std=c++20", "-O2", "-fno-pie", "-no-pie"],
            &["-std=c++2b", "-O3", "-flto"],
            &["-std=gnu++17", "-Os", "-fPIC", "-ffunction-sections", "-Wl,--gc-sections"],
            &["-std=c++17", "-O2", "-fno-inline", "-fvisibility=hidden", "-g"],
            &[
                "-std=c++17",
                "-O2",
                "-Wold-style-cast",
                "-Wcast-align",
                "-Wsign-conversion",
                "-Wundef",
            ],
        ] {
            let sources = ["tests/programs/dialect.cpp", "tests/programs/dialect_too.cpp"];
            let program = build(compiler, folder, "dialect", &sources, flags);
            passes(&program, &[], &[]);
        }
        if cfg!(target_arch = "x86_64") {
            let sources = ["tests/programs/mixed_too.cpp"];
            build(compiler, folder, "intel.so", &sources, &["-masm=intel", "-shared", "-fPIC"]);
        }
    });
}

#[test]
fn files_with_and_without_sections_link() {
    with_each_compiler("mixed", |compiler, folder| {
        let mut sources = ["tests/programs/mixed.cpp", "tests/programs/mixed_too.cpp"];
        for order in ["one", "other"] {
            let program = build(compiler, folder, order, &sources, &[]);
            passes(&program, &[], &[]);
            sources.reverse();
        }
    });
}

/// With pointers of 32 bits there are no sections. Few machines can link such a program, so this
/// one is compiled against the headers for 64 bits.
#[test]
fn pointers_of_32_bits_compile() {
    with_each_compiler("narrow", |compiler, folder| {
        let plain = folder.join("plain.cpp");
        let text = "#include <array>\n#include <atomic>\n#include <pthread.h>\n\
                    static_assert(std::atomic<long long>::is_always_lock_free);\n";
        fs::write(&plain, text).unwrap();
        // Two of the C library's headers that are not installed for 64 bits alone.
        fs::create_dir_all(folder.join("gnu")).unwrap();
        fs::write(folder.join("gnu/stubs-32.h"), "").unwrap();
        fs::write(folder.join("gnu/stubs-x32.h"), "").unwrap();
        let listing = Command::new(compiler).args(["-std=c++17", "-M"]).arg(&plain).output();
        let headers = String::from_utf8(listing.unwrap().stdout).unwrap();
        let folder_of = |header: &str| {
            headers.split_whitespace().find_map(|path| path.strip_suffix(header)).unwrap_or(".")
        };
        let check = |flag: &str, source: &Path| {
            let mut compile = Command::new(compiler);
            compile.current_dir(env!("CARGO_MANIFEST_DIR")).args(WARNINGS);
            compile.args(["-std=c++17", "-fsyntax-only", "-Iinclude", flag, "-I"]).arg(folder);
            compile.args(["-isystem", folder_of("/array"), "-isystem"]);
            compile.args([folder_of("/bits/c++config.h"), "-idirafter"]);
            let output = compile.arg(folder_of("/bits/types.h")).arg(source).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success() && errors.is_empty()).then_some(()).ok_or(errors)
        };
        for flag in ["-m32", "-mx32"] {
            match check(flag, &plain) {
                Ok(()) => check(flag, Path::new("tests/programs/object.cpp")).unwrap(),
                Err(_) => skip(&format!("{compiler} has no lock-free 64-bit words with {flag}")),
            }
        }
    });
}

/// Whether programs can be built and run with this sanitizer.
fn has_sanitizer(compiler: &str, folder: &Path, flag: &str) -> bool {
    let (source, program) = (folder.join("empty.cpp"), folder.join("empty"));
    fs::write(&source, "int main() {}\n").unwrap();
    let mut compile = Command::new(compiler);
    compile.arg(flag).arg(&source).arg("-o").arg(&program);
    let works = |command: &mut Command| command.output().is_ok_and(|it| it.status.success());
    works(&mut compile) && works(&mut Command::new(&program))
}

#[test]
fn sanitizers_find_nothing() {
    with_each_compiler("sanitizers", |compiler, folder| {
        for sanitizer in ["address", "undefined", "thread"] {
            let flag = format!("-fsanitize={sanitizer}");
            if !has_sanitizer(compiler, folder, &flag) {
                skip(&format!("{compiler} has no working {flag}"));
                continue;
            }
            let flags = ["-O1", "-g", &flag, "-fno-sanitize-recover=all"];
            for name in ["totals", "memory"] {
                // Sanitizers reserve more address space than a limit leaves.
                if name == "memory" && sanitizer != "undefined" {
                    continue;
                }
                let source = format!("tests/programs/{name}.cpp");
                passes(&build(compiler, folder, name, &[&source], &flags), &[], &[]);
            }
            let server = build(compiler, folder, "server", &["examples/server.cpp"], &flags);
            serves(&server);
        }
    });
}

/// Runs the example.
fn serves(server: &Path) {
    let output = Command::new(server).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {text}{errors}", output.status);
    for line in
        ["server_requests_total 401", "server_not_found_total 40", "server_open_connections 1"]
    {
        assert!(text.contains(line), "no {line}: {text}");
    }
}

#[test]
fn the_example_and_the_benchmark_compile() {
    with_each_compiler("example", |compiler, folder| {
        serves(&build(compiler, folder, "server", &["examples/server.cpp"], &[]));
        build(compiler, folder, "bench", &["bench.cpp"], &[]);
    });
}
