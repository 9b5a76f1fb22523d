//! Workers that have nothing to do.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use std::{process, thread};

use coreline::Workers;
use coreline::call::Scope;
use coreline::world::{JoinHandle, Native, Placement, Threads};

use crate::os;

/// For how long the calling thread has run.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live; the call writes nothing else.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// With the window of polling and the two calls that ask.
#[test]
fn workers_without_work_take_less_than_a_hundredth_of_their_cpus() {
    const IDLE: Duration = Duration::from_secs(2);
    let workers = Workers::new().unwrap();
    let times = || -> Vec<Duration> {
        workers.cpus().map(|cpu| workers.call_on(cpu, thread_time).unwrap()).collect()
    };
    let before = times();
    thread::sleep(IDLE);
    for (cpu, (before, after)) in workers.cpus().zip(before.into_iter().zip(times())) {
        let ran = after - before;
        assert!(ran < IDLE / 100, "{cpu}: {ran:?}");
        // So the time is that of the worker, which polls.
        assert!(ran > Duration::ZERO, "{cpu}");
    }
}

/// The child has the thread's memory, but no worker.
#[test]
fn a_child_that_a_worker_forked_is_no_worker() {
    let workers = Workers::new().unwrap();
    let cpu = workers.cpus().next().unwrap();
    let asked = || {
        let child = os::in_a_fork(|| match (workers.current(), workers.serve()) {
            (None, 0) if !workers.need_resched() => 7,
            _ => 0,
        });
        (child, workers.current())
    };
    assert_eq!(workers.call_on(cpu, asked).unwrap(), (7, Some(cpu)));
}

/// Says so where it ends in a child.
struct Stays(u32);

impl Drop for Stays {
    fn drop(&mut self) {
        ends_no_child(self.0, 9);
    }
}

/// Ends the process if it is not this one.
fn ends_no_child(parent: u32, code: i32) {
    if process::id() != parent {
        // SAFETY: leaves without unwinding.
        unsafe { libc::_exit(code) };
    }
}

/// The child of a worker leaves the scope and the call that forked, and ends. What its copy of the
/// worker had to run borrows what has ended by then, or belongs to the parent.
#[test]
fn a_child_that_returns_to_its_worker_runs_nothing_more() {
    let cpu = Native::allowed().iter().next().unwrap();
    let parent = process::id();
    let builder = Workers::builder().cpus([cpu].into_iter().collect());
    let workers = builder.on_thread_stop(move |_| ends_no_child(parent, 12)).start().unwrap();
    let stays = Stays(parent);
    let future = workers.spawn_local_on(cpu, move || async move {
        let _stays = stays;
        std::future::pending::<()>().await;
    });
    // It has been polled by then.
    workers.spawn_on(cpu, || ()).unwrap().wait();
    let forks = |in_task: bool| {
        let borrowed = String::from("of the call");
        let child = AtomicI32::new(0);
        // SAFETY: the child leaves the functions that it is in, and ends: that is what is tested.
        let fork = || match unsafe { libc::fork() } {
            // SAFETY: sets a timer.
            0 => _ = unsafe { libc::alarm(30) },
            // Relaxed: the scope orders it.
            forked => child.store(forked, Ordering::Relaxed),
        };
        workers.scope(|scope| {
            if in_task {
                scope.spawn(|_| fork()).unwrap();
            }
            let uses = |_: &Scope<'_>| {
                ends_no_child(parent, 10);
                assert_eq!(borrowed, "of the call");
            };
            scope.spawn(uses).unwrap();
            workers.spawn(move || ends_no_child(parent, 11)).unwrap().detach();
            if !in_task {
                fork();
            }
        });
        child.into_inner()
    };
    for in_task in [false, true] {
        let child = workers.call_on(cpu, || forks(in_task)).unwrap();
        assert_eq!(os::end_of(child), 0);
    }
    drop(workers);
    assert!(future.unwrap().wait().is_err());
}

/// As under `taskset`, by which a process may, and others can, use fewer CPUs than there are.
#[test]
fn only_cpus_that_the_thread_may_use_have_workers() {
    for cpu in Native::allowed().iter() {
        let start = || Workers::new().map(|workers| workers.cpus().collect::<Vec<_>>());
        let workers = Native::spawn(Placement::On(cpu), start).unwrap().join();
        assert_eq!(workers.unwrap(), [cpu]);
    }
}

/// The panic's payload panics when it is dropped, which aborts a process that unwinds.
struct Hard;

impl Drop for Hard {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn several_panics_of_one_call_are_one_and_end_no_process() {
    let workers = Workers::new().unwrap();
    let all = workers.cpus().collect();
    let call = || workers.call_many(&all, |_| -> u32 { resume_unwind(Box::new(Hard)) });
    let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    std::mem::forget(panic.downcast::<Hard>().expect("the first one"));
    assert_eq!(workers.call_many(&all, |_| 5).unwrap().len(), all.len());
}

/// As the kernel has it, and as panics show it.
#[test]
fn threads_of_workers_have_names() {
    let own = || {
        let path = "/proc/thread-self/comm";
        let kernel = std::fs::read_to_string(path).map(|name| name.trim_end().to_owned());
        (thread::current().name().map(str::to_owned), kernel.ok())
    };
    let cut = Workers::builder().name("a service with a name").start().unwrap();
    for (workers, prefix) in [(Workers::new().unwrap(), "coreline"), (cut, "a service with a name")]
    {
        for cpu in workers.cpus() {
            let (name, kernel) = workers.call_on(cpu, own).unwrap();
            let name = name.expect("a name");
            assert!(name.len() <= 15 && name.ends_with(&format!("-{}", cpu.get())), "{name}");
            assert!(prefix.starts_with(name.split('-').next().unwrap()), "{name}");
            // Nothing, in a container without `/proc`.
            assert!(kernel.is_none_or(|kernel| kernel == name), "{name}");
        }
    }
}
