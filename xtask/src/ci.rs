//! `cargo xtask ci`: what must pass before a change goes in.
//!
//! The last step is the test command that README.md gives, read from there, so that the two cannot
//! disagree. The model checker needs no step of its own: its tests are ordinary tests.

use std::env;
use std::process::Command;
use std::time::Instant;

use crate::error::Error;
use crate::target::{self, Arch, ELSEWHERE, Libc, NATIVE_PACKAGES, NOT_NATIVE, Target};
use crate::{advisories, alone, figures, golden, msrv, packed, tidy, workspace};

/// A step: its name, and what it does.
struct Step {
    name: &'static str,
    action: Action,
}

enum Action {
    /// Run a command.
    Command(Command),
    /// Call a verb of this program.
    Verb(fn() -> Result<(), Error>),
}

/// Runs all steps in order; stops at the first that fails.
///
/// Says how long each step took before the last one starts, so that the output of a good run ends
/// with the test runner's own summary.
pub(crate) fn run() -> Result<(), Error> {
    let mut took: Vec<(&str, u64)> = Vec::new();
    let mut steps = steps(&workspace::read("README.md")?)?.into_iter().peekable();
    while let Some(Step { name, action }) = steps.next() {
        if steps.peek().is_none() {
            print_times(&took);
        }
        let start = Instant::now();
        let done = match action {
            Action::Command(mut command) => {
                println!("\n==> {name}: {}", workspace::line(&command));
                workspace::run(&mut command)
            }
            Action::Verb(verb) => {
                println!("\n==> {name}");
                verb()
            }
        };
        took.push((name, start.elapsed().as_secs()));
        if let Err(source) = done {
            print_times(&took);
            return Err(Error::Step { step: name, source: Box::new(source) });
        }
    }
    Ok(())
}

fn steps(readme: &str) -> Result<Vec<Step>, Error> {
    let cargo = |line: &str| workspace::cargo(&line.split(' ').collect::<Vec<_>>());
    // Says which fast paths the tests that follow had: a test of rseq sections has nothing to test
    // on a machine without them.
    let doctor = cargo("run --quiet --package coreline-lab -- doctor");
    // The half of the source for processors without sections, which Miri runs, too.
    let mut sectionless = cargo("check --quiet --package coreline --target-dir target/sectionless");
    sectionless.env("RUSTFLAGS", "--cfg miri -D warnings");
    let test = test_command(readme).ok_or(Error::NoTestCommand)?;
    let command = |name, command| Step { name, action: Action::Command(command) };
    let verb = |name, verb| Step { name, action: Action::Verb(verb) };
    Ok(vec![
        command("fmt", cargo("fmt --all --check")),
        verb("tidy", tidy::run),
        verb("advisories", advisories::say),
        verb("clippy", alone::clippy),
        verb("docs", alone::docs),
        verb("golden", || golden::run(false)),
        command("doctor", doctor),
        command("sectionless", sectionless),
        verb("musl", musl),
        verb("aarch64", aarch64),
        verb("portable", portable),
        // Shows in seconds that it measures and counts right; these figures are not used.
        verb("figures", || figures::run(true)),
        verb("msrv", msrv::run),
        verb("packed", packed::run),
        command("test", workspace::command("sh", &["-e", "-c", &test])),
    ])
}

/// The native tests with the other C library: it registers no thread for rseq, and is linked
/// statically.
fn musl() -> Result<(), Error> {
    let arch = Arch::host().ok_or_else(|| Error::Missing {
        what: format!("a musl target for {}", env::consts::ARCH),
        remedy: "run CI on x86_64 or aarch64".to_owned(),
    })?;
    let topology = "test --test * -p coreline-topology".to_owned();
    let native = native_tests(NATIVE_PACKAGES).into_iter().chain([topology]);
    build_for(Target { arch, libc: Libc::Musl }, &native.collect::<Vec<_>>())
}

