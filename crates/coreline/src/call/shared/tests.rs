//! The laws of tasks, in every interleaving of few threads: none waits while a worker has no work.

use std::panic::{AssertUnwindSafe, catch_unwind};

use coreline_sim::{Failure, Machine, Schedule, Sim};
use coreline_topology::CpuSet;
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{JoinHandle, Placement, Testbed};

use super::super::post::letter;
use super::super::reply::Reply;
use super::super::request::{Caller, Request};
use super::super::{Builder, Workers};
use super::*;

/// Workers that sleep immediately. The test decides which of them run.
fn workers<W: Testbed>(count: u32) -> Arc<Shared<W>> {
    let cpus: Vec<_> = (0..count).map(CpuId::new).collect();
    Arc::new(Shared::new_in(&cpus, Policy::Notify, Duration::ZERO, usize::MAX))
}

fn spawn<W: Testbed>(
    shared: &Arc<Shared<W>>,
    part: impl FnOnce(&Arc<Shared<W>>) + Send + 'static,
) -> W::JoinHandle<()> {
    let shared = Arc::clone(shared);
    W::spawn(Placement::Anywhere, move || part(&shared)).unwrap()
}

impl<W: World> Shared<W> {
    /// The life of a worker.
    fn work_as(self: &Arc<Self>, worker: usize) {
        self.begin(worker);
        self.work(worker, &mut || ());
    }

    /// The steps of a worker that has run out of work and finds a message.
    fn comes_to_rest(&self, worker: usize) {
        self.workers[worker].mailbox.offer_work();
        let mut window = Duration::ZERO;
        self.rest(worker, &mut window, false);
        self.workers[worker].serve_calls(&self.workers);
    }
}

/// A task for which no reply is left.
fn task<W: World>() -> Task<W> {
    let letter = letter(|| ());
    let task = Task(letter.as_message());
    // SAFETY: it is sent next. A reply that leaves before that does the same.
    drop(unsafe { letter.sent() });
    task
}

/// The steps of the busy worker 0: it adds a task for any worker.
fn adds<W: Testbed>(shared: &Arc<Shared<W>>) {
    shared.workers[0].tasks.push(&task(), For::Any).unwrap();
    shared.wake_searcher();
}

/// The steps of a worker that begins a task.
fn works<W: Testbed>(shared: &Arc<Shared<W>>, worker: usize) {
    shared.run(worker, task());
}

/// The parts have ended, and another worker has no work. It must search if a task is left, and a
/// worker that has work must not. Runs the task.
fn none_is_left<W: Testbed>(shared: &Arc<Shared<W>>) {
    let busy = &shared.workers[0].tasks;
    // Relaxed: all have ended.
    let searcher = shared.searcher.load(Ordering::Relaxed);
    let searcher = shared.workers.get(searcher as usize);
    let searches = searcher.is_some_and(|searcher| shared.is_idle(searcher));
    assert!(!busy.is_any_unbound() || searches, "a task is left, and a worker has no work");
    while let Some(task) = busy.pop() {
        shared.run(0, task);
    }
}

/// A worker comes to rest while a busy one adds a task.
fn rests_meanwhile<W: Testbed>() {
    let shared = workers::<W>(2);
    let other = spawn(&shared, |shared| shared.comes_to_rest(1));
    adds(&shared);
    other.join();
    none_is_left(&shared);
}

/// A worker without work is named, and begins to work; another one has no work, either.
fn works_meanwhile<W: Testbed>() {
    let shared = workers::<W>(3);
    [1, 2].into_iter().for_each(|worker| shared.comes_to_rest(worker));
    let other = spawn(&shared, |shared| works(shared, 1));
    adds(&shared);
    other.join();
    none_is_left(&shared);
}

/// A worker that must search begins to work, and another one has no work.
fn resigns_meanwhile<W: Testbed>() {
    let shared = workers::<W>(3);
    [1, 2].into_iter().for_each(|worker| shared.comes_to_rest(worker));
    shared.wake_searcher();
    let other = spawn(&shared, |shared| works(shared, 1));
    adds(&shared);
    other.join();
    none_is_left(&shared);
}

/// A thread has named a worker that begins to work. Meanwhile another worker comes to rest, and a
/// busy one adds a task.
fn names_in_vain<W: Testbed>() {
    let shared = workers::<W>(3);
    shared.comes_to_rest(2);
    let works = spawn(&shared, |shared| works(shared, 2));
    let rests = spawn(&shared, |shared| shared.comes_to_rest(1));
    let adds = spawn(&shared, adds);
    shared.wake_searcher();
    [works, rests, adds].into_iter().for_each(JoinHandle::join);
    none_is_left(&shared);
}

