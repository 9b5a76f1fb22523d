//! Words and cells of the model: loom's, with the orderings that a plant leaves.

use core::marker::PhantomData;

use loom::cell::{ConstPtr, MutPtr, UnsafeCell};
use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use super::{Faithful, Model, Plant};
use crate::{Integer, Ordering, Slot, Track, Word, Words};

/// The methods of [`Word`] for a type whose first field is a loom atomic.
///
/// `track_caller` leads loom's reports (with `LOOM_LOCATION` set) to the algorithm, not to this
/// file.
macro_rules! word_methods {
    ($atomic:ty, $value:ty) => {
        type Value = $value;

        #[track_caller]
        fn new_in(value: $value) -> Self {
            Self(<$atomic>::new(value), PhantomData)
        }

        #[track_caller]
        fn load(&self, order: Ordering) -> $value {
            self.0.load(P::load(order))
        }

        #[track_caller]
        fn store(&self, value: $value, order: Ordering) {
            if P::EXCHANGES {
                self.0.swap(value, P::store(order));
            } else {
                self.0.store(value, P::store(order));
            }
        }

        #[track_caller]
        fn swap(&self, value: $value, order: Ordering) -> $value {
            self.0.swap(value, P::rmw(order))
        }

        #[track_caller]
        fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            self.0.compare_exchange(current, new, P::rmw(success), P::load(failure))
        }

        /// loom never fails spuriously: an algorithm that does not retry is not found.
        #[track_caller]
        fn compare_exchange_weak(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            self.compare_exchange(current, new, success, failure)
        }

        #[track_caller]
        fn wait_until(&self, order: Ordering, mut ready: impl FnMut($value) -> bool) -> $value {
            loop {
                let value = self.load(order);
                if ready(value) {
                    return value;
                }
                // Lets another thread run, and promises loom that the loop ends: a load after a
                // yield does not return a value that was read before it if there is a newer one.
                loom::thread::yield_now();
            }
        }

        #[track_caller]
        fn with_mut<R>(&mut self, f: impl FnOnce(&mut $value) -> R) -> R {
            self.0.with_mut(f)
        }
    };
}

macro_rules! integer_word {
    ($($name:ident: $atomic:ty: $value:ty: $($operation:ident)+;)+) => {$(
        #[doc = concat!("An atomic `", stringify!($value), "` of the [`Model`].")]
        #[derive(Debug)]
        pub struct $name<P: Plant = Faithful>($atomic, PhantomData<fn() -> P>);

        impl<P: Plant> Word for $name<P> {
            word_methods!($atomic, $value);
        }

        // SAFETY: a struct.
        unsafe impl<P: Plant> Slot for $name<P> {}

        impl<P: Plant> Integer for $name<P> {
            $(
                #[track_caller]
                fn $operation(&self, value: $value, order: Ordering) -> $value {
                    self.0.$operation(value, P::rmw(order))
                }
            )+
        }
    )+};
}

integer_word! {
    ModelU8: AtomicU8: u8: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    ModelU32: AtomicU32: u32: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    ModelU64: AtomicU64: u64: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    ModelUsize: AtomicUsize: usize: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
}

/// An atomic pointer of the [`Model`].
#[derive(Debug)]
pub struct ModelPtr<T, P: Plant = Faithful>(AtomicPtr<T>, PhantomData<fn() -> P>);

impl<T, P: Plant> Word for ModelPtr<T, P> {
    word_methods!(AtomicPtr<T>, *mut T);
}

// SAFETY: a struct.
unsafe impl<T: 'static, P: Plant> Slot for ModelPtr<T, P> {}

impl<P: Plant> Words for Model<P> {
    const NATIVE_LAYOUT: bool = false;

    type U8 = ModelU8<P>;
    type U32 = ModelU32<P>;
    type U64 = ModelU64<P>;
    type Usize = ModelUsize<P>;
    type Ptr<T: 'static> = ModelPtr<T, P>;
    type Track = ModelTrack;

    fn relax() {
        loom::thread::yield_now();
    }
}

/// Checks that conflicting accesses to a [`Cell`](crate::Cell) are ordered, from the beginning of
/// the one to the end of the other.
#[derive(Debug)]
pub struct ModelTrack(UnsafeCell<()>);

// SAFETY: the cell's content is `()`, which is never read or written; it is there for loom's record
// of the accesses, which is a handle that loom lets every thread of the execution use.
unsafe impl Sync for ModelTrack {}

/// A read of a [`Cell`](crate::Cell) under way.
#[derive(Debug)]
pub struct ModelReading(#[expect(dead_code, reason = "held for its drop")] ConstPtr<()>);

/// A write of a [`Cell`](crate::Cell) under way.
#[derive(Debug)]
pub struct ModelWriting(#[expect(dead_code, reason = "held for its drop")] MutPtr<()>);

impl Track for ModelTrack {
    type Reading = ModelReading;
    type Writing = ModelWriting;

    #[track_caller]
    fn new_in() -> Self {
        ModelTrack(UnsafeCell::new(()))
    }

    #[track_caller]
    fn reading(&self, _at: *const u8, _len: usize) -> ModelReading {
        ModelReading(self.0.get())
    }

    #[track_caller]
    fn writing(&self, _at: *const u8, _len: usize) -> ModelWriting {
        ModelWriting(self.0.get_mut())
    }
}
