//! Twelve planted mistakes, and which checker finds them: the simulator with four kinds of
//! schedule, loom, and shuttle, all on the same source.
//!
//! docs/checkers.md has the table. With `CORELINE_BLESS=1` in the environment, the test writes the
//! present one there:
//!
//! ```sh
//! CORELINE_BLESS=1 cargo test -p coreline-sim --test checkers
//! ```
//!
//! This is a program without the test runner, because it runs itself again for loom and shuttle.

#![expect(clippy::duplicate_mod, reason = "each checker compiles the programs for itself")]

/// The programs, as the checker whose module this is in compiled them.
macro_rules! programs {
    ($($name:ident)*) => {
        /// What they are called in the table.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        macro_rules! compiled {
            () => { &[$(programs::$name as super::Program),*] };
        }
    };
}

programs! {
    lost_update torn_read lost_wake_up asleep_after_spinning opposite_order recursive_read
    wrong_waiter if_for_while weak_exchange aba unpublished both_enter
}

mod by_loom;
mod by_shuttle;
mod by_sim;
mod child;

use std::error::Error;
use std::panic::set_hook;
use std::path::Path;
use std::{env, fs};

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// The most runs of a search for a mistake.
const RUNS: u64 = 10_000;

/// The most runs of a program, with its mistake or without.
fn runs(mistaken: bool) -> u64 {
    if mistaken { RUNS } else { RUNS / 10 }
}

/// A program, which is told whether to make its mistake.
type Program = fn(bool);

/// A way to look for mistakes. It gets a program's place among all.
type Checker = (&'static str, fn(usize, bool) -> Verdict);

/// What a checker says of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The run of this number failed, counted from 1.
    Fails(u64),
    /// No run failed, of this number.
    Passes(u64),
}

/// The checkers beside the simulator.
const OTHERS: [Checker; 3] = [
    ("loom", |program, mistaken| child::check(0, program, mistaken)),
    ("shuttle", |program, mistaken| child::check(1, program, mistaken)),
    ("shuttle, PCT", |program, mistaken| child::check(2, program, mistaken)),
];

/// The table, in Markdown.
///
/// # Errors
///
/// If a checker finds a mistake in a program that has none.
fn table() -> Result<String, Box<dyn Error>> {
    let checkers: Vec<Checker> = by_sim::CHECKERS.into_iter().chain(OTHERS).collect();
    let names: String = checkers.iter().map(|(name, _)| format!(" {name} |")).collect();
    let mut table = format!("| mistake |{names}\n|---|{}\n", "---|".repeat(checkers.len()));
    for (program, name) in NAMES.iter().enumerate() {
        let name = name.replace('_', " ");
        let mut cells = String::new();
        for (checker, check) in &checkers {
            if let Verdict::Fails(run) = check(program, false) {
                return Err(format!("{checker}: {name}, made right, fails in run {run}").into());
            }
            cells += &match check(program, true) {
                Verdict::Fails(run) => format!(" {run} |"),
                Verdict::Passes(runs) => format!(" none of {runs} |"),
            };
        }
        table += &format!("| {name} |{cells}\n");
    }
    Ok(table)
}

#[expect(clippy::print_stdout, reason = "a test says what it did")]
fn main() -> Result<(), Box<dyn Error>> {
    if child::is_one()? || env::args().any(|argument| argument == "--list") {
        return Ok(());
    }
    // A mistake is found by a panic, which is no news here.
    set_hook(Box::new(|_| ()));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/checkers.md");
    let old = fs::read_to_string(&page)?;
    let (before, rest) = old.split_once("\n| mistake |").ok_or("the page has no table")?;
    let behind = rest.split_once("\n\n").map_or("", |(_, behind)| behind);
    let new = format!("{before}\n{}\n{behind}", table()?);
    if env::var_os("CORELINE_BLESS").is_some() {
        fs::write(&page, new)?;
    } else if new != old {
        return Err(format!("docs/checkers.md is not what the checkers say now:\n{new}").into());
    }
    println!("test docs/checkers.md ... ok");
    Ok(())
}
