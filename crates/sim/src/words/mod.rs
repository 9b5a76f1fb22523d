//! Words of the simulated machine: native words with charged accesses.
//!
//! A word has the size and layout of the native one, so words that share a line natively share one
//! here. Its value lies in a host atomic. Simulated code runs on one host thread at a time, so the
//! ordering has no effect there. Outside of a machine the word is an ordinary atomic.
//!
//! There is one family of words, [`atomic`]. A program that is written for std uses it directly,
//! and the words of the world `Sim` are a thin layer over five of its types.

pub mod atomic;
pub(crate) mod effect;

use core::hint;
use core::panic::Location;

use coreline_world::{ConstWords, Integer, Ordering, Slot, Time, Track, Word, Words};

use self::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use crate::Sim;
use crate::engine::{self, races};
use crate::hardware::coherence::Access;

macro_rules! word {
    ($(#[$doc:meta])* $name:ident $(<$param:ident>)?, $atomic:ty, $value:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name $(<$param>)? {
            pub(crate) atomic: $atomic,
        }

        impl $(<$param: 'static>)? $name $(<$param>)? {
            /// Both waits: looks at each write of the line, and once more at the deadline.
            #[track_caller]
            fn wait(
                &self,
                order: Ordering,
                deadline: Option<Time>,
                mut ready: impl FnMut($value) -> bool,
            ) -> Option<$value> {
                let mut over = false;
                loop {
                    let value = self.load(order);
                    if ready(value) {
                        return Some(value);
                    }
                    if over {
                        return None;
                    }
                    // A write must not be missed: `ready` may have let time pass (it may look at
                    // the clock), and what was found may be the value before a store that is on
                    // its way. Relaxed: a glance at the host atomic.
                    if self.atomic.0.load(Ordering::Relaxed) == value {
                        let address = core::ptr::from_ref(self).addr();
                        if !engine::await_write(address, deadline) {
                            hint::spin_loop();
                        }
                    }
                    over = engine::is_over(deadline);
                }
            }
        }

        // SAFETY: a struct of one atomic, which is live from construction to drop.
        unsafe impl $(<$param: 'static>)? Slot for $name $(<$param>)? {}

        impl $(<$param: 'static>)? Word for $name $(<$param>)? {
            type Value = $value;

            fn new_in(value: $value) -> Self {
                $name { atomic: <$atomic>::new(value) }
            }

            #[track_caller]
            fn load(&self, order: Ordering) -> $value {
                self.atomic.load(order)
            }

            #[track_caller]
            fn store(&self, value: $value, order: Ordering) {
                self.atomic.store(value, order);
            }

            #[track_caller]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.atomic.swap(value, order)
            }

            #[track_caller]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.atomic.compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.atomic.compare_exchange_weak(current, new, success, failure)
            }

            #[track_caller]
            fn wait_until(&self, order: Ordering, mut ready: impl FnMut($value) -> bool) -> $value {
                loop {
                    // Without a deadline it is always some value.
                    if let Some(value) = self.wait(order, None, &mut ready) {
                        return value;
                    }
                }
            }

            #[track_caller]
            fn wait_until_by(
                &self,
                order: Ordering,
                deadline: Time,
                ready: impl FnMut($value) -> bool,
            ) -> Option<$value> {
                self.wait(order, Some(deadline), ready)
            }

            #[track_caller]
            fn store_when(
                &self,
                value: $value,
                order: Ordering,
                allowed: impl FnOnce() -> bool,
            ) -> bool {
                let stored =
                    effect::store(&self.atomic.0, allowed, |word| word.store(value, order));
                if stored {
                    races::stored(self.atomic.as_ptr().addr(), order);
                }
                stored
            }

            #[track_caller]
            fn with_mut<R>(&mut self, f: impl FnOnce(&mut $value) -> R) -> R {
                f(self.atomic.get_mut())
            }
        }
    };
}

macro_rules! integer {
    ($($name:ident: $value:ty: $($op:ident)+;)+) => {$(
        impl Integer for $name {
            $(#[track_caller]
            fn $op(&self, value: $value, order: Ordering) -> $value {
                self.atomic.$op(value, order)
            })+
        }
    )+};
}

word!(
    /// An atomic `u8` of the simulated machine.
    SimU8, AtomicU8, u8
);
word!(
    /// An atomic `u32` of the simulated machine.
    SimU32, AtomicU32, u32
);
word!(
    /// An atomic `u64` of the simulated machine.
    SimU64, AtomicU64, u64
);
word!(
    /// An atomic `usize` of the simulated machine.
    SimUsize, AtomicUsize, usize
);
word!(
    /// An atomic pointer of the simulated machine.
    SimPtr<T>, AtomicPtr<T>, *mut T
);
integer! {
    SimU8: u8: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    SimU32: u32: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    SimU64: u64: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
    SimUsize: usize: fetch_add fetch_sub fetch_and fetch_or fetch_xor;
}

/// The tracker that charges for each access to a [`Cell`](coreline_world::Cell) at its beginning.
#[derive(Debug, Clone, Copy)]
pub struct SimTrack;

impl Track for SimTrack {
    type Reading = ();
    type Writing = ();

    fn new_in() -> Self {
        SimTrack
    }

    #[track_caller]
    fn reading(&self, at: *const u8, len: usize) {
        engine::access_range(at.addr(), len, Access::Load);
        races::touched(at.addr(), len, false, Location::caller());
    }

    #[track_caller]
    fn writing(&self, at: *const u8, len: usize) {
        engine::access_range(at.addr(), len, Access::Own);
        races::touched(at.addr(), len, true, Location::caller());
    }
}

impl Words for Sim {
    const NATIVE_LAYOUT: bool = true;

    type U8 = SimU8;
    type U32 = SimU32;
    type U64 = SimU64;
    type Usize = SimUsize;
    type Ptr<T: 'static> = SimPtr<T>;
    type Track = SimTrack;

    fn relax() {
        engine::pause();
    }
}

impl ConstWords for Sim {
    const U8_ZERO: SimU8 = SimU8 { atomic: AtomicU8::new(0) };
    const U32_ZERO: SimU32 = SimU32 { atomic: AtomicU32::new(0) };
    const U64_ZERO: SimU64 = SimU64 { atomic: AtomicU64::new(0) };
    const USIZE_ZERO: SimUsize = SimUsize { atomic: AtomicUsize::new(0) };
    const NULL: SimPtr<u8> = SimPtr { atomic: AtomicPtr::new(std::ptr::null_mut()) };
    const TRACK: SimTrack = SimTrack;
}
