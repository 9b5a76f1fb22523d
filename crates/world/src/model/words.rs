//! Words and cells of the model: loom's, with the orderings that a plant allows.

use core::sync::atomic;

use loom::cell::{ConstPtr, MutPtr, UnsafeCell};
use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use super::{Model, Plant};
use crate::{Integer, Ordering, Slot, Time, Track, Word, Words};

/// The methods of [`Word`] for a type of a loom atomic and the latest value of it.
///
/// The latter is for the destructors of an execution that has failed, where loom may fail again:
/// see `attempt`. What loom finds may be older. One host thread runs all threads of an execution,
/// so Relaxed is enough for the latest value.
///
/// `track_caller` leads loom's reports (with `LOOM_LOCATION` set) to the algorithm, not to this
/// file.
macro_rules! word_methods {
    ($atomic:ident, $value:ty) => {
        type Value = $value;

        #[track_caller]
        fn new_in(value: $value) -> Self {
            let latest = atomic::$atomic::new(value);
            Self { word: $atomic::new(value), latest }
        }

        #[track_caller]
        fn load(&self, order: Ordering) -> $value {
            let found = attempt!(self.word.load((Plant::current().load)(order)));
            found.unwrap_or_else(|| self.latest.load(Ordering::Relaxed))
        }

        #[track_caller]
        fn store(&self, value: $value, order: Ordering) {
            let plant = Plant::current();
            if plant.exchanges {
                attempt!(self.word.swap(value, (plant.store)(order)));
            } else {
                attempt!(self.word.store(value, (plant.store)(order)));
            }
            self.latest.store(value, Ordering::Relaxed);
        }

        #[track_caller]
        fn swap(&self, value: $value, order: Ordering) -> $value {
            if let Some(found) = attempt!(self.word.swap(value, (Plant::current().rmw)(order))) {
                self.latest.store(found, Ordering::Relaxed);
            }
            self.latest.swap(value, Ordering::Relaxed)
        }

        #[track_caller]
        fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            let plant = Plant::current();
            let orders = ((plant.rmw)(success), (plant.load)(failure));
            if let Some(found) =
                attempt!(self.word.compare_exchange(current, new, orders.0, orders.1))
            {
                self.latest.store(found?, Ordering::Relaxed);
            }
            self.latest.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed)
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

        /// Looks, lets the others run, looks again, and gives up: the deadline comes when loom
        /// comes back to this thread.
        ///
        /// What this hides: the last look does not find a value that the first one found already,
        /// if there is a newer one.
        #[track_caller]
        fn wait_until_by(
            &self,
            order: Ordering,
            _deadline: Time,
            mut ready: impl FnMut($value) -> bool,
        ) -> Option<$value> {
            let value = self.load(order);
            if ready(value) {
                return Some(value);
            }
            loom::thread::yield_now();
            let value = self.load(order);
            ready(value).then_some(value)
        }

        #[track_caller]
        fn with_mut<R>(&mut self, f: impl FnOnce(&mut $value) -> R) -> R {
            let found = attempt!(self.word.with_mut(|value| *value));
            let mut value = found.unwrap_or(*self.latest.get_mut());
            let result = f(&mut value);
            attempt!(self.word.with_mut(|word| *word = value));
            *self.latest.get_mut() = value;
            result
        }
    };
}

macro_rules! integer_word {
    ($($name:ident: $atomic:ident: $value:ty: $($operation:ident)+;)+) => {$(
        #[doc = concat!("An atomic `", stringify!($value), "` of the [`Model`].")]
        #[derive(Debug)]
        pub struct $name {
            word: $atomic,
            latest: atomic::$atomic,
        }

        impl Word for $name {
            word_methods!($atomic, $value);
        }

        // SAFETY: a struct: every value has the same live fields in the same places.
        unsafe impl Slot for $name {}

        impl Integer for $name {
            $(
                #[track_caller]
                fn $operation(&self, value: $value, order: Ordering) -> $value {
                    let left = (Plant::current().rmw)(order);
                    if let Some(found) = attempt!(self.word.$operation(value, left)) {
                        self.latest.store(found, Ordering::Relaxed);
                    }
                    self.latest.$operation(value, Ordering::Relaxed)
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
pub struct ModelPtr<T> {
    word: AtomicPtr<T>,
    latest: atomic::AtomicPtr<T>,
}

impl<T> Word for ModelPtr<T> {
    word_methods!(AtomicPtr, *mut T);
}

// SAFETY: a struct: every value has the same live fields in the same places.
unsafe impl<T: 'static> Slot for ModelPtr<T> {}

impl Words for Model {
    const NATIVE_LAYOUT: bool = false;

    type U8 = ModelU8;
    type U32 = ModelU32;
    type U64 = ModelU64;
    type Usize = ModelUsize;
    type Ptr<T: 'static> = ModelPtr<T>;
    type Track = ModelTrack;

    fn relax() {
        loom::thread::yield_now();
    }
}

/// A tracker that checks that conflicting accesses to a [`Cell`](crate::Cell) are ordered. An
/// access extends from its beginning to its end.
#[derive(Debug)]
pub struct ModelTrack(UnsafeCell<()>);

// SAFETY: the cell's content is `()`, which is never read or written; it is there for loom's record
// of the accesses, which is a handle that loom lets every thread of the execution use.
unsafe impl Sync for ModelTrack {}

/// A read of a [`Cell`](crate::Cell) in progress.
#[derive(Debug)]
pub struct ModelReading(#[expect(dead_code, reason = "held for its drop")] Option<ConstPtr<()>>);

/// A write of a [`Cell`](crate::Cell) in progress.
#[derive(Debug)]
pub struct ModelWriting(#[expect(dead_code, reason = "held for its drop")] Option<MutPtr<()>>);

impl Track for ModelTrack {
    type Reading = ModelReading;
    type Writing = ModelWriting;

    #[track_caller]
    fn new_in() -> Self {
        ModelTrack(UnsafeCell::new(()))
    }

    #[track_caller]
    fn reading(&self, _at: *const u8, _len: usize) -> ModelReading {
        ModelReading(attempt!(self.0.get()))
    }

    #[track_caller]
    fn writing(&self, _at: *const u8, _len: usize) -> ModelWriting {
        ModelWriting(attempt!(self.0.get_mut()))
    }
}
