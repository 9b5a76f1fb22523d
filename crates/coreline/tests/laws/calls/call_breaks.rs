//! What broke calls and tasks once: ends in the middle of other calls, destructors that panic,
//! tasks behind a worker that is busy, stacks.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::time::Duration;

use coreline::Workers;
use coreline::call::{Builder, CallError, Reply};
use coreline_sim::{Faults, Sim};
use coreline_topology::CpuSet;
use coreline_world::{Integer, JoinHandle, Native, Ordering, Testbed, Word, Work, World};

use crate::call::{MANNERS, Manner, POLLS, SLEEPS, workers};
use crate::worlds::{self, Effort};

const TWO: Effort = Effort { threads: 2, rounds: 20, cpus: 2 };

/// Simulated on two CPUs, with faults.
fn simulated(name: &'static str, law: fn(Manner)) {
    for manner in MANNERS {
        for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
            worlds::simulate_seeds(name, "host-2c", faults, 64, move || law(manner)).unwrap();
        }
    }
}

/// A thread has a worker call another one until it is refused, while another thread sends a last
/// call and closes: a call that a worker finds when it ends may call, too.
fn ends_in_a_call<W: Testbed>(manner: Manner, rounds: u32) {
    for round in 0..rounds {
        let workers = Arc::new(workers::<W>(TWO, manner));
        let cpus: Vec<_> = workers.cpus().collect();
        let (theirs, first, second) = (Arc::clone(&workers), cpus[0], cpus[1]);
        let call = move || {
            loop {
                let nested = || theirs.call_on(second, || ()).map_err(|refused| refused.why);
                match theirs.call_on(first, nested) {
                    Ok(came) => assert!(matches!(came, Ok(()) | Err(CallError::Closed))),
                    Err(refused) => return assert_eq!(refused.why, CallError::Closed),
                }
            }
        };
        let thread = W::spawn(TWO.places::<W>()(1), call).unwrap();
        W::work(Duration::from_nanos(u64::from(round % 8) * 700));
        workers.call_async(first, || ()).unwrap().detach();
        workers.close();
        thread.join();
    }
}

#[test]
fn a_call_that_is_found_at_the_end_may_call_natively() {
    MANNERS.into_iter().for_each(|manner| ends_in_a_call::<Native>(manner, 300));
}

#[test]
fn a_call_that_is_found_at_the_end_may_call_in_simulation() {
    simulated("call::ends_in_a_call", |manner| ends_in_a_call::<Sim>(manner, 20));
}

/// What a thread keeps for itself.
type Kept<W> = RefCell<Option<(Arc<Workers<W>>, Gone<W>)>>;

/// Dropped last: its word is 1 then.
struct Gone<W: Testbed>(Arc<W::U32>);

impl<W: Testbed> Drop for Gone<W> {
    fn drop(&mut self) {
        // Relaxed: nothing is read for it.
        self.0.store(1, Ordering::Relaxed);
    }
}

thread_local! {
    static LAST: Kept<Native> = const { RefCell::new(None) };
}

coreline_sim::thread_local! {
    static LAST_SIMULATED: Kept<Sim> = const { RefCell::new(None) };
}

/// What a worker's thread has of its own goes when the worker has ended: here the workers, whose
/// drop would wait for the thread it runs in.
fn keeps_the_last_handle<W: Testbed>(manner: Manner, keep: fn(Arc<Workers<W>>, Gone<W>)) {
    let workers = Arc::new(workers::<W>(TWO, manner));
    let first = workers.cpus().next().unwrap();
    let (theirs, gone) = (Arc::clone(&workers), Arc::new(W::U32::new_in(0)));
    let says = Gone(Arc::clone(&gone));
    let task = move || {
        while Arc::strong_count(&theirs) > 1 {
            W::yield_now();
        }
        theirs.close();
        keep(theirs, says);
    };
    workers.spawn_on(first, task).unwrap().detach();
    drop(workers);
    gone.wait_until(Ordering::Relaxed, |gone| gone == 1);
}

