//! Restartable operations, interpreted: the definition runs step by step, and between any two steps
//! the thread may be preempted, moved or fenced.

use core::ptr::NonNull;

use coreline_world::restartable::definition::{self, Ended, Steps};
use coreline_world::restartable::{At, NoSlot};
use coreline_world::{
    ArrayStack, Buffer, Cell, Full, IndexBy, Lacking, List, ListNode, Ordering, Restartable, Word,
};

use crate::Sim;
use crate::engine::{self, inside};
use crate::words::SimU64;

/// What an operation is indexed by, in the simulated machine.
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
                    why: "the simulated kernel hands out none".to_owned(),
                    remedy: "give the machine a `Kernel` that does".to_owned(),
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
        engine::issue();
        read_index(*section)
    }

    fn add(at: At<'_, SimU64, Sim>, delta: u64) -> Result<(), NoSlot> {
        interpret(|steps| definition::add(steps, at, delta))
    }

    fn load(at: At<'_, SimU64, Sim>) -> Result<u64, NoSlot> {
        interpret(|steps| definition::load(steps, at))
    }

    fn store_if_equal(
        at: At<'_, SimU64, Sim>,
        expected: u64,
        new: u64,
    ) -> Result<Result<(), u64>, NoSlot> {
        interpret(|steps| definition::store_if_equal(steps, at, expected, new))
    }

    fn add_if(at: At<'_, SimU64, Sim>, delta: u64, fixed: u64) -> Result<Result<u64, u64>, NoSlot> {
        interpret(|steps| definition::add_if(steps, at, delta, fixed))
    }

    unsafe fn list_push(
        at: At<'_, List<Sim>, Sim>,
        node: NonNull<ListNode<Sim>>,
    ) -> Result<(), NoSlot> {
        // SAFETY: the caller makes the promise that `definition::list_push` asks for.
        interpret(|steps| unsafe { definition::list_push(steps, at, node) })
    }

    fn list_pop(at: At<'_, List<Sim>, Sim>) -> Result<Option<NonNull<ListNode<Sim>>>, NoSlot> {
        interpret(|steps| definition::list_pop(steps, at))
    }

    fn stack_push<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Sim>, Sim>,
        value: NonNull<T>,
    ) -> Result<Result<(), Full>, NoSlot> {
        interpret(|steps| definition::stack_push(steps, at, value))
    }

    fn stack_pop<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Sim>, Sim>,
    ) -> Result<Option<NonNull<T>>, NoSlot> {
        interpret(|steps| definition::stack_pop(steps, at))
    }

    fn stack_push_batch<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Sim>, Sim>,
        values: &[NonNull<T>],
    ) -> Result<usize, NoSlot> {
        interpret(|steps| definition::stack_push_batch(steps, at, values))
    }

    fn stack_pop_batch<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Sim>, Sim>,
        into: &mut [Option<NonNull<T>>],
    ) -> Result<usize, NoSlot> {
        interpret(|steps| definition::stack_pop_batch(steps, at, into))
    }

    fn append<const N: usize>(
        at: At<'_, Buffer<N, Sim>, Sim>,
        bytes: &[u8],
    ) -> Result<Result<usize, Full>, NoSlot> {
        interpret(|steps| definition::append(steps, at, bytes))
    }
}

/// Runs an operation until it was not interrupted.
fn interpret<R>(
    mut operation: impl FnMut(&mut Interpreter) -> Result<R, Ended>,
) -> Result<R, NoSlot> {
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
        let outcome = operation(&mut Interpreter::new());
        drop(section);
        match outcome {
            Ok(result) => return Ok(result),
            Err(Ended::NoSlot) => return Err(NoSlot),
            Err(Ended::Aborted) => inside(|engine| engine.count_restart()),
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
}

impl Interpreter {
    fn new() -> Interpreter {
        inside(|engine| Interpreter {
            began: engine.interrupts(),
            aborts: !engine.faults().missed_aborts,
        })
    }

    /// Between two steps: here the thread may lose its CPU.
    fn boundary(&self) -> Result<(), Ended> {
        engine::interrupt_point();
        if self.interrupted() { Err(Ended::Aborted) } else { Ok(()) }
    }

    /// Whether the kernel has made the attempt fail.
    fn interrupted(&self) -> bool {
        self.aborts && inside(|engine| engine.interrupts()) != self.began
    }

    /// A write that the instruction does or does not do. It begins at once, so no thread of this
    /// CPU comes between the check and the write. A fence on another CPU can, while the store waits
    /// for room in the store buffer:
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
        // Rows belong to CPUs, whatever the section's own index is.
        let of = if at.rows().is_some() { IndexBy::Cpu } else { *at.section() };
        let mut index = read_index(of);
        if let Some(rows) = at.rows() {
            self.boundary()?;
            // SAFETY: the row is only read.
            let Some(row) = (unsafe { rows.at(index) }) else { return Err(Ended::NoSlot) };
            self.boundary()?;
            index = row.load(Ordering::Acquire) as usize;
        }
        self.boundary()?;
        if index >= at.limit().load(Ordering::Acquire) as usize {
            return Err(Ended::NoSlot);
        }
        // SAFETY: slots below the limit are initialised.
        Ok(unsafe { at.slot(index) })
    }

    fn load<T: Word>(&mut self, word: &T) -> Result<T::Value, Ended> {
        self.boundary()?;
        Ok(word.load(Ordering::Relaxed))
    }

    fn store<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        self.write(word, value, Ordering::Relaxed)
    }

    fn copy<const N: usize>(
        &mut self,
        to: &Cell<[u8; N], Sim>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Ended> {
        self.boundary()?;
        // SAFETY: the bytes lie behind those that count, and no other thread of this CPU writes to
        // the slot meanwhile; simulated threads take turns.
        let written = unsafe { to.write_at(offset, bytes, || !self.interrupted()) };
        if written { Ok(()) } else { Err(Ended::Aborted) }
    }

    fn commit<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended> {
        self.write(word, value, Ordering::Release)
    }
}
