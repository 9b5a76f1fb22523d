//! The CPU of the calling thread at its last query.
//!
//! If no thread is registered, only the kernel knows the CPU, and a query costs several times as
//! much as an atomic operation. Operations on atomics may go to any slot, so they ask seldom.
//!
//! | bits of the word | meaning |
//! |---|---|
//! | 31..6 | the CPU |
//! | 5..0 | how often that may be said again; 0: ask |
//!
//! Only the thread itself and signal handlers on it use its word, so every ordering is relaxed. A
//! handler between the load and the store has the thread say once more what it was about to say.

use core::sync::atomic::{AtomicU32, Ordering};

use coreline_topology::CpuId;

use crate::arch;

const LEFT: u32 = 6;
const TIMES: u32 = (1 << LEFT) - 1;

/// The answer of `ask` at one of the last 64 calls in this thread.
#[inline]
pub(super) fn cpu(ask: impl FnOnce() -> CpuId) -> CpuId {
    // SAFETY: memory of the calling thread for its whole life; the reference does not leave here.
    let word = unsafe { &*arch::hint() };
    // Relaxed: the thread's own word.
    let hint = word.load(Ordering::Relaxed);
    if hint & TIMES == 0 {
        return renew(word, ask);
    }
    // Relaxed: the thread's own word.
    word.store(hint - 1, Ordering::Relaxed);
    CpuId::new(hint >> LEFT)
}

#[cold]
#[inline(never)]
fn renew(word: &AtomicU32, ask: impl FnOnce() -> CpuId) -> CpuId {
    let cpu = ask();
    let fits = cpu.get() <= u32::MAX >> LEFT;
    // A number that does not fit is asked for each time.
    let hint = if fits { cpu.get() << LEFT | TIMES } else { 0 };
    // Relaxed: the thread's own word.
    word.store(hint, Ordering::Relaxed);
    cpu
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_asks_at_each_64th_time() {
        let live = || {
            let (asked, next) = (Cell::new(0), Cell::new(5));
            let look = || {
                cpu(|| {
                    asked.set(asked.get() + 1);
                    CpuId::new(next.get())
                })
                .get()
            };
            let first: Vec<u32> = (0..64).map(|_| look()).collect();
            assert_eq!((first, asked.get()), (vec![5; 64], 1));
            next.set(1 << 26);
            assert_eq!((look(), look(), asked.get()), (1 << 26, 1 << 26, 3), "it does not fit");
            next.set((1 << 26) - 1);
            assert_eq!((look(), look(), asked.get()), ((1 << 26) - 1, (1 << 26) - 1, 4));
        };
        // One after the other, each with a word of its own.
        thread::spawn(live).join().unwrap();
        thread::spawn(live).join().unwrap();
    }
}
