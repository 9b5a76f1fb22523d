//! Signals: delivered to the running thread, on its stack.
//!
//! | `held` | `pending` | a signal that comes now |
//! |---|---|---|
//! | 0 | false | is delivered: the handler runs, with `held` at 1 |
//! | more | false | stays pending |
//! | more | true | is one with the pending one, as a standard signal on Linux |
//!
//! The last release delivers what is pending.

use std::any::{Any, TypeId};
use std::rc::Rc;

use crate::engine::{Engine, Key, inside, with};

/// A signal handler.
type Handler = Box<dyn Fn() + Send + Sync>;

/// The machine's handler is found by the address of this static.
static HANDLER: u8 = 0;

fn handler_key() -> Key {
    ((&raw const HANDLER).addr(), TypeId::of::<Handler>())
}

/// Sets the machine's handler.
pub(crate) fn on_signal(handler: Handler) {
    let object: Rc<dyn Any + Send + Sync> = Rc::new(handler);
    let old = inside(|engine| {
        engine.spend_in_call(engine.spec.costs().syscall);
        engine.replace_static(handler_key(), object)
    });
    drop(old);
}

/// How many holds the running thread has, if the caller is in a machine.
pub(crate) fn holds() -> Option<u32> {
    with(|engine| engine.threads[engine.current()].held)
}

/// Keeps signals off the running thread.
pub(crate) fn hold_signals() {
    inside(|engine| {
        let current = engine.current();
        if engine.threads[current].held == 0 {
            engine.spend_in_call(engine.spec.costs().syscall);
        }
        engine.threads[current].held += 1;
    });
}

/// Ends one hold. Does nothing outside of a machine, where the objects that a failed machine left
/// may drop.
pub(crate) fn release_signals() {
    let pending = with(|engine| {
        if engine.threads[engine.current()].held == 1 {
            engine.spend_in_call(engine.spec.costs().syscall);
        }
        engine.release()
    });
    if pending == Some(true) {
        deliver();
    }
}

/// A signal hits the running thread.
pub(in crate::engine) fn deliver() {
    let mut delivered = inside(Engine::begin_signal);
    while delivered {
        let ends = Ends(inside(Engine::enter_handler));
        let handler = inside(|engine| engine.find_static(&handler_key()));
        if let Some(handler) = handler.as_ref().and_then(|object| object.downcast_ref::<Handler>())
        {
            handler();
        }
        drop(ends);
        delivered = inside(Engine::is_pending);
    }
}

/// Ends a handler, also one that panics. Holds whether a restartable operation was under way.
struct Ends(bool);

impl Drop for Ends {
    fn drop(&mut self) {
        inside(|engine| {
            engine.spend_in_call(engine.spec.costs().syscall);
            engine.set_section(self.0);
            let current = engine.current();
            engine.threads[current].held -= 1;
        });
    }
}

impl Engine {
    /// Whether a signal that comes, or was pending, is delivered now.
    fn begin_signal(&mut self) -> bool {
        let current = self.current();
        let thread = &mut self.threads[current];
        thread.pending = thread.held > 0;
        !thread.pending
    }

    /// Whether one came meanwhile, and nothing holds it off now.
    fn is_pending(&mut self) -> bool {
        let current = self.current();
        let thread = &mut self.threads[current];
        thread.held == 0 && std::mem::take(&mut thread.pending)
    }

    /// The kernel makes the thread run its handler. Returns whether a restartable operation was
    /// under way: that will start over.
    fn enter_handler(&mut self) -> bool {
        self.spend(self.spec.costs().irq_entry);
        let current = self.current();
        let thread = &mut self.threads[current];
        thread.aborts += 1;
        thread.held += 1;
        std::mem::take(&mut thread.section)
    }

    /// Ends a hold. Returns whether a signal waited for it.
    fn release(&mut self) -> bool {
        let current = self.current();
        let held = &mut self.threads[current].held;
        // A guard may drop in another machine than its own.
        *held = held.saturating_sub(1);
        self.is_pending()
    }
}
