//! `cargo xtask ci`: what must pass before a change goes in.
//!
//! The last step is the test command that README.md gives, read from there, so that the two cannot
//! disagree. The model checker needs no step of its own: its tests are ordinary tests.
//!
//! A step runs before each change if what it finds is found often, or if it is cheap beside the
//! tests. What builds much and finds a mistake once in a month runs with `--all`, every night.

use std::env;
use std::process::Command;
use std::time::Instant;

use crate::error::Error;
use crate::target::{self, Arch, ELSEWHERE, Libc, NATIVE_PACKAGES, NOT_NATIVE, Target};
use crate::{advisories, alone, figures, golden, guest, msrv, packed, python, tidy, workspace};

/// A step: its name, when it runs, and what it does.
struct Step {
    name: &'static str,
    when: When,
    action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before each change goes in.
    Always,
    /// With `--all`: it builds as much as the tests do, and finds a mistake once in a month.
    Nightly,
}

enum Action {
    /// Run a command.
    Command(Command),
    /// Call a verb of this program.
    Verb(fn() -> Result<(), Error>),
}

/// Which steps run.
#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Also the steps that find a mistake once in a month, as `.ci/nightly` does
    #[arg(long)]
    all: bool,
    /// These alone, such as `musl`, in the order of CI
    #[arg(value_name = "STEP", conflicts_with = "all")]
    steps: Vec<String>,
}

impl Choice {
    /// The steps to run.
    ///
    /// # Errors
    ///
    /// If no step has one of the names.
    fn of(&self, steps: Vec<Step>) -> Result<Vec<Step>, Error> {
        let all: Vec<_> = steps.iter().map(|step| step.name).collect();
        if let Some(asked) = self.steps.iter().find(|asked| !all.contains(&asked.as_str())) {
            return Err(Error::NoStep { asked: asked.clone(), all: all.join(", ") });
        }
        let is_chosen = |step: &Step| match self.steps.is_empty() {
            true => self.all || step.when == When::Always,
            false => self.steps.iter().any(|asked| asked == step.name),
        };
        Ok(steps.into_iter().filter(is_chosen).collect())
    }
}

