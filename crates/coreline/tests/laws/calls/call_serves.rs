//! A long task serves calls, and waits that cannot end are refused.

use std::sync::Arc;
use std::time::Duration;

use coreline::Workers;
use coreline::call::Reply;
use coreline_sim::{Faults, Sim};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::{Integer, JoinHandle, Native, Ordering, Testbed, Word};

use crate::call::{MANNERS, Manner, POLLS, SLEEPS, workers};
use crate::worlds::{self, Effort};

const TWO: Effort = Effort { threads: 2, rounds: 10, cpus: 2 };

/// Serves until the word is set; how many calls it ran.
fn serves_until<W: Testbed>(workers: &Workers<W>, over: &W::U32) -> u32 {
    let mut served = 0;
    // Acquire: pairs with the Release of the thread that sets it.
    while over.load(Ordering::Acquire) == 0 {
        if workers.need_resched() {
            served += workers.serve();
        }
        W::relax();
    }
    served
}

/// A task lasts until all calls to its worker have run: those of threads, of the other worker, to
/// many, and those that no thread waits for. Each calls the other worker, and serves, itself.
fn a_task_serves<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = Arc::new(workers::<W>(effort, manner));
    let cpus: Vec<_> = workers.cpus().collect();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let (over, made) = (Arc::new(W::U32::new_in(0)), Arc::new(W::U32::new_in(0)));
    let (theirs, ends) = (Arc::clone(&workers), Arc::clone(&over));
    let task = workers.spawn_on(first, move || serves_until(&theirs, &ends)).unwrap();
    let nested = {
        let (workers, made) = (Arc::clone(&workers), Arc::clone(&made));
        move || {
            workers.call_on(last, || ()).unwrap();
            workers.serve();
            // Relaxed: a count.
            made.fetch_add(1, Ordering::Relaxed);
        }
    };
    let callers = effort.crew::<W, _, _>(|number| {
        let (workers, nested, all) = (Arc::clone(&workers), nested.clone(), cpus.clone());
        move || {
            for round in 0..effort.rounds {
                let nested = nested.clone();
                match (number + round) % 4 {
                    0 => workers.call_on(first, nested).unwrap(),
                    1 => workers.call_async(first, nested).unwrap().wait(),
                    2 => workers.call_on(last, || workers.call_on(first, nested)).unwrap().unwrap(),
                    _ => {
                        let all: CpuSet = all.iter().copied().collect();
                        let on = |cpu| {
                            if cpu == first {
                                nested()
                            }
                        };
                        assert_eq!(workers.call_many(&all, on).unwrap().len(), all.len());
                    }
                }
            }
        }
    });
    callers.into_iter().for_each(JoinHandle::join);
    // Release: pairs with the Acquire in `serves_until`.
    over.store(1, Ordering::Release);
    task.wait();
    // Relaxed: the threads have been joined.
    assert_eq!(made.load(Ordering::Relaxed), effort.threads * effort.rounds);
    assert_eq!(workers.serve(), 0, "this is no worker");
}

#[test]
fn a_long_task_serves_calls_natively() {
    for manner in MANNERS {
        a_task_serves::<Native>(Effort { rounds: 300, ..TWO }, manner);
    }
}

#[test]
fn a_long_task_serves_calls_in_simulation() {
    for manner in MANNERS {
        for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
            let law = move || a_task_serves::<Sim>(TWO, manner);
            worlds::simulate("call::a_task_serves", "host-2c", faults, law).unwrap();
        }
    }
}

#[test]
fn a_long_task_serves_calls_under_schedules_that_look_for_mistakes() {
    let schedules = worlds::schedules(24);
    for manner in [POLLS, SLEEPS] {
        let law = move || a_task_serves::<Sim>(Effort { threads: 3, rounds: 2, cpus: 2 }, manner);
        worlds::search("call::searched_serves", "host-2c", schedules, law).unwrap();
        let law = move || a_task_serves::<Sim>(Effort { threads: 3, rounds: 2, cpus: 4 }, manner);
        worlds::search("call::searched_serves", "kunpeng920-96c-4n", schedules, law).unwrap();
    }
}

