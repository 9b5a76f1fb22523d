//! The check that a program is deterministic: two runs, compared access by access.

use core::fmt;

use crate::machine::Machine;
use crate::results::failure::Failure;
use crate::results::replay::Replay;
use crate::results::report::Report;
use crate::results::tape::{Record, Records, TracedAccess};

/// The first difference between two runs of one program on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The number of equal accesses before the difference.
    pub access: usize,
    /// The first run's next access, or `None` if that run ended, or no more accesses were kept.
    pub first: Option<TracedAccess>,
    /// The second run's next access, as for `first`. Both are `None` if only the reports or the
    /// failures are known to differ.
    pub second: Option<TracedAccess>,
    /// The replay line of both runs.
    pub replay: Replay,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two runs of one program differ after {} accesses", self.access)?;
        for (run, next) in [("first", &self.first), ("second", &self.second)] {
            match next {
                Some(access) => writeln!(f, "  the {run}: {access}")?,
                None => writeln!(f, "  the {run}: no access is known")?,
            }
        }
        writeln!(
            f,
            "the program depends on something outside of the machine: std's own hash maps, clock \
             or threads, a static that an earlier run changed, the address of a function or \
             static"
        )?;
        write!(f, "  replay: {}", self.replay)
    }
}

impl core::error::Error for Divergence {}

impl Machine {
    /// Runs a program twice and compares the two runs, access by access.
    ///
    /// A program that fails twice in the same way is deterministic. Both runs keep 32 bytes for
    /// each access. The check does not find differences that occur only between processes, such as
    /// the address of a function.
    ///
    /// ```
    /// # #[global_allocator]
    /// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
    /// use coreline_sim::atomic::{AtomicU64, Ordering};
    /// use coreline_sim::{Machine, collections};
    ///
    /// let machine = || Machine::preset("host-2c").unwrap();
    /// let words = || (0..64).map(AtomicU64::new).collect::<Vec<_>>();
    ///
    /// let by_seed = move || {
    ///     let words = words();
    ///     let keys: collections::HashSet<usize> = (0..64).collect();
    ///     keys.iter().for_each(|&key| words[key].store(1, Ordering::Relaxed));
    /// };
    /// Machine::check_determinism(machine, by_seed)?;
    ///
    /// let by_chance = move || {
    ///     let words = words();
    ///     let keys: std::collections::HashSet<usize> = (0..64).collect();
    ///     keys.iter().for_each(|&key| words[key].store(1, Ordering::Relaxed));
    /// };
    /// let parted = Machine::check_determinism(machine, by_chance).unwrap_err();
    /// assert!(parted.access < 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Divergence`] if the runs differ, with the first access at which they differ.
    pub fn check_determinism<T: 'static>(
        machine: impl Fn() -> Machine,
        program: impl FnOnce() -> T + Clone + 'static,
    ) -> Result<(), Box<Divergence>> {
        let run = || taped(machine(), usize::MAX, program.clone());
        let (first, second) = (run(), run());
        divergence(&first, &second, machine().replay_line()).map_or(Ok(()), Err)
    }
}

/// The first accesses of a run, and how it ended.
pub(crate) type Taped = (Vec<Record>, Result<Report, Box<Failure>>);

/// Runs a program, and keeps this many accesses.
pub(crate) fn taped<T: 'static>(
    machine: Machine,
    most: usize,
    program: impl FnOnce() -> T + 'static,
) -> Taped {
    let tape = Records::first(most);
    // What the program returned goes first: it may lie in the machine's memory, whose place the
    // second run needs.
    let outcome = machine.tape(&tape).run(program).map(|run| run.report);
    (tape.borrow_mut().take(), outcome)
}

/// How two runs that this line repeats differ, if they do.
pub(crate) fn divergence(
    (first, ended): &Taped,
    (second, also_ended): &Taped,
    replay: Replay,
) -> Option<Box<Divergence>> {
    let same = first.iter().zip(second).take_while(|(one, other)| one.is_as(other)).count();
    let ends_as = match (ended, also_ended) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => one.kind == other.kind,
        _ => false,
    };
    if same == first.len() && same == second.len() && ends_as {
        return None;
    }
    Some(Box::new(Divergence {
        access: same,
        first: first.get(same).map(Record::traced),
        second: second.get(same).map(Record::traced),
        replay,
    }))
}
