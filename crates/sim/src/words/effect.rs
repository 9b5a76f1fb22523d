//! The effect of an access to a word, once it is charged.
//!
//! The host atomic behind a word holds the value that a request issued now would find. Requests
//! that were under way before a store was issued still find the value before it, if the line serves
//! them before the store; the engine keeps that value, and their access is done to it.
//!
//! An update of the value before a store leaves nothing behind once that store is complete: the
//! store overwrites it, as it should.

use core::panic::Location;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8,
    AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use crate::engine;
use crate::hardware::coherence::Access;
use crate::hardware::contention::{StoreNumber, Value};
use crate::results::report::Site;

/// A host atomic.
pub(crate) trait Host {
    fn of(value: Value) -> Self;

    fn value(&self) -> Value;
}

macro_rules! integers {
    ($($atomic:ty: $value:ty)+) => {$(
        impl Host for $atomic {
            fn of(value: Value) -> Self {
                <$atomic>::new(value.addr() as $value)
            }

            fn value(&self) -> Value {
                ptr::without_provenance_mut(self.load(Ordering::Relaxed) as usize)
            }
        }
    )+};
}

integers! {
    AtomicI8: i8
    AtomicU8: u8
    AtomicI16: i16
    AtomicU16: u16
    AtomicI32: i32
    AtomicU32: u32
    AtomicI64: i64
    AtomicU64: u64
    AtomicIsize: isize
    AtomicUsize: usize
}

// A value fits into an address.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

impl Host for AtomicBool {
    fn of(value: Value) -> Self {
        AtomicBool::new(value.addr() != 0)
    }

    fn value(&self) -> Value {
        ptr::without_provenance_mut(usize::from(self.load(Ordering::Relaxed)))
    }
}

impl<T> Host for AtomicPtr<T> {
    fn of(value: Value) -> Self {
        AtomicPtr::new(value.cast())
    }

    fn value(&self) -> Value {
        self.load(Ordering::Relaxed).cast()
    }
}

/// Charges for a load or an update of a word, of this order, and does it by `f`.
#[track_caller]
#[inline]
pub(crate) fn read<A: Host, R>(
    word: &A,
    access: Access,
    order: Ordering,
    f: impl FnOnce(&A) -> R,
) -> R {
    read_at(Location::caller(), word, (access, order), f)
}

/// Charges for an update of a word that may fail, and does it by `f`. It has the order `success` or
/// `failure`.
#[track_caller]
#[inline]
pub(crate) fn exchange<A: Host, T>(
    word: &A,
    [success, failure]: [Ordering; 2],
    f: impl FnOnce(&A) -> Result<T, T>,
) -> Result<T, T> {
    let order = |result: &_| if Result::is_ok(result) { success } else { failure };
    read_with(Location::caller(), word, Access::Update, order, f)
}

/// Like [`read`], of another place in the source than the caller's.
#[inline]
pub(crate) fn read_at<A: Host, R>(
    site: Site,
    word: &A,
    (access, order): (Access, Ordering),
    f: impl FnOnce(&A) -> R,
) -> R {
    read_with(site, word, access, |_| order, f)
}

/// The same, of an order that depends on the result.
#[inline]
fn read_with<A: Host, R>(
    site: Site,
    word: &A,
    access: Access,
    order: impl FnOnce(&R) -> Ordering,
    f: impl FnOnce(&A) -> R,
) -> R {
    match engine::access_at(ptr::from_ref(word).addr(), access, site) {
        None => f(word),
        Some(store) => read_beside(store, word, order, f),
    }
}

/// Does a load or an update with the value that the word had before the store `store`, or, where
/// accesses overlap, with what the word has. The engine is told what was found.
#[cold]
fn read_beside<A: Host, R>(
    store: StoreNumber,
    word: &A,
    order: impl FnOnce(&R) -> Ordering,
    f: impl FnOnce(&A) -> R,
) -> R {
    let address = ptr::from_ref(word).addr();
    let Some(before) = engine::before(address, store) else {
        let value = word.value();
        let result = f(word);
        engine::found(value, order(&result));
        return result;
    };
    engine::races::found_before();
    let value = before;
    let before = A::of(before);
    let result = f(&before);
    engine::keep_before(address, store, before.value());
    engine::found(value, order(&result));
    result
}

/// Charges for a store of this order to a word, and does it by `f`.
#[track_caller]
#[inline]
pub(crate) fn write<A: Host>(word: &A, order: Ordering, f: impl FnOnce(&A)) {
    if order == Ordering::SeqCst {
        // An exchange, as compilers for x86 make it: it orders all that the CPU did before.
        read(word, Access::Update, order, f);
    } else {
        store(word, || true, f);
    }
}

/// Charges for a plain store to a word, and does it by `f` if it is `allowed` then. Whether it was.
#[track_caller]
#[inline]
pub(crate) fn store<A: Host>(word: &A, allowed: impl FnOnce() -> bool, f: impl FnOnce(&A)) -> bool {
    let address = ptr::from_ref(word).addr();
    let store = engine::access(address, Access::Store);
    // It takes effect now, or not.
    let allowed = allowed();
    if allowed {
        if let Some(store) = store {
            engine::keep_before(address, store, word.value());
        }
        f(word);
    }
    allowed
}
