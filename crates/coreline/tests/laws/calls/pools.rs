//! The laws of workers as a pool: futures that live on a worker, calls to many that no thread waits
//! for, queues with a limit, and functions at the start and the end of each worker.

use std::cell::Cell as HostCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use coreline::Workers;
use coreline::call::{Builder, CallError, Cancelled};
use coreline::lock::{Fifo, Mutex};
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{Cell, Integer, Native, Ordering, Testbed, Word, Work};

use crate::call::{MANNERS, Manner, SLEEPS, in_every_manner, workers};
use crate::worlds::{self, Effort, FEW};

/// A value that a future awaits, and another thread gives.
struct Given<W: Testbed> {
    /// No atomic: `is_there` orders it.
    value: Cell<u32, W>,
    is_there: W::U32,
    waker: Mutex<Option<Waker>, Fifo, W>,
}

impl<W: Testbed> Given<W> {
    fn new() -> Arc<Self> {
        let (value, is_there) = (Cell::new_in(0), W::U32::new_in(0));
        Arc::new(Given { value, is_there, waker: Mutex::new_in(None) })
    }

    fn give(&self, value: u32) {
        // SAFETY: the future reads it when it is said to be there.
        self.value.with_mut(|at| unsafe { *at = value });
        // Release: pairs with the Acquire in `take`.
        self.is_there.store(1, Ordering::Release);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn take(&self) -> u32 {
        let taken = poll_fn(|cx| {
            *self.waker.lock() = Some(cx.waker().clone());
            // Acquire: pairs with the Release in `give`.
            match self.is_there.load(Ordering::Acquire) {
                0 => Poll::Pending,
                // SAFETY: it is there, and written no more.
                _ => Poll::Ready(self.value.with(|at| unsafe { *at })),
            }
        });
        taken.await
    }
}

/// A future on the only worker waits for a value of another thread.
fn awaits<W: Testbed>() {
    let workers = workers::<W>(Effort { threads: 1, rounds: 1, cpus: 1 }, SLEEPS);
    let cpu = workers.cpus().next().unwrap();
    let given = Given::<W>::new();
    let theirs = Arc::clone(&given);
    let reply = workers.spawn_local_on(cpu, move || async move { theirs.take().await + 1 });
    given.give(6);
    assert_eq!(reply.unwrap().wait(), Ok(7));
}

#[test]
fn a_future_is_woken_in_every_interleaving() {
    worlds::fewest_planted(Plant::EXCHANGES, awaits::<Model>);
}

/// Futures on all workers, which share what is not `Send` with other futures of their worker, await
/// calls to other workers and futures there. Each stays on its worker.
fn futures<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = Arc::new(workers::<W>(effort, manner));
    let cpus: Vec<_> = workers.cpus().collect();
    for round in 0..effort.rounds as usize {
        let start = |number: usize| {
            let (cpu, other) = (cpus[number % cpus.len()], cpus[(number + round) % cpus.len()]);
            let workers = Arc::clone(&workers);
            let make = move || async move {
                let (count, here) = (Rc::new(HostCell::new(0)), workers.current());
                let theirs = Rc::clone(&count);
                let beside = async move { theirs.set(theirs.get() + 1) };
                workers.spawn_local(beside).unwrap().await.unwrap();
                let value = workers.call_async(other, move || number).unwrap().await;
                let there = move || async move { value + 1 };
                let value = workers.spawn_local_on(other, there).unwrap().await.unwrap();
                assert_eq!((workers.current(), here), (Some(cpu), Some(cpu)));
                (value, count.get())
            };
            (number, cpu, make)
        };
        let all = (0..cpus.len() * 2).map(start);
        let replies: Vec<_> = all
            .map(|(number, cpu, make)| (number, workers.spawn_local_on(cpu, make).unwrap()))
            .collect();
        for (number, reply) in replies {
            assert_eq!(reply.wait(), Ok((number + 1, 1)));
        }
    }
}

