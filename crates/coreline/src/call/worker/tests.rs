//! The laws of one worker, or two, in every interleaving.

use std::sync::Arc;

use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Cell, JoinHandle, Placement, Testbed};

use super::super::request::{Caller, Request};
use super::*;

/// Two workers, with a count for each worker. Only calls on a worker change its count.
struct Two<W: World> {
    workers: [Worker<W>; 2],
    counts: [Cell<u32, W>; 2],
}

impl<W: World> Two<W> {
    /// The part of one worker: calls the other worker, and serves until the other worker has called
    /// it, too.
    fn cross(&self, own: usize) {
        let (this, other) = (&self.workers[own], &self.workers[1 - own]);
        // SAFETY: run by the other worker alone.
        let count = || self.counts[1 - own].with_mut(|count| unsafe { *count += 1 });
        let request = Request::new_in(count, Caller::new(Some(own)));
        // SAFETY: this waits until the request is done.
        unsafe { other.send(request.as_message(), true, false) }.unwrap();
        this.wait_serving(request.header(), other, &self.workers);
        // SAFETY: the call is over.
        assert_eq!(self.counts[1 - own].with(|count| unsafe { *count }), 1);
        request.into_value().unwrap();
        while this.counts.read(0).calls == 0 {
            if this.serve_calls(&self.workers) == 0 {
                this.mailbox.sleep(|| false);
            }
        }
    }
}

fn two_cross<W: Testbed>() {
    let worker = |cpu| Worker::new_in(CpuId::new(cpu), CacheId::new(0), NodeId::new(0), usize::MAX);
    let counts = [0, 0].map(Cell::<u32, W>::new_in);
    let two = Arc::new(Two::<W> { workers: [0, 1].map(worker), counts });
    let theirs = Arc::clone(&two);
    let other = W::spawn(Placement::Anywhere, move || theirs.cross(1)).unwrap();
    two.cross(0);
    other.join();
    let two = Arc::into_inner(two).expect("both have ended");
    assert_eq!(two.counts.map(Cell::into_inner), [1, 1]);
}

fn checker(preemptions: usize, plant: Plant) -> Checker {
    Checker::new().preemption_bound(preemptions).plant(plant)
}

#[test]
fn two_workers_call_each_other_in_every_interleaving() {
    checker(3, Plant::EXCHANGES).check(two_cross::<Model>);
}

/// A thread that is not a worker calls one, and reads what the call wrote.
fn reads<W: Testbed>() {
    let callee = Arc::new([worker::<W>(0)]);
    let theirs = Arc::clone(&callee);
    let caller = W::spawn(Placement::Anywhere, move || {
        let written = Cell::<u32, W>::new_in(0);
        // SAFETY: the caller does not read it meanwhile: that is what is tested.
        let write = || written.with_mut(|written| unsafe { *written = 1 });
        let request = Request::new_in(write, Caller::OUTSIDE);
        // SAFETY: this waits until the request is done.
        unsafe { theirs[0].send(request.as_message(), true, false) }.unwrap();
        theirs[0].wait(request.header());
        // SAFETY: the call is over.
        assert_eq!(written.with(|written| unsafe { *written }), 1);
    });
    while callee[0].serve_calls(&*callee) == 0 {
        callee[0].mailbox.sleep(|| false);
    }
    caller.unwrap().join();
}

#[test]
fn a_caller_reads_what_its_call_wrote_in_every_interleaving() {
    checker(3, Plant::EXCHANGES).check(reads::<Model>);
}

/// The content of the mailbox when the call comes.
#[derive(Debug, Clone, Copy)]
enum Before {
    /// Work.
    Work,
    /// A call that a thread waits for.
    Call,
    /// A call that no thread waits for.
    Letter,
    /// A call that the worker puts off.
    PutOff,
    /// A call during which the worker waits until the later call was run.
    Waits,
    /// A call during which the worker serves the later one.
    Serves,
}

