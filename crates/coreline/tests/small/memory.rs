//! Per-CPU memory, counters, masks, presence and object caches.

use core::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use coreline::mask::{Entry, Presence, PresenceOptions, Versioned};
use coreline::percpu::{Fault, PerCpuPool, PoolOptions, ResizableStack, Slot, StopError, Word64};
use coreline::{CounterSet, CpuMask, Lacking, ObjectCache, PerCpu, PerCpuCounter};

/// One of each.
struct Slots {
    word: Word64,
    stack: ResizableStack<u32, 3>,
}

// SAFETY: a struct of words and what is made of them.
unsafe impl Slot for Slots {}

fn slots() -> Slots {
    Slots { word: Word64::new(0), stack: ResizableStack::with_capacity(3) }
}

#[test]
fn words_add_store_and_refuse() {
    let all = PerCpu::new(slots).unwrap();
    let word = all.field(|slot| &slot.word);
    word.add(5);
    assert_eq!(word.sum(), 5);
    assert_eq!(word.add_if(3, !7), Err(5), "it would leave its block of eight");
    assert_eq!(word.add_if(2, !7), Ok(7));
    if word.store_if_equal(7, 1).is_ok() {
        assert_eq!(word.sum(), 1);
    }
    let threads: Vec<_> = (0..2).map(|_| || (0..10).for_each(|_| word.add(1))).collect();
    let before = word.sum();
    thread::scope(|scope| threads.into_iter().for_each(|add| drop(scope.spawn(add))));
    assert_eq!(word.sum(), before + 20);
    let taken = all.with_all_stopped(|slots| {
        slots.map(|slot| slot.field(|slot| &slot.word).replace(0)).sum::<u64>()
    });
    assert_eq!((taken, word.sum()), (Ok(before + 20), 0));
}

#[test]
fn values_come_back() {
    let all = PerCpu::new(slots).unwrap();
    let values = [1, 2, 3, 4].map(|number| NonNull::from(Box::leak(Box::new(number))));
    let stack = all.field(|slot| &slot.stack);
    let pushed = stack.push_batch(&values);
    assert!(pushed <= 3);
    let mut into = [None; 4];
    let popped = all.with_all_stopped(|slots| {
        slots.fold(0, |at, slot| at + slot.field(|slot| &slot.stack).pop_batch(&mut into[at..]))
    });
    assert_eq!(popped, Ok(pushed));
    assert_eq!(stack.pop(), None);
    for value in values {
        // SAFETY: leaked above, and in no stack any more.
        drop(unsafe { Box::from_raw(value.as_ptr()) });
    }
}

#[test]
fn stops_do_not_nest() {
    let all = PerCpu::new(slots).unwrap();
    let inner = all.with_stopped(all.indexes(), |_| all.with_stopped(all.indexes(), |_| ()));
    assert_eq!(inner, Ok(Err(StopError::Nested)));
    assert!(matches!(all.with_stopped(9_999, |_| ()), Err(StopError::NoSuchSlot { .. })));
}

#[test]
fn a_write_after_the_free_is_found() {
    let pool = PerCpuPool::new(PoolOptions::new().checked(true)).unwrap();
    let word = pool.per_cpu(|| Word64::new(0)).unwrap();
    let shared = &raw const *word.shared();
    drop(word);
    assert_eq!(pool.faults(), []);
    let word = pool.per_cpu(|| Word64::new(0)).unwrap();
    drop(word);
    // SAFETY: the pool still has the memory; that is what makes the mistake worth finding.
    unsafe { shared.cast_mut().cast::<u8>().write(1) };
    let faults = pool.faults();
    assert!(matches!(faults[..], [Fault::WrittenAfterFree { found: 1, .. }]), "{faults:?}");
    assert_eq!(pool.close(), Ok(()));
}

#[test]
fn counters_spread_and_are_read() {
    let counter = PerCpuCounter::new().unwrap();
    let batched = PerCpuCounter::new().unwrap().batched(8);
    let set = CounterSet::<3>::new().unwrap();
    assert!(!counter.is_spread() && !batched.is_spread() && !set.is_spread());
    let add = || {
        for _ in 0..100 {
            counter.add(2);
            batched.add(-3);
            set.add(1, 1);
        }
    };
    // Enough to be hot, one after the other; then from two threads.
    (0..3).for_each(|_| add());
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(add))));
    assert!(counter.is_spread() && batched.is_spread() && set.is_spread());
    assert_eq!((counter.read_exact(), batched.read_exact()), (1_000, -1_500));
    let reading = batched.read();
    assert!(reading.low() <= -1_500 && reading.high() >= -1_500, "{reading:?}");
    assert_eq!(set.check_zero().unwrap_err().index, 1);
    assert_eq!(set.drain(), [0, 500, 0]);
    assert_eq!(set.check_zero(), Ok(()));
}