#[test]
fn a_worker_that_has_ended_may_drop_the_last_handle_natively() {
    let keep = |workers, gone| LAST.with(|last| *last.borrow_mut() = Some((workers, gone)));
    MANNERS.into_iter().for_each(|manner| keeps_the_last_handle::<Native>(manner, keep));
}

#[test]
fn a_worker_that_has_ended_may_drop_the_last_handle_in_simulation() {
    simulated("call::keeps_the_last_handle", |manner| {
        let keep =
            |workers, gone| LAST_SIMULATED.with(|last| *last.borrow_mut() = Some((workers, gone)));
        keeps_the_last_handle::<Sim>(manner, keep);
    });
}

/// Panics where it is dropped, with another one of its kind, so many times.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 && !std::thread::panicking() {
            panic_any(Bomb(self.0 - 1));
        }
    }
}

/// The reply is dropped; what that throws here is not what is tested.
fn leave<R: Send + 'static, W: World>(reply: Result<Reply<R, W>, impl std::fmt::Debug>) {
    let left = catch_unwind(AssertUnwindSafe(|| reply.unwrap().detach()));
    // A bomb, as its value was there.
    left.unwrap_or_else(std::mem::forget);
}

/// Values and panics that no thread wants panic where they are dropped: the worker lives on, and
/// the calls that it is in the middle of are not left.
fn bombs<W: Testbed>(manner: Manner) {
    let workers = Arc::new(workers::<W>(TWO, manner));
    let cpus: Vec<_> = workers.cpus().collect();
    for depth in 1..4 {
        leave(workers.spawn_on(cpus[0], move || Bomb(depth)));
        leave(workers.spawn_on(cpus[0], move || panic_any(Bomb(depth))));
        leave(workers.call_async(cpus[0], move || Bomb(depth)));
        leave(workers.call_async(cpus[0], move || panic_any(Bomb(depth))));
        assert_eq!(workers.call_on(cpus[0], || 5).unwrap(), 5);
        // In the middle of a call.
        let theirs = Arc::clone(&workers);
        let (first, second) = (cpus[0], cpus[1]);
        let came = workers.call_on(first, move || {
            let back = || {
                leave(theirs.call_async(first, move || Bomb(depth)));
                leave(theirs.call_async(first, move || panic_any(Bomb(depth))));
                theirs.call_on(first, || 6).unwrap()
            };
            theirs.call_on(second, back).unwrap()
        });
        assert_eq!(came.unwrap(), 6);
    }
    drop(Arc::into_inner(workers).expect("no call has it any more"));
}

#[test]
fn a_worker_survives_what_it_drops_natively() {
    bombs::<Native>(POLLS);
    bombs::<Native>(SLEEPS);
}

/// A task waits for the next one, and is not waited for by it: another worker runs that.
fn behind_a_busy_worker<W: Testbed>(manner: Manner) {
    let workers = workers::<W>(TWO, manner);
    for round in 0..TWO.rounds {
        W::work(Duration::from_micros(u64::from(round % 7)));
        let word = Arc::new(W::U32::new_in(0));
        let (waits, sets) = (Arc::clone(&word), word);
        let first = workers.spawn(move || {
            // Acquire: pairs with the Release below.
            waits.wait_until(Ordering::Acquire, |word| word == 1);
        });
        W::work(Duration::from_nanos(u64::from(round % 11) * 100));
        // Release: pairs with the Acquire above.
        let second = workers.spawn(move || sets.store(1, Ordering::Release));
        first.unwrap().wait();
        second.unwrap().wait();
    }
}

#[test]
fn no_task_waits_behind_a_busy_worker_in_simulation() {
    simulated("call::behind_a_busy_worker", behind_a_busy_worker::<Sim>);
}

