//! The inline functions of the header, in the programs of `tests/inline`: their sections under an
//! abort at each instruction, and in every kind of program. `tests/c/inline.c` has their results
//! and codes, and runs with the programs of `tests/c.rs`.
#![allow(clippy::print_stderr, reason = "a test says what it does not test")]

mod tools;

use std::env::consts;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tools::{STATIC, has, install, output, package, prefix, run, work};

const C11: &[&str] = &["-x", "c", "-std=c11"];
const CPP17: &[&str] = &["-x", "c++", "-std=c++17"];
const COMPILERS: [&str; 2] = ["gcc", "clang"];

/// Has the C library register no thread.
const UNREGISTERED: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
const SWITCHED_OFF: (&str, &str) = ("CORELINE_RSEQ", "off");

/// A file of the tests.
fn source(name: &str) -> PathBuf {
    package().join("tests/inline").join(name)
}

/// Compiles files of the tests into a program or a library of this name. Flags that come last win.
fn build(
    compiler: &str,
    language: &[&str],
    name: &str,
    sources: &[&str],
    flags: &[&str],
) -> PathBuf {
    build_against(&prefix(), compiler, language, name, sources, flags)
}

fn build_against(
    prefix: &Path,
    compiler: &str,
    language: &[&str],
    name: &str,
    sources: &[&str],
    flags: &[&str],
) -> PathBuf {
    let program = work().join(format!("{name}-{compiler}"));
    let lib = prefix.join("lib");
    let mut compile = Command::new(compiler);
    compile.args(["-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]);
    compile.args(language).args(flags).args(sources.iter().map(|name| source(name)));
    compile.args(["-x", "none", "-o"]).arg(&program).arg("-I").arg(prefix.join("include"));
    if flags.contains(&"-static") {
        // What the linker says of functions of the C library that need it at run time.
        compile.arg(lib.join("libcoreline.a")).args(STATIC);
    } else {
        compile.arg("-L").arg(&lib).args(["-lcoreline", "-ldl"]);
        compile.arg(format!("-Wl,-rpath,{}", lib.display()));
    }
    run(&mut compile);
    program
}

/// Runs a program that says `ok` last, and returns what it says.
fn passes(program: &Path, arguments: &[&Path], settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.env_remove("CORELINE_RSEQ").env_remove("GLIBC_TUNABLES");
    let text = run(command.args(arguments).envs(settings.iter().copied()));
    assert!(text.ends_with("ok\n"), "{}: {text}", program.display());
    text
}

fn compilers() -> impl Iterator<Item = &'static str> {
    COMPILERS.into_iter().filter(|compiler| has(compiler))
}

#[test]
fn an_addition_that_is_aborted_at_any_instruction_starts_over() {
    for compiler in compilers() {
        for (number, optimisation) in ["-O1", "-O2", "-O3"].into_iter().enumerate() {
            // The test pushes flags onto the stack.
            let mut flags = vec![optimisation];
            flags.extend((consts::ARCH == "x86_64").then_some("-mno-red-zone"));
            let name = format!("injected{number}");
            let program = build(compiler, C11, &name, &["injected.c"], &flags);
            let text = passes(&program, &[], &[]);
            passes(&program, &[], &[UNREGISTERED]);
            passes(&program, &[Path::new("atomics")], &[SWITCHED_OFF]);
            if text.contains("no sections") || optimisation != "-O2" {
                continue;
            }
            // With GCC, the first one is 2 more than in README.md: the test's function loads the
            // handle, and returns.
            for (name, most) in [("counter", 20), ("set", 26), ("word", 26)] {
                let begin = format!("{name}: ");
                let line = text.lines().find_map(|line| {
                    line.strip_prefix(&begin)?.strip_suffix(" instructions")?.parse().ok()
                });
                let found: usize = line.expect("a line with the number");
                assert!(found <= most, "{compiler}, {name}: {found} instructions");
            }
        }
    }
}

#[test]
fn files_that_are_compiled_in_different_ways_add_to_the_same_words() {
    let ways: [(&[&str], &[&str]); 8] = [
        (C11, &["-O0"]),
        (C11, &["-O1", "-fno-inline", "-g"]),
        (C11, &["-O3", "-flto"]),
        (C11, &["-Os", "-fPIC", "-ffunction-sections", "-Wl,--gc-sections"]),
        (C11, &["-fno-pie", "-no-pie"]),
        (C11, &["-static", "-fkeep-inline-functions"]),
        (CPP17, &["-O2"]),
        (CPP17, &["-O0", "-Wshadow", "-Wundef", "-Wcast-align", "-Wconversion"]),
    ];
    for compiler in compilers() {
        for (number, (language, flags)) in ways.into_iter().enumerate() {
            if compiler == "clang" && flags.contains(&"-fkeep-inline-functions") {
                continue;
            }
            let name = format!("two{number}");
            let program = build(compiler, language, &name, &["one.c", "other.c"], flags);
            passes(&program, &[], &[]);
        }
    }
}

#[test]
fn files_with_and_without_inline_functions_link() {
    for compiler in compilers() {
        let object = work().join(format!("other-{compiler}.o"));
        let mut compile = Command::new(compiler);
        compile.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-c"]);
        compile.args(["-DCORELINE_NO_INLINE", "-I"]).arg(prefix().join("include"));
        run(compile.arg(source("other.c")).arg("-o").arg(&object));
        let object = object.to_str().expect("a path in UTF-8");
        // Absolute, so it is no file of the tests.
        let program = build(compiler, &[], "mixed", &["one.c", object], &["-std=c11"]);
        passes(&program, &[], &[]);
    }
}

#[test]
fn a_plugin_with_inline_functions_is_unloaded() {
    for compiler in compilers() {
        let plugin = build(compiler, C11, "plugin.so", &["plugin.c"], &["-fPIC", "-shared"]);
        let program = build(compiler, C11, "loads", &["loads.c"], &[]);
        for settings in [&[][..], &[UNREGISTERED], &[SWITCHED_OFF]] {
            passes(&program, &[&plugin], settings);
        }
    }
}

/// A header whose numbers do not fit: the check says so, and without the check each addition is a
/// call, because no handle has the mark.
#[test]
fn a_header_with_other_marks_calls_the_library() {
    let other = work().join("other-marks");
    install(&tools::built(), &other);
    let header = other.join("include/coreline/sections.h");
    let text = fs::read_to_string(&header).expect("installed");
    let marks = ["0x2e726574u", "0x73726574u", "0x34367570u"];
    assert!(marks.iter().all(|mark| text.contains(mark)), "the marks are others");
    let changed = marks.iter().fold(text, |text, mark| text.replace(mark, "0x12345678u"));
    // Where nothing is, so that an addition that goes there ends the program.
    let changed = changed.replace("#define CORELINE_AREA 16", "#define CORELINE_AREA 0");
    fs::write(&header, changed).expect("a file");
    let program = build_against(&other, "gcc", C11, "marks", &["one.c", "other.c"], &[]);
    let found = output(&mut Command::new(&program));
    let message = String::from_utf8_lossy(&found.stderr);
    assert!(!found.status.success() && message.contains("coreline_check()"), "{message}");
    // The same program without the check.
    let flags = ["-Dcoreline_check()=CORELINE_OK"];
    let unchecked = other.join("include/coreline/inline.h");
    let text = fs::read_to_string(&unchecked).expect("installed");
    fs::write(
        &unchecked,
        text.replace("coreline_code_t coreline_check(void)", "coreline_code_t c(void)"),
    )
    .expect("a file");
    let program = build_against(&other, "gcc", C11, "unchecked", &["one.c", "other.c"], &flags);
    passes(&program, &[], &[]);
}

#[test]
fn the_benchmark_compiles() {
    for compiler in compilers() {
        build(compiler, &["-std=gnu11"], "cost", &["../../examples/cost.c"], &[]);
    }
}