#[test]
fn futures_stay_on_their_workers_natively() {
    for manner in MANNERS {
        futures::<Native>(Effort { threads: 1, rounds: 300, cpus: 2 }, manner);
        futures::<Native>(Effort { threads: 1, rounds: 100, cpus: 1 }, manner);
    }
}

#[test]
fn futures_stay_on_their_workers_in_simulation() {
    for manner in MANNERS {
        let law = move || futures::<Sim>(Effort { rounds: 6, ..FEW }, manner);
        worlds::simulate("pools::futures", "host-2c", worlds::PREEMPTED, law).unwrap();
    }
}

#[test]
fn futures_stay_on_their_workers_under_schedules_that_look_for_mistakes() {
    for manner in MANNERS {
        let law = move || futures::<Sim>(Effort { threads: 1, rounds: 2, cpus: 2 }, manner);
        worlds::search("pools::searched", "host-2c", worlds::schedules(12), law).unwrap();
    }
}

/// Counts when it is dropped, on the worker that made it.
struct Dropped<W: Testbed> {
    count: Arc<W::U32>,
    workers: Weak<Workers<W>>,
    made_by: Option<usize>,
}

impl<W: Testbed> Drop for Dropped<W> {
    fn drop(&mut self) {
        let workers = self.workers.upgrade().expect("they are not dropped before");
        assert!(self.made_by.is_some() && workers.current_index() == self.made_by);
        // Relaxed: a count, read when a reply has come.
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Futures that wait for ever are dropped on their workers: when they are aborted, and at the end.
/// So is one that was not polled before.
fn cancelled<W: Testbed>(manner: Manner) {
    let workers = Arc::new(workers::<W>(Effort { threads: 1, rounds: 1, cpus: 2 }, manner));
    let cpus: Vec<_> = workers.cpus().collect();
    let dropped = Arc::new(W::U32::new_in(0));
    let waits = |cpu| {
        let (count, theirs) = (Arc::clone(&dropped), Arc::downgrade(&workers));
        let make = move || async move {
            let made_by = theirs.upgrade().and_then(|workers| workers.current_index());
            let _dropped = Dropped::<W> { count, workers: theirs, made_by };
            poll_fn(|_| Poll::<()>::Pending).await;
        };
        let reply = workers.spawn_local_on(cpu, make).unwrap();
        assert!(!reply.is_finished());
        reply
    };
    let [aborted, left, kept] = [cpus[0], cpus[1], cpus[1]].map(waits);
    drop(left);
    // It has been polled by then.
    workers.spawn_on(cpus[0], || ()).unwrap().wait();
    aborted.abort();
    aborted.abort();
    assert_eq!(aborted.wait(), Err(Cancelled));
    // Relaxed: the reply has come.
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    let early = workers.call_on(cpus[0], || {
        let reply = workers.spawn_local(async { 5 }).unwrap();
        reply.abort();
        reply
    });
    assert_eq!(early.unwrap().wait(), Err(Cancelled), "it was not polled before");
    // A future that is ready keeps its value.
    let ready = workers.spawn_local_on(cpus[0], || async { 6 }).unwrap();
    workers.spawn_on(cpus[0], || ()).unwrap().wait();
    ready.abort();
    assert_eq!(ready.wait(), Ok(6));
    let own = async {};
    let refused = workers.spawn_local(own).expect_err("this thread is no worker");
    assert_eq!(refused.why, CallError::NotAWorker);
    assert!(workers.close_and_wait());
    assert_eq!(kept.wait(), Err(Cancelled));
    // Relaxed: the workers have ended.
    assert_eq!(dropped.load(Ordering::Relaxed), 3);
    let late = workers.spawn_local_on(cpus[0], || async { 7 }).expect_err("they are closed");
    assert_eq!(late.why, CallError::Closed);
}

#[test]
fn futures_that_wait_are_cancelled_in_every_world() {
    in_every_manner("pools::cancelled", 20, cancelled::<Native>, cancelled::<Sim>);
}

/// Takes until a task has run.
struct Blocks<W: Testbed> {
    begun: Arc<W::U32>,
    ran: Arc<W::U32>,
}

impl<W: Testbed> Drop for Blocks<W> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the task that waits for this.
        self.begun.store(1, Ordering::Release);
        self.ran.wait_until(Ordering::Acquire, |ran| ran == 1);
    }
}