#[test]
fn bits_are_set_and_found() {
    let mask = CpuMask::new();
    let cpus: Vec<_> = mask.cpus().collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| cpus.iter().for_each(|&cpu| assert!(mask.set(cpu).is_ok())));
        }
        mask.trim();
    });
    assert_eq!(mask.iter().collect::<Vec<_>>(), cpus);
    cpus.iter().for_each(|&cpu| assert_eq!(mask.clear(cpu), Ok(true)));
    mask.trim();
    assert!(mask.is_empty());
}

/// The function borrows what is gone after the shootdown: a call that is late is found.
#[test]
fn calls_come_before_the_shootdown_returns() {
    let presence = Presence::with_options(PresenceOptions::new().trim_every(Duration::ZERO));
    let work = || {
        let mut member = presence.register();
        for _ in 0..20 {
            let (mut inside, _) = member.enter();
            let _: Entry = inside.poll();
        }
    };
    thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(work)));
        for _ in 0..10 {
            let ran = Box::new(AtomicU32::new(0));
            let shot = presence.shootdown(|| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert!(ran.load(Ordering::Relaxed) as usize <= shot.reached);
        }
    });
    let mut member = presence.register();
    let (mut inside, _) = member.enter();
    assert_eq!(inside.shootdown(|| ()).0.reached, 1);
}

/// Values are boxes: one that is freed early, or never, is found.
#[test]
fn values_are_freed_once_and_late_enough() {
    for trim_every in [Duration::ZERO, Duration::from_secs(3600)] {
        let options = PresenceOptions::new().trim_every(trim_every);
        let value = Versioned::<Box<u32>>::new_in(Box::new(0), options);
        let read = || {
            let reader = value.reader();
            for _ in 0..10 {
                let mut reading = reader.enter();
                let (first, second) = (**reading.get(), **reading.get());
                assert!(first <= second, "the newer one came first");
            }
        };
        thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(read)));
            (1..10).for_each(|number| value.update(Box::new(number)));
        });
        value.synchronize();
        assert_eq!(value.retired(), 0);
        // What is held when the last handle goes is freed with it.
        let reader = value.reader();
        let mut reading = reader.enter();
        value.update(Box::new(10));
        assert_eq!(**reading.get(), 10, "an update is seen by every read after it");
        core::mem::forget(reading);
        value.update(Box::new(11));
        assert_eq!(value.retired(), 1);
    }
}

#[test]
fn objects_go_from_thread_to_thread() {
    let cache = ObjectCache::<Vec<u32>, String>::builder("small")
        .magazine(1)
        .idle_limit(3)
        .quarantine(1)
        .check(|kept| {
            if kept.len() > 3 {
                return Err("too long".into());
            }
            kept.clear();
            Ok(())
        })
        .build(|| Ok::<_, Lacking>(Vec::new()))
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..2 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..4 {
                    let mut object = cache.get_with(|| format!("{thread}")).unwrap();
                    object.push(round);
                    let copy = cache.get_copy_of(&object).unwrap();
                    assert_eq!((copy.life(), copy.len()), (object.life(), 0));
                    let raw = object.into_raw();
                    assert!(cache.stats().live > 0);
                    // SAFETY: from `into_raw`, once.
                    drop(unsafe { cache.from_raw(raw) });
                }
                cache.shrink();
            });
        }
    });
    cache.get().unwrap().extend([0; 4]);
    let mut aside = cache.quarantined();
    assert_eq!((aside.len(), aside[0].kept().len()), (1, 4));
    drop(aside);
    cache.get().unwrap().discard();
    cache.close().unwrap();
}

#[test]
fn objects_are_built_and_destroyed_where_they_stay() {
    struct Record {
        name: String,
        numbers: [u32; 9],
    }

    let cache = ObjectCache::<Record>::builder("in place")
        .destructor_in_place(|record| record.name.push('!'))
        .build_in_place(|mut record| {
            let at = record.as_uninit().as_mut_ptr();
            // SAFETY: the memory of a record, whose two fields are written.
            Ok::<_, Lacking>(unsafe {
                (&raw mut (*at).name).write("a record".into());
                (&raw mut (*at).numbers).write([7; 9]);
                record.assume_built()
            })
        })
        .unwrap();
    let record = cache.get().unwrap();
    assert_eq!((record.name.as_str(), record.numbers[8]), ("a record", 7));
    drop(record);
    assert_eq!(cache.shrink(), 1);
    let boxes = ObjectCache::<[Box<usize>; 3]>::builder("boxes")
        .build_in_place(|boxes| Ok::<_, Lacking>(boxes.fill_with(Box::new)))
        .unwrap();
    assert_eq!(*boxes.get().unwrap()[2], 2);
}