/// Runs the chosen steps in order; stops at the first that fails.
///
/// Says how long each step took before the last one starts, so that the output of a good run ends
/// with the test runner's own summary.
pub(crate) fn run(choice: &Choice) -> Result<(), Error> {
    let mut took: Vec<(&str, u64)> = Vec::new();
    let steps = choice.of(steps(&workspace::read("README.md")?)?)?;
    let mut steps = steps.into_iter().peekable();
    while let Some(Step { name, action, .. }) = steps.next() {
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
    // The half of the source for processors without sections, which Miri runs, too.
    let mut sectionless = cargo("check --quiet --package coreline --target-dir target/sectionless");
    sectionless.env("RUSTFLAGS", "--cfg miri -D warnings");
    let test = test_command(readme).ok_or(Error::NoTestCommand)?;
    let command =
        |name, command| Step { name, when: When::Always, action: Action::Command(command) };
    let verb = |name, verb| Step { name, when: When::Always, action: Action::Verb(verb) };
    let nightly = |name, verb| Step { name, when: When::Nightly, action: Action::Verb(verb) };
    // What is tested always, in more interleavings and schedules than a change can wait for.
    Ok(vec![
        command("fmt", cargo("fmt --all --check")),
        verb("tidy", tidy::run),
        nightly("advisories", advisories::say),
        verb("clippy", alone::clippy),
        nightly("features", alone::features),
        verb("docs", alone::docs),
        verb("golden", || golden::run(false)),
        command("sectionless", sectionless),
        verb("elsewhere", elsewhere),
        nightly("portable", portable),
        nightly("musl", musl),
        nightly("aarch64", aarch64),
        // Shows in seconds that it measures and counts right; these figures are not used.
        nightly("figures", || figures::run(true)),
        nightly("msrv", msrv::run),
        nightly("python", python::check),
        nightly("programs", programs),
        nightly("suites", || suites(&[])),
        nightly("cinstall", cinstall),
        nightly("gate", gate),
        nightly("guests", guest::step),
        verb("two-suites", || suites(&["--if-reachable", "serial_test", "string_cache"])),
        verb("packed", packed::run),
        verb("doctor", doctor),
        nightly("deeper", deeper),
        command("test", workspace::command("sh", &["-e", "-c", &test])),
    ])
}

/// The laws with more preemptions and schedules, objects in more rounds, and the program that uses
/// what waits in random ways.
fn deeper() -> Result<(), Error> {
    let mut laws = workspace::cargo(&["test", "-p", "coreline", "--test", "laws-*"]);
    laws.args(["--test", "native_exhausted", "--"]);
    laws.args(["in_every_interleaving", "schedules", "in_rounds"]);
    laws.env("CORELINE_PREEMPTIONS", "3").env("CORELINE_SCHEDULES", "2500");
    // Five rounds.
    laws.env("CORELINE_OBJECTS", "20000");
    workspace::run(&mut laws)?;
    let mut claims = workspace::cargo(&["test", "-p", "coreline-scenarios", "--test", "claims"]);
    workspace::run(claims.env("CORELINE_SEEDS", "16"))?;
    for subject in ["locks", "workers", "versioned"] {
        let mut endurance = workspace::cargo(&["run", "--quiet", "--release", "-p", "coreline"]);
        workspace::run(endurance.args(["--example", "endurance", "--", subject, "64", "120"]))?;
    }
    Ok(())
}

/// Servers and other programs of the system, with the preloaded library and without. Those that the
/// system lacks are named, and not run.
fn programs() -> Result<(), Error> {
    workspace::run(&mut workspace::cargo(&["build", "--package", "coreline-preload"]))?;
    let library = workspace::target_folder()?.join("debug/libcoreline_pthread.so");
    let script = workspace::root().join("crates/preload/tests/programs/run");
    workspace::run(workspace::command(script, &[]).arg(library))
}

/// The tests of crates that depend on `parking_lot`, with coreline-parking-lot in its place: of all
/// crates that the script knows, or of those that are named.
fn suites(arguments: &[&str]) -> Result<(), Error> {
    let script = workspace::root().join("crates/parking-lot/tests/suites/run");
    workspace::run(&mut workspace::command(script, arguments))
}

/// The C library as cargo-c installs it, and programs that use it. Without cargo-c, it is not run.
fn cinstall() -> Result<(), Error> {
    let script = workspace::root().join("crates/capi/tests/cinstall/run");
    let target = workspace::target_folder()?.join("cinstall");
    workspace::run(workspace::command(script, &["--target-dir"]).arg(target))
}

/// What `cargo coreline scale` says of a template with planted regressions, and with edits that
/// change no curve.
fn gate() -> Result<(), Error> {
    let script = workspace::root().join("crates/lab/tests/gate/run");
    workspace::run(&mut workspace::command(script, &[]))
}

/// Compiles the tests, and has the program say which fast paths they have: a test of rseq sections
/// has nothing to test on a machine without them.
fn doctor() -> Result<(), Error> {
    // The program is among what the tests need. Built by itself it would have other features, and
    // most of what is below it would be compiled twice.
    let mut build = workspace::cargo(&["test", "--workspace", "--no-run"]);
    println!("{}", workspace::line(&build));
    workspace::run(&mut build)?;
    let program = workspace::target_folder()?.join("debug/coreline");
    let mut doctor = workspace::command(program, &["doctor"]);
    println!("{}", workspace::line(&doctor));
    workspace::run(&mut doctor)
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
        format!("test --test laws-* {these} -- natively every_world"),
    ]
}

/// That the other processor's half of the source links, and its tests have no warnings. Running it
/// takes an emulated machine, and time: `cargo xtask guest --arch aarch64`.
fn aarch64() -> Result<(), Error> {
    let target = Target { arch: Arch::Aarch64, libc: Libc::Glibc };
    let tests = format!(
        "test --no-run --lib --examples --test native --test conformance {NATIVE_PACKAGES}"
    );
    let how = format!("--target {target} --all-targets {NATIVE_PACKAGES}");
    run_unoptimised(&mut workspace::cargo(&words(&clippy(&how))))?;
    build_for(target, &[tests])
}