/// As long a time of polling as there is.
fn polls_for_ever<W: Testbed>(_: Manner) {
    let cpus: CpuSet = workers::<W>(TWO, POLLS).cpus().collect();
    let builder: Builder<W> = Workers::builder_in().cpus(cpus).polling(Duration::MAX);
    let workers = builder.start().unwrap();
    for _ in 0..TWO.rounds {
        workers.cpus().for_each(|cpu| workers.call_on(cpu, || ()).unwrap());
        W::work(Duration::from_micros(300));
    }
}

#[test]
fn polling_has_no_largest_time_in_simulation() {
    simulated("call::polls_for_ever", polls_for_ever::<Sim>);
}

/// One function on all CPUs, from a worker: all are in it at the same time.
fn meets<W: Testbed>(manner: Manner) {
    let workers = workers::<W>(TWO, manner);
    let all: CpuSet = workers.cpus().collect();
    for cpu in all.iter() {
        let here = W::U32::new_in(0);
        let meet = |_| {
            // Relaxed, twice: a count.
            here.fetch_add(1, Ordering::Relaxed);
            here.wait_until(Ordering::Relaxed, |here| here == TWO.cpus);
        };
        let came = workers.call_on(cpu, || workers.call_many(&all, meet).unwrap().len());
        assert_eq!(came.unwrap(), TWO.cpus as usize);
    }
}

#[test]
fn all_are_called_at_the_same_time_in_simulation() {
    simulated("call::meets", meets::<Sim>);
}

/// More calls than a worker can serve, each of which waits for another worker: a worker that waits
/// does not serve them all on top of each other.
#[test]
fn the_stack_of_a_worker_has_an_end_natively() {
    for manner in MANNERS {
        let workers = Arc::new(workers::<Native>(TWO, manner));
        let cpus: Vec<_> = workers.cpus().collect();
        let replies: Vec<_> = (0..20_000)
            .map(|number| {
                let (theirs, other) = (Arc::clone(&workers), cpus[1]);
                let nested = move || {
                    let filler = std::hint::black_box([number as u8; 512]);
                    let slow = || {
                        Native::work(Duration::from_micros(20));
                        filler
                    };
                    std::hint::black_box(theirs.call_on(other, slow).unwrap());
                };
                workers.call_async(cpus[0], nested).unwrap()
            })
            .collect();
        replies.into_iter().for_each(Reply::wait);
        drop(workers);
    }
}

/// More callers than a worker serves on top of each other, of functions that call another worker:
/// none waits while the others call again and again. What bounds it is how deep a worker nests, so
/// the bound is far from what was seen, and four hundred calls of each other caller are farther.
fn overtakes<W: Testbed>() {
    const CALLERS: u32 = 8;
    let workers = Arc::new(workers::<W>(TWO, POLLS));
    let cpus: Vec<_> = workers.cpus().collect();
    let place = Effort { cpus: 2 + CALLERS, ..TWO }.places::<W>();
    let made = Arc::new(W::U32::new_in(0));
    let call = |number: u32| {
        let (workers, made, cpus) = (Arc::clone(&workers), Arc::clone(&made), cpus.clone());
        let call = move || {
            for _ in 0..400 {
                // Relaxed, twice: a count.
                let before = made.load(Ordering::Relaxed);
                let nested = || workers.call_on(cpus[1], || W::work(Duration::from_micros(1)));
                workers.call_on(cpus[0], nested).unwrap().unwrap();
                let others = made.fetch_add(1, Ordering::Relaxed) - before;
                assert!(others < 50 * CALLERS, "{others} calls of others came first");
            }
        };
        W::spawn(place(2 + number), call).unwrap()
    };
    let callers: Vec<_> = (0..CALLERS).map(call).collect();
    callers.into_iter().for_each(JoinHandle::join);
}

#[test]
fn no_caller_is_overtaken_for_ever_in_simulation() {
    worlds::simulate("call::overtakes", "epyc-9654-2s", Faults::NONE, overtakes::<Sim>).unwrap();
}

