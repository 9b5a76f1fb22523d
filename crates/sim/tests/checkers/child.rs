//! Checkers that panic if a run fails, each in a process of its own.
//!
//! A deadlock of loom's threads may end the process, because a destructor that runs while its
//! thread unwinds panics again. What shuttle prints about a failure is no news here.

use std::error::Error;
use std::io::Write;
use std::panic::set_hook;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{env, io};

use super::{Program, Verdict, by_loom, by_shuttle};

/// By their place: each panics if a run fails.
const CHECKS: [fn(usize, bool); 3] = [by_loom::check, by_shuttle::random, by_shuttle::pct];

/// Has a checker's place, a program's, and whether it makes its mistake, in a child's environment.
const CHILD: &str = "CORELINE_CHECKERS_CHILD";

/// The runs that have started in this process. Relaxed: one thread at a time counts and reads.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// A program that counts how often it runs.
pub(super) fn counting(program: Program, mistaken: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        STARTED.fetch_add(1, Relaxed);
        program(mistaken);
    }
}

/// Has a child check.
pub(super) fn check(checker: usize, program: usize, mistaken: bool) -> Verdict {
    let child = env::current_exe().map(Command::new).and_then(|mut command| {
        command.env(CHILD, format!("{checker} {program} {mistaken}"));
        command.stderr(Stdio::null()).output()
    });
    let child = child.expect("this program can be run again");
    let runs = String::from_utf8_lossy(&child.stdout).trim().parse();
    let runs = runs.expect("the child says how many runs it made");
    if child.status.success() { Verdict::Passes(runs) } else { Verdict::Fails(runs) }
}

/// Whether this process is such a child. It then has checked, printed the number of its runs, and
/// exited with 1 if one failed.
pub(super) fn is_one() -> Result<bool, Box<dyn Error>> {
    let Ok(task) = env::var(CHILD) else { return Ok(false) };
    let [checker, program, mistaken] = task.split(' ').collect::<Vec<_>>()[..] else {
        return Err("a child needs three words".into());
    };
    // At the first panic with a message. loom ends threads by panics without one.
    set_hook(Box::new(|info| {
        if info.payload_as_str().is_some() {
            say_runs();
            process::exit(1);
        }
    }));
    CHECKS[checker.parse::<usize>()?](program.parse()?, mistaken.parse()?);
    say_runs();
    Ok(true)
}

fn say_runs() {
    let mut out = io::stdout().lock();
    _ = writeln!(out, "{}", STARTED.load(Relaxed)).and_then(|()| out.flush());
}
