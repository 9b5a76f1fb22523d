//! Words: the types of `core::sync::atomic` themselves.

use core::convert::Infallible;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use core::{hint, ptr};

use crate::native::Native;
use crate::native::backoff::Backoff;
use crate::{Cell, Clock, ConstWords, Integer, Ordering, Slot, Time, Track, Word, Words};

/// Pauses before a waiting thread gives its CPU to another one for the first time: some
/// microseconds. A [`Word::wait_until`] that long is either scheduling or a bug.
const PAUSES_FIRST: u32 = 127;

/// Pauses before it does so again.
const PAUSES_NEXT: u32 = 64;

/// The waiting part of both waits. It reads the word until `ready` accepts the value, or until
/// `give_up` returned true and the next read did not help. It calls `give_up` before the first
/// read, and before each read that precedes a yield of the CPU. There are at most `most` pauses
/// between two checks.
///
/// Pauses of doubling length keep the waiters of a contended line from fetching it all the time.
/// When that has not helped, the thread gives its CPU away between looks: the writer may be waiting
/// for this CPU.
#[inline(always)]
fn poll<W: Word, E>(
    word: &W,
    order: Ordering,
    (most, deadline): (u32, Option<Time>),
    mut ready: impl FnMut(W::Value) -> bool,
    mut give_up: impl FnMut() -> Result<(), E>,
) -> Result<W::Value, E> {
    let (mut pauses, mut left) = (1, PAUSES_FIRST);
    let mut backoff = Backoff::new(deadline);
    loop {
        for _ in 0..pauses {
            hint::spin_loop();
        }
        left = left.saturating_sub(pauses);
        let verdict = if left == 0 || pauses == 1 { give_up() } else { Ok(()) };
        let value = word.load(order);
        if ready(value) {
            return Ok(value);
        }
        verdict?;
        if left == 0 {
            backoff.snooze();
            left = PAUSES_NEXT;
        }
        pauses = most.min(2 * pauses);
    }
}

/// The waiting part of [`Word::wait_until`], away from the fast path.
///
/// The arguments come one by one, not as a closure over them: a closure would be built in memory,
/// and on the fast path.
#[cold]
#[inline(never)]
fn spin<W: Word>(word: &W, order: Ordering, ready: impl FnMut(W::Value) -> bool) -> W::Value {
    let Ok(value) = poll(word, order, (PAUSES_NEXT, None), ready, || Ok::<(), Infallible>(()));
    value
}

/// The largest number of pauses between two checks of [`Word::wait_until_by`]. It is for longer
/// waits than [`Word::wait_until`]. Each wait may end late by the time between two checks: at most
/// 0.2 us, on a processor with pauses of 25 ns.
const PAUSES_BY: u32 = 8;

/// The waiting part of [`Word::wait_until_by`]. Reading the clock takes a small part of the pauses
/// between two readings.
#[cold]
#[inline(never)]
fn spin_by<W: Word>(
    word: &W,
    order: Ordering,
    deadline: Time,
    ready: impl FnMut(W::Value) -> bool,
) -> Option<W::Value> {
    let give_up = || if Native::now() >= deadline { Err(()) } else { Ok(()) };
    poll(word, order, (PAUSES_BY, Some(deadline)), ready, give_up).ok()
}

/// Functions of a word that the atomic type has by the same name.
macro_rules! as_they_are {
    ($($function:ident($($argument:ident: $type:ty),*) $(-> $output:ty)?;)+) => {$(
        #[inline]
        fn $function(&self, $($argument: $type),*) $(-> $output)? {
            self.$function($($argument),*)
        }
    )+};
}