/// The first worker has ended but for a future, whose drop takes until a task has run. The last
/// worker adds that task, and waits for it, too. The second one is in a call until it was added. It
/// must run it then, although the first worker had nothing to do before the drop.
fn drop_blocks<W: Testbed>(manner: Manner) {
    let workers = Arc::new(workers::<W>(Effort { threads: 1, rounds: 1, cpus: 3 }, manner));
    let cpus: Vec<_> = workers.cpus().collect();
    let [begun, added, ran, busy] = [(); 4].map(|()| Arc::new(W::U32::new_in(0)));
    // All workers come to rest, and the first one again when it has polled the future.
    W::work(Duration::from_millis(1));
    let blocks = Blocks::<W> { begun: Arc::clone(&begun), ran: Arc::clone(&ran) };
    let waits = move || async move {
        let _blocks = blocks;
        poll_fn(|_| Poll::<()>::Pending).await;
    };
    drop(workers.spawn_local_on(cpus[0], waits).unwrap());
    W::work(Duration::from_millis(1));
    let (calls, until) = (Arc::clone(&busy), Arc::clone(&added));
    let call = workers.call_async(cpus[1], move || {
        // Relaxed: a count.
        calls.fetch_add(1, Ordering::Relaxed);
        until.wait_until(Ordering::Acquire, |added| added == 1);
    });
    let (theirs, runs, adds) = (Arc::downgrade(&workers), Arc::clone(&ran), Arc::clone(&busy));
    let task = workers.spawn_on(cpus[2], move || {
        // Relaxed: a count.
        adds.fetch_add(1, Ordering::Relaxed);
        begun.wait_until(Ordering::Acquire, |begun| begun == 1);
        let ends = Arc::clone(&runs);
        let workers = theirs.upgrade().expect("they are not dropped before");
        // Release: pairs with the Acquire of those that wait for it.
        workers.spawn(move || ends.store(1, Ordering::Release)).unwrap().detach();
        // Release: pairs with the Acquire in the call.
        added.store(1, Ordering::Release);
        runs.wait_until(Ordering::Acquire, |ran| ran == 1);
    });
    busy.wait_until(Ordering::Relaxed, |busy| busy == 2);
    assert!(workers.close_and_wait());
    call.unwrap().wait();
    task.unwrap().wait();
}

#[test]
fn a_worker_whose_future_blocks_at_the_end_is_given_no_task_in_simulation() {
    for manner in MANNERS {
        let law = move || drop_blocks::<Sim>(manner);
        worlds::simulate("pools::drop_blocks", "desktop-12c", Faults::NONE, law).unwrap();
    }
}

/// A future that wakes itself again and again, and a task of any worker, on the only worker: each
/// comes to its turn.
fn in_turn<W: Testbed>(manner: Manner) {
    let workers = workers::<W>(Effort { threads: 1, rounds: 1, cpus: 1 }, manner);
    let cpu = workers.cpus().next().unwrap();
    let (over, ends) = (Arc::new(W::U32::new_in(0)), Arc::new(W::U32::new_in(0)));
    let (theirs, ended) = (Arc::clone(&over), Arc::clone(&ends));
    let make = move || {
        poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            // Relaxed: says nothing else.
            if theirs.load(Ordering::Relaxed) == 0 { Poll::Pending } else { Poll::Ready(()) }
        })
    };
    let reply = workers.spawn_local_on(cpu, make).unwrap();
    // Relaxed: says nothing else.
    workers.spawn(move || over.store(1, Ordering::Relaxed)).unwrap().wait();
    assert_eq!(reply.wait(), Ok(()));
    // A panic of a future comes out of the reply, and the worker lives.
    // Relaxed: says nothing else.
    let fails = move || async move { assert_eq!(ended.load(Ordering::Relaxed), 1, "fails") };
    let reply = workers.spawn_local_on(cpu, fails).unwrap();
    let wait = std::panic::AssertUnwindSafe(|| reply.wait());
    assert!(std::panic::catch_unwind(wait).is_err());
    assert_eq!(workers.call_on(cpu, || 8).unwrap(), 8);
}