/// What runs the tests that are for a native world, of `these` packages. Examples, and those in
/// documentation, show nothing more, and take as long to build.
fn native_tests(these: &str) -> [String; 2] {
    let all_but = NOT_NATIVE.map(|name| format!("--skip {name}")).join(" ");
    let tests = ["allocator", "conformance", "native*", "small"];
    let tests = tests.map(|name| format!("--test {name}")).join(" ");
    [
        format!("test --lib {tests} {these} -- {all_but}"),
        // Laws are for other worlds, unless their names say so.
        format!("test --test laws {these} -- natively every_world"),
    ]
}

/// That the other processor's half of the source compiles, is clean and links. Running it takes an
/// emulated machine, and time: `cargo xtask guest --arch aarch64`.
fn aarch64() -> Result<(), Error> {
    // All targets have all features: the tests ask for them.
    let clippy = format!("clippy --all-targets {NATIVE_PACKAGES} -- -D warnings");
    let tests = format!(
        "test --no-run --lib --examples --test native --test conformance {NATIVE_PACKAGES}"
    );
    build_for(Target { arch: Arch::Aarch64, libc: Libc::Glibc }, &[clippy, tests])
}

/// The native world of what std has: its tests, on this machine; and that the libraries compile
/// where there is no Linux. Nothing is linked for there, and nothing run.
fn portable() -> Result<(), Error> {
    ELSEWHERE.into_iter().try_for_each(target::check_std)?;
    let these = "--features portable -p coreline-world -p coreline";
    let elsewhere = ELSEWHERE
        .map(|target| format!("clippy --quiet --target {target} {NATIVE_PACKAGES} -- -D warnings"));
    let here = format!("clippy --quiet --all-targets {these} -- -D warnings");
    for line in elsewhere.into_iter().chain([here]).chain(native_tests(these)) {
        let mut cargo = workspace::cargo(&line.split(' ').collect::<Vec<_>>());
        run_unoptimised(&mut cargo)?;
    }
    Ok(())
}

/// Runs a cargo that builds our packages without optimisation, which takes a third less time. With
/// it they are built for the step `test`.
fn run_unoptimised(cargo: &mut Command) -> Result<(), Error> {
    println!("{}", workspace::line(cargo));
    workspace::run(cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0"))
}

fn build_for(target: Target, lines: &[String]) -> Result<(), Error> {
    target.check()?;
    for line in lines {
        run_unoptimised(&mut target.cargo(line)?)?;
    }
    Ok(())
}

fn print_times(took: &[(&str, u64)]) {
    println!("\n{:<12}{:>8}", "step", "seconds");
    for (name, seconds) in took {
        println!("{name:<12}{seconds:>8}");
    }
}

/// The first fenced block under the heading "Test" of a README.
fn test_command(readme: &str) -> Option<String> {
    let section = readme.lines().skip_while(|line| line.trim_end() != "## Test").skip(1);
    let mut section = section.take_while(|line| !line.starts_with("## "));
    section.find(|line| line.starts_with("```"))?;
    let block: Vec<_> = section.take_while(|line| !line.starts_with("```")).collect();
    let command = block.join("\n").trim().to_owned();
    (!command.is_empty()).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_command_is_the_first_block_of_its_section() {
        let readme = "# x\n```\nnot this\n```\n## Test\n\nRun\n\n```sh\na\nb\n```\n```\nc\n```\n";
        assert_eq!(test_command(readme).as_deref(), Some("a\nb"));
    }

    #[test]
    fn a_readme_without_a_test_command_is_an_error() {
        for readme in ["", "## Test\n", "## Test\n```\n```\n", "## Test\n## Use\n```\na\n```\n"] {
            assert_eq!(test_command(readme), None, "{readme:?}");
            assert!(matches!(steps(readme), Err(Error::NoTestCommand)), "{readme:?}");
        }
    }

    #[test]
    fn the_tests_come_last() {
        let steps = steps("## Test\n```\ncargo test\n```\n").expect("a test command");
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        let first = ["fmt", "tidy", "advisories", "clippy", "docs", "golden", "doctor"];
        let then = ["sectionless", "musl", "aarch64", "portable", "figures", "msrv"];
        let last = ["packed", "test"];
        assert_eq!(names, [&first[..], &then[..], &last[..]].concat());
    }
}
