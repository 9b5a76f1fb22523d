//! The laws of one future and its wakers, in every interleaving. The test's thread is the worker.

use core::future::poll_fn;
use std::cell::RefCell;
use std::rc::Rc;

use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{JoinHandle, Placement, Testbed};

use super::super::policy::Policy;
use super::*;

/// The only worker.
fn worker<W: Testbed>() -> Workers<W> {
    let cpus = [CpuId::new(0)];
    let shared = Shared::<W>::new_in(&cpus, Policy::Notify, Duration::ZERO, usize::MAX);
    let workers = Workers { shared: Arc::new(shared), threads: Vec::new() };
    workers.shared.begin(0);
    workers
}

/// Polls the future if it was woken, or else sleeps until it is.
fn polls<W: Testbed>(workers: &Workers<W>) {
    let own = &workers.shared.workers[0];
    own.serve_calls(&workers.shared.workers);
    match own.tasks.pop() {
        // SAFETY: it was taken out of the queue.
        Some(task) => _ = unsafe { Header::run(task.0) },
        None => _ = own.mailbox.sleep(|| false),
    }
}

/// A future waits for a value that is an atomic, and that nothing but the wake-up orders. Another
/// thread wakes it in vain, and then with the value; or `aborts` it instead of that.
fn woken<W: Testbed>(aborts: bool) {
    let (workers, given) = (worker::<W>(), Arc::new(W::U32::new_in(0)));
    let (theirs, kept, dropped) = (Arc::clone(&given), Rc::default(), Rc::new(()));
    let (keeps, ends) = (Rc::<RefCell<Option<Waker>>>::clone(&kept), Rc::downgrade(&dropped));
    let future = poll_fn(move |cx| {
        let _owned = &dropped;
        keeps.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        // Relaxed: the wake-up orders it.
        match theirs.load(Ordering::Relaxed) {
            0 => Poll::Pending,
            value => Poll::Ready(value),
        }
    });
    let reply = workers.spawn_local(future).unwrap();
    polls(&workers);
    let (waker, local) = (kept.take().expect("it was polled"), Arc::clone(&reply.local));
    let other = W::spawn(Placement::Anywhere, move || {
        waker.wake_by_ref();
        if aborts {
            return local.wake(ABORTED);
        }
        // Relaxed: the wake-up orders it.
        given.store(1, Ordering::Relaxed);
        waker.wake();
    });
    while !reply.is_finished() {
        polls(&workers);
    }
    assert!(ends.upgrade().is_none(), "it was dropped, and not yet by the end of this");
    assert_eq!(reply.wait(), if aborts { Err(Cancelled) } else { Ok(1) });
    other.unwrap().join();
}

fn checker(plant: Plant) -> Checker {
    Checker::new().preemption_bound(2).plant(plant)
}

#[test]
fn a_wake_up_is_not_lost_in_any_interleaving() {
    for aborts in [false, true] {
        checker(Plant::EXCHANGES).check(move || woken::<Model>(aborts));
    }
}