macro_rules! word {
    ($word:ty, $value:ty $(, $parameter:ident)?) => {
        // SAFETY: a word has no fields.
        unsafe impl$(<$parameter: 'static>)? Slot for $word {}

        impl$(<$parameter: 'static>)? Word for $word {
            type Value = $value;

            #[inline]
            fn new_in(value: $value) -> Self {
                <$word>::new(value)
            }

            as_they_are! {
                load(order: Ordering) -> $value;
                store(value: $value, order: Ordering);
                swap(value: $value, order: Ordering) -> $value;
                compare_exchange(
                    current: $value, new: $value, success: Ordering, failure: Ordering
                ) -> Result<$value, $value>;
                compare_exchange_weak(
                    current: $value, new: $value, success: Ordering, failure: Ordering
                ) -> Result<$value, $value>;
            }

            #[inline]
            fn wait_until(
                &self,
                order: Ordering,
                mut ready: impl FnMut($value) -> bool,
            ) -> $value {
                let value = self.load(order);
                if ready(value) { value } else { spin(self, order, ready) }
            }

            #[inline]
            fn wait_until_by(
                &self,
                order: Ordering,
                deadline: Time,
                mut ready: impl FnMut($value) -> bool,
            ) -> Option<$value> {
                let value = self.load(order);
                if ready(value) { Some(value) } else { spin_by(self, order, deadline, ready) }
            }

            #[inline]
            fn with_mut<R>(&mut self, f: impl FnOnce(&mut $value) -> R) -> R {
                f(self.get_mut())
            }
        }
    };
}

macro_rules! integer {
    ($($word:ty: $value:ty: $($operation:ident)+;)+) => {$(
        word!($word, $value);

        impl Integer for $word {
            as_they_are! {
                $($operation(value: $value, order: Ordering) -> $value;)+
            }
        }
    )+};
}

integer! {
    AtomicU8: u8: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    AtomicU32: u32: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    AtomicU64: u64: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    AtomicUsize: usize: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
}
word!(AtomicPtr<T>, *mut T, T);

/// The tracker of native cells, which reports nothing. It takes no space and no time.
#[derive(Debug, Clone, Copy)]
pub struct Untracked;

impl Track for Untracked {
    type Reading = ();
    type Writing = ();

    #[inline]
    fn new_in() -> Self {
        Untracked
    }

    #[inline]
    fn reading(&self, _at: *const u8, _len: usize) {}

    #[inline]
    fn writing(&self, _at: *const u8, _len: usize) {}
}

impl Words for Native {
    const NATIVE_LAYOUT: bool = true;

    type U8 = AtomicU8;
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Usize = AtomicUsize;
    type Ptr<T: 'static> = AtomicPtr<T>;
    type Track = Untracked;

    #[inline]
    fn relax() {
        hint::spin_loop();
    }
}

impl ConstWords for Native {
    const U8_ZERO: AtomicU8 = AtomicU8::new(0);
    const U32_ZERO: AtomicU32 = AtomicU32::new(0);
    const U64_ZERO: AtomicU64 = AtomicU64::new(0);
    const USIZE_ZERO: AtomicUsize = AtomicUsize::new(0);
    const NULL: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
    const TRACK: Untracked = Untracked;
}

const _: () = {
    assert!(size_of::<Cell<u64, Native>>() == 8);
    assert!(align_of::<Cell<u64, Native>>() == 8);
    assert!(size_of::<Cell<[u8; 3], Native>>() == 3);
};

#[cfg(test)]
mod tests {
    use std::thread;
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    use {core::time::Duration, std::sync::mpsc};

    use super::*;

    /// Waits for a word that is written after a second, by the waiter's own clock.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    #[test]
    fn a_long_wait_takes_little_of_a_cpu() {
        let span = Duration::from_secs(1);
        let (word, (waits, has_begun)) = (&AtomicU32::new(0), mpsc::channel());
        let (ran, all) = thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                let (before, began) = (Native::now(), busy());
                waits.send(()).unwrap();
                Word::wait_until(word, Ordering::Acquire, |value| value == 1);
                (busy() - began, Native::now() - before)
            });
            has_begun.recv().unwrap();
            thread::sleep(span);
            // Release pairs with the waiter's acquire, as a caller's would.
            word.store(1, Ordering::Release);
            waiter.join().unwrap()
        });
        assert!(ran < all / 2, "it ran for {ran:?} of {all:?}");
    }

    /// How long the calling thread has run.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    fn busy() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a live timespec that the call may write.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
    }

    #[test]
    fn a_long_wait_lets_the_writer_run() {
        // The waiter burns its CPU; only its yielding lets a writer on that CPU end the wait soon.
        // Far more rounds than a machine has CPUs, so that writer and waiter meet on one CPU.
        for _ in 0..100 {
            let word = AtomicU32::new(0);
            let seen = thread::scope(|scope| {
                let waiter =
                    scope.spawn(|| Word::wait_until(&word, Ordering::Acquire, |value| value >= 2));
                for _ in 0..3 {
                    thread::yield_now();
                    // Release pairs with the waiter's acquire, as a caller's would.
                    word.fetch_add(1, Ordering::Release);
                }
                waiter.join().unwrap()
            });
            assert!(seen == 2 || seen == 3, "wait ended with {seen}");
        }
    }

    #[test]
    fn a_wait_that_is_over_looks_once() {
        let word = AtomicU64::new(7);
        let mut looks = 0;
        let value = Word::wait_until(&word, Ordering::Relaxed, |value| {
            looks += 1;
            value == 7
        });
        assert_eq!((value, looks), (7, 1));
    }
}