/// A function that keeps a token goes to a worker, and a value that keeps it comes back; or the
/// function does, if it is refused.
fn goes<W: Testbed, R: Send>(
    workers: &Workers<W>,
    round: u32,
    function: impl FnOnce() -> R + Send,
) {
    let tries = round.is_multiple_of(2);
    let cpu = workers.cpus().nth(round as usize / 5 % 2).unwrap();
    let came =
        if tries { workers.try_call_on(cpu, function) } else { workers.call_on(cpu, function) };
    if let Err(refused) = came {
        assert!(refused.why == CallError::Closed || tries && refused.why == CallError::Busy);
        if round.is_multiple_of(3) {
            (refused.function)();
        }
    }
}

/// What goes to a worker and back is dropped once, whatever its size, and whatever became of it.
fn tokens<W: Testbed>(manner: Manner) {
    #[repr(align(64))]
    struct Wide(Arc<()>);
    let token = Arc::new(());
    let workers = Arc::new(workers::<W>(TWO, manner));
    let place = TWO.places::<W>();
    let call = |number: u32| {
        let (workers, token) = (Arc::clone(&workers), Arc::clone(&token));
        let call = move || {
            for round in 0..TWO.rounds {
                let (sent, more) = (Arc::clone(&token), Arc::clone(&token));
                match (round + number) % 6 {
                    0 => goes(&workers, round, move || sent),
                    1 => goes(&workers, round, move || (sent, more)),
                    2 => goes(&workers, round, move || drop(sent)),
                    3 => goes(&workers, round, move || Wide(sent)),
                    4 => goes(&workers, round, move || Err::<(), _>(Some(sent))),
                    _ => {
                        let wide = Wide(sent);
                        goes(&workers, round, move || drop({ wide }.0));
                    }
                }
                if (round, number) == (15, 0) {
                    workers.close();
                }
            }
        };
        W::spawn(place(number), call).unwrap()
    };
    let callers: Vec<_> = (0..3).map(call).collect();
    callers.into_iter().for_each(JoinHandle::join);
    drop(Arc::into_inner(workers).expect("the callers have ended"));
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn nothing_is_dropped_twice_or_never_natively() {
    MANNERS.into_iter().for_each(|manner| (0..50).for_each(|_| tokens::<Native>(manner)));
}

#[test]
fn nothing_is_dropped_twice_or_never_in_simulation() {
    simulated("call::tokens", tokens::<Sim>);
}

/// Functions of a parcel that panic, and whose values and captures panic when they are dropped.
#[test]
fn small_functions_may_panic_natively() {
    let workers = workers::<Native>(TWO, POLLS);
    let cpu = workers.cpus().next().unwrap();
    let fails = |call: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        assert!(panic.downcast_ref::<Bomb>().is_some_and(|bomb| bomb.0 == 1));
        std::mem::forget(panic);
        assert_eq!(workers.call_on(cpu, || 7).unwrap(), 7);
    };
    for _ in 0..1000 {
        fails(&|| workers.call_on(cpu, || panic_any(Bomb(1))).unwrap());
        let bomb = || Bomb(2);
        fails(&|| drop(workers.call_on(cpu, bomb).unwrap()));
        fails(&|| {
            let bomb = Bomb(2);
            workers.call_on(cpu, move || drop(bomb)).unwrap()
        });
        // Its function has panicked when it is dropped.
        fails(&|| {
            let bomb = Bomb(2);
            workers
                .call_on(cpu, move || {
                    let _bomb = &bomb;
                    panic_any(Bomb(1));
                })
                .unwrap()
        });
    }
}

/// A destructor that panics is seen by the thread that drops.
#[test]
fn a_bomb_is_one() {
    assert!(catch_unwind(AssertUnwindSafe(|| drop(Bomb(1)))).is_err());
}
