//! The laws of the end of a scope, and of the tasks that are left to a worker that waits for it, in
//! every interleaving.

use core::time::Duration;

use coreline_topology::CpuId;
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Cell, JoinHandle, Placement, Testbed};

use super::super::mailbox::Offered;
use super::super::policy::Policy;
use super::super::request::Request;
use super::*;

/// A scope of workers of which the test says which of them run, and a task of it that another
/// thread runs.
fn home<W: Testbed>(owner: Option<usize>) -> Arc<Home<W>> {
    let cpus = [0, 1].map(CpuId::new);
    let shared = Shared::<W>::new_in(&cpus, Policy::Notify, Duration::ZERO, usize::MAX);
    let home = Home::new(Arc::new(shared), owner);
    // Relaxed: it is not shared yet.
    home.state.store(ONE, Ordering::Relaxed);
    home
}

/// A place for each task. No atomics: the end of the scope orders them.
type Places<W> = Arc<[Cell<u32, W>; 2]>;

fn places<W: Testbed>() -> Places<W> {
    Arc::new([0, 0].map(Cell::new_in))
}

fn write<W: Testbed>(place: &Cell<u32, W>) {
    // SAFETY: the owner does not read it before the task has ended: that is what is tested.
    place.with_mut(|at| unsafe { *at = 1 });
}

fn read<W: Testbed>(place: &Cell<u32, W>) -> u32 {
    // SAFETY: the tasks have ended.
    place.with(|at| unsafe { *at })
}

impl<W: Testbed> Scope<'static, W> {
    /// Runs the rest of the other thread's task: `worker` leaves a task if there is one, and writes
    /// its own place.
    fn ends(self, places: &Places<W>, worker: Option<usize>) {
        // SAFETY: its task has not ended, and the test keeps the scope.
        let home = unsafe { self.home.as_ref() };
        if let Some(worker) = worker {
            home.shared.begin(worker);
            let theirs = Arc::clone(places);
            self.spawn(move |_| write(&theirs[1])).unwrap();
        }
        write(&places[0]);
        // SAFETY: it uses the scope no more.
        unsafe { Home::end(self.home) };
    }
}

fn other<W: Testbed>(
    home: &Arc<Home<W>>,
    places: &Places<W>,
    worker: Option<usize>,
) -> W::JoinHandle<()> {
    let at = NonNull::new(Arc::as_ptr(home).cast_mut()).expect("an address in an `Arc`");
    let (scope, theirs) = (Scope { home: at, borrows: PhantomData }, Arc::clone(places));
    W::spawn(Placement::Anywhere, move || scope.ends(&theirs, worker)).unwrap()
}

/// A thread that is no worker waits for the task of another one.
fn waits<W: Testbed>() {
    let (home, places) = (home::<W>(None), places::<W>());
    let other = other(&home, &places, None);
    home.wait();
    assert_eq!(read(&places[0]), 1);
    other.join();
}

/// Worker 0 waits for the task of another one, which leaves it a task.
fn helps<W: Testbed>() {
    let (home, places) = (home::<W>(Some(0)), places::<W>());
    home.shared.begin(0);
    let other = other(&home, &places, Some(1));
    home.help(0);
    // Before it takes a lock, which may order them, too.
    assert_eq!((read(&places[0]), read(&places[1])), (1, 1));
    other.join();
    // The ticket is in the queue of worker 1.
    while let Some(ticket) = home.shared.workers[1].tasks.pop() {
        // SAFETY: it was taken out of the queue.
        unsafe { Header::run(ticket.0) };
    }
    assert_eq!(home.waiting.lock().tickets, 0);
    assert_eq!(Arc::strong_count(&home), 1);
}

/// Worker 0 waits in a call for the task of the other thread, which waits for a call to worker 0.
/// That call is sent while the message of the first one may still be there. Worker 0 leaves no task
/// itself, so it passes no fence before it waits.
fn serves<W: Testbed>() {
    let home = home::<W>(Some(0));
    home.shared.begin(0);
    let theirs = Arc::clone(&home);
    let waits = Request::new_in(move || theirs.help(0), Caller::OUTSIDE);
    let own = &home.shared.workers[0];
    assert_eq!(own.mailbox.offer_call(waits.as_message().as_ptr()), Offered::Taken);
    let theirs = Arc::clone(&home);
    let other = W::spawn(Placement::Anywhere, move || {
        let callee = &theirs.shared.workers[0];
        let call = Request::new_in(|| (), Caller::OUTSIDE);
        // SAFETY: this waits until the request is done.
        unsafe { callee.send(call.as_message(), true, false) }.unwrap();
        callee.wait(call.header());
        // SAFETY: its task has not ended, and uses the scope no more.
        unsafe { Home::end(NonNull::from_ref(&*theirs)) };
    });
    while own.serve_calls(&home.shared.workers) == 0 {}
    other.unwrap().join();
    waits.into_value().unwrap();
}

fn checker(plant: Plant) -> Checker {
    Checker::new().preemption_bound(2).plant(plant)
}

#[test]
fn a_scope_ends_after_its_tasks_in_every_interleaving() {
    checker(Plant::EXCHANGES).check(waits::<Model>);
    checker(Plant::EXCHANGES).check(helps::<Model>);
}

#[test]
fn a_call_to_a_worker_that_waits_for_a_scope_is_served_in_every_interleaving() {
    checker(Plant::EXCHANGES).check(serves::<Model>);
}

/// As [`Plant::EXCHANGES`], without fences.
const UNFENCED: Plant = Plant { fence: Plant::NO_FENCES.fence, ..Plant::EXCHANGES };

#[test]
fn a_missing_fence_is_caught() {
    assert!(checker(UNFENCED).try_check(serves::<Model>).is_err());
}

#[test]
fn a_missing_order_is_caught() {
    for plant in [Plant::RELAXED_RMWS, Plant::RELAXED_LOADS] {
        let found = checker(plant).try_check(waits::<Model>).unwrap_err().to_string();
        assert!(found.contains("Causality violation"), "{found}");
    }
}
