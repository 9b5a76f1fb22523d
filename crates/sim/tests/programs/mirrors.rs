//! The mirrors of std: one body runs under std and in the machine, with the same result.

use core::time::Duration;

use coreline_sim::{Machine, Sim};
use coreline_world::{Clock, JoinHandle, Word};

use crate::common::{U64, machine, on};

/// Bodies that use `atomic`, `sync`, `thread`, `time` and the `thread_local!` of their module. What
/// they return does not depend on which thread is faster.
macro_rules! bodies {
    () => {
        pub(crate) fn integers() -> String {
            use atomic::{AtomicI8, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
            let mut seen = Vec::new();
            let byte = AtomicU8::new(250);
            seen.push(byte.fetch_add(10, Relaxed));
            seen.push(byte.fetch_sub(5, AcqRel));
            seen.push(byte.fetch_nand(0b1010, SeqCst));
            seen.push(byte.fetch_or(1, Acquire));
            seen.push(byte.fetch_and(0xf0, Release));
            seen.push(byte.fetch_xor(0xff, Relaxed));
            seen.push(byte.fetch_max(200, Relaxed));
            seen.push(byte.fetch_min(3, Relaxed));
            seen.push(byte.swap(9, Relaxed));
            let signed = AtomicI8::new(-5);
            let signs = [signed.fetch_max(-3, Relaxed), signed.fetch_min(-9, Relaxed)];
            let wide = AtomicU64::default();
            let tries = [
                wide.compare_exchange(0, 7, AcqRel, Acquire),
                wide.compare_exchange(0, 8, AcqRel, Acquire),
                wide.fetch_update(SeqCst, SeqCst, |value| value.checked_sub(7)),
                wide.fetch_update(SeqCst, SeqCst, |value| value.checked_sub(7)),
            ];
            let weak = loop {
                if let Ok(before) = wide.compare_exchange_weak(0, 1, Relaxed, Relaxed) {
                    break before;
                }
            };
            let mut size = AtomicUsize::from(3);
            *size.get_mut() += 1;
            format!("{seen:?} {signs:?} {tries:?} {weak} {size:?}") + &size.into_inner().to_string()
        }

        pub(crate) fn flags_and_pointers() -> String {
            use atomic::{AtomicBool, AtomicPtr, Ordering::*, compiler_fence, fence};
            let flag = AtomicBool::new(true);
            let seen = [
                flag.fetch_and(true, Relaxed),
                flag.fetch_nand(true, Relaxed),
                flag.fetch_or(true, Relaxed),
                flag.fetch_xor(true, Relaxed),
                flag.fetch_not(Relaxed),
                flag.load(SeqCst),
            ];
            fence(SeqCst);
            compiler_fence(Release);
            let mut values = [10, 20, 30];
            let at = AtomicPtr::new(values.as_mut_ptr());
            let first = at.swap(&raw mut values[2], AcqRel);
            let same = first == values.as_mut_ptr();
            let null: AtomicPtr<u8> = AtomicPtr::default();
            // Past the lint, which looks at literals.
            let order = std::hint::black_box(Release);
            let wrong = std::panic::catch_unwind(|| AtomicBool::new(true).load(order)).is_err();
            format!("{seen:?} {same} {} {wrong}", null.load(Relaxed).is_null())
        }

        pub(crate) fn ends_of_threads() -> String {
            let value = thread::spawn(|| 6 * 7).join().unwrap();
            let text = thread::spawn(|| panic!("no {}", "luck")).join().unwrap_err();
            let text = text.downcast_ref::<String>().cloned();
            let other = thread::spawn(|| std::panic::panic_any(5_u8)).join().unwrap_err();
            let named = thread::Builder::new().name("worker".to_owned());
            let named = named.spawn(|| thread::current().name().map(str::to_owned)).unwrap().join();
            let ids =
                [thread::current().id(), thread::spawn(|| thread::current().id()).join().unwrap()];
            let handle = thread::spawn(thread::yield_now);
            while !handle.is_finished() {
                thread::yield_now();
            }
            format!(
                "{value} {text:?} {:?} {:?} {} {}",
                other.downcast_ref::<u8>(),
                named.unwrap(),
                ids[0] == ids[1],
                thread::panicking(),
            )
        }

        pub(crate) fn scopes() -> String {
            let mut values = vec![1, 2, 3];
            let sum = thread::scope(|scope| {
                let halves = values.chunks_mut(2).map(|half| {
                    scope.spawn(move || {
                        half.iter_mut().for_each(|value| *value *= 10);
                        half.iter().sum::<i32>()
                    })
                });
                halves.collect::<Vec<_>>().into_iter().map(|half| half.join().unwrap()).sum::<i32>()
            });
            let joined = thread::scope(|scope| scope.spawn(|| panic!("seen")).join().is_err());
            let unseen = std::panic::catch_unwind(|| {
                thread::scope(|scope| {
                    scope.spawn(|| panic!("unseen"));
                });
            });
            let nested = thread::scope(|outer| {
                outer.spawn(|| outer.spawn(|| values.len()).join().unwrap()).join().unwrap()
            });
            let unseen = unseen.unwrap_err().downcast_ref::<&str>().copied();
            format!("{values:?} {sum} {joined} {unseen:?} {nested}")
        }

        pub(crate) fn tokens() -> String {
            use sync::Arc;
            use time::Duration;
            thread::current().unpark();
            thread::park();
            let waited = time::Instant::now();
            thread::park_timeout(Duration::from_millis(2));
            let slept = waited.elapsed() >= Duration::from_millis(2);
            let go = Arc::new(atomic::AtomicBool::new(false));
            let theirs = Arc::clone(&go);
            let child = thread::spawn(move || {
                while !theirs.load(atomic::Ordering::Acquire) {
                    thread::park();
                }
                Arc::strong_count(&theirs)
            });
            go.store(true, atomic::Ordering::Release);
            child.thread().unpark();
            format!("{slept} {}", child.join().unwrap())
        }

        pub(crate) fn own_objects() -> String {
            use std::cell::{Cell, RefCell};
            thread_local! {
                static COUNT: Cell<u32> = const { Cell::new(3) };
                static NAMES: RefCell<Vec<u32>> = RefCell::new(vec![COUNT.get()]);
            }
            COUNT.set(5);
            NAMES.with_borrow_mut(|names| names.push(6));
            let child = thread::spawn(|| (COUNT.replace(1), NAMES.take())).join().unwrap();
            format!("{} {:?} {child:?}", COUNT.take(), NAMES.with_borrow(Vec::clone))
        }

        pub(crate) fn poison() -> String {
            use sync::{Mutex, RwLock, TryLockError};
            let (mutex, shared) = (Mutex::new(1), RwLock::new(2));
            let fail = || {
                thread::scope(|scope| {
                    let both = || {
                        let _write = shared.write().unwrap();
                        *mutex.lock().unwrap() += 1;
                        let _held = mutex.lock().unwrap();
                        panic!("with two locks");
                    };
                    scope.spawn(both).join().is_err()
                })
            };
            let failed = fail();
            let before = (mutex.is_poisoned(), shared.is_poisoned());
            let kinds = (
                mutex.lock().map(|value| *value).map_err(|error| *error.into_inner()),
                matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))),
                shared.read().is_err(),
            );
            mutex.clear_poison();
            let again = (mutex.is_poisoned(), format!("{mutex:?} {shared:?}"));
            format!("{failed} {before:?} {kinds:?} {again:?} {:?}", shared.into_inner().is_err())
        }

        pub(crate) fn locks_exclude() -> String {
            use sync::{Arc, Mutex, RwLock};
            let state = Arc::new((Mutex::new(0_u64), RwLock::new((0_u64, 0_u64))));
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let state = Arc::clone(&state);
                    thread::spawn(move || {
                        for round in 0..50 {
                            *state.0.lock().unwrap() += 1;
                            if (round + thread) % 3 == 0 {
                                let mut both = state.1.write().unwrap();
                                both.0 += 1;
                                thread::yield_now();
                                both.1 += 1;
                            } else {
                                let both = state.1.read().unwrap();
                                thread::yield_now();
                                assert_eq!(both.0, both.1, "a reader saw half of a write");
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let sum = *state.0.lock().unwrap();
            let held = state.0.lock().unwrap();
            let tries = (state.0.try_lock().is_err(), state.1.try_write().is_ok());
            drop(held);
            let write = state.1.write().unwrap();
            let none = state.1.try_read().is_err();
            let read = sync::RwLockWriteGuard::downgrade(write);
            format!("{sum} {tries:?} {none} {:?} {read:?}", state.1.try_read().is_ok())
        }

        pub(crate) fn conditions() -> String {
            use sync::{Arc, Barrier, Condvar, Mutex};
            use time::Duration;
            let state = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
            let theirs = Arc::clone(&state);
            let consumer = thread::spawn(move || {
                let queue = theirs.0.lock().unwrap();
                let mut queue = theirs.1.wait_while(queue, |queue| queue.len() < 3).unwrap();
                std::mem::take(&mut *queue)
            });
            for value in 0..3 {
                state.0.lock().unwrap().push(value);
                state.1.notify_one();
            }
            let values = consumer.join().unwrap();
            let guard = state.0.lock().unwrap();
            let (guard, late) = state.1.wait_timeout(guard, Duration::from_millis(1)).unwrap();
            let long = Duration::from_millis(1);
            let (guard, later) =
                state.1.wait_timeout_while(guard, long, |queue| queue.is_empty()).unwrap();
            drop(guard);
            let barrier = Barrier::new(4);
            let leaders = thread::scope(|scope| {
                let wait = || usize::from(barrier.wait().is_leader());
                let threads: Vec<_> =
                    (0..4).map(|_| scope.spawn(move || wait() + 10 * wait())).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            });
            format!("{values:?} {} {} {leaders}", late.timed_out(), later.timed_out())
        }

        pub(crate) fn done_once() -> String {
            use sync::{LazyLock, Once, OnceLock};
            let (once, cell, calls) = (Once::new(), OnceLock::new(), atomic::AtomicU32::new(0));
            let lazy: LazyLock<Vec<u32>, _> = LazyLock::new(|| {
                calls.fetch_add(100, atomic::Ordering::Relaxed);
                vec![4]
            });
            thread::scope(|scope| {
                for _ in 0..5 {
                    scope.spawn(|| {
                        once.call_once(|| {
                            thread::yield_now();
                            calls.fetch_add(1, atomic::Ordering::Relaxed);
                        });
                        cell.get_or_init(|| calls.fetch_add(10, atomic::Ordering::Relaxed));
                        assert!(once.is_completed() && lazy.len() == 1);
                    });
                }
            });
            let twice = cell.set(9);
            let broken = Once::new();
            let fail = std::panic::AssertUnwindSafe(|| broken.call_once(|| panic!("at once")));
            let failed = std::panic::catch_unwind(fail).is_err();
            let again = std::panic::AssertUnwindSafe(|| broken.call_once(|| ()));
            let poisoned = std::panic::catch_unwind(again).is_err();
            let mut forced = false;
            broken.call_once_force(|state| forced = state.is_poisoned());
            format!("{calls:?} {twice:?} {failed} {poisoned} {forced} {}", broken.is_completed())
        }

        pub(crate) fn channels() -> String {
            use sync::mpsc::{TryRecvError, TrySendError, channel, sync_channel};
            let (sender, receiver) = channel();
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let sender = sender.clone();
                    thread::spawn(move || (0..10).for_each(|m| sender.send(n * 10 + m).unwrap()))
                })
                .collect();
            drop(sender);
            let mut all: Vec<u32> = receiver.iter().collect();
            all.sort_unstable();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let gone = receiver.try_recv() == Err(TryRecvError::Disconnected);
            let (sender, receiver) = sync_channel(1);
            let full = (sender.try_send(1), sender.try_send(2) == Err(TrySendError::Full(2)));
            let late = receiver.recv_timeout(time::Duration::from_micros(10));
            let empty = (receiver.try_recv(), receiver.recv_timeout(time::Duration::ZERO));
            drop(receiver);
            let refused = sender.send(3).unwrap_err().0;
            let (sender, receiver) = sync_channel(0);
            let alone = sender.try_send(4).is_err();
            let taker = thread::spawn(move || receiver.into_iter().sum::<i32>());
            (0..5).for_each(|n| sender.send(n).unwrap());
            drop(sender);
            let sum = taker.join().unwrap();
            let (sender, receiver) = sync_channel(0);
            let waits = thread::spawn(move || sender.send(5).is_err());
            thread::sleep(time::Duration::from_millis(1));
            drop(receiver);
            let told = waits.join().unwrap();
            format!("{all:?} {gone} {full:?} {late:?} {empty:?} {refused} {alone} {sum} {told}")
        }

        pub(crate) fn dates() -> String {
            use time::{Duration, SystemTime, UNIX_EPOCH};
            let now = SystemTime::now();
            let later = now + Duration::from_secs(1);
            let since = now.duration_since(UNIX_EPOCH).is_ok();
            let ahead = now.duration_since(later).unwrap_err().duration();
            let back = UNIX_EPOCH.checked_add(Duration::from_secs(3)).unwrap();
            let mut moved = back;
            moved += Duration::from_secs(5);
            moved -= Duration::from_secs(1);
            let moved = moved.duration_since(back);
            let paths = sync::atomic::AtomicU8::new(7).into_inner();
            format!("{since} {ahead:?} {:?} {moved:?} {paths}", back.duration_since(UNIX_EPOCH))
        }

        pub(crate) fn references() -> String {
            use sync::{Arc, Weak};
            let mut first = Arc::new(vec![1]);
            let second = Arc::clone(&first);
            let weak = Arc::downgrade(&second);
            let counts = (Arc::strong_count(&first), Arc::weak_count(&first));
            Arc::make_mut(&mut first).push(2);
            let apart = (Arc::ptr_eq(&first, &second), first.len(), second.len());
            let upgraded = weak.upgrade().map(|value| value.len());
            let back = Arc::try_unwrap(second);
            let gone = (weak.upgrade().is_none(), Weak::<u8>::new().upgrade().is_none());
            let cyclic = Arc::new_cyclic(|me: &Weak<(u8, Weak<u8>)>| {
                (u8::from(me.upgrade().is_none()), Weak::new())
            });
            let any: std::sync::Arc<dyn std::any::Any + Send + Sync> = std::sync::Arc::new(5_u8);
            let any: Arc<dyn std::any::Any + Send + Sync> = Arc::from(any);
            let any = any.downcast::<u16>().unwrap_err().downcast::<u8>();
            let at = Weak::into_raw(Arc::downgrade(&first));
            // SAFETY: from `into_raw`, and only here.
            let weak = unsafe { Weak::from_raw(at) };
            let found = (weak.as_ptr() == Arc::as_ptr(&first), weak.upgrade().is_some());
            drop(weak);
            let at = Arc::into_raw(first);
            // SAFETY: from `into_raw`; the reference that is added here is dropped here.
            let (more, first) = unsafe {
                Arc::increment_strong_count(at);
                let first = Arc::from_raw(at);
                let more = Arc::strong_count(&first);
                Arc::decrement_strong_count(at);
                (more, first)
            };
            let slice: Arc<[u8]> = Arc::from(vec![1, 2, 3]);
            let text: Arc<str> = Arc::from("text");
            format!(
                "{any:?} {found:?} {more} {counts:?} {apart:?} {upgraded:?} {back:?} {gone:?} {} \
                 {slice:?} {text} {:?}",
                cyclic.0,
                Arc::into_inner(first)
            )
        }
    };
}

