//! Calls to workers, tasks of theirs, and domains.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use coreline::Workers;
use coreline::call::CallError;
use coreline::domain::{Domain, Exclusive};
use coreline::percpu::{Indexing, Word64};

fn workers() -> Workers {
    Workers::builder().polling(Duration::from_micros(50)).start().unwrap()
}

#[test]
fn functions_run_elsewhere_and_bring_back_what_they_borrowed() {
    let workers = workers();
    let cpus: Vec<_> = workers.cpus().collect();
    let mut words = vec![String::from("a")];
    for &cpu in &cpus {
        let (small, large) = (1_u8, [String::from("b"), String::from("c")]);
        assert_eq!(workers.call_on(cpu, || small + 1).map_err(CallError::from), Ok(2));
        let longer = workers.call_on(cpu, || {
            words.extend(large);
            words.clone()
        });
        assert_eq!(longer.map_err(CallError::from).unwrap().len(), words.len());
        // It sleeps by then.
        thread::sleep(Duration::from_millis(1));
    }
    let on = cpus.iter().copied().collect();
    let values = workers.call_many(&on, Box::new).unwrap();
    assert!(values.iter().all(|(cpu, value)| *cpu == **value) && values.len() == cpus.len());
    let panics = || workers.call_on(cpus[0], || panic!("{}", words.len())).map_err(CallError::from);
    let payload = catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert_eq!(payload.downcast_ref::<String>(), Some(&words.len().to_string()));
}

#[test]
fn callers_wait_behind_each_other() {
    let workers = workers();
    let cpu = workers.cpus().next().unwrap();
    thread::scope(|scope| {
        for caller in 0..3 {
            let workers = &workers;
            scope.spawn(move || {
                let name = Box::new([caller; 8]);
                for _ in 0..4 {
                    let found = workers.call_on(cpu, || name.iter().sum::<u32>());
                    assert_eq!(found.map_err(CallError::from), Ok(8 * caller));
                }
            });
        }
    });
}

#[test]
fn replies_come_are_dropped_and_are_left() {
    let workers = workers();
    let cpu = workers.cpus().next().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let task = || {
        let ran = Arc::clone(&ran);
        move || ran.fetch_add(1, Ordering::Relaxed)
    };
    let replies: Vec<_> = (0..3).map(|_| workers.spawn(task()).unwrap()).collect();
    let here = workers.spawn_on(cpu, task()).unwrap();
    // Withdrawn, if it has not begun.
    drop(workers.call_async(cpu, task()).unwrap());
    workers.spawn(task()).unwrap().detach();
    assert!(replies.into_iter().chain([here]).all(|reply| reply.wait() < 6));
    workers.close();
    let refused = workers.spawn(task()).err().unwrap();
    assert!(matches!(refused.why, CallError::Closed));
    drop(refused);
    drop(workers);
    assert!([5, 6].contains(&ran.load(Ordering::Relaxed)));
    assert_eq!(Arc::strong_count(&ran), 1, "each task ran or was dropped");
}

#[test]
fn scopes_and_futures_end_and_leave_nothing() {
    let workers = Arc::new(workers());
    let cpu = workers.cpus().next().unwrap();
    let mut words = [String::from("a"), String::from("b")];
    let borrow = |words: &mut [String]| {
        workers.scope(|scope| {
            for word in words {
                let task = scope.spawn(move |scope| {
                    word.push('c');
                    scope.spawn(move |_| word.push('d')).map_err(CallError::from).unwrap();
                });
                task.map_err(CallError::from).unwrap();
            }
        });
    };
    borrow(&mut words);
    workers.call_on(cpu, || borrow(&mut words)).map_err(CallError::from).unwrap();
    assert_eq!(words, ["acdcd", "bcdcd"]);
    let held = Arc::new(());
    let future = |ends: bool| {
        let held = Arc::clone(&held);
        let make = move || async move {
            let shared = std::rc::Rc::new(held);
            if !ends {
                std::future::pending::<()>().await;
            }
            Arc::strong_count(&shared)
        };
        workers.spawn_local_on(cpu, make).map_err(CallError::from).unwrap()
    };
    assert!(future(true).wait().is_ok());
    let (left, aborted, kept) = (future(false), future(false), future(false));
    drop(left);
    aborted.abort();
    assert!(aborted.wait().is_err());
    drop(workers);
    assert!(kept.wait().is_err());
    assert_eq!(Arc::strong_count(&held), 1, "each future was dropped");
}

/// On machines of at most sixteen CPUs a local's rows lead back into it.
#[test]
fn a_local_finds_the_rows_of_its_domain() {
    let domain = Domain::new().unwrap();
    let hits = domain.local(|| Word64::new(0)).unwrap();
    hits.add(1);
    let later = Box::new(domain.local(|| Word64::new(0)).unwrap());
    drop(domain);
    for local in [&hits, &*later] {
        let rows = local.indexing().rows().unwrap();
        assert!((0..rows.cpus()).any(|cpu| rows.index_at(cpu as usize).is_some()));
        local.add(1);
    }
    assert_eq!((hits.sum(), later.sum()), (2, 1));
}

#[test]
fn leases_are_exclusive_and_come_back() {
    let domain = Domain::new().unwrap();
    let uses = domain.local(|| Exclusive::new(Box::new(0))).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let (mut lease, other) = (domain.lease_wait().unwrap(), domain.lease());
                    assert_ne!(Ok(lease.cid()), other.map(|other| other.cid()));
                    **lease.get_mut(&uses).unwrap() += 1;
                    let mut owned = lease.into_owned();
                    **owned.get_mut(&uses).unwrap() += 1;
                }
            });
        }
    });
    let mut uses = uses;
    assert_eq!(uses.iter_mut().map(|uses| **uses.get_mut()).sum::<u32>(), 24);
}
