//! The coroutines of simulated threads.

use std::any::Any;
use std::rc::Rc;

use corosensei::stack::Stack as _;
use corosensei::{Coroutine, Yielder};

use crate::engine::kernel::points::drain;
use crate::engine::{Engine, Key, inside};
use crate::hardware::arena;
use crate::hardware::stack::Stack;

/// The function that a simulated thread runs. Its type is forgotten here: what starts, runs and
/// ends threads and machines is compiled once, and not again for each closure of each program. A
/// closure is moved to the thread's stack when it is called, so that words that it owns are in the
/// machine's memory.
pub(crate) struct Job(Box<dyn FnOnce()>);

impl Job {
    pub(crate) fn new(f: impl FnOnce() + 'static) -> Job {
        // The machine's memory is for what its program allocates.
        let _host = arena::leave();
        Job(Box::new(f))
    }
}

/// A simulated thread's coroutine, and the bounds of its stack. It takes and gives nothing: all is
/// in the engine.
pub(in crate::engine) struct Fiber {
    pub(in crate::engine) coroutine: Coroutine<(), (), (), Stack>,
    /// Lowest and highest address.
    pub(in crate::engine) stack: (usize, usize),
}

impl Fiber {
    /// A coroutine that runs this on this stack, as the thread that is given it.
    pub(in crate::engine) fn new(stack: Stack, Job(run): Job) -> Fiber {
        let _host = arena::leave();
        let bounds = (stack.limit().get(), stack.base().get());
        let body = move |yielder: &Yielder<(), ()>, ()| {
            inside(|engine| engine.begin(yielder));
            run();
            // Objects of the thread go while it still is one; their destructors may make new ones.
            while let Some(locals) = inside(Engine::take_locals) {
                drop(locals);
            }
            drain();
        };
        Fiber { coroutine: Coroutine::with_stack(stack, body), stack: bounds }
    }
}

impl Engine {
    /// The running thread begins.
    fn begin(&mut self, yielder: &Yielder<(), ()>) {
        let current = self.current();
        self.threads[current].yielder = yielder;
        self.yielder = yielder;
    }

    /// The running thread's `WorldLocal` objects, if it has any.
    fn take_locals(&mut self) -> Option<Vec<(Key, Rc<dyn Any>)>> {
        let current = self.current();
        let locals = std::mem::take(&mut self.threads[current].locals);
        (!locals.is_empty()).then_some(locals)
    }
}
