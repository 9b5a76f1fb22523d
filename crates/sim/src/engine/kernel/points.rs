//! The points where a thread may be held up: before each access, and before each call of the
//! kernel.

use corosensei::Yielder;

use crate::engine::kernel::{faults, interrupts};
use crate::engine::{Cpu, Engine, inside, stack, suspend, switch_away};

/// Why a thread may not go on.
pub(in crate::engine) enum Hold {
    /// Others come first: it gives the host thread back, by this way out.
    Turn(*const Yielder<(), ()>),
    /// It has no stack left.
    Stack,
    /// The machine looks at this point of the program first.
    Point,
}

/// The wait of a thread that [may not go on](Engine::may_go_on).
#[inline]
pub(in crate::engine) fn held_up(hold: Hold) {
    match hold {
        Hold::Turn(yielder) => {
            switch_away(yielder);
            interrupts::deliver();
        }
        Hold::Stack => stack::give_up(),
        Hold::Point => faults::visit_point(None),
    }
}

/// Waits until the running thread may begin to do something that others can notice: nothing earlier
/// is left to happen elsewhere, and its share of the CPU is not used up. Counts a step, so that no
/// loop of a simulated program is endless. At this point, all accesses of the thread are complete.
pub(crate) fn issue() {
    inside(Engine::settle_here);
    point();
}

/// Like [`issue`], where accesses may be under way.
pub(crate) fn point() {
    while let Err(hold) = inside(Engine::may_go_on) {
        held_up(hold);
    }
}

/// Like [`issue`], and waits until the CPU's store buffer is empty.
pub(crate) fn drain() {
    issue();
    while !inside(|engine| engine.drain_or_wait(0)) {
        suspend();
        issue();
    }
}

/// A point where the machine may interrupt the running thread: between two steps of a restartable
/// operation.
pub(crate) fn interrupt_point() {
    point();
    faults::strike_step();
}

impl Engine {
    /// Whether the running thread may do something that others can notice: no other CPU has an
    /// earlier event, and the kernel has nothing to do on this CPU. Counts a step, so that no loop
    /// of a simulated program is endless.
    #[inline(always)]
    pub(in crate::engine) fn may_go_on(&mut self) -> Result<(), Hold> {
        self.count_step();
        if self.is_out_of_stack() {
            return Err(Hold::Stack);
        }
        let &mut Cpu { now, next_kernel_event, .. } = self.here();
        if now >= next_kernel_event || now > self.horizon || self.failure.is_some() {
            return Err(Hold::Turn(self.yielder));
        }
        if self.preemption_points {
            let current = self.current();
            if !std::mem::take(&mut self.threads[current].visited) {
                return Err(Hold::Point);
            }
        }
        Ok(())
    }
}