/// Tasks for a worker that has a message already, or for any where one has.
fn behind<W: Testbed>(is_bound: bool) {
    let shared = workers::<W>(1);
    shared.workers[0].mailbox.offer_work();
    runs_a_task(&shared, is_bound);
}

/// The one worker begins, and runs a task that is added for it, or for any.
fn runs_a_task<W: Testbed>(shared: &Arc<Shared<W>>, is_bound: bool) {
    let worker = spawn(shared, |shared| shared.work_as(0));
    let letter = letter(|| ());
    let task = Task(letter.as_message());
    let sent = if is_bound { shared.spawn_on(0, task) } else { shared.spawn(task, For::Any) };
    sent.unwrap();
    // SAFETY: it was sent.
    Reply::new(unsafe { letter.sent() }, None, false, None).wait();
    shared.close();
    worker.join();
}

/// A worker serves in the middle of a task, while another task is added for it.
fn serves_meanwhile<W: Testbed>(is_bound: bool) {
    let shared = workers::<W>(1);
    let theirs = Arc::clone(&shared);
    let serves = letter(move || _ = theirs.serve());
    shared.spawn_on(0, Task(serves.as_message())).unwrap();
    // SAFETY: it was sent.
    let _serves = unsafe { serves.sent() };
    runs_a_task(&shared, is_bound);
}

/// A worker takes a call while a task is added. It must not have the task, or another worker must
/// search. The call may last, so both can be seen during the call. `is_behind`: a message is there
/// already, and another call.
fn takes_a_call_meanwhile<W: Testbed>(is_behind: bool) {
    let shared = workers::<W>(2);
    (0..2).for_each(|worker| shared.comes_to_rest(worker));
    if is_behind {
        shared.workers[0].mailbox.offer_work();
    }
    let added = Arc::new(W::U32::new_in(0));
    let theirs = Arc::clone(&added);
    let calls = spawn(&shared, move |shared| {
        let lasts = || {
            // Acquire: pairs with the Release below.
            theirs.wait_until(Ordering::Acquire, |added| added == 1);
            let waits = shared.workers[0].tasks.is_any_unbound();
            assert!(!waits || shared.is_searcher(1), "a task waits for a call");
        };
        let ahead = Request::new_in(|| (), Caller::OUTSIDE);
        if is_behind {
            // SAFETY: it is served below, before the other one.
            unsafe { shared.send(0, ahead.as_message(), true) }.unwrap();
        }
        let call = Request::new_in(lasts, Caller::OUTSIDE);
        // SAFETY: it is served below.
        unsafe { shared.send(0, call.as_message(), true) }.unwrap();
        let own = &shared.workers[0];
        while !call.header().is_done() {
            own.serve_calls(&shared.workers);
            own.tasks.pop().into_iter().for_each(|task| shared.run(0, task));
        }
        call.into_value().unwrap();
    });
    shared.spawn(task(), For::Any).unwrap();
    // Release: pairs with the Acquire above.
    added.store(1, Ordering::Release);
    calls.join();
    let tasks = shared.workers.iter().filter_map(|worker| worker.tasks.pop());
    tasks.for_each(|task| shared.run(1, task));
}

/// A call is sent to a worker that must search and has not begun to. The call may last, so another
/// worker must be named without a step of this one.
fn is_called_when_named<W: Testbed>() {
    let shared = workers::<W>(2);
    (0..2).for_each(|worker| shared.comes_to_rest(worker));
    shared.workers[1].tasks.push(&task(), For::Any).unwrap();
    shared.wake_searcher();
    assert!(shared.is_searcher(0), "it is the nearest one");
    let worker = spawn(&shared, |shared| shared.work_as(0));
    // Relaxed: only the name matters.
    let lasts = || _ = shared.searcher.wait_until(Ordering::Relaxed, |searcher| searcher != 0);
    let call = Request::new_in(lasts, Caller::OUTSIDE);
    // SAFETY: this waits until the request is done.
    unsafe { shared.send(0, call.as_message(), true) }.unwrap();
    shared.wait(None, call.header(), &shared.workers[0]);
    call.into_value().unwrap();
    shared.close();
    worker.join();
    shared.workers[1].tasks.pop().into_iter().for_each(|task| shared.run(1, task));
}

