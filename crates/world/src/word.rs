//! Words: the shared memory by which algorithms synchronise.

use core::fmt::Debug;
use core::ops::{BitAnd, BitXor, Deref, DerefMut};

use crate::{Ordering, Slot, Time, Track};

/// One atomic word.
///
/// The operations are those of `std::sync::atomic`, with the same meaning of every ordering and the
/// same rules for which orderings an operation takes. `Native` words *are* the types of
/// `core::sync::atomic`.
///
/// Natively, words may be used in a signal handler and after `fork`.
pub trait Word: Send + Sync + Sized {
    /// The type of the word's value.
    type Value: Copy + PartialEq + Debug;

    /// Makes a word in the current machine or model execution; this works in every world.
    ///
    /// Inside a `const fn` use [`ConstWords`].
    fn new_in(value: Self::Value) -> Self;

    /// Reads the word.
    fn load(&self, order: Ordering) -> Self::Value;

    /// Writes the word.
    fn store(&self, value: Self::Value, order: Ordering);

    /// Writes the word and returns the value before.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Writes `new` if the word holds `current`; returns the value before, as `Ok` if it wrote.
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;

    /// Like [`compare_exchange`](Word::compare_exchange), but may fail although the word holds
    /// `current`. In a world that does not override this it never does so.
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
    /// The load that read the returned value has ordering `order`. This is the kernel's
    /// `smp_cond_load_acquire` and `smp_cond_load_relaxed`. `ready` may run any number of times.
    /// Its result must depend only on the value: it is called again only when the word was written.
    ///
    /// The wait spins politely and burns the CPU, so use it for waits that end within a few line
    /// transfers. Longer waits belong to [`Sleep::park`](crate::Sleep::park).
    ///
    /// * `Native` pauses for longer and longer, and yields when the wait gets long, so that a
    ///   preempted writer can run. A thread that has yielded for long sleeps between looks, up to 1
    ///   ms each time. A thread with a real-time priority does so after about 1 ms of its CPU, so
    ///   that a writer of lower priority can run on this CPU. Any other thread does so after about
    ///   20 ms.
    /// * `Sim` parks the context on the line until the line's next write. This costs exactly what
    ///   spinning on a cached copy costs, and no host time. Its threads have no priorities.
    /// * The model yields to its scheduler.
    fn wait_until(&self, order: Ordering, ready: impl FnMut(Self::Value) -> bool) -> Self::Value;

    /// Like [`wait_until`](Word::wait_until), but until `deadline` at most: `None` if the wait gave
    /// up.
    ///
    /// The wait gives up after a look at the word that began when `deadline`, a point of this
    /// world's [`Clock`](crate::Clock), had come, and whose value `ready` did not accept. So these
    /// rules hold:
    ///
    /// * a value that is there at the deadline and stays is returned, however late the waiter
    ///   looks;
    /// * even if the deadline has already passed, the wait reads the word;
    /// * `None` orders nothing, and says nothing about the word any more. A caller that gives up
    ///   must settle that with the writer by an exchange.
    ///
    /// The wait returns late by as long as other threads have the CPU, and
    ///
    /// * in `Native` by at most 126 pauses (some microseconds);
    /// * in `Sim` by a reading of the clock and the last look. It costs one event for each write of
    ///   the line and one for the deadline;
    /// * in the model, which has no time, before or after any step of the others.
    fn wait_until_by(
        &self,
        order: Ordering,
        deadline: Time,
        ready: impl FnMut(Self::Value) -> bool,
    ) -> Option<Self::Value>;

    /// Like [`store`](Word::store), but only if `allowed` returns true at the moment when the store
    /// takes effect; returns whether it did. It is for interpreters of restartable operations,
    /// whose words are generic: a world with interruptions has no other way to tie a store to them.
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

    /// Returns plain access through an exclusive reference: no other context can see the word.
    fn with_mut<R>(&mut self, f: impl FnOnce(&mut Self::Value) -> R) -> R;
}

/// An unsigned integer, the value of an [`Integer`].
pub trait Unsigned:
    Copy + Default + PartialEq + BitAnd<Output = Self> + BitXor<Output = Self>
{
    /// The sum, modulo the number of values.
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
    /// Adds, and returns the value before.
    fn fetch_add(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Subtracts, and returns the value before.
    fn fetch_sub(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Ands bitwise, and returns the value before.
    fn fetch_and(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Ors bitwise, and returns the value before.
    fn fetch_or(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Xors bitwise, and returns the value before.
    fn fetch_xor(&self, value: Self::Value, order: Ordering) -> Self::Value;
}

/// The capability *words*: shared memory of this world.
pub trait Words: Sized + 'static {
    /// Whether words and cells have the size, alignment and address arithmetic of the native
    /// machine.
    ///
    /// True for `Native` and `Sim`, so that layout asserts hold and false sharing is real; false
    /// for the model.
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

    /// Tells the machine that the caller spins. It is for loops that [`Word::wait_until`] cannot
    /// express.
    fn relax();
}

/// Initial values that a `const fn` can read.
///
/// A `const fn` cannot call a trait's functions, but it can read its constants: `const fn new()
/// where W: ConstWorld` builds its fields from these. Each use of such a constant makes a new word.
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
    /// A fresh tracker for a [`Cell`](crate::Cell).
    const TRACK: Self::Track;
}

/// Puts a value on a cache line of its own: 64 bytes, aligned to 64. That is the coherence unit of
/// x86-64 and of most aarch64 servers, and the simulator's.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line<T>(pub T);

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
