//! Objects that own per-CPU counters, without a cache: what one costs to make and to free.
//!
//! An object has 4 counters, and a counter has a slot of 8 bytes for each of 384 possible CPUs.
//! Making one does what a per-CPU allocator of a kernel does: under one mutex of the whole system
//! it finds room, and it clears the room for every possible CPU. Freeing one takes the mutex again.
//! Here each counter is one zeroed allocation, in two layouts:
//!
//! - **a line a slot** ([`Line`]): 24 KiB a counter. Where CPUs write to their slots at once, this
//!   is what a program without a per-CPU allocator must have; and a kernel, which has the slots of
//!   a CPU in memory of that CPU's, also clears 384 lines for a counter;
//! - **dense** ([`Word`]): 3 KiB a counter, 12 KiB an object, which stay in the first-level cache.
//!   Eight CPUs would write to each line, so no counter of use would be so: it is the least that
//!   clearing can cost.
//!
//! Whatever else is in doubt favours these rivals: the mutex is taken once for all 4 counters, not
//! once for each; lines are not aligned, which would take a search; and each object is like the one
//! before it, so an allocator finds its room at once, in the caches. Candidates of their own clear
//! the room after they freed the mutex.

use std::array;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use coreline::Lacking;
use crossbeam_utils::CachePadded;

use super::Pool;
use super::allocators::Allocator;

const COUNTERS: usize = 4;
const SLOTS: usize = 384;

/// A slot with a line to itself.
pub(super) type Line = [u64; 8];

/// A slot beside others.
pub(super) type Word = u64;

/// An object: its counters, by their first slots.
pub(super) struct Counters<S>([NonNull<S>; COUNTERS]);

// SAFETY: its holder has the counters to itself, and allocators take memory from any thread.
unsafe impl<S> Send for Counters<S> {}

impl<S> Counters<S> {
    const BYTES: usize = SLOTS * size_of::<S>();

    fn new(allocate: impl Fn(usize) -> *mut u8) -> Self {
        let counter = |_| NonNull::new(allocate(Self::BYTES).cast());
        Counters(array::from_fn(|it| counter(it).expect("there is memory for a counter")))
    }

    fn clear(&mut self) {
        for counter in &self.0 {
            // SAFETY: the memory is the holder's, and holds this many slots.
            unsafe { counter.write_bytes(0, SLOTS) };
        }
    }

    /// Writes to the first slot of the first counter.
    fn write(&mut self, word: u64) {
        // SAFETY: the counter is the holder's, and its memory aligned for a word. Volatile: a
        // compiler may leave out an allocation of which it knows every access.
        unsafe { self.0[0].cast::<u64>().write_volatile(word) };
    }
}

/// Counters are allocated and cleared under a mutex.
pub(super) struct UnderMutex<A, S>(CachePadded<Mutex<()>>, PhantomData<(A, fn() -> S)>);

/// Counters are allocated under a mutex, and cleared after it.
pub(super) struct ZeroedOutside<A, S>(UnderMutex<A, S>);

impl<A, S> UnderMutex<A, S> {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().expect("no thread panics under it")
    }
}

impl<A: Allocator, S: 'static> Pool for UnderMutex<A, S> {
    type Taken = Counters<S>;

    fn new() -> Result<Self, Lacking> {
        A::present()?;
        Ok(UnderMutex(CachePadded::default(), PhantomData))
    }

    fn take(&'static self, word: u64) -> Counters<S> {
        let lock = self.lock();
        let mut taken = Counters::new(A::allocate_zeroed);
        drop(lock);
        taken.write(word);
        taken
    }

    fn word(&'static self, taken: &Counters<S>) -> u64 {
        // SAFETY: the counter is the holder's, and was cleared.
        unsafe { taken.0[0].cast::<u64>().read() }
    }

    fn give(&'static self, taken: Counters<S>) {
        let _lock = self.lock();
        for counter in taken.0 {
            // SAFETY: it came from this allocator, and the holder gives it up.
            unsafe { A::free(counter.as_ptr().cast(), Counters::<S>::BYTES) };
        }
    }
}

impl<A: Allocator, S: 'static> Pool for ZeroedOutside<A, S> {
    type Taken = Counters<S>;

    fn new() -> Result<Self, Lacking> {
        Ok(ZeroedOutside(UnderMutex::new()?))
    }

    fn take(&'static self, word: u64) -> Counters<S> {
        let lock = self.0.lock();
        let mut taken = Counters::new(A::allocate);
        drop(lock);
        taken.clear();
        taken.write(word);
        taken
    }

    fn word(&'static self, taken: &Counters<S>) -> u64 {
        self.0.word(taken)
    }

    fn give(&'static self, taken: Counters<S>) {
        self.0.give(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocators::{Glibc, Mimalloc};
    use super::super::lasting;
    use super::*;

    /// All words of an object, as it was taken.
    fn words<P: Pool<Taken = Counters<S>>, S: 'static>() -> Vec<u64> {
        let pool = lasting::<P>().unwrap();
        // What comes back dirty is taken again.
        let dirty = pool.take(7);
        for counter in &dirty.0 {
            // SAFETY: the memory is this test's, and holds this many slots.
            unsafe { counter.write_bytes(0xff, SLOTS) };
        }
        pool.give(dirty);
        let taken = pool.take(7);
        let words = SLOTS * size_of::<S>() / size_of::<u64>();
        let of = |counter: &NonNull<S>| {
            let first = counter.cast::<u64>();
            // SAFETY: the memory is this test's, and was cleared.
            (0..words).map(move |word| unsafe { first.add(word).read() })
        };
        let all = taken.0.iter().flat_map(of).collect();
        pool.give(taken);
        all
    }

    #[test]
    fn the_slots_of_every_counter_are_zero_at_first() {
        let slots = COUNTERS * SLOTS;
        for (words, expected) in [
            (words::<UnderMutex<Glibc, Line>, Line>(), 8 * slots),
            (words::<UnderMutex<Glibc, Word>, Word>(), slots),
            (words::<UnderMutex<Mimalloc, Line>, Line>(), 8 * slots),
            (words::<UnderMutex<Mimalloc, Word>, Word>(), slots),
            (words::<ZeroedOutside<Glibc, Line>, Line>(), 8 * slots),
            (words::<ZeroedOutside<Glibc, Word>, Word>(), slots),
        ] {
            assert_eq!(words.len(), expected);
            assert_eq!(words[0], 7);
            assert!(words[1..].iter().all(|&word| word == 0));
        }
    }
}
