//! A worker finds a message while its reply waits, withdraws or leaves, in every interleaving.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{JoinHandle, Native, Placement, Testbed};

use super::super::parcel::Parcel;
use super::super::reply::Reply;
use super::super::tasks::Task;
use super::*;
use crate::block_on::block_on;

type End<W> = fn(Reply<Arc<()>, W>);

/// The function and its value are dropped once, and a parcel is free afterwards.
fn meets<W: Testbed>(is_parcel: bool, withdraws: bool, end: End<W>) {
    let held = Arc::new(());
    let parcel = Arc::new(Parcel::<W>::new_free());
    let theirs = Arc::clone(&held);
    let function = move || theirs;
    let (task, posted) = if is_parcel {
        let unsent = parcel.post(function).ok().expect("it is free");
        // SAFETY: it is sent next, and the parcel stays until the end.
        (Task(unsent.as_message()), unsafe { unsent.sent() })
    } else {
        let unsent = letter(function);
        // SAFETY: it is sent next.
        (Task(unsent.as_message()), unsafe { unsent.sent() })
    };
    let work = move || {
        let task = task;
        // SAFETY: the message was sent to this thread, which runs it once.
        assert!(!unsafe { Header::run(task.0) }, "no thread sleeps on its state");
    };
    let worker = W::spawn(Placement::Anywhere, work).unwrap();
    end(Reply::new(posted, None, withdraws, None));
    worker.join();
    assert_eq!(Arc::strong_count(&held), 1, "dropped once");
    let packed = parcel.pack(|| (), Caller::OUTSIDE);
    assert!(packed.is_ok(), "it was left to others");
}

/// Waits awake, and then asleep.
fn waits<W: World>(reply: Reply<Arc<()>, W>) {
    drop(reply.wait());
}

/// Waits asleep.
fn sleeps<W: World>(reply: Reply<Arc<()>, W>) {
    drop(block_on::<W, _>(reply, None).expect("there is no deadline"));
}

/// Leaves a waker, and then the rest.
fn gives_up<W: World>(mut reply: Reply<Arc<()>, W>) {
    let waker = Waker::noop();
    match Pin::new(&mut reply).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(value) => drop(value),
        Poll::Pending => drop(reply),
    }
}

#[test]
fn a_reply_and_its_worker_part_in_every_interleaving() {
    for is_parcel in [false, true] {
        for withdraws in [false, true] {
            for end in [waits::<Model>, sleeps, gives_up, drop] {
                let law = move || meets(is_parcel, withdraws, end);
                Checker::new().preemption_bound(3).plant(Plant::EXCHANGES).check(law);
            }
        }
    }
}

#[test]
fn a_reply_and_its_worker_part_natively() {
    for is_parcel in [false, true] {
        for withdraws in [false, true] {
            for end in [waits::<Native>, sleeps, gives_up, drop] {
                (0..200).for_each(|_| meets(is_parcel, withdraws, end));
            }
        }
    }
}

#[test]
fn a_missing_order_is_caught() {
    let found = |plant, end: End<Model>| {
        let law = move || meets(true, true, end);
        Checker::new().plant(plant).try_check(law).unwrap_err().to_string()
    };
    // Of the exchange by which the worker says that it is done.
    let ends = Plant { rmw: Plant::RELAXED_RMWS.rmw, ..Plant::EXCHANGES };
    // Of the store that frees the lock, or leaves the parcel.
    let leaves = Plant { store: Plant::RELAXED_STORES.store, ..Plant::EXCHANGES };
    for planted in [found(ends, waits), found(leaves, gives_up)] {
        assert!(planted.contains("Causality violation"), "{planted}");
    }
}
