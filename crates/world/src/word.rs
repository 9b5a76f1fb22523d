//! Words: the shared memory with which algorithms synchronise.

use core::fmt::Debug;
use core::ops::{BitAnd, BitXor, Deref, DerefMut};

use crate::{Ordering, Slot, Time, Track};

/// One atomic word.
///
/// The operations are those of `std::sync::atomic`. Every ordering has the same meaning, and the
/// same rules say which orderings an operation takes. `Native` words *are* the types of
/// `core::sync::atomic`.
///
/// Natively, words may be used in a signal handler and after `fork`.
pub trait Word: Send + Sync + Sized {
    /// The type of the word's value.
    type Value: Copy + PartialEq + Debug;

    /// Creates a word in the current machine or model execution. The function exists in every
    /// world.
    ///
    /// Inside a `const fn` use [`ConstWords`] instead.
    fn new_in(value: Self::Value) -> Self;

    /// Reads the word.
    fn load(&self, order: Ordering) -> Self::Value;

    /// Writes the word.
    fn store(&self, value: Self::Value, order: Ordering);

    /// Writes the word, and returns its previous value.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Writes `new` if the word holds `current`. Returns the previous value, as `Ok` if the call
    /// wrote.
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;

    /// Writes `new` if the word holds `current`, like [`compare_exchange`](Word::compare_exchange),
    /// but may fail although the word holds `current`. A world that does not override this method
    /// never fails in this way.
    #[track_caller]
    fn compare_exchange_weak(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value> {
        self.compare_exchange(current, new, success, failure)
    }

    /// Waits until `ready` accepts the word's value, and returns that value.
    ///
    /// The load that read the returned value has ordering `order`. The method corresponds to the
    /// kernel's `smp_cond_load_acquire` and `smp_cond_load_relaxed`. `ready` may run any number of
    /// times. Its result must depend only on the value, because it is called again only after a
    /// write to the word.
    ///
    /// The wait spins with pauses and uses the CPU, so use it for waits that end within a few line
    /// transfers. For longer waits use [`Sleep::park`](crate::Sleep::park).
    ///
    /// * `Native` increases its pauses, and yields when the wait gets long, so that a preempted
    ///   writer can run. A thread that has yielded for a long time sleeps between reads of the
    ///   word, up to 1 ms each time. A thread with a real-time priority begins to sleep after about
    ///   1 ms of its CPU time, so that a writer of lower priority can run on this CPU. Any other
    ///   thread begins to sleep after about 20 ms.
    /// * `Sim` parks the context on the line until the line's next write. This costs exactly what
    ///   spinning on a cached copy costs, and no host time. Simulated threads have no priorities.
    /// * The model yields to its scheduler.
    fn wait_until(&self, order: Ordering, ready: impl FnMut(Self::Value) -> bool) -> Self::Value;

    /// Waits, like [`wait_until`](Word::wait_until), but at most until `deadline`. Returns `None`
    /// if the wait times out.
    ///
    /// `deadline` is a time of this world's [`Clock`](crate::Clock). The wait times out only after
    /// a read of the word that began at or after `deadline`, and whose value `ready` did not
    /// accept. So these rules hold:
    ///
    /// * a value that is present at the deadline and does not change is returned, however late the
    ///   waiter reads it;
    /// * even if the deadline has already passed, the wait reads the word;
    /// * `None` orders no memory accesses, and says nothing about the present value of the word. A
    ///   caller that times out must use an exchange to agree with the writer on which of the two
    ///   was first.
    ///
    /// The return is late by the time for which other threads have the CPU, and in addition
    ///
    /// * in `Sim` by a read of the clock and the last read of the word. The wait costs one event
    ///   for each write of the line and one for the deadline;
    /// * in the model, which has no time, by any number of steps of other threads.
    fn wait_until_by(
        &self,
        order: Ordering,
        deadline: Time,
        ready: impl FnMut(Self::Value) -> bool,
    ) -> Option<Self::Value>;

    /// Writes the word, like [`store`](Word::store), but only if `allowed` returns true at the
    /// moment of the store. Returns whether the call stored. The method is for interpreters of
    /// restartable operations, whose words are generic. A world with interruptions has no other way
    /// to make a store depend on `allowed`.
    fn store_when(
        &self,
        value: Self::Value,
        order: Ordering,
        allowed: impl FnOnce() -> bool,
    ) -> bool {
        let allowed = allowed();
        if allowed {
            self.store(value, order);
        }
        allowed
    }

    /// Calls `f` with plain access to the value. The exclusive reference ensures that no other
    /// thread can access the word.
    fn with_mut<R>(&mut self, f: impl FnOnce(&mut Self::Value) -> R) -> R;
}

/// An unsigned integer that is the value of an [`Integer`].
pub trait Unsigned:
    Copy + Default + PartialEq + BitAnd<Output = Self> + BitXor<Output = Self>
{
    /// Returns the sum, modulo the number of values.
    #[must_use]
    fn wrapping_add(self, other: Self) -> Self;
}

macro_rules! unsigned {
    ($($value:ty)+) => {$(
        impl Unsigned for $value {
            #[inline]
            fn wrapping_add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )+};
}

unsigned!(u8 u32 u64 usize);

/// A [`Word`] that holds an unsigned integer. Arithmetic wraps.
pub trait Integer: Word<Value: Unsigned> {
    /// Adds `value`, and returns the previous value.
    fn fetch_add(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Subtracts `value`, and returns the previous value.
    fn fetch_sub(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Computes the bitwise and with `value`, and returns the previous value.
    fn fetch_and(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Computes the bitwise or with `value`, and returns the previous value.
    fn fetch_or(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Computes the bitwise exclusive or with `value`, and returns the previous value.
    fn fetch_xor(&self, value: Self::Value, order: Ordering) -> Self::Value;
}

/// The capability *words*: shared memory of this world.
pub trait Words: Sized + 'static {
    /// Whether words and cells have the size, alignment and address arithmetic of the native
    /// machine.
    ///
    /// The constant is true for `Native` and `Sim`, so that layout asserts hold and false sharing
    /// is real. It is false for the model.
    const NATIVE_LAYOUT: bool;

    /// An atomic `u8`.
    type U8: Integer<Value = u8> + Slot + 'static;
    /// An atomic `u32`.
    type U32: Integer<Value = u32> + Slot + 'static;
    /// An atomic `u64`.
    type U64: Integer<Value = u64> + Slot + 'static;
    /// An atomic `usize`.
    type Usize: Integer<Value = usize> + Slot + 'static;
    /// An atomic pointer.
    type Ptr<T: 'static>: Word<Value = *mut T> + Slot + 'static;
    /// The tracker to which a [`Cell`](crate::Cell) reports its accesses.
    type Track: Track;

    /// Tells the machine that the caller spins. Use it in loops that [`Word::wait_until`] cannot
    /// express.
    fn relax();
}

/// Initial values that a `const fn` can read.
///
/// A `const fn` cannot call a trait's functions, but it can read the trait's constants. So `const
/// fn new() where W: ConstWorld` builds its fields from these constants. Each use of such a
/// constant creates a new word.
#[allow(
    clippy::declare_interior_mutable_const,
    reason = "each use is meant to make a new word; that is what the constant is for"
)]
pub trait ConstWords: Words {
    /// A `u8` word that holds zero.
    const U8_ZERO: Self::U8;
    /// A `u32` word that holds zero.
    const U32_ZERO: Self::U32;
    /// A `u64` word that holds zero.
    const U64_ZERO: Self::U64;
    /// A `usize` word that holds zero.
    const USIZE_ZERO: Self::Usize;
    /// A pointer word that holds null.
    const NULL: Self::Ptr<u8>;
    /// A fresh tracker for a [`Cell`](crate::Cell).
    const TRACK: Self::Track;
}

/// A wrapper that places a value on a cache line of its own: 64 bytes, aligned to 64. This is the
/// coherence unit of x86-64, of most aarch64 servers, and of the simulator.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line<T>(pub T);

// SAFETY: one field, at offset 0.
unsafe impl<T: Slot> Slot for Line<T> {}

impl<T> Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Line<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

const _: () = {
    assert!(size_of::<Line<u64>>() == 64);
    assert!(align_of::<Line<u64>>() == 64);
};
