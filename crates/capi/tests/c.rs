//! The C programs of this package, tests and examples, as a user compiles them: with what
//! `install.sh` installs, by each compiler that is here, as C11 and as C++17, linked to the shared
//! and to the static library.
//!
//! A test whose tool is missing says so, and checks nothing. GCC is always needed.

#![allow(clippy::print_stderr, reason = "a test says what it does not test")]

mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tools::{STATIC, built, has, install, output, package, prefix, run, work};

/// The C programs of a folder of this package.
fn programs(folder: &str) -> Vec<PathBuf> {
    let folder = package().join(folder);
    let files = fs::read_dir(&folder).expect("a folder of this package");
    let paths = files.map(|file| file.expect("a file").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension() == Some("c".as_ref())).collect();
    paths.sort();
    assert!(paths.len() >= 8, "{paths:?}");
    paths
}

/// How a program is compiled.
#[derive(Clone, Copy)]
struct How {
    compiler: &'static str,
    language: &'static [&'static str],
    is_static: bool,
    more: &'static [&'static str],
}

const C11: &[&str] = &["-x", "c", "-std=c11"];
const CPP17: &[&str] = &["-x", "c++", "-std=c++17"];
const SANITIZERS: &[&str] =
    &["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];

impl How {
    /// Compiles a program; returns its path.
    fn compile(self, source: &Path) -> PathBuf {
        let name = source.file_stem().expect("a name").to_string_lossy();
        let kind = if self.is_static { "static" } else { "shared" };
        let language = self.language[1].replace('+', "p");
        let more = if self.more.is_empty() { "plain" } else { "sanitized" };
        let program = work().join(format!("{name}-{}-{language}-{kind}-{more}", self.compiler));
        let lib = prefix().join("lib");
        let mut compiler = Command::new(self.compiler);
        compiler.args(["-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
        compiler.args(self.language).args(self.more).arg("-pthread");
        compiler.arg(source).args(["-x", "none", "-o"]).arg(&program);
        compiler.arg("-I").arg(prefix().join("include"));
        if self.is_static {
            compiler.arg(lib.join("libcoreline.a")).args(STATIC);
        } else {
            compiler.arg("-L").arg(&lib).args(["-Wl,--as-needed", "-lcoreline"]);
            compiler.arg("-ldl");
            compiler.arg(format!("-Wl,-rpath,{}", lib.display()));
        }
        run(&mut compiler);
        program
    }

    /// Compiles and runs a program.
    fn run(self, source: &Path) {
        let mut program = Command::new(self.compile(source));
        // For the program that loads it.
        program.arg(prefix().join("lib/libcoreline.so"));
        run(&mut program);
    }
}

/// Whether a compiler is here that compiles this. Says so if it is not.
fn can(how: How) -> bool {
    if !has(how.compiler) {
        return false;
    }
    // A part of the compiler that is installed apart may be missing. Tests run at the same time.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: each number is taken once.
    let empty = work().join(format!("empty-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let source = empty.with_extension("c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
    let mut compiler = Command::new(how.compiler);
    compiler.args(how.language).args(how.more).arg(source).arg("-o").arg(empty);
    let compiled = output(&mut compiler).status.success();
    if !compiled {
        eprintln!("not tested: {} cannot do {:?} {:?}", how.compiler, how.language, how.more);
    }
    compiled
}

/// Compiles and runs all programs. The examples in C++ too, unless they use what C++ lacks.
fn run_all(how: How) {
    if !can(how) {
        return;
    }
    let examples = programs("examples/c");
    let is_c = how.language == C11;
    let examples = examples.iter().filter(|path| {
        is_c || !fs::read_to_string(path).expect("it is there").contains("<stdatomic.h>")
    });
    programs("tests/c").iter().chain(examples).for_each(|source| how.run(source));
}

const GCC: How = How { compiler: "gcc", language: C11, is_static: false, more: &[] };
const CLANG: How = How { compiler: "clang", ..GCC };

// Each compiler has each language and each library once.

#[test]
fn programs_work_with_gcc() {
    run_all(GCC);
    run_all(How { language: CPP17, is_static: true, ..GCC });
}

#[test]
fn programs_work_with_clang() {
    run_all(How { language: CPP17, ..CLANG });
    run_all(How { is_static: true, ..CLANG });
}

#[test]
fn programs_are_clean_under_sanitizers() {
    run_all(How { more: SANITIZERS, ..GCC });
    run_all(How { more: SANITIZERS, ..CLANG });
}

/// The sanitizers see what they should.
#[test]
fn a_planted_leak_fails_under_sanitizers() {
    let how = How { more: SANITIZERS, ..GCC };
    if !can(how) {
        return;
    }
    let source = work().join("leak.c");
    let text = "#include <coreline.h>\n#include <stdlib.h>\nstatic void *volatile leaked;\n\
                int main(void) { for (int time = 0; time < 10; time++) leaked = malloc(10);\n\
                leaked = NULL; return coreline_check() != CORELINE_OK; }\n";
    fs::write(&source, text).expect("a file");
    let program = how.compile(&source);
    let output = output(&mut Command::new(program));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("LeakSanitizer"), "{message}");
}

#[test]
fn the_program_of_the_readme_works() {
    let readme = fs::read_to_string(package().join("README.md")).expect("it is there");
    let (_, program) = readme.split_once("```c\n").expect("a program");
    let (program, _) = program.split_once("```\n").expect("its end");
    let source = work().join("readme.c");
    fs::write(&source, program).expect("a file");
    assert_eq!(run(&mut Command::new(GCC.compile(&source))), "1 requests\n");
}

/// A header of another version, and headers of this version that know the library wrongly: the
/// program ends when it is loaded.
#[test]
fn a_header_that_does_not_fit_ends_the_program() {
    let changes = [
        ("coreline.h", "CORELINE_VERSION_MINOR 1", "CORELINE_VERSION_MINOR 2"),
        // Members of the same size in another order.
        ("coreline.h", "uint64_t steals;", "uint64_t sleeps;"),
        ("coreline.h", "uint32_t next;", "uint32_t serving;"),
        // What the sections read behind a gate.
        ("coreline/sections.h", "CORELINE_LIMIT_OF_CIDS 4", "CORELINE_LIMIT_OF_CIDS 12"),
        ("coreline/sections.h", "CORELINE_GATE_FIRST 8", "CORELINE_GATE_FIRST 16"),
    ];
    let prefix = work().join("does-not-fit");
    for (number, (name, own, other)) in changes.into_iter().enumerate() {
        install(&built(), &prefix);
        let header = prefix.join("include").join(name);
        let text = fs::read_to_string(&header).expect("installed");
        assert!(text.contains(own), "{own} is another number or name: change this test");
        // Each is exchanged with the other, if the header has both.
        let text = text.replace(own, "EXCHANGED").replace(other, own).replace("EXCHANGED", other);
        fs::write(&header, text).expect("a file");
        let program = work().join(format!("does-not-fit-{number}"));
        let lib = prefix.join("lib");
        let mut gcc = Command::new("gcc");
        gcc.arg(package().join("examples/c/counter.c")).arg("-I").arg(prefix.join("include"));
        gcc.arg("-o").arg(&program).arg("-L").arg(&lib).args(["-lcoreline", "-pthread"]);
        run(gcc.arg(format!("-Wl,-rpath,{}", lib.display())));
        let output = output(&mut Command::new(&program));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), None, "{own}: no signal ended it: {message}");
        assert!(message.contains("does not match library version 0.1.0"), "{own}: {message}");
        assert!(output.stdout.is_empty(), "{own}: it was loaded");
    }
}

#[test]
fn a_program_is_linked_by_pkg_config() {
    if !has("pkg-config") {
        return;
    }
    let config = |arguments: &[&str]| {
        let mut config = Command::new("pkg-config");
        config.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        let flags = run(config.args(arguments).arg("coreline"));
        flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let source = package().join("examples/c/counter.c");
    let shared = work().join("by-pkg-config");
    let mut gcc = Command::new("gcc");
    run(gcc.arg(&source).arg("-o").arg(&shared).args(config(&["--cflags", "--libs"])));
    let mut program = Command::new(&shared);
    program.env("LD_LIBRARY_PATH", prefix().join("lib"));
    assert_eq!(run(&mut program), "4000 requests\n");

    let alone = work().join("by-pkg-config-alone");
    let mut gcc = Command::new("gcc");
    gcc.arg("-static").arg(&source).arg("-o").arg(&alone);
    run(gcc.args(config(&["--cflags", "--libs", "--static"])));
    assert_eq!(run(&mut Command::new(&alone)), "4000 requests\n");
}

/// The pkg-config file has the prefix as it is, and a prefix that depends on the folder is refused.
#[test]
fn the_prefix_is_absolute_and_unchanged() {
    let odd = work().join("this & that|other");
    install(&built(), &odd);
    let config = fs::read_to_string(odd.join("lib/pkgconfig/coreline.pc")).expect("installed");
    assert!(config.starts_with(&format!("prefix={}\n", odd.display())), "{config}");
    let mut relative = Command::new("sh");
    relative.current_dir(work()).arg(package().join("install.sh")).arg(built()).arg("relative");
    let output = output(&mut relative);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("absolute"), "{message}");
    assert!(!work().join("relative").exists(), "nothing was installed");
}

/// The examples in C++ alone, which CMake needs a compiler for.
const IN_CPP: [&str; 1] = ["workers.cpp"];

#[test]
fn the_examples_in_cpp_work() {
    for compiler in ["g++", "clang++"] {
        let how = How { compiler, language: CPP17, is_static: false, more: &[] };
        if !can(how) {
            continue;
        }
        IN_CPP.iter().for_each(|name| how.run(&package().join("examples/c").join(name)));
        how.run(&package().join("tests/cpp/thrown.cpp"));
    }
}

#[test]
fn the_examples_are_built_by_cmake() {
    if !has("cmake") || !has("c++") {
        return;
    }
    let build = work().join("by-cmake");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(package().join("examples/c")).arg("-B").arg(&build);
    run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    let tests = run(Command::new("ctest").arg("--test-dir").arg(&build));
    let all = programs("examples/c").len() + IN_CPP.len();
    assert!(tests.contains(&format!("0 tests failed out of {all}")), "{tests}");
}

/// A program that asks for another series of versions is refused, and one of its own is not.
#[test]
fn cmake_refuses_another_version() {
    if !has("cmake") {
        return;
    }
    let version = |version: &str| {
        let folder = work().join(format!("version-{version}"));
        fs::create_dir_all(&folder).expect("a folder");
        let lists = format!(
            "cmake_minimum_required(VERSION 3.16)\nproject(asks C)\n\
             find_package(coreline {version} REQUIRED)\n\
             if(NOT TARGET coreline::coreline OR NOT TARGET coreline::static)\n\
             message(FATAL_ERROR \"a library is missing\")\nendif()\n"
        );
        fs::write(folder.join("CMakeLists.txt"), lists).expect("a file");
        let mut cmake = Command::new("cmake");
        cmake.arg("-S").arg(&folder).arg("-B").arg(folder.join("build"));
        let output = output(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(message) }
    };
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    assert_eq!(version(&format!("{major}.{minor}")), Ok(()));
    for other in ["0.0.1", "0.2", "1.0"] {
        let message = version(other).expect_err("another version");
        assert!(message.contains("compatible with requested version"), "{message}");
    }
}

/// Each linked program asks for the library by a name with the series of versions.
#[test]
fn the_shared_library_has_a_name_with_its_version() {
    let program = GCC.compile(&package().join("examples/c/mutex.c"));
    if !has("readelf") {
        return;
    }
    let needed = run(Command::new("readelf").arg("-d").arg(program));
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    assert_eq!(major, "0", "the name has the major version alone");
    assert!(needed.contains(&format!("[libcoreline.so.{major}.{minor}]")), "{needed}");
}

/// The library exports what the header declares, and nothing else.
#[test]
fn the_shared_library_exports_what_the_header_declares() {
    if !has("nm") {
        return;
    }
    let library = prefix().join("lib/libcoreline.so");
    let names =
        run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library));
    let header = fs::read_to_string(prefix().join("include/coreline.h")).expect("installed");
    let names: Vec<_> = names.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}

#[test]
fn manual_pages_are_clean() {
    let folders = ["man3", "man7"].map(|section| prefix().join("share/man").join(section));
    let pages = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("installed"));
    let pages: Vec<_> = pages.map(|page| page.expect("a page").path()).collect();
    assert!(pages.len() > 50, "{pages:?}");
    if has("mandoc") {
        let lint = Command::new("mandoc").args(["-Tlint", "-Wwarning"]).args(&pages).output();
        let lint = String::from_utf8(lint.expect("it is here").stdout).expect("text");
        // A page has no date: it changes with the version, which it names.
        let faults: Vec<_> = lint.lines().filter(|line| !line.contains("missing date")).collect();
        assert_eq!(faults, [""; 0]);
    }
    if has("groff") {
        for page in &pages {
            let mut groff = Command::new("groff");
            let output = output(groff.args(["-ww", "-man", "-Tutf8", "-z"]).arg(page));
            let faults = String::from_utf8_lossy(&output.stderr);
            assert!(faults.is_empty() && output.status.success(), "{faults}");
        }
    }
}
