//! A child that is forked in the midst of everything goes on.

use std::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::{fs, thread};

use coreline::mask::Versioned;
use coreline::percpu::{PerCpuPool, PoolOptions, ResizableStack, Word64};
use coreline::{CounterSet, PerCpu, PerCpuCounter};
use coreline_world::{Native, Restartable};

use crate::os;

const FORKS: usize = 100;
const TOKENS: u64 = 6;

/// Runs `check` in a forked child.
pub(crate) fn in_child(check: impl FnOnce()) {
    os::in_a_fork(|| {
        check();
        0
    });
}

/// Runs `check` in [`FORKS`] forked children, and then tells the other threads that it is over.
pub(crate) fn in_children(over: &AtomicBool, check: impl Fn()) {
    let checked = catch_unwind(AssertUnwindSafe(|| (0..FORKS).for_each(|_| in_child(&check))));
    // Relaxed: carries nothing but itself.
    over.store(true, Ordering::Relaxed);
    checked.unwrap_or_else(|panic| resume_unwind(panic));
}

#[test]
fn a_child_goes_on_where_other_threads_stood() {
    let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
    let counter = PerCpuCounter::from_pool(&pool).batched(4);
    let set = CounterSet::<2>::from_pool(&pool);
    let words = pool.per_cpu(|| Word64::new(0)).unwrap();
    let stack = pool.per_cpu(|| ResizableStack::<u64, 64>::with_capacity(64)).unwrap();
    let tokens: Vec<u64> = (0..TOKENS).collect();
    for token in &tokens {
        stack.field(|stack| stack).push(NonNull::from(token)).unwrap();
    }
    let over = AtomicBool::new(false);
    // Relaxed: carries nothing but itself.
    let going = || !over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            while going() {
                counter.add(3);
                set.add(1, -1);
                words.add(1);
            }
        });
        scope.spawn(|| {
            while going() {
                // Made, populated, and given back.
                let words = pool.per_cpu(|| Word64::new(7)).unwrap();
                words.add(1);
            }
        });
        scope.spawn(|| {
            while going() {
                let stack = stack.field(|stack| stack);
                if let Some(token) = stack.pop() {
                    stack.push(token).unwrap();
                }
                words.with_all_stopped(|slots| slots.for_each(|_| counter.add(1))).unwrap();
            }
        });
        in_children(&over, || {
            let before = counter.read_exact();
            (0..10).for_each(|_| counter.add(-7));
            assert_eq!(counter.read_exact(), before - 70);
            let reading = counter.read();
            assert!(reading.value.abs_diff(before - 70) <= reading.error, "{reading:?}");

            let before = set.read_exact();
            (0..300).for_each(|_| set.add(0, 2));
            assert_eq!(set.read_exact(), [before[0] + 600, before[1]]);

            let before = words.sum();
            words.add(5);
            assert_eq!(words.sum(), before + 5);
            // The thread that may have stopped them does not exist here.
            words.with_all_stopped(|slots| slots.for_each(drop)).unwrap();
            words.add(5);
            assert_eq!(words.sum(), before + 10);

            let fresh: Vec<_> = (0..50).map(|_| pool.per_cpu(|| Word64::new(7)).unwrap()).collect();
            for words in &fresh {
                words.add(1);
                assert_eq!(words.sum(), 7 * (words.populated() as u64 + 1) + 1);
            }

            // One may be in the hand of the other thread, which is no more.
            let mut popped = [None; TOKENS as usize + 1];
            let found = stack.with_all_stopped(|slots| {
                let pops = slots.map(|slot| slot.field(|stack| stack).pop_batch(&mut popped));
                pops.sum::<usize>()
            });
            let found = found.unwrap() as u64;
            assert!((TOKENS - 1..=TOKENS).contains(&found), "{found} of {TOKENS} tokens");
        });
    });
    assert_eq!(words.sum().cast_signed(), -set.read_exact()[1], "the parent's own");
}