/// A call serves the one behind it, also where the worker has taken both out of its queue at once.
fn serves_what_is_behind<W: Testbed>(manner: Manner) {
    let workers = Arc::new(workers::<W>(Effort { cpus: 1, ..TWO }, manner));
    let cpu = workers.cpus().next().unwrap();
    let [begun, go, over] = [(); 3].map(|()| Arc::new(W::U32::new_in(0)));
    let (begins, goes) = (Arc::clone(&begun), Arc::clone(&go));
    let holds = move || {
        // Release: pairs with the Acquire below.
        begins.store(1, Ordering::Release);
        goes.wait_until(Ordering::Acquire, |go| go == 1);
    };
    let holds = workers.call_async(cpu, holds).unwrap();
    begun.wait_until(Ordering::Acquire, |begun| begun == 1);
    // In the mailbox. The two after it find that occupied.
    let first = workers.call_async(cpu, || ()).unwrap();
    let (theirs, ends) = (Arc::clone(&workers), Arc::clone(&over));
    let serves = workers.call_async(cpu, move || serves_until(&theirs, &ends)).unwrap();
    let ends = Arc::clone(&over);
    // Release: pairs with the Acquire in `serves_until`.
    let last = workers.call_async(cpu, move || ends.store(1, Ordering::Release)).unwrap();
    // Release: pairs with the Acquire in `holds`.
    go.store(1, Ordering::Release);
    assert!(serves.wait() >= 1);
    [holds, first, last].into_iter().for_each(Reply::wait);
    // The worker is in no call any more, so it takes tasks.
    workers.spawn(|| ()).unwrap().wait();
}

#[test]
fn a_call_serves_those_that_were_taken_with_it() {
    for manner in MANNERS {
        serves_what_is_behind::<Native>(manner);
        for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
            let law = move || serves_what_is_behind::<Sim>(manner);
            worlds::simulate("call::serves_what_is_behind", "host-2c", faults, law).unwrap();
        }
    }
}

/// `need_resched` says that a call waits, as long as it does: in a task and in a call.
fn tells_of_a_call<W: Testbed>(manner: Manner) {
    let workers = Arc::new(workers::<W>(TWO, manner));
    let first = workers.cpus().next().unwrap();
    let asks = |theirs: Arc<Workers<W>>, sent: Arc<W::U32>| {
        move || {
            assert!(!theirs.need_resched(), "no call was sent");
            assert_eq!(theirs.serve(), 0);
            // Release: pairs with the Acquire below: this runs.
            sent.store(1, Ordering::Release);
            while !theirs.need_resched() {
                W::relax();
            }
            assert_eq!(theirs.serve(), 1);
            assert!(!theirs.need_resched(), "the call has run");
        }
    };
    for is_task in [true, false] {
        let runs = Arc::new(W::U32::new_in(0));
        let asks = asks(Arc::clone(&workers), Arc::clone(&runs));
        let reply = match is_task {
            true => workers.spawn_on(first, asks),
            false => workers.call_async(first, asks),
        };
        // Acquire: pairs with the Release above.
        runs.wait_until(Ordering::Acquire, |runs| runs == 1);
        workers.call_on(first, || ()).unwrap();
        reply.unwrap().wait();
    }
}

#[test]
fn need_resched_tells_of_a_call_natively() {
    MANNERS.into_iter().for_each(tells_of_a_call::<Native>);
}

#[test]
fn need_resched_tells_of_a_call_in_simulation() {
    for manner in MANNERS {
        let law = move || tells_of_a_call::<Sim>(manner);
        worlds::simulate("call::tells_of_a_call", "host-2c", Faults::NONE, law).unwrap();
    }
}

/// What a worker sends to itself, and waits for in the middle of a call and of a task.
fn waits_for_itself<W: Testbed>(manner: Manner, cpus: u32) {
    let workers = Arc::new(workers::<W>(Effort { cpus, ..TWO }, manner));
    let first = workers.cpus().next().unwrap();
    let send = move |workers: &Workers<W>, kind: u32| match kind {
        0 => workers.spawn_on(first, || 7).unwrap(),
        1 => workers.call_async(first, || 7).unwrap(),
        _ => workers.spawn(|| 7).unwrap(),
    };
    // With one worker a task that any may run is its own.
    for kind in 0..if cpus == 1 { 3 } else { 2 } {
        let theirs = Arc::clone(&workers);
        let waits = move || {
            let refused = send(&theirs, kind).checked_wait().expect_err("it cannot end");
            assert!(refused.to_string().contains("forever"), "{refused}");
            refused.reply
        };
        assert_eq!(workers.call_on(first, &waits).unwrap().wait(), 7);
        assert_eq!(workers.spawn_on(first, waits).unwrap().wait().wait(), 7);
    }
    // Served in between, or done before: it has a value.
    let theirs = Arc::clone(&workers);
    let serves = move || {
        let reply = theirs.call_async(first, || 7).unwrap();
        assert_eq!(theirs.serve(), 1);
        reply.checked_wait().unwrap()
    };
    assert_eq!(workers.call_on(first, serves).unwrap(), 7);
    let reply = workers.spawn_on(first, || 7).unwrap();
    // Behind the task.
    workers.spawn_on(first, || ()).unwrap().wait();
    assert_eq!(workers.call_on(first, || reply.wait()).unwrap(), 7);
}

