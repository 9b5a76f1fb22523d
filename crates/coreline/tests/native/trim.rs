//! Pages that go back to the kernel.

use std::alloc::Layout;
use std::slice;

use coreline::PerCpu;
use coreline::percpu::{PerCpuPool, PoolOptions, Word64};
use coreline_world::{Native, Restartable};

#[test]
fn pages_without_a_value_are_given_back_and_others_stay() {
    const HALF: usize = Native::STRIDE / 2;
    let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
    let words: PerCpu<Word64> = pool.per_cpu(|| Word64::new(7)).unwrap();
    words.add(1);
    let sum = words.sum();
    let half = Layout::from_size_align(HALF, HALF).unwrap();
    let at = pool.allocate(half).unwrap();
    // What is in the first slot and in the shared one.
    let bytes = |slot: usize| {
        // SAFETY: in memory that was allocated, while it is this test's.
        unsafe { slice::from_raw_parts_mut(at.byte_add(slot * Native::STRIDE).as_ptr(), HALF) }
    };
    let slots = [0, words.indexes()];
    slots.into_iter().for_each(|slot| bytes(slot).fill(0xaa));
    let mapped = pool.mapped();
    assert_eq!(pool.trim(), 0);
    assert!(slots.into_iter().all(|slot| bytes(slot).iter().all(|byte| *byte == 0xaa)));
    // SAFETY: allocated above, and not used until it is allocated again.
    unsafe { pool.free(at, half, 0).unwrap() };
    assert_eq!((pool.trim(), pool.mapped()), (0, mapped), "the chunk has a value");
    assert_eq!(pool.allocate(half).unwrap(), at, "pages that were discarded are free");
    // SAFETY: asks for a number.
    let has_pages = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned() as usize <= HALF;
    for slot in slots {
        assert_eq!(bytes(slot).iter().all(|byte| *byte == 0), has_pages, "slot {slot}");
    }
    assert_eq!(words.sum(), sum);
    // SAFETY: allocated above, and not used any more.
    unsafe { pool.free(at, half, 0).unwrap() };
    drop(words);
    assert_eq!((pool.trim(), pool.mapped()), (mapped, 0));
}