#[test]
fn futures_and_tasks_run_in_turn_in_every_world() {
    in_every_manner("pools::in_turn", 1, in_turn::<Native>, in_turn::<Sim>);
}

/// Queues a task for the only worker, which queues the next one, until `over` is not 0. The last
/// one of so many writes there itself.
fn again<W: Testbed>(workers: &Arc<Workers<W>>, over: &Arc<W::U32>, left: u32) {
    let cpu = workers.cpus().next().unwrap();
    let (theirs, ends) = (Arc::clone(workers), Arc::clone(over));
    let task = move || {
        // Relaxed: says nothing else.
        match ends.load(Ordering::Relaxed) {
            0 if left > 0 => again(&theirs, &ends, left - 1),
            // Relaxed: says nothing else.
            _ => _ = ends.fetch_or(2, Ordering::Relaxed),
        }
    };
    workers.spawn_on(cpu, task).unwrap().detach();
}

/// Tasks for the only worker, each of which queues the next one, do not keep a task for any worker
/// from running.
fn no_kind_waits_for_the_other<W: Testbed>(manner: Manner) {
    let workers = workers::<W>(Effort { threads: 1, rounds: 1, cpus: 1 }, manner);
    let workers = Arc::new(workers);
    let cpu = workers.cpus().next().unwrap();
    let over = Arc::new(W::U32::new_in(0));
    let queued = workers.call_on(cpu, || {
        again(&workers, &over, 2);
        let ends = Arc::clone(&over);
        // Relaxed: says nothing else.
        workers.spawn(move || ends.fetch_or(1, Ordering::Relaxed)).unwrap()
    });
    assert_eq!(queued.unwrap().wait(), 0);
    assert!(workers.close_and_wait());
}

#[test]
fn tasks_for_one_worker_and_for_any_run_in_turn_in_every_world() {
    in_every_manner(
        "pools::no_kind_waits",
        20,
        no_kind_waits_for_the_other::<Native>,
        no_kind_waits_for_the_other::<Sim>,
    );
}

/// Calls to all workers that no thread waits for: all values come, or one panic; and those that are
/// dropped run whole or not.
fn many<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = workers::<W>(effort, manner);
    let all = workers.cpus().collect();
    let ran = Arc::new(W::U32::new_in(0));
    for round in 0..effort.rounds {
        let ran = Arc::clone(&ran);
        let count = move |cpu| {
            // Relaxed: a count.
            ran.fetch_add(1, Ordering::Relaxed);
            (cpu, round)
        };
        let replies = workers.call_many_async(&all, count).unwrap();
        if round % 3 == 2 {
            drop(replies);
        } else {
            let values = replies.wait();
            assert!(values.iter().all(|(cpu, value)| *value == (*cpu, round)));
            assert!(values.iter().map(|(cpu, _)| *cpu).eq(workers.cpus()));
        }
    }
    let first = workers.cpus().next().unwrap();
    let fails = |cpu| std::panic::panic_any(cpu);
    let replies = workers.call_many_async::<(), _>(&all, fails).unwrap();
    let wait = std::panic::AssertUnwindSafe(|| replies.wait());
    let panic = std::panic::catch_unwind(wait).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&first));
    // A worker that would wait for itself is told so.
    let own = workers.call_on(first, || {
        let replies = workers.call_many_async(&all, |_| ()).unwrap();
        let wait = std::panic::AssertUnwindSafe(|| replies.wait());
        std::panic::catch_unwind(wait).is_err()
    });
    assert!(own.unwrap());
    workers.close();
    assert_eq!(workers.call_many_async(&all, |_| ()).err(), Some(CallError::Closed));
    drop(workers);
    assert!(Arc::into_inner(ran).is_some(), "no call is left");
}