#[test]
fn a_worker_in_a_call_is_not_to_search_in_every_interleaving() {
    checker(Plant::EXCHANGES).check(is_called_when_named::<Model>);
}

/// A worker comes to rest while a busy one adds two tasks and runs the first; a third worker is in
/// a call.
fn rests_beside_a_call<W: Testbed>() {
    let shared = workers::<W>(3);
    shared.comes_to_rest(2);
    let call = Request::new_in(|| (), Caller::OUTSIDE);
    // SAFETY: it is served below.
    unsafe { shared.send(2, call.as_message(), true) }.unwrap();
    let rests = spawn(&shared, |shared| {
        if shared.is_to_search(1) {
            if let Some(task) = shared.search(1) {
                return shared.run(1, task);
            }
            shared.resign(1);
            shared.wake_next();
        }
        shared.comes_to_rest(1);
    });
    adds(&shared);
    shared.workers[0].tasks.pop().into_iter().for_each(|task| shared.run(0, task));
    adds(&shared);
    rests.join();
    let is_left = shared.workers[0].tasks.is_any_unbound() && shared.is_free(&shared.workers[1]);
    assert!(!is_left || shared.is_searcher(1), "a task is left, and a worker has no work");
    for (index, worker) in shared.workers.iter().enumerate() {
        core::iter::from_fn(|| worker.tasks.pop()).for_each(|task| shared.run(index, task));
    }
    shared.workers[2].serve_calls(&shared.workers);
}

#[test]
fn no_task_is_left_to_the_first_one_that_is_done_in_every_interleaving() {
    checker(Plant::EXCHANGES).check(rests_beside_a_call::<Model>);
}

fn checker(plant: Plant) -> Checker {
    Checker::new().preemption_bound(2).plant(plant)
}

#[test]
fn no_task_waits_for_a_worker_that_rests_in_every_interleaving() {
    checker(Plant::EXCHANGES).check(rests_meanwhile::<Model>);
    checker(Plant::EXCHANGES).check(works_meanwhile::<Model>);
    checker(Plant::EXCHANGES).check(resigns_meanwhile::<Model>);
}

#[test]
fn a_worker_that_was_named_in_vain_leaves_no_task_in_every_interleaving() {
    checker(Plant::EXCHANGES).check(names_in_vain::<Model>);
}

#[test]
fn a_task_behind_a_message_runs_in_every_interleaving() {
    for is_bound in [true, false] {
        checker(Plant::EXCHANGES).check(move || behind::<Model>(is_bound));
    }
}

#[test]
fn a_task_runs_behind_one_that_serves_in_every_interleaving() {
    for is_bound in [true, false] {
        checker(Plant::EXCHANGES).check(move || serves_meanwhile::<Model>(is_bound));
    }
    assert!(checker(UNFENCED).try_check(|| serves_meanwhile::<Model>(true)).is_err());
}

#[test]
fn no_task_is_left_to_a_worker_that_takes_a_call_in_every_interleaving() {
    for is_behind in [false, true] {
        checker(Plant::EXCHANGES).check(move || takes_a_call_meanwhile::<Model>(is_behind));
    }
}

/// As [`Plant::EXCHANGES`], without fences.
const UNFENCED: Plant = Plant { fence: Plant::NO_FENCES.fence, ..Plant::EXCHANGES };

#[test]
fn a_missing_fence_is_caught() {
    let laws: [fn(); 3] =
        [rests_meanwhile::<Model>, works_meanwhile::<Model>, || behind::<Model>(true)];
    for law in laws {
        assert!(checker(UNFENCED).try_check(law).is_err());
    }
}

/// Under schedules that look for mistakes.
fn search(seeds: u64, law: fn()) -> Result<u64, Box<Failure>> {
    let machines = (0..seeds).map(|seed| {
        let depth = 2 + (seed / 2 % 3) as u32;
        let schedule =
            if seed % 2 == 0 { Schedule::Random } else { Schedule::Pct { depth, steps: 1000 } };
        let machine = Machine::preset("host-2c").expect("a preset").seed(seed);
        machine.schedule(schedule).step_limit(1_000_000)
    });
    coreline_sim::search(machines, law)
}

/// Two workers that sleep immediately.
fn two<W: Testbed>() -> Workers<W> {
    let builder: Builder<W> =
        Workers::builder_in().cpus([0, 1].map(CpuId::new).into_iter().collect());
    builder.polling(Duration::ZERO).start().unwrap()
}

