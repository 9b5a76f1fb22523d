//! Workers that have nothing to do.

use std::thread;
use std::time::Duration;

use coreline::Workers;

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