/// A worker that is inside this many calls and ran nothing yet.
fn worker<W: World>(nested: u32) -> Worker<W> {
    let worker = Worker::<W>::new_in(CpuId::new(0), CacheId::new(0), NodeId::new(0), usize::MAX);
    // Relaxed: it is not shared yet.
    worker.inbox.nested.store(nested, Ordering::Relaxed);
    worker
}

/// One worker calls another one that has a message. It is served while the other worker waits, and
/// not after the end of that wait.
fn behind<W: Testbed>(before: Before) {
    let nested = if matches!(before, Before::PutOff) { Inbox::<W>::DEEP } else { 0 };
    let workers = Arc::new([worker::<W>(nested), worker::<W>(0)]);
    let [this, other] = &*workers;
    // Of the thread that is not there: what it sends is there before all else.
    let call = Request::new_in(|| (), Caller::OUTSIDE);
    let later = Request::new_in(
        || {
            if matches!(before, Before::Waits) {
                let nested = Request::new_in(|| (), Caller::new(Some(0)));
                // SAFETY: this waits until the request is done.
                unsafe { other.send(nested.as_message(), true, false) }.unwrap();
                this.wait_serving(nested.header(), other, &*workers);
            }
            if matches!(before, Before::Serves) {
                while !this.has_calls() {
                    W::relax();
                }
                assert_eq!(this.serve_calls(&*workers), 1, "it was seen to wait");
                assert!(!this.has_calls(), "it has run");
            }
        },
        Caller::OUTSIDE,
    );
    let letter = Header::new_in(|_| false, Caller::OUTSIDE);
    let sent = match before {
        Before::Work => this.mailbox.offer_work(),
        Before::Call | Before::PutOff => this.mailbox.offer_call(call.as_message().as_ptr()),
        Before::Letter => this.mailbox.offer_call((&raw const letter).cast_mut()),
        Before::Waits | Before::Serves => this.mailbox.offer_call(later.as_message().as_ptr()),
    };
    assert_eq!(sent, Offered::Taken);
    let theirs = Arc::clone(&workers);
    let caller = W::spawn(Placement::Anywhere, move || {
        let [callee, own] = &*theirs;
        let request = Request::new_in(|| (), Caller::new(Some(1)));
        // SAFETY: this waits until the request is done.
        unsafe { callee.send(request.as_message(), true, false) }.unwrap();
        // As `wait_serving`, but it serves no call before its own is done.
        while !request.header().is_done() {
            let _asleep = Asleep::new(callee);
            let key = own.mailbox.events().prepare_wait();
            if !request.header().is_done() {
                own.mailbox.events().wait(key);
            }
        }
        request.into_value().unwrap();
        if matches!(before, Before::Waits) {
            while own.serve_calls(&*theirs) == 0 {
                own.mailbox.sleep(|| false);
            }
        }
    });
    let calls = if matches!(before, Before::Work) { 1 } else { 2 };
    while this.counts.read(0).calls < calls {
        if this.serve_calls(&*workers) == 0 {
            this.mailbox.sleep(|| false);
        }
    }
    caller.unwrap().join();
}

const BEFORE: [Before; 5] =
    [Before::Work, Before::Call, Before::Letter, Before::PutOff, Before::Waits];

/// A call that is served during another call needs no fence, because the worker checks again and
/// again.
#[test]
fn a_call_that_waits_is_seen_in_the_middle_of_another_one_in_every_interleaving() {
    checker(2, Plant::EXCHANGES).check(|| behind::<Model>(Before::Serves));
}

#[test]
fn a_call_behind_a_message_is_served_in_every_interleaving() {
    for before in BEFORE {
        checker(2, Plant::EXCHANGES).check(move || behind::<Model>(before));
    }
}

/// As [`Plant::EXCHANGES`], without fences.
const UNFENCED: Plant = Plant { fence: Plant::NO_FENCES.fence, ..Plant::EXCHANGES };

#[test]
fn a_missing_fence_is_caught() {
    for before in BEFORE {
        let found = checker(2, UNFENCED).try_check(move || behind::<Model>(before));
        assert!(found.is_err(), "{before:?}");
    }
}