#[test]
fn calls_to_many_come_back_in_every_world() {
    for manner in MANNERS {
        many::<Native>(Effort { threads: 1, rounds: 300, cpus: 2 }, manner);
        let law = move || many::<Sim>(Effort { rounds: 9, ..FEW }, manner);
        worlds::simulate("pools::many", "host-2c", worlds::PREEMPTED, law).unwrap();
    }
}

/// Two workers in long tasks, and queues of two: four tasks wait, wherever they were left, and the
/// others come back. Tasks for one worker stay there.
fn limited<W: Testbed>(polling: std::time::Duration) {
    let cpus: Vec<_> = W::allowed().iter().take(2).collect();
    let builder: Builder<W> = Workers::builder_in().cpus(cpus.iter().copied().collect());
    let workers = Arc::new(builder.polling(polling).queue_limit(2).start().unwrap());
    let (begun, over) = (Arc::new(W::U32::new_in(0)), Arc::new(W::U32::new_in(0)));
    let long = |cpu| {
        let (begun, over) = (Arc::clone(&begun), Arc::clone(&over));
        let long = move || {
            // Relaxed: a count.
            begun.fetch_add(1, Ordering::Relaxed);
            // Relaxed: says nothing else.
            while over.load(Ordering::Relaxed) == 0 {
                W::yield_now();
            }
        };
        workers.spawn_on(cpu, long).unwrap()
    };
    let mut replies: Vec<_> = cpus.iter().map(|cpu| long(*cpu)).collect();
    // Relaxed: a count.
    while (begun.load(Ordering::Relaxed) as usize) < cpus.len() {
        W::yield_now();
    }
    assert!(workers.stats().all(|(_, stats)| stats.depth == 0));
    replies.push(workers.spawn_on(cpus[0], || ()).unwrap());
    replies.push(workers.spawn_on(cpus[0], || ()).unwrap());
    let refused = workers.spawn_on(cpus[0], || ()).expect_err("that queue is full");
    assert_eq!(refused.why, CallError::Full);
    for _ in 1..cpus.len() {
        replies.push(workers.spawn(|| ()).unwrap());
        replies.push(workers.spawn(|| ()).unwrap());
    }
    assert!(workers.stats().all(|(_, stats)| stats.depth == 2));
    let refused = workers.spawn(|| 9).expect_err("all queues are full");
    assert_eq!((refused.why, (refused.function)()), (CallError::Full, 9));
    let refused = workers.scope(|scope| scope.spawn(|_| ()).map_err(CallError::from));
    assert_eq!(refused, Err(CallError::Full));
    let pending = replies.remove(0).wait_timeout(std::time::Duration::from_micros(1));
    let pending = pending.expect_err("the task is not over");
    assert!(!pending.is_finished());
    // Relaxed: says nothing else.
    over.store(1, Ordering::Relaxed);
    pending.wait();
    replies.into_iter().for_each(|reply| reply.wait());
    let done = workers.spawn(|| ()).unwrap();
    while !done.is_finished() {
        W::yield_now();
    }
    let waited = done.wait_timeout(std::time::Duration::ZERO);
    assert!(waited.is_ok(), "the value is there");
}

#[test]
fn queues_have_a_limit_in_every_world() {
    for polling in [Builder::<Native>::POLLING, std::time::Duration::ZERO] {
        limited::<Native>(polling);
        let law = move || limited::<Sim>(polling);
        worlds::simulate("pools::limited", "host-2c", worlds::PREEMPTED, law).unwrap();
    }
}

