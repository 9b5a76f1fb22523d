//! One thread takes objects and hands them to another, which gives them back.
//!
//! They go through a ring of this module, 32 at a time, the same for every candidate: the first
//! thread writes to each object and to the ring, and says once for all 32 that they are there; the
//! second gives each object back, and says once that their places are free. At most [`PLACES`] are
//! on their way, so that the objects stay in the caches.
//!
//! In one form the second thread does not look at an object: what it costs is what the pool does.
//! In the other it reads the word that was written, so that the line of each object moves to its
//! CPU, and back, in any case. The word says whether the object is the right one. [`Alone`] says
//! what each form costs with objects that are neither taken nor given back.
//!
//! The figure is the wall time of one object: the slower of the two threads decides.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::Lacking;
use crossbeam_utils::CachePadded;

use super::super::wait_until;
use super::{BATCH, Object, Pool, Subject, fence};

/// How many objects fit into the ring: a power of two.
const PLACES: usize = 4 * BATCH;

/// A pool, and the ring on which its objects go from thread 0 to thread 1. The word that a thread
/// writes into an object is the number of its place. `READS`: the other thread reads it.
pub(super) struct HandedOver<P: Pool, const READS: bool> {
    pool: &'static P,
    ring: Ring<P::Taken>,
    /// Objects that were taken, and those that came over, if they are read with the right word in
    /// them.
    done: AtomicU64,
}

/// Places for objects on their way, numbered on and on.
struct Ring<T> {
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// The first place that holds nothing yet: below it, the receiver may read.
    tail: CachePadded<AtomicU64>,
    /// The first place that the receiver has not read: from `PLACES` above it, the sender may not
    /// write.
    head: CachePadded<AtomicU64>,
}

// SAFETY: `put` and `get` say which thread has which place, and objects may go to other threads.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    fn new() -> Self {
        let empty = || UnsafeCell::new(MaybeUninit::uninit());
        Ring {
            places: (0..PLACES).map(|_| empty()).collect(),
            tail: CachePadded::default(),
            head: CachePadded::default(),
        }
    }

    /// # Safety
    ///
    /// The place is between `tail` and `head + PLACES`, and the caller the only sender.
    #[inline(always)]
    unsafe fn put(&self, place: u64, object: T) {
        let place = self.places[place as usize % PLACES].get();
        // SAFETY: the receiver does not look at places from `tail` on, and has read what was here.
        unsafe { (*place).write(object) };
    }

    /// # Safety
    ///
    /// The place is between `head` and `tail`, it is read once, and the caller is the only
    /// receiver.
    #[inline(always)]
    unsafe fn get(&self, place: u64) -> T {
        let place = self.places[place as usize % PLACES].get();
        // SAFETY: the sender wrote here before it moved `tail`, and not again before `head` moves.
        unsafe { (*place).assume_init_read() }
    }
}

impl<P: Pool, const READS: bool> HandedOver<P, READS> {
    pub(super) fn new(pool: &'static P) -> Self {
        HandedOver { pool, ring: Ring::new(), done: AtomicU64::new(0) }
    }

    fn send(&self, ops: u64) {
        let Ring { tail, head, .. } = &self.ring;
        // Relaxed: only this thread writes it.
        let mut place = tail.load(Ordering::Relaxed);
        let end = place + ops;
        while place < end {
            let next = end.min(place + BATCH as u64);
            // Acquire: pairs with the Release of `receive`. What it read of these places is read.
            wait_until(LOOKS, || {
                (next - head.load(Ordering::Acquire) <= PLACES as u64).then_some(())
            });
            for place in place..next {
                let taken = self.pool.take(place);
                fence();
                // SAFETY: places up to `next` are free, and only thread 0 sends.
                unsafe { self.ring.put(place, taken) };
            }
            place = next;
            // Release: pairs with the Acquire of `receive`, which reads the places and the objects.
            tail.store(place, Ordering::Release);
        }
        // Relaxed: read when the threads have reported through a channel.
        self.done.fetch_add(ops, Ordering::Relaxed);
    }