#[allow(clippy::incompatible_msrv, reason = "tests may need a later Rust than the library")]
mod under_std {
    use std::{sync, sync::atomic, thread, thread_local, time};
    bodies!();
}

mod under_sim {
    use coreline_sim::{atomic, sync, thread, thread_local, time};
    bodies!();
}

macro_rules! the_same {
    ($($body:ident)+) => {$(
        #[test]
        fn $body() {
            let expected = under_std::$body();
            for (name, seed) in [("host-2c", 1), ("host-2c", 2), ("epyc-9654-2s", 3)] {
                let machine = machine(name, seed).step_limit(10_000_000);
                match machine.program(stringify!($body)).run(under_sim::$body) {
                    Ok(run) => assert_eq!(run.value, expected, "{name}, seed {seed}"),
                    Err(failure) => panic!("{failure}"),
                }
            }
        }
    )+};
}

the_same! {
    integers flags_and_pointers ends_of_threads scopes tokens own_objects poison locks_exclude
    conditions done_once channels dates references
}

#[test]
fn a_static_needs_no_value_that_may_be_sent() {
    use coreline_sim::{Static, thread};
    struct Place(*const u8);
    // SAFETY: the pointer is compared, and nothing else.
    unsafe impl Sync for Place {}
    // SAFETY: a `static`, and the program keeps no reference to its value.
    static PLACE: Static<Place> = unsafe { Static::new("PLACE", || Place(std::ptr::null())) };
    let seen = || (PLACE.0.is_null(), std::ptr::from_ref(&PLACE.0).addr());
    let run = Machine::preset("host-2c").unwrap().run(move || {
        let theirs = thread::spawn(seen).join().unwrap();
        (theirs == seen(), theirs.0)
    });
    assert_eq!(run.unwrap().value, (true, true), "both threads have one value");
}

