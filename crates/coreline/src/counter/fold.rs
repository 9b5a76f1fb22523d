//! [`PerCpuFold`]: the maximum, the minimum or the floating-point sum of the values that all CPUs
//! record.

use core::fmt;
use core::marker::PhantomData;

use coreline_world::restartable::NoSlot;
use coreline_world::restartable::definition::{Load, StoreIfEqual};
use coreline_world::{Native, Ordering, Word, World};

use super::constructors::constructors;
use super::spread::Spread;
use crate::percpu::{PerCpuPool, StopError, Stopped};
use crate::{IndexBy, Lacking};

/// The largest recorded value, for `u64`, `i64` or `f64`.
#[derive(Debug)]
pub struct Max<T>(PhantomData<T>);

/// The smallest recorded value, for `u64`, `i64` or `f64`.
#[derive(Debug)]
pub struct Min<T>(PhantomData<T>);

/// The sum of all recorded values, for `f64`. For integers, [`PerCpuCounter`](super::PerCpuCounter)
/// and [`Total`](super::Total) are faster.
#[derive(Debug)]
pub struct Sum<T>(PhantomData<T>);

/// A rule that combines two values into one: [`Max`], [`Min`] or [`Sum`].
///
/// Starting from [`IDENTITY`](Fold::IDENTITY), the result does not depend on the order of the
/// values, except for the rounding of sums.
pub trait Fold: sealed::Sealed + Send + Sync + Unpin + 'static {
    /// The type of the recorded values.
    type Value: Copy + PartialEq + fmt::Debug;

    /// The result before any value is recorded. It is the least value for a [`Max`], the greatest
    /// value for a [`Min`] (for `f64`, an infinity), and 0 for a [`Sum`].
    const IDENTITY: Self::Value;

    /// Combines two values into one.
    fn fold(left: Self::Value, right: Self::Value) -> Self::Value;

    /// Encodes a value as the bits of a word.
    fn to_bits(value: Self::Value) -> u64;

    /// Decodes a value from the bits of a word.
    fn from_bits(bits: u64) -> Self::Value;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! fold {
    ($($fold:ident<$value:ident>: $identity:expr, $with:expr, $to:expr, $from:expr;)+) => {
        $(
            impl sealed::Sealed for $fold<$value> {}

            impl Fold for $fold<$value> {
                type Value = $value;

                const IDENTITY: $value = $identity;

                #[inline]
                fn fold(left: $value, right: $value) -> $value {
                    $with(left, right)
                }

                #[inline]
                fn to_bits(value: $value) -> u64 {
                    $to(value)
                }

                #[inline]
                fn from_bits(bits: u64) -> $value {
                    $from(bits)
                }
            }
        )+
    };
}

fold! {
    Max<u64>: u64::MIN, Ord::max, u64::into, u64::into;
    Min<u64>: u64::MAX, Ord::min, u64::into, u64::into;
    Max<i64>: i64::MIN, Ord::max, i64::cast_unsigned, u64::cast_signed;
    Min<i64>: i64::MAX, Ord::min, i64::cast_unsigned, u64::cast_signed;
    Max<f64>: f64::NEG_INFINITY, f64::max, f64::to_bits, f64::from_bits;
    Min<f64>: f64::INFINITY, f64::min, f64::to_bits, f64::from_bits;
    Sum<f64>: 0.0, |left: f64, right: f64| left + right, f64::to_bits, f64::from_bits;
}

/// The [`Max`], [`Min`] or [`Sum`] of all recorded values, with one word for each CPU that records.
/// For example, it can keep a high-water mark without a cache line that all CPUs share.
///
/// ```
/// use coreline::counter::{Max, PerCpuFold};
///
/// static LONGEST_QUEUE: PerCpuFold<Max<u64>> = PerCpuFold::const_new();
///
/// LONGEST_QUEUE.record(3);
/// LONGEST_QUEUE.record(2);
/// assert_eq!(LONGEST_QUEUE.read(), 3);
/// assert_eq!(LONGEST_QUEUE.drain()?, 3);
/// assert_eq!(LONGEST_QUEUE.read(), 0);
/// # Ok::<(), coreline::percpu::StopError>(())
/// ```
///
/// Recording a value that does not change the result writes nothing. For a maximum, most values do
/// not change it. A maximum or minimum of `f64` ignores a NaN. A NaN makes a sum NaN until the sum
/// is drained. The rounding error of a sum depends on which CPU recorded which value.
///
/// **Memory**: see [`PerCpuCounter`](super::PerCpuCounter).
///
/// **Signals**: recording and reading are async-signal-safe, except for the first record in a fold
/// from [`const_new`](PerCpuFold::const_new), which allocates.
///
/// **Fork**: see [`PerCpuCounter`](super::PerCpuCounter). A [`drain`](PerCpuFold::drain) differs,
/// because it empties one slot after the other. Values from slots that it emptied before the fork
/// are missing in the child.
pub struct PerCpuFold<F: Fold, W: World = Native> {
    spread: Spread<W::U64, W>,
    fold: PhantomData<F>,
}

constructors!([F: Fold,] PerCpuFold<F>, "an empty fold");