/// Each worker calls the first function before all else, and the second one after all else; a panic
/// there comes to the thread that waits for the end.
fn hooks<W: Testbed>() {
    let running = Arc::new(W::U32::new_in(0));
    let hook = |by: u32| {
        let running = Arc::clone(&running);
        // Relaxed: a count.
        move |_cpu| _ = running.fetch_add(by, Ordering::Relaxed)
    };
    let builder: Builder<W> = Workers::builder_in().stack_size(1 << 20);
    let (set, starts) = (Arc::new(OnceLock::<Weak<Workers<W>>>::new()), hook(1));
    let theirs = Arc::clone(&set);
    // It may use the workers, and is on one of them.
    let start = move |cpu| {
        let workers = loop {
            match theirs.get() {
                Some(set) => break set.upgrade().expect("they are used below"),
                None => W::yield_now(),
            }
        };
        assert_eq!(workers.current(), Some(cpu));
        assert_eq!(workers.call_on(cpu, || workers.current()).unwrap(), Some(cpu));
        starts(cpu);
    };
    let builder = builder.on_thread_start(start).on_thread_stop(hook(1 << 16));
    let workers = Arc::new(builder.start().unwrap());
    assert!(set.set(Arc::downgrade(&workers)).is_ok());
    let theirs = Arc::clone(&running);
    // Relaxed: a count.
    let seen = workers.broadcast(|_cpu| theirs.load(Ordering::Relaxed)).unwrap();
    assert!(seen.into_iter().all(|(_, count)| (1..1 << 16).contains(&count)));
    let count = workers.cpus().count() as u32;
    assert_eq!(workers.broadcast(|_cpu| workers.current_index()).unwrap().len(), count as usize);
    let numbers = workers.broadcast(|_cpu| workers.current_index()).unwrap();
    let by_cpu = |cpu| numbers.iter().find(|(at, _)| *at == cpu).and_then(|(_, number)| *number);
    assert!(workers.cpus().enumerate().all(|(number, cpu)| by_cpu(cpu) == Some(number)));
    assert_eq!(workers.current_index(), None);
    assert!(workers.close_and_wait());
    // Relaxed: the workers have ended.
    assert_eq!(running.load(Ordering::Relaxed), count | count << 16);
}

#[test]
fn workers_start_and_stop_with_their_hooks_in_every_world() {
    hooks::<Native>();
    worlds::simulate("pools::hooks", "host-2c", worlds::PREEMPTED, hooks::<Sim>).unwrap();
}

/// Panics of hooks come to the thread that waits for the end, after all workers have ended; and end
/// no process if that thread is unwinding.
fn failing_hooks(starts: bool, unwinds: bool) {
    let fails = |_cpu| std::panic::panic_any("of a hook");
    let builder = Workers::builder();
    let builder =
        if starts { builder.on_thread_start(fails) } else { builder.on_thread_stop(fails) };
    let workers = builder.start().unwrap();
    let (first, last) = (workers.cpus().next().unwrap(), workers.cpus().last().unwrap());
    assert_eq!(workers.call_on(first, || 4).unwrap(), 4, "the worker works");
    let ended = Arc::new(AtomicU32::new(0));
    let theirs = Arc::clone(&ended);
    let long = move || {
        Native::work(std::time::Duration::from_millis(5));
        // Relaxed: read after its worker has ended.
        theirs.store(1, Ordering::Relaxed);
    };
    workers.spawn_on(last, long).unwrap().detach();
    let drops = std::panic::AssertUnwindSafe(move || {
        if unwinds {
            // Moved here, so that it is dropped in the panic.
            let _workers = workers;
            std::panic::panic_any("of the thread");
        }
        drop(workers);
    });
    let panic = std::panic::catch_unwind(drops).unwrap_err();
    let expected = if unwinds { "of the thread" } else { "of a hook" };
    assert_eq!(panic.downcast_ref(), Some(&expected));
    // Relaxed: its worker has ended.
    assert_eq!(ended.load(Ordering::Relaxed), 1, "all workers have ended");
}

#[test]
fn a_panic_of_a_hook_comes_after_the_end_of_all_workers_natively() {
    for (starts, unwinds) in [(true, false), (false, false), (true, true), (false, true)] {
        failing_hooks(starts, unwinds);
    }
}
