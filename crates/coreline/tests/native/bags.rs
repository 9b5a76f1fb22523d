//! Bags and lossy buffers between threads that move, in handlers that interrupt their operations,
//! and in children that are forked in the midst of them.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::{mem, process, thread};

use coreline::CpuSet;
use coreline::percpu::{LossyBuffer, PerCpuBag};
use coreline_world::{Native, Threads};

use crate::filter::in_a_child;
use crate::fork::in_children;
use crate::os::{on_signal, run_on};
use crate::{IN_HANDLER, IN_HANDLERS};

const VALUES: usize = 64;

/// A bag or a lossy buffer, with room for all values.
trait Keeps: Send + Sync + Sized + 'static {
    /// How many values a thread takes at once.
    const AT_ONCE: usize;

    /// The one that handlers use.
    fn shared() -> &'static OnceLock<Self>;
    fn make() -> Self;
    fn put(&self, value: usize) -> Result<(), usize>;
    /// Calls `f` with what it takes; with nothing, if there is nothing or another thread takes it.
    fn take(&self, f: impl FnMut(usize));
    fn is_empty(&self) -> bool;
}

impl Keeps for PerCpuBag<usize> {
    const AT_ONCE: usize = 1;

    fn shared() -> &'static OnceLock<Self> {
        static BAG: OnceLock<PerCpuBag<usize>> = OnceLock::new();
        &BAG
    }

    fn make() -> Self {
        PerCpuBag::new(VALUES).unwrap()
    }

    fn put(&self, value: usize) -> Result<(), usize> {
        self.push(value)
    }

    fn take(&self, f: impl FnMut(usize)) {
        self.pop().into_iter().for_each(f);
    }

    fn is_empty(&self) -> bool {
        PerCpuBag::is_empty(self)
    }
}

impl Keeps for LossyBuffer<usize> {
    const AT_ONCE: usize = VALUES;

    fn shared() -> &'static OnceLock<Self> {
        static BUFFER: OnceLock<LossyBuffer<usize>> = OnceLock::new();
        &BUFFER
    }

    fn make() -> Self {
        // In each ring, so that a push fails for one reason only: the ring is busy.
        LossyBuffer::new(VALUES).unwrap()
    }

    fn put(&self, value: usize) -> Result<(), usize> {
        self.push(value)
    }

    fn take(&self, f: impl FnMut(usize)) {
        _ = self.drain(f);
    }

    fn is_empty(&self) -> bool {
        LossyBuffer::is_empty(self)
    }
}

/// Takes all values out, and checks that there are so many or up to `missing` less, each once.
fn all_are_there(keeps: &impl Keeps, missing: usize) {
    let mut seen = [false; VALUES];
    let mut found = 0;
    loop {
        let before = found;
        keeps.take(|value| {
            assert!(!mem::replace(&mut seen[value], true), "{value} is there twice");
            found += 1;
        });
        if found == before {
            break;
        }
    }
    assert!((VALUES - missing..=VALUES).contains(&found), "{found} of {VALUES}");
    assert!(keeps.is_empty());
    // Each stack or ring is one that operations can use.
    (0..VALUES).for_each(|value| keeps.put(value).expect("there is room"));
}

/// Puts a value back. The place that has room for it may be that of a thread that is preempted.
fn put_back(keeps: &impl Keeps, mut value: usize) {
    while let Err(back) = keeps.put(value) {
        value = back;
        thread::yield_now();
    }
}

fn full<K: Keeps>() -> K {
    let keeps = K::make();
    (0..VALUES).for_each(|value| keeps.put(value).unwrap());
    keeps
}

/// Runs this thread on another CPU that it may use, if there is one.
fn move_to(cpus: &CpuSet, number: usize) {
    let Some(cpu) = cpus.iter().nth(number % cpus.len()) else { return };
    run_on(cpu.index());
}

/// Threads move between CPUs, take values out and put them back.
fn move_and_lose_nothing<K: Keeps>() {
    let keeps: K = full();
    let cpus = Native::allowed();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (keeps, cpus) = (&keeps, &cpus);
            scope.spawn(move || {
                let mut hand = Vec::new();
                for round in 0..2_000 {
                    if round % 5 == 0 {
                        move_to(cpus, thread + round);
                    }
                    (0..2).for_each(|_| keeps.take(|value| hand.push(value)));
                    hand.drain(..).for_each(|value| put_back(keeps, value));
                }
            });
        }
    });
    all_are_there(&keeps, 0);
}

#[test]
fn threads_that_move_lose_no_value() {
    move_and_lose_nothing::<PerCpuBag<usize>>();
    move_and_lose_nothing::<LossyBuffer<usize>>();
}

#[test]
fn a_child_finds_each_value_once_where_other_threads_used_a_bag() {
    let bag: PerCpuBag<usize> = full();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed: carries nothing but itself.
                while !over.load(Ordering::Relaxed) {
                    if let Some(value) = bag.pop() {
                        put_back(&bag, value);
                    }
                }
            });
        }
        // Each of two threads may have one in its hand.
        in_children(&over, || {
            all_are_there(&bag, 2);
            all_are_there(&bag, 2);
        });
    });
}