/// Clippy without warnings.
fn clippy(how: &str) -> String {
    format!("clippy --quiet {how} -- -D warnings")
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The feature that takes away what only Linux has.
const PORTABLE: &str = "--features portable -p coreline-world -p coreline";

/// Where this machine's tests do not go: that the libraries compile where there is no Linux, on the
/// other processor, and with the native world of what std has. Nothing is linked, and nothing run.
fn elsewhere() -> Result<(), Error> {
    let other_arch = Target { arch: Arch::Aarch64, libc: Libc::Glibc }.to_string();
    let targets = ELSEWHERE.into_iter().chain([other_arch.as_str()]);
    targets.clone().try_for_each(target::check_std)?;
    let there = targets.map(|target| clippy(&format!("--target {target} {NATIVE_PACKAGES}")));
    for line in there.chain([clippy(PORTABLE)]) {
        run_unoptimised(&mut workspace::cargo(&words(&line)))?;
    }
    Ok(())
}

/// The native world of what std has: its tests, on this machine.
fn portable() -> Result<(), Error> {
    // All targets have all features: the tests ask for them.
    let here = clippy(&format!("--all-targets {PORTABLE}"));
    for line in [here].into_iter().chain(native_tests(PORTABLE)) {
        run_unoptimised(&mut workspace::cargo(&words(&line)))?;
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

    fn names(choice: &Choice) -> Result<Vec<&'static str>, Error> {
        let steps = steps("## Test\n```\ncargo test\n```\n").expect("a test command");
        Ok(choice.of(steps)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn the_tests_come_last() {
        let usual = names(&Choice { all: false, steps: Vec::new() }).expect("no names");
        let first = ["fmt", "tidy", "clippy", "docs", "golden", "sectionless", "elsewhere"];
        assert_eq!(usual, [&first[..], &["two-suites", "packed", "doctor", "test"]].concat());
        let all = names(&Choice { all: true, steps: Vec::new() }).expect("no names");
        assert_eq!(all.last(), Some(&"test"));
        assert!(usual.iter().all(|name| all.contains(name)));
        let nightly: Vec<_> = all.into_iter().filter(|name| !usual.contains(name)).collect();
        assert_eq!(
            nightly,
            [
                "advisories",
                "features",
                "portable",
                "musl",
                "aarch64",
                "figures",
                "msrv",
                "python",
                "programs",
                "suites",
                "cinstall",
                "gate",
                "guests",
                "deeper"
            ]
        );
    }

    /// The steps that the jobs of a workflow run: the lines of its matrix.
    fn jobs(workflow: &str) -> Vec<String> {
        let file = format!(".github/workflows/{workflow}.yml");
        let text = workspace::read(&file).expect("it is there");
        let matrix = text.lines().skip_while(|line| line.trim() != "steps:").skip(1);
        let jobs = matrix.map_while(|line| line.trim().strip_prefix("- "));
        jobs.flat_map(|job| job.split(' ').map(str::to_owned)).collect()
    }

    #[test]
    fn the_workflows_of_the_forge_run_each_step_once() {
        let usual = names(&Choice { all: false, steps: Vec::new() }).expect("no names");
        assert_eq!(jobs("ci"), usual);
        let all = names(&Choice { all: true, steps: Vec::new() }).expect("no names");
        let nightly: Vec<_> = all.into_iter().filter(|name| !usual.contains(name)).collect();
        assert_eq!(jobs("nightly"), nightly);
    }

    #[test]
    fn steps_are_chosen_by_name_in_the_order_of_ci() {
        let of = |asked: &[&str]| {
            let steps = asked.iter().map(|name| (*name).to_owned()).collect();
            names(&Choice { all: false, steps })
        };
        assert_eq!(of(&["musl", "fmt"]).expect("both are there"), ["fmt", "musl"]);
        let error = of(&["fmt", "muls"]).expect_err("there is no such step").to_string();
        assert!(error.contains("\"muls\"") && error.contains(", musl, "), "{error}");
    }
}
