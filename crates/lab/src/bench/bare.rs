//! The bare coroutine switch, the baseline of the simulator's speed.

use std::io;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

/// Bytes of a stack: enough for a loop.
const STACK: usize = 64 << 10;

/// Coroutines that do nothing but give the host thread back.
pub(super) struct Ring(Vec<Coroutine<(), (), (), DefaultStack>>);

impl Ring {
    pub(super) fn new(coroutines: u32) -> io::Result<Ring> {
        let coroutine = |_| {
            let stack = DefaultStack::new(STACK)?;
            let body = |yielder: &Yielder<(), ()>, ()| {
                loop {
                    yielder.suspend(());
                }
            };
            Ok(Coroutine::with_stack(stack, body))
        };
        (0..coroutines).map(coroutine).collect::<io::Result<_>>().map(Ring)
    }

    /// Switches to one after the other and back, about `count` times; returns how often.
    pub(super) fn turn(&mut self, count: u64) -> u64 {
        let rounds = count.div_ceil(self.0.len() as u64);
        for _ in 0..rounds {
            for coroutine in &mut self.0 {
                coroutine.resume(());
            }
        }
        rounds * self.0.len() as u64
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for coroutine in &mut self.0 {
            // SAFETY: the stack of each holds a loop and nothing that has a destructor.
            unsafe { coroutine.force_reset() };
        }
    }
}
