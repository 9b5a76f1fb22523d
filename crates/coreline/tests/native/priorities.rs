//! Priorities: a waiter with a real-time priority lets the holder run, on the holder's own CPU.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, mem, thread};

use coreline::lock::{BiasedRwLock, Osq, ReadMostly};
use coreline::{Mutex, RwLock, TicketLock};

use crate::os::run_on;

/// Of its CPU, what the holder's section takes.
const SECTION: Duration = Duration::from_millis(1);

/// A waiter that lets the holder run takes about 2 ms of its CPU. One that does not takes all that
/// the kernel gives to real-time threads: 950 ms of each second.
const MOST: Duration = Duration::from_millis(100);

/// A turn, or a guard.
trait Held {}

impl<T> Held for T {}

/// Takes a lock, which what it returns frees.
type Lock<'a> = dyn Fn() -> Box<dyn Held + 'a> + Sync + 'a;

/// Both threads run on the CPU on which this test begins.
fn here() -> usize {
    // SAFETY: asks for a number.
    usize::try_from(unsafe { libc::sched_getcpu() }).expect("a CPU's number")
}

/// Gives the calling thread a real-time priority, if it may have one. Not by the C library, whose
/// function fails with musl.
fn prefer_this_thread() -> io::Result<()> {
    // SAFETY: numbers, of which musl has more than one; they live while the kernel reads them.
    let set = unsafe {
        let mut parameters: libc::sched_param = mem::zeroed();
        parameters.sched_priority = 10;
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const parameters)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How long the calling thread has run.
fn busy() -> Duration {
    // SAFETY: numbers, which the call may write.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).expect("a part of 1 s"))
}

/// Has an ordinary thread hold a lock for [`SECTION`], and one with a real-time priority come to it
/// on the same CPU. How long that one runs, if threads may have such priorities.
fn wait_preferred(lock: &Lock<'_>) -> io::Result<Duration> {
    let (cpu, held) = (here(), AtomicBool::new(false));
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            run_on(cpu);
            let section = lock();
            let start = busy();
            // Relaxed, here and below: a hint, which carries nothing.
            held.store(true, Ordering::Relaxed);
            while busy() - start < SECTION {}
            drop(section);
        });
        let waiter = scope.spawn(|| {
            run_on(cpu);
            while !held.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            prefer_this_thread()?;
            let start = busy();
            drop(lock());
            Ok(busy() - start)
        });
        holder.join().expect("it only holds the lock");
        waiter.join().expect("it only waits")
    })
}

#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
#[test]
fn a_waiter_of_higher_priority_lets_the_holder_run() {
    let (osq, ticket) = (<Osq>::new(), TicketLock::new(()));
    let (mutex, rwlock) = (Mutex::new(()), RwLock::new(()));
    let read_mostly = ReadMostly::new(()).expect("memory");
    let biased = BiasedRwLock::new(());
    let locks: [(_, &Lock<'_>); 7] = [
        ("Osq", &|| Box::new(osq.lock())),
        ("TicketLock", &|| Box::new(ticket.lock())),
        ("Mutex", &|| Box::new(mutex.lock())),
        ("RwLock", &|| Box::new(rwlock.write())),
        ("RwLock, a reader", &|| Box::new(rwlock.read())),
        ("BiasedRwLock", &|| Box::new(biased.write())),
        ("ReadMostly", &|| Box::new(read_mostly.write().expect("a fence"))),
    ];
    for (name, lock) in locks {
        for _ in 0..3 {
            match wait_preferred(lock) {
                Ok(ran) => assert!(ran < MOST, "{name}: the waiter ran for {ran:?}"),
                Err(error) => return eprintln!("did not run: no real-time priority: {error}"),
            }
        }
    }
}