impl<F: Fold> PerCpuFold<F> {
    /// Creates an empty fold, like [`new`](PerCpuFold::new), in a const context. The first record
    /// allocates, so it is not async-signal-safe. It has the same side effects as the first
    /// addition to a [counter](super::PerCpuCounter::const_new).
    pub const fn const_new() -> Self {
        PerCpuFold { spread: Spread::const_new(), fold: PhantomData }
    }
}

impl<F: Fold> Default for PerCpuFold<F> {
    /// Creates an empty fold, like [`const_new`](PerCpuFold::const_new).
    fn default() -> Self {
        Self::const_new()
    }
}

/// Returns the initial value of words.
fn identity<F: Fold, W: World>() -> W::U64 {
    W::U64::new_in(F::to_bits(F::IDENTITY))
}

impl<F: Fold, W: World> PerCpuFold<F, W> {
    /// Creates an empty fold whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>) -> Self {
        let spread = Spread::new_in(pool.clone(), identity::<F, W>);
        PerCpuFold { spread, fold: PhantomData }
    }

    /// Records a value. The operation is relaxed, so it publishes no other writes.
    #[inline]
    pub fn record(&self, value: F::Value) {
        // SAFETY: it is one word.
        let word = unsafe { self.spread.at(0) };
        while let Ok(old) = W::run(word, Load) {
            let Some(new) = Self::replaces(old, value) else {
                return;
            };
            // The thread may be on another CPU by now: what its word holds is what counts.
            match W::run(word, StoreIfEqual { expected: old, new }) {
                Ok(Ok(())) => return,
                Ok(Err(_)) => {}
                Err(NoSlot) => break,
            }
        }
        self.record_otherwise(value);
    }

    #[inline(never)]
    fn record_otherwise(&self, value: F::Value) {
        match self.spread.note_addition(true, identity::<F, W>) {
            Ok(slots) => {
                let word = slots.field(|word| word);
                let mut old = word.load();
                while let Some(new) = Self::replaces(old, value) {
                    match word.store_if_equal(old, new) {
                        Ok(()) => return,
                        Err(now) => old = now,
                    }
                }
            }
            Err(compact) => {
                // Relaxed, here and below: a word carries nothing but its own value.
                let mut old = compact.load(Ordering::Relaxed);
                while let Some(new) = Self::replaces(old, value) {
                    // Relaxed: see the load.
                    let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
                    match compact.compare_exchange_weak(old, new, done, failed) {
                        Ok(_) => return,
                        Err(now) => old = now,
                    }
                }
            }
        }
    }

    /// Returns the new content of a word that holds `old`, if it differs.
    #[inline]
    fn replaces(old: u64, value: F::Value) -> Option<u64> {
        let new = F::to_bits(F::fold(F::from_bits(old), value));
        (new != old).then_some(new)
    }

    /// Returns the maximum, minimum or sum of all recorded values, or [`Fold::IDENTITY`] if there
    /// are none. The call reads one cache line for each CPU that recorded.
    ///
    /// The result includes all records that happened before the call. A concurrent record may or
    /// may not be included. The result is not a snapshot. While another thread
    /// [drains](PerCpuFold::drain) the fold, it includes only the slots that are not drained yet.
    pub fn read(&self) -> F::Value {
        // Relaxed: a word carries nothing but its own value. What happened before this call is seen
        // because reads of one word never go back.
        let value = |word: &W::U64| F::from_bits(word.load(Ordering::Relaxed));
        let slots = self.spread.slots().into_iter().flat_map(|slots| slots.iter());
        self.spread.shared().into_iter().chain(slots).map(value).fold(F::IDENTITY, F::fold)
    }

    /// Returns the result, like [`read`](PerCpuFold::read), and resets the fold. No record is lost.
    /// Each record is in the result of one call, or in a later read.
    ///
    /// To stop the slots, the call executes one heavy fence, which interrupts all CPUs that the
    /// process runs on. A concurrent record costs an atomic instruction. Use `drain` for periodic
    /// reports, not for each request.
    ///
    /// # Errors
    ///
    /// [`StopError`] if the machine cannot fence restartable sections, or if a signal handler
    /// interrupted a call on the same value. The fold is then unchanged.
    pub fn drain(&self) -> Result<F::Value, StopError> {
        let empty = F::to_bits(F::IDENTITY);
        let taken =
            |slot: Stopped<'_, W::U64, W>| F::from_bits(slot.field(|word| word).replace(empty));
        let slots = self.spread.with_all_stopped(|all| all.map(taken).fold(F::IDENTITY, F::fold));
        let slots = slots.transpose()?.unwrap_or(F::IDENTITY);
        // Relaxed: a word carries nothing but its own value.
        let compact = self.spread.shared().map(|word| word.swap(empty, Ordering::Relaxed));
        Ok(compact.map_or(slots, |bits| F::fold(slots, F::from_bits(bits))))
    }

    /// Returns whether the fold has per-CPU slots, rather than one shared word.
    pub fn is_spread(&self) -> bool {
        self.spread.slots().is_some()
    }
}

impl_debug!([F: Fold, W: World] PerCpuFold<F, W> as it { value: it.read(), slots: it.spread, .. });