    fn receive(&self, ops: u64) {
        let Ring { tail, head, .. } = &self.ring;
        // Relaxed: only this thread writes it.
        let mut place = head.load(Ordering::Relaxed);
        let end = place + ops;
        let mut right = 0;
        while place < end {
            let next = end.min(place + BATCH as u64);
            // Acquire: pairs with the Release of `send`, which wrote the places and the objects.
            wait_until(LOOKS, || (tail.load(Ordering::Acquire) >= next).then_some(()));
            for place in place..next {
                // SAFETY: places up to `next` are written, each is read here alone, and only
                // thread 1 receives.
                let taken = unsafe { self.ring.get(place) };
                right += u64::from(!READS || self.pool.word(&taken) == place);
                self.pool.give(taken);
                fence();
            }
            place = next;
            // Release: pairs with the Acquire of `send`, which writes to these places again.
            head.store(place, Ordering::Release);
        }
        // Relaxed: read when the threads have reported through a channel.
        self.done.fetch_add(right, Ordering::Relaxed);
    }
}

impl<P: Pool, const READS: bool> Subject for HandedOver<P, READS> {
    /// The threads are 0 and 1, and do as many operations in each sample: one alone would wait for
    /// the other.
    fn run(&self, thread: usize, ops: u64) {
        match thread {
            0 => self.send(ops),
            1 => self.receive(ops),
            _ => unreachable!("the form is for two threads"),
        }
    }

    fn total(&self) -> Option<u64> {
        Some(self.done.load(Ordering::Relaxed))
    }
}

/// How often a thread looks before it lets others run: for longer than a batch takes.
const LOOKS: u32 = 1000;

/// The hand-off alone: objects that the sender has in turn.
pub(super) struct Alone {
    objects: Box<[UnsafeCell<Object>]>,
}

/// More than are on their way and in the hands of both threads, and a power of two.
const OBJECTS: usize = 2 * PLACES;

const _: () = assert!(OBJECTS >= PLACES + 2 * BATCH && PLACES.is_power_of_two());

// SAFETY: a thread has the objects that it was given, and no others. An object comes round again
// after all others, when no thread has it any more.
unsafe impl Sync for Alone {}

/// One of them.
pub(super) struct InTurn(*mut Object);

// SAFETY: its holder has the object to itself.
unsafe impl Send for InTurn {}

impl Pool for Alone {
    type Taken = InTurn;

    fn new() -> Result<Self, Lacking> {
        Ok(Alone { objects: (0..OBJECTS).map(|_| UnsafeCell::default()).collect() })
    }

    /// The word says which: the number of the place in the ring.
    #[inline(always)]
    fn take(&'static self, word: u64) -> InTurn {
        let object = self.objects[word as usize % OBJECTS].get();
        // SAFETY: the object is no thread's: there are more than can be on their way.
        unsafe { (*object).write(word) };
        InTurn(object)
    }

    #[inline(always)]
    fn word(&'static self, taken: &InTurn) -> u64 {
        // SAFETY: the object is the holder's.
        unsafe { (*taken.0).word() }
    }

    #[inline(always)]
    fn give(&'static self, _: InTurn) {}
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::lasting;
    use super::*;

    /// Gives out one object again and again.
    struct Twice(Alone);

    impl Pool for Twice {
        type Taken = InTurn;

        fn new() -> Result<Self, Lacking> {
            Ok(Twice(Alone::new()?))
        }

        fn take(&'static self, word: u64) -> InTurn {
            let InTurn(object) = self.0.take(0);
            // SAFETY: only one thread tests.
            unsafe { (*object).write(word) };
            InTurn(object)
        }

        fn word(&'static self, taken: &InTurn) -> u64 {
            self.0.word(taken)
        }

        fn give(&'static self, _: InTurn) {}
    }

    fn passed<P: Pool, const READS: bool>() -> u64 {
        let subject = HandedOver::<P, READS>::new(lasting().unwrap());
        // One thread after the other: the ring has room for this many.
        subject.run(0, PLACES as u64);
        let sent = subject.total().unwrap();
        assert_eq!(sent, PLACES as u64);
        subject.run(1, PLACES as u64);
        subject.total().unwrap() - sent
    }

    #[test]
    fn what_one_thread_sends_another_receives_in_order() {
        let subject = HandedOver::<Alone, true>::new(lasting().unwrap());
        // Many times round, and a batch that is not full at the end.
        let ops = 100 * PLACES as u64 + 8;
        for round in 1..=3 {
            thread::scope(|scope| {
                scope.spawn(|| subject.run(0, ops));
                subject.run(1, ops);
            });
            assert_eq!(subject.total(), Some(round * 2 * ops));
        }
    }

    #[test]
    fn an_object_that_comes_over_with_a_later_word_is_not_counted() {
        assert_eq!(passed::<Alone, true>(), PLACES as u64);
        assert_eq!(passed::<Twice, true>(), 1, "the last one");
        assert_eq!(passed::<Twice, false>(), PLACES as u64, "no thread looks");
    }
}
