//! Restartable operations, interpreted: the definition runs step by step, and between any two steps
//! the thread may be preempted, moved or fenced.

use coreline_world::restartable::{At, Ended, NoSlot, Operation, Steps};
use coreline_world::{IndexBy, Lacking, Ordering, Restartable, Why, Word};

use crate::Sim;
use crate::engine::{self, inside, races};

/// The index of an operation in the simulated machine.
pub type SimSection = IndexBy;

impl Restartable for Sim {
    type Section = SimSection;

    /// A page. Less than natively: slots lie in the machine's own memory, of which each of
    /// thousands of CPUs takes a stride.
    const STRIDE: usize = 4096;

    fn section(by: IndexBy) -> Result<(SimSection, usize), Lacking> {
        inside(|engine| {
            if by == IndexBy::KernelCid && !engine.has_cids() {
                return Err(Lacking {
                    world: "sim",
                    capability: "kernel concurrency ID",
                    why: Why::new("the simulated kernel hands out none"),
                    remedy: "give the machine a `Kernel` that does",
                });
            }
            Ok((by, engine.topology().cpu_limit()))
        })
    }

    fn index_by(section: &SimSection) -> IndexBy {
        *section
    }

    fn runs_sections(_: &SimSection) -> bool {
        true
    }

    fn index(section: &SimSection) -> usize {
        engine::point();
        read_index(*section)
    }

    /// Runs the definition until it was not interrupted.
    fn run<F, O: Operation<Sim, F>>(at: At<'_, F, Sim>, operation: O) -> Result<O::Output, NoSlot> {
        /// Ends a section, also one in which a signal's handler panics.
        struct Ends;

        impl Drop for Ends {
            fn drop(&mut self) {
                inside(|engine| engine.set_section(false));
            }
        }

        loop {
            inside(|engine| engine.set_section(true));
            let section = Ends;
            let mut steps = Interpreter::new();
            let outcome = operation.attempt(&mut steps, at);
            drop(section);
            races::left_slot(steps.slot);
            match outcome {
                Ok(output) => return Ok(output),
                Err(Ended::NoSlot) => return Err(NoSlot),
                Err(Ended::Aborted) => inside(|engine| engine.count_restart()),
            }
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
struct Interpreter {
    /// How often the thread had been interrupted when the attempt began.
    began: u64,
    /// Whether the kernel makes the attempt fail, as it should.
    aborts: bool,
    /// The address of the slot that it works on.
    slot: usize,
}

impl Interpreter {
    fn new() -> Interpreter {
        inside(|engine| Interpreter {
            began: engine.aborts(),
            aborts: !engine.faults().missed_aborts,
            slot: 0,
        })
    }

    /// Between two steps: here the thread may lose its CPU.
    fn boundary(&self) -> Result<(), Ended> {
        engine::interrupt_point();
        if self.interrupted() { Err(Ended::Aborted) } else { Ok(()) }
    }

    /// Whether the kernel has made the attempt fail.
    fn interrupted(&self) -> bool {
        self.aborts && inside(|engine| engine.aborts()) != self.began
    }

    /// A write that the instruction does or does not do. It begins immediately, so no thread of
    /// this CPU comes between the check and the write. A fence on another CPU can, while the store
    /// waits for room in the store buffer:
    ///
    ///   Thread 1: checks, waits for room
    ///   Thread 2: `fence_restartable` returns; reads the slot
    ///   Thread 1: writes                                        <- after the fence
    ///
    /// so the instruction, which an interrupt takes effect before or after, asks once more.
    fn write<T: Word>(&self, word: &T, value: T::Value, order: Ordering) -> Result<(), Ended> {
        self.boundary()?;
        let written = word.store_when(value, order, || !self.interrupted());
        if written { Ok(()) } else { Err(Ended::Aborted) }
    }
}

// Orderings are those of a section, and mean nothing here: a simulated machine is sequentially
// consistent.
//
// SAFETY: each step does what `Steps` says of it.
unsafe impl Steps<Sim> for Interpreter {
    fn slot<'a, F>(&mut self, at: &At<'a, F, Sim>) -> Result<&'a F, Ended> {
        self.boundary()?;
        // Which index the limits are for is known from the memory's making, and not charged. Where
        // both are 0 there is no slot in any case.
        let by = match at.limits().by(IndexBy::KernelCid).atomic.0.load(Ordering::Relaxed) {
            0 => IndexBy::Cpu,
            _ => IndexBy::KernelCid,
        };
        let mut index = read_index(by);
        if let Some(rows) = at.rows() {
            self.boundary()?;
            // SAFETY: the row is only read.
            let Some(row) = (unsafe { rows.at(index) }) else { return Err(Ended::NoSlot) };
            self.boundary()?;
            index = row.load(Ordering::Acquire) as usize;
        }
        self.boundary()?;
        if index >= at.limits().by(by).load(Ordering::Acquire) as usize {
            return Err(Ended::NoSlot);
        }
        // SAFETY: slots below the limit are initialised.
        let slot = unsafe { at.slot(index) };
        self.slot = core::ptr::from_ref(slot).addr();
        races::has_slot(self.slot);
        Ok(slot)
    }

    fn load<T: Word>(&mut self, word: &T) -> Result<T::Value, Ended> {
        self.boundary()?;
        Ok(word.load(Ordering::Relaxed))
    }

    fn store<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        self.write(word, value, Ordering::Relaxed)
    }

    fn commit<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        self.write(word, value, Ordering::Release)
    }
}