/// What a change through an exclusive reference costs, of a word whose line another CPU holds.
fn exclusive<W: Send + 'static>(make: fn() -> W, touch: fn(&W), change: fn(&mut W)) -> Duration {
    let program = move || {
        let word = Box::new(make());
        let toucher = move || {
            touch(&word);
            word
        };
        let mut word = on(100, toucher).join();
        let start = Sim::now();
        change(&mut word);
        Sim::now() - start
    };
    Machine::preset("epyc-9654-2s").unwrap().run(program).unwrap().value
}

#[test]
fn an_exclusive_access_waits_for_the_line_in_both_families() {
    use coreline_sim::atomic::{AtomicU64, Ordering::Relaxed};
    let mirror =
        exclusive(|| AtomicU64::new(0), |word| word.store(1, Relaxed), |word| *word.get_mut() += 1);
    let world = exclusive(
        || U64::new_in(0),
        |word| Word::store(word, 1, Relaxed),
        |word| word.with_mut(|value| *value += 1),
    );
    assert!(world > Duration::from_nanos(50), "a transfer from another socket, not {world:?}");
    assert_eq!(mirror, world);
}

#[test]
fn futures_run_on_one_thread_and_are_woken_by_others() {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::{Poll, Wake, Waker};

    use coreline_sim::sync::{Arc, Mutex};
    use coreline_sim::{task, thread};

    /// A value that another thread will give.
    #[derive(Default)]
    struct Slot(Mutex<(Option<u32>, Option<Waker>)>);

    impl Slot {
        fn give(&self, value: u32) {
            let mut slot = self.0.lock().unwrap();
            slot.0 = Some(value);
            let waker = slot.1.take();
            drop(slot);
            waker.into_iter().for_each(Waker::wake);
        }

        async fn get(&self) -> u32 {
            poll_fn(|context| {
                let mut slot = self.0.lock().unwrap();
                slot.1 = Some(context.waker().clone());
                let ready = slot.0.map_or(Poll::Pending, Poll::Ready);
                Poll::Ready(task::ready!(ready))
            })
            .await
        }
    }

    struct Count(Mutex<u32>);

    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    let run = Machine::preset("epyc-9654-2s").unwrap().program("futures").run(|| {
        let slots: Arc<Vec<Slot>> = Arc::new((0..4).map(|_| Slot::default()).collect());
        let theirs = Arc::clone(&slots);
        let giver = thread::spawn(move || {
            for (value, slot) in (10..14).zip(theirs.iter()).rev() {
                thread::sleep(Duration::from_micros(50));
                slot.give(value);
            }
        });
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut executor = task::Executor::new();
        for n in 0..4 {
            let (order, slots) = (Rc::clone(&order), Arc::clone(&slots));
            executor.spawn(async move {
                let value = slots[n].get().await;
                order.borrow_mut().push(value);
            });
        }
        executor.run();
        giver.join().unwrap();
        let last = task::block_on(slots[0].get());
        let count = Arc::new(Count(Mutex::new(0)));
        Waker::from(Arc::clone(&count)).wake();
        let count = *count.0.lock().unwrap();
        (order.take(), last, count)
    });
    assert_eq!(run.unwrap().value, (vec![13, 12, 11, 10], 10, 1));
}