/// Values go round: a thread takes them out of a bag into a buffer, and another one drains them
/// into the bag.
#[test]
fn a_child_finds_each_value_once_where_other_threads_used_a_buffer() {
    let bag: PerCpuBag<usize> = full();
    let buffer = LossyBuffer::new(VALUES / 4).unwrap();
    let over = AtomicBool::new(false);
    // Relaxed: carries nothing but itself.
    let going = || !over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            while going() {
                if let Some(value) = bag.pop().and_then(|value| buffer.push(value).err()) {
                    put_back(&bag, value);
                }
            }
        });
        scope.spawn(|| {
            while going() {
                buffer.drain(|value| put_back(&bag, value)).expect("no other thread drains");
            }
        });
        in_children(&over, || {
            // Also if another thread was draining, and was in the midst of a push.
            for missing in [2, 0] {
                buffer.drain(|value| put_back(&bag, value)).expect("the other thread is no more");
                all_are_there(&bag, missing);
            }
            let kept = (0..VALUES).filter(|&value| buffer.push(value).is_ok()).count();
            assert!(kept >= VALUES / 4, "{kept}");
            assert_eq!((buffer.len(), buffer.drain(drop)), (kept, Ok(kept)));
        });
    });
}

static PARENT: AtomicU32 = AtomicU32::new(0);
static FORKED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// By value: whether the thread's handler has it.
    static KEPT: [AtomicBool; VALUES] = const { [const { AtomicBool::new(false) }; VALUES] };
}

/// Puts back what the thread's handler has, by `put`; returns whether it had anything.
fn put_back_kept(put: impl Fn(usize) -> Result<(), usize>) -> bool {
    let mut had = false;
    KEPT.with(|kept| {
        for (value, kept) in kept.iter().enumerate() {
            // Relaxed, twice: the thread's own.
            if kept.swap(false, Ordering::Relaxed) {
                had = true;
                kept.store(put(value).is_err(), Ordering::Relaxed);
            }
        }
    });
    had
}

/// Forks, and does in both processes what the code does that it interrupts.
extern "C" fn fork_and_use<K: Keeps>(_signal: c_int) {
    let nested = IN_HANDLER.replace(true);
    // The bare call: what the C library does at a fork is not for handlers.
    // SAFETY: without flags it is a fork, whose child has all memory of its own.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: ends a child that waits for good.
        unsafe { libc::alarm(10) };
    }
    let keeps = K::shared().get().expect("before all signals");
    // By turns, so that a stack is another one when the operation goes on that is interrupted. What
    // that operation uses is busy: then a value stays with the handler.
    if !put_back_kept(|value| keeps.put(value)) {
        // Relaxed: the thread's own.
        keeps.take(|value| KEPT.with(|kept| kept[value].store(true, Ordering::Relaxed)));
    }
    if child != 0 {
        // Relaxed: a count.
        FORKED.fetch_add(1, Ordering::Relaxed);
    }
    IN_HANDLER.set(nested);
}

/// In a child, the handler goes on first, and then the operation that it interrupted.
fn fork_in_handlers<K: Keeps>() {
    // Relaxed: before all threads.
    PARENT.store(process::id(), Ordering::Relaxed);
    let keeps = K::shared().get_or_init(full);
    let over = AtomicBool::new(false);
    let is_child = || process::id() != PARENT.load(Ordering::Relaxed);
    let all_back = || {
        put_back_kept(|value| {
            put_back(keeps, value);
            Ok(())
        })
    };
    thread::scope(|scope| {
        let mut ids = Vec::new();
        for _ in 0..2 {
            let (tell, told) = mpsc::channel();
            let over = &over;
            scope.spawn(move || {
                // SAFETY: asks for the calling thread.
                tell.send(unsafe { libc::pthread_self() }).unwrap();
                let mut hand = Vec::with_capacity(VALUES);
                // Relaxed: carries nothing but itself.
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..20 {
                        keeps.take(|value| hand.push(value));
                        hand.drain(..).for_each(|value| put_back(keeps, value));
                    }
                    if is_child() {
                        all_back();
                        // What the other thread may have had: itself, and its handler.
                        all_are_there(keeps, VALUES.min(2 * K::AT_ONCE));
                        all_are_there(keeps, 0);
                        // SAFETY: ends the child.
                        unsafe { libc::_exit(0) };
                    }
                }
                all_back();
            });
            ids.push(told.recv().unwrap());
        }
        on_signal(libc::SIGUSR1, fork_and_use::<K>);
        let mut ended = [0; 300];
        for (round, status) in (0_u32..).zip(&mut ended) {
            // SAFETY: the thread runs until it is told that it is over.
            unsafe { libc::pthread_kill(ids[round as usize % 2], libc::SIGUSR1) };
            // Relaxed: a count.
            while FORKED.load(Ordering::Relaxed) <= round {
                thread::yield_now();
            }
            // SAFETY: waits for any child.
            unsafe { libc::wait(status) };
        }
        // Relaxed: carries nothing but itself.
        over.store(true, Ordering::Relaxed);
        assert_eq!(ended, [0; 300], "how the children ended");
    });
    all_are_there(keeps, 0);
    // Relaxed: a count.
    assert_eq!(IN_HANDLERS.load(Ordering::Relaxed), 0, "a handler allocated");
}

#[test]
fn handlers_that_fork_lose_and_double_no_value_of_a_bag() {
    let test = "bags::handlers_that_fork_lose_and_double_no_value_of_a_bag";
    in_a_child(test, fork_in_handlers::<PerCpuBag<usize>>);
}

#[test]
fn handlers_that_fork_lose_and_double_no_value_of_a_buffer() {
    let test = "bags::handlers_that_fork_lose_and_double_no_value_of_a_buffer";
    in_a_child(test, fork_in_handlers::<LossyBuffer<usize>>);
}
