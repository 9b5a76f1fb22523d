//! Laws of words: the result and the effect of each operation.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use crate::{Cell, ConstWorld, Integer, Line, Ordering, Testbed, Time, Word};

const RELAXED: Ordering = Ordering::Relaxed;

/// Checks that arithmetic returns the old value, and wraps at the width of the word.
pub fn integers_compute<W: Testbed>() {
    macro_rules! compute {
        ($word:ty, $value:ty) => {
            let word = <$word>::new_in(<$value>::MAX);
            assert_eq!(word.fetch_add(3, RELAXED), <$value>::MAX);
            assert_eq!(word.fetch_sub(4, RELAXED), 2);
            assert_eq!(word.fetch_and(0b1100, RELAXED), <$value>::MAX - 1);
            assert_eq!(word.fetch_or(0b0011, RELAXED), 0b1100);
            assert_eq!(word.fetch_xor(0b0101, RELAXED), 0b1111);
            assert_eq!(word.load(RELAXED), 0b1010);
        };
    }
    compute!(W::U8, u8);
    compute!(W::U32, u32);
    compute!(W::U64, u64);
    compute!(W::Usize, usize);
}

/// Checks loads, stores, swaps, compare-exchanges and plain access, for every type of word.
pub fn words_exchange<W: Testbed>() {
    exchange::<W::U8>(1, u8::MAX);
    exchange::<W::U32>(1, u32::MAX);
    exchange::<W::U64>(1, u64::MAX);
    exchange::<W::Usize>(1, usize::MAX);
    exchange::<W::Ptr<u64>>(core::ptr::null_mut(), core::ptr::dangling_mut());
}

fn exchange<T: Word>(a: T::Value, b: T::Value) {
    let mut word = T::new_in(a);
    assert_eq!(word.load(Ordering::Acquire), a);
    word.store(b, Ordering::Release);
    assert_eq!(word.swap(a, Ordering::AcqRel), b);

    assert_eq!(word.compare_exchange(a, b, Ordering::AcqRel, RELAXED), Ok(a));
    assert_eq!(word.compare_exchange(a, b, Ordering::AcqRel, RELAXED), Err(b));
    assert_eq!(word.load(RELAXED), b, "a failed exchange must not write");

    // May fail for no reason, but then says that it found what it should have exchanged.
    while let Err(found) = word.compare_exchange_weak(b, a, Ordering::AcqRel, RELAXED) {
        assert_eq!(found, b);
    }
    assert_eq!(word.compare_exchange_weak(b, a, Ordering::AcqRel, RELAXED), Err(a));

    assert_eq!(word.wait_until(RELAXED, |value| value == a), a);
    let past = Time::from_nanos(0);
    assert_eq!(word.wait_until_by(RELAXED, past, |value| value == a), Some(a));
    assert_eq!(word.wait_until_by(RELAXED, past, |value| value == b), None);
    let found = word.with_mut(|value| core::mem::replace(value, b));
    assert_eq!((found, word.load(RELAXED)), (a, b));
}

/// Checks the layout of a world that claims native layout. Words must have the size and alignment
/// of the machine's words, cells must add nothing to their content, and a line must be a cache
/// line.
pub fn layout_is_native<W: Testbed>() {
    fn same<A, B>() {
        assert_eq!(size_of::<A>(), size_of::<B>(), "{}", core::any::type_name::<A>());
        assert_eq!(align_of::<A>(), align_of::<B>(), "{}", core::any::type_name::<A>());
    }
    if W::NATIVE_LAYOUT {
        same::<W::U8, AtomicU8>();
        same::<W::U32, AtomicU32>();
        same::<W::U64, AtomicU64>();
        same::<W::Usize, AtomicUsize>();
        same::<W::Ptr<u64>, AtomicPtr<u64>>();
        same::<Cell<u8, W>, u8>();
        same::<Cell<[u64; 3], W>, [u64; 3]>();
        same::<Line<W::U32>, Line<u64>>();
    }
}

/// Checks that each use of a constant creates a new word that holds zero.
pub fn constants_make_fresh_words<W: ConstWorld>() {
    macro_rules! fresh {
        ($constant:expr) => {
            let (first, second) = ($constant, $constant);
            assert_eq!(first.fetch_add(1, RELAXED), 0);
            assert_eq!(second.load(RELAXED), 0);
        };
    }
    fresh!(W::U8_ZERO);
    fresh!(W::U32_ZERO);
    fresh!(W::U64_ZERO);
    fresh!(W::USIZE_ZERO);
    assert_eq!(Cell::<_, W>::new(7).into_inner(), 7);
}
