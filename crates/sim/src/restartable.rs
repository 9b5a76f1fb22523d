//! Restartable operations, interpreted: the definition runs step by step, and between any two steps
//! the thread may be preempted, moved or fenced.

use coreline_world::restartable::{self, Aborted, Steps};
use coreline_world::{IndexBy, Lacking, Ordering, PerCpuWords, Restartable, Word};

use crate::Sim;
use crate::engine::{self, inside};

/// What an operation is indexed by, in the simulated machine.
pub type SimSection = IndexBy;

impl Restartable for Sim {
    type Section = SimSection;

    fn section(by: IndexBy) -> Result<(SimSection, usize), Lacking> {
        inside(|engine| {
            if by == IndexBy::KernelCid && !engine.has_cids() {
                return Err(Lacking {
                    world: "sim",
                    capability: "kernel concurrency ID",
                    why: "the simulated kernel hands out none".to_owned(),
                    remedy: "give the machine a `Kernel` that does".to_owned(),
                });
            }
            Ok((by, engine.topology().cpu_limit()))
        })
    }

    fn index(section: &SimSection) -> usize {
        engine::issue();
        read_index(*section)
    }

    fn add(words: &PerCpuWords<Sim>, delta: u64) {
        while restartable::add(&mut Interpreter::new(words), delta).is_err() {
            inside(|engine| engine.count_restart());
        }
    }
}

/// The running thread's index at this moment.
fn read_index(section: SimSection) -> usize {
    inside(|engine| {
        engine.spend_on_place();
        match section {
            IndexBy::Cpu => engine.cpu().index(),
            // Present while the thread runs: `section` has seen the kernel that hands them out.
            IndexBy::KernelCid => engine.cid().map_or(usize::MAX, |cid| cid.index()),
        }
    })
}

/// Runs the steps of one attempt at an operation.
struct Interpreter<'a> {
    words: &'a PerCpuWords<Sim>,
    /// How often the thread had been interrupted when the attempt began.
    began: u64,
    /// Whether the kernel makes the attempt fail, as it should.
    aborts: bool,
}

impl<'a> Interpreter<'a> {
    fn new(words: &'a PerCpuWords<Sim>) -> Interpreter<'a> {
        inside(|engine| Interpreter {
            words,
            began: engine.interrupts(),
            aborts: !engine.faults().missed_aborts,
        })
    }

    /// Between two steps: the place where the thread may lose its CPU.
    fn boundary(&self) -> Result<(), Aborted> {
        engine::interrupt_point();
        if self.interrupted() { Err(Aborted) } else { Ok(()) }
    }

    /// Whether the kernel has made the attempt fail.
    fn interrupted(&self) -> bool {
        self.aborts && inside(|engine| engine.interrupts()) != self.began
    }
}

impl Steps for Interpreter<'_> {
    fn load_index(&mut self) -> Result<usize, Aborted> {
        self.boundary()?;
        Ok(read_index(*self.words.section()))
    }

    fn load(&mut self, slot: usize) -> Result<u64, Aborted> {
        self.boundary()?;
        // Relaxed: only threads of this CPU write the slot, and they are ordered by running on it.
        Ok(self.words.slots()[slot].load(Ordering::Relaxed))
    }

    fn commit(&mut self, slot: usize, value: u64) -> Result<(), Aborted> {
        self.boundary()?;
        // Relaxed: as in `load`. The store begins at once, so no thread of this CPU comes between
        // the check and the write. A fence on another CPU can, while the store waits for its line:
        //
        //   Thread 1: checks, waits for the line
        //   Thread 2: fence_restartable returns; reads the slot
        //   Thread 1: writes                                        <- after the fence
        //
        // so the instruction, which an interrupt takes effect before or after, asks once more.
        let written =
            self.words.slots()[slot].store_if(value, Ordering::Relaxed, || !self.interrupted());
        if !written {
            return Err(Aborted);
        }
        Ok(())
    }
}