/// A task waits for a task of its own making, while a thread calls the worker that must run that
/// task.
fn calls_one_that_sleeps<W: Testbed>() {
    let workers = Arc::new(two::<W>());
    let theirs = Arc::clone(&workers);
    let waits = move || {
        let word = Arc::new(W::U32::new_in(0));
        let sets = Arc::clone(&word);
        // Release: pairs with the Acquire below.
        theirs.spawn(move || sets.store(1, Ordering::Release)).unwrap().detach();
        // Acquire: pairs with the Release above.
        word.wait_until(Ordering::Acquire, |word| word == 1);
    };
    workers.call_on(CpuId::new(1), || ()).unwrap();
    let waits = workers.spawn_on(CpuId::new(0), waits).unwrap();
    (0..2).for_each(|_| workers.call_on(CpuId::new(1), || ()).unwrap());
    waits.wait();
}

/// A task drops the workers, while one on another worker calls its worker.
fn drops<W: Testbed>() {
    let workers = Arc::new(two::<W>());
    let users = Arc::new(workers.users());
    for cpu in workers.cpus() {
        workers.call_on(cpu, || drop(users.enter().unwrap())).unwrap();
    }
    let word = Arc::new(W::U32::new_in(0));
    let (theirs, dropped) = (Arc::clone(&workers), Arc::clone(&word));
    let drops = workers.spawn_on(CpuId::new(0), move || {
        // Relaxed: the handle's count orders it.
        dropped.wait_until(Ordering::Relaxed, |word| word == 1);
        drop(theirs);
    });
    // Told, or refused.
    let calls = workers.spawn_on(CpuId::new(1), move || _ = users.shootdown(|| ()));
    drop(workers);
    // Relaxed: the count of the handle that the task drops orders it.
    word.store(1, Ordering::Relaxed);
    drops.unwrap().wait();
    calls.unwrap().wait();
}

/// A call lasts until a task has run. The task is added meanwhile, and so are other calls: the
/// worker of the call is not to have it, or not alone, and the other one may be in a call, too.
fn lasts<W: Testbed>() {
    let workers = Arc::new(two::<W>());
    let word = Arc::new(W::U32::new_in(0));
    let (theirs, runs) = (Arc::clone(&workers), Arc::clone(&word));
    let lasts = W::spawn(Placement::Anywhere, move || {
        // Acquire: pairs with the Release below.
        let lasts = || _ = runs.wait_until(Ordering::Acquire, |word| word == 1);
        theirs.call_on(CpuId::new(0), lasts).unwrap();
    });
    let theirs = Arc::clone(&workers);
    let calls = W::spawn(Placement::Anywhere, move || {
        theirs.call_on(CpuId::new(1), || ()).unwrap();
        theirs.call_async(CpuId::new(0), || ()).unwrap().detach();
        theirs.call_async(CpuId::new(1), || ()).unwrap().detach();
    });
    // Release: pairs with the Acquire above.
    workers.spawn(move || word.store(1, Ordering::Release)).unwrap().detach();
    lasts.unwrap().join();
    calls.unwrap().join();
}

#[test]
fn no_task_waits_for_a_call_that_lasts() {
    search(2000, lasts::<Sim>).unwrap();
}

#[test]
fn no_task_waits_while_a_worker_sleeps_again() {
    search(400, calls_one_that_sleeps::<Sim>).unwrap();
}

#[test]
fn a_worker_drops_the_workers() {
    search(400, drops::<Sim>).unwrap();
}

/// Panics when it is dropped; two of these in one place abort.
struct Hard;

impl Drop for Hard {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// One function panics, and two have values whose destructors do.
fn panics_beside_values_that_panic<W: Testbed>() {
    let cpus: CpuSet = (0..3).map(CpuId::new).collect();
    let workers: Workers<W> = Workers::builder_in().cpus(cpus.clone()).start().unwrap();
    let mixed = |cpu: CpuId| if cpu.get() == 0 { panic!("the first") } else { Hard };
    let called = catch_unwind(AssertUnwindSafe(|| workers.call_many(&cpus, mixed)));
    let panic = called.err().expect("a panic");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the first"));
    assert_eq!(workers.call_many(&cpus, |_| 5).unwrap().len(), 3);
}

#[test]
fn a_panic_beside_values_whose_destructors_panic_ends_no_process() {
    Machine::preset("desktop-12c").unwrap().run(panics_beside_values_that_panic::<Sim>).unwrap();
}