/// Chunks come and go in one thread, which is in the midst of it for a good part of the time.
#[test]
fn a_child_has_all_that_is_live_where_another_thread_was_trimming() {
    let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
    let half = Layout::from_size_align(Native::STRIDE / 2, 8).unwrap();
    let take = |number: usize| {
        let at = pool.allocate(half).unwrap().cast::<usize>();
        // SAFETY: just allocated, and used by nothing else.
        unsafe { at.write(number) };
        at
    };
    let free = |at: NonNull<usize>, number: usize| {
        // SAFETY: from `take`, and not used any more.
        unsafe {
            assert_eq!(at.read(), number, "another's");
            assert_eq!(pool.free(at.cast(), half, 0), Ok(()));
        }
    };
    let kept: Vec<_> = (0..9).map(take).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: carries nothing but itself.
            while !over.load(Ordering::Relaxed) {
                let items: Vec<_> = (100..105).map(take).collect();
                (100..).zip(items).for_each(|(number, at)| free(at, number));
                pool.trim();
            }
        });
        in_children(&over, || {
            pool.trim();
            let items: Vec<_> = (200..220).map(take).collect();
            (0..).zip(&kept).for_each(|(number, &at)| free(at, number));
            (200..).zip(items).for_each(|(number, at)| free(at, number));
            // Of the other thread's values there may be some, which are lost.
            pool.trim();
            assert!(pool.live() <= 5, "{} are live", pool.live());
            assert_eq!(pool.trim(), 0);
        });
    });
    (0..).zip(kept).for_each(|(number, at)| free(at, number));
    let mapped = pool.mapped();
    assert_eq!((pool.trim(), pool.mapped()), (mapped, 0));
}

/// In a pool of its own, so that the thread is in the midst of it for a good part of the time.
#[test]
fn a_child_gives_slots_to_a_counter_that_another_thread_was_giving_slots() {
    let counter = AtomicPtr::new(ptr::null_mut::<PerCpuCounter>());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: carries nothing but itself.
            while !over.load(Ordering::Relaxed) {
                let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
                let mut fresh = PerCpuCounter::from_pool(&pool);
                // Release: a child that finds it finds it whole.
                counter.store(&raw mut fresh, Ordering::Release);
                (0..300).for_each(|_| fresh.add(1));
                counter.store(ptr::null_mut(), Ordering::Release);
            }
        });
        in_children(&over, || {
            // SAFETY: acquire pairs with the release; the other thread, which would drop it,
            // does not exist here.
            let Some(counter) = (unsafe { counter.load(Ordering::Acquire).as_ref() }) else {
                return;
            };
            let before = counter.read_exact();
            (0..300).for_each(|_| counter.add(1));
            assert_eq!(counter.read_exact(), before + 300);
            assert!(counter.is_spread(), "the counter has no slots, and never will");
        });
    });
}

#[test]
fn slots_that_a_child_uses_first_begin_as_in_the_parent() {
    let words = PerCpu::<Word64>::new(|| Word64::new(7)).unwrap();
    assert_eq!(words.populated(), 0);
    in_child(|| {
        words.add(1);
        assert_eq!(words.sum(), 7 * (words.populated() as u64 + 1) + 1);
    });
    assert_eq!((words.populated(), words.sum()), (0, 7), "the parent has its own");
}

#[test]
fn a_child_frees_what_a_thread_of_its_parent_would_have_freed() {
    let value = Versioned::new(0);
    let reclaimer = value.reclaimer().unwrap();
    // The thread that looks has a lock, which the child would wait for: see `Reclaimer`.
    while !sleeps("coreline-free") {
        thread::yield_now();
    }
    in_child(|| {
        for number in 1..10 {
            value.update(number);
            assert_eq!(value.retired(), 0, "this process has no such thread");
        }
        let own = value.reclaimer().unwrap();
        value.update(10);
        while value.retired() > 0 {
            thread::yield_now();
        }
        drop(own);
        // SAFETY: the child's copy, which nothing uses after this.
        drop(unsafe { ptr::read(&raw const reclaimer) });
        value.update(11);
        assert_eq!(value.retired(), 0);
    });
    drop(reclaimer);
}

/// Whether the thread of this name sleeps.
fn sleeps(name: &str) -> bool {
    fs::read_dir("/proc/self/task").unwrap().any(|task| {
        // A thread may end meanwhile.
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.contains(&format!("({name}) S"))
    })
}