#[test]
fn a_worker_does_not_wait_for_itself_natively() {
    for cpus in [1, 2] {
        MANNERS.into_iter().for_each(|manner| waits_for_itself::<Native>(manner, cpus));
    }
}

#[test]
fn a_worker_does_not_wait_for_itself_in_simulation() {
    for (manner, cpus) in MANNERS.into_iter().flat_map(|manner| [(manner, 1), (manner, 2)]) {
        let law = move || waits_for_itself::<Sim>(manner, cpus);
        worlds::simulate("call::waits_for_itself", "host-2c", Faults::NONE, law).unwrap();
    }
}

/// A task waits for its own reply, which it is given.
#[test]
fn a_task_does_not_wait_for_itself_natively() {
    type Own = Reply<bool>;
    let workers = workers::<Native>(TWO, POLLS);
    let first = workers.cpus().next().unwrap();
    let (give, take) = std::sync::mpsc::channel::<Own>();
    let own = workers.spawn_on(first, move || {
        let refused = take.recv().unwrap().checked_wait();
        // Its value, which no thread gets: the reply goes here.
        refused.is_err()
    });
    give.send(own.unwrap()).unwrap();
    // Behind the task, which has ended then.
    assert!(workers.spawn_on(first, || true).unwrap().wait());
}

/// A worker joins its own set: it is refused, and the set goes on.
fn joins_its_own_set<W: Testbed>(manner: Manner) {
    let workers = workers::<W>(TWO, manner);
    let first = workers.cpus().next().unwrap();
    let place = Arc::new(W::U32::new_in(0));
    let (left, right) = std::sync::mpsc::channel::<Workers<W>>();
    let sent = Arc::clone(&place);
    let reply = workers.spawn_on(first, move || {
        // Acquire: pairs with the Release below.
        sent.wait_until(Ordering::Acquire, |sent| sent == 1);
        right.recv().unwrap().join().expect_err("it would wait for itself").workers
    });
    left.send(workers).unwrap();
    place.store(1, Ordering::Release);
    let workers = reply.unwrap().wait();
    assert_eq!(workers.call_on(first, || 5).unwrap(), 5, "it goes on");
    workers.join().unwrap();
}

#[test]
fn a_worker_does_not_join_its_own_set() {
    for manner in MANNERS {
        joins_its_own_set::<Native>(manner);
        let law = move || joins_its_own_set::<Sim>(manner);
        worlds::simulate("call::joins_its_own_set", "host-2c", Faults::NONE, law).unwrap();
    }
}

/// A worker of one set drops another set, of which a worker calls it meanwhile.
fn drops_what_calls_it<W: Testbed>(manner: Manner) {
    let (dropped, dropper) = (workers::<W>(TWO, manner), Arc::new(workers::<W>(TWO, manner)));
    let cpus: Vec<CpuId> = dropped.cpus().collect();
    let (first, drops) = (cpus[0], Arc::new(W::U32::new_in(0)));
    let (theirs, begun) = (Arc::clone(&dropper), Arc::clone(&drops));
    let call = move || {
        // Acquire: pairs with the Release below.
        begun.wait_until(Ordering::Acquire, |begun| begun == 1);
        theirs.call_on(first, || ()).unwrap();
    };
    dropped.spawn_on(cpus[1], call).unwrap().detach();
    let task = move || {
        drops.store(1, Ordering::Release);
        W::work(Duration::from_micros(20));
        drop(dropped);
    };
    dropper.spawn_on(first, task).unwrap().wait();
}

#[test]
fn a_worker_drops_a_set_that_calls_it() {
    for manner in MANNERS {
        (0..20).for_each(|_| drops_what_calls_it::<Native>(manner));
        let law = move || drops_what_calls_it::<Sim>(manner);
        worlds::simulate("call::drops_what_calls_it", "host-2c", Faults::NONE, law).unwrap();
    }
}
