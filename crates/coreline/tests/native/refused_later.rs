//! System calls that are taken away, or answered in the kernel's place, in the midst of everything.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;
use std::{panic, process, thread};

use coreline::domain::{Domain, DomainLocal};
use coreline::lock::RawBiasedRwLock;
use coreline::mask::Versioned;
use coreline::percpu::{PerCpuPool, PoolOptions, ResizableStack, StopError, Word64};
use coreline::{CounterSet, PerCpu, PerCpuCounter};
use coreline_world::{Clock, Native};

use crate::filter::{answer, limit};
use crate::fork::in_child;

const ROUNDS: u64 = 300;
const TOKENS: u64 = 6;

/// What threads work on before and after.
struct Shared {
    counter: PerCpuCounter,
    batched: PerCpuCounter,
    set: CounterSet<2>,
    words: PerCpu<Word64>,
    stack: PerCpu<ResizableStack<u64, 64>>,
    domain: Domain,
    tenant: DomainLocal<Word64>,
    version: Versioned<[u64; 2]>,
    /// Guards the pair, whose halves are equal but while a thread writes.
    lock: RawBiasedRwLock,
    pair: [AtomicU64; 2],
    rounds: AtomicU64,
    /// How many threads have begun, and ended.
    begun: AtomicU64,
    ended: AtomicU64,
    changed: AtomicBool,
}

impl Shared {
    fn new() -> Self {
        let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
        let domain = Domain::new().unwrap();
        let shared = Shared {
            counter: PerCpuCounter::from_pool(&pool),
            batched: PerCpuCounter::from_pool(&pool).batched(4),
            set: CounterSet::from_pool(&pool),
            words: pool.per_cpu(|| Word64::new(0)).unwrap(),
            stack: pool.per_cpu(|| ResizableStack::with_capacity(64)).unwrap(),
            tenant: domain.local(|| Word64::new(0)).unwrap(),
            domain,
            version: Versioned::new([0; 2]),
            lock: RawBiasedRwLock::new(),
            pair: [const { AtomicU64::new(0) }; 2],
            rounds: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            changed: AtomicBool::new(false),
        };
        let tokens: &'static [u64] = Vec::leak((0..TOKENS).collect());
        for token in tokens {
            shared.stack.field(|stack| stack).push(token.into()).unwrap();
        }
        shared
    }

    fn work(&self) {
        let reader = self.version.reader();
        for round in 0..ROUNDS {
            self.counter.add(1);
            self.batched.add(-3);
            self.set.add(1, 2);
            self.words.add(1);
            self.tenant.add(1);
            let stack = self.stack.field(|stack| stack);
            if let Some(token) = stack.pop() {
                // There is room for all.
                assert!(stack.push(token).is_ok());
            }
            let value = *reader.enter().get();
            assert_eq!(value[0], value[1], "a value was freed under its reader");
            drop(self.domain.lease());
            self.read_twice();
            if round % 16 == 0 {
                // What needs a fence may be refused one.
                let stopped = self.words.with_all_stopped(|slots| slots.count());
                assert_ne!(stopped, Err(StopError::Nested), "a thread has another one's name");
                drop(self.domain.expire(Native::now() + Duration::from_millis(200 * round)));
                // Panics then.
                let update = AssertUnwindSafe(|| self.version.update([round; 2]));
                drop(panic::catch_unwind(update));
                // A lock that could not be taken stays open to readers.
                if self.lock.write().is_ok() {
                    // Relaxed, here and in `read_twice`: the lock orders.
                    self.pair.iter().for_each(|half| _ = half.fetch_add(1, Ordering::Relaxed));
                    // SAFETY: taken above.
                    unsafe { self.lock.unlock() };
                }
            }
        }
        // Relaxed: a count; a thread that looks has seen the others end.
        self.rounds.fetch_add(ROUNDS, Ordering::Relaxed);
    }

    /// Reads the pair, and reads again meanwhile, which makes the lock biased.
    fn read_twice(&self) {
        self.lock.read();
        self.lock.read();
        let [one, other] = self.pair.each_ref().map(|half| half.load(Ordering::Relaxed));
        assert_eq!(one, other, "a reader met a writer");
        // SAFETY: taken above, twice.
        unsafe {
            self.lock.unlock();
            self.lock.unlock();
        }
    }

    /// What a thread does.
    fn live(&self) {
        self.work();
        self.begun.fetch_add(1, Ordering::Relaxed);
        // Relaxed: carries nothing but itself.
        while !self.changed.load(Ordering::Relaxed) {
            self.work();
        }
        self.work();
        // Release pairs with the acquire in `check`: what was added is there.
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// Waits until so many threads have ended, and looks whether anything is lost.
    fn check(&self, threads: u64) {
        // Acquire: see `live`. Not by joining, which needs system calls.
        while self.ended.load(Ordering::Acquire) < threads {
            thread::yield_now();
        }
        let rounds = self.rounds.load(Ordering::Relaxed).cast_signed();
        assert_eq!(self.counter.read_exact(), rounds);
        assert_eq!(self.batched.read_exact(), -3 * rounds);
        assert_eq!(self.set.read_exact(), [0, 2 * rounds]);
        assert_eq!(self.words.sum().cast_signed(), rounds);
        assert_eq!(self.tenant.sum().cast_signed(), rounds);
        assert_eq!(self.domain.usage().leased, 0);
        assert!(!self.lock.is_locked());
        let tokens = self.stack.with_all_stopped(|slots| {
            let mut popped = [None; TOKENS as usize + 1];
            let pops = slots.map(|slot| slot.field(|stack| stack).pop_batch(&mut popped));
            pops.sum::<usize>()
        });
        assert!(tokens.is_err() || tokens == Ok(TOKENS as usize), "{tokens:?} tokens");
    }
}

/// What a child does without; unset in the parent.
static WITH: OnceLock<String> = OnceLock::new();

/// Has a child abort as soon as one of its threads panics for a reason of its own. The parent sets
/// the hook, once: a thread that panics holds the lock of the hook, so a child that is forked
/// during another test's panic could set none. No other lock is taken, for the same reason.
fn abort_children_that_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| match WITH.get() {
            None => before(panic),
            Some(_) if panic.to_string().contains("no heavy fence") => {}
            Some(what) => {
                // SAFETY: the descriptor stays open: it is not dropped.
                let mut errors = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
                // A process that cannot say so ends all the same.
                let _ = writeln!(errors, "with {what}: {panic}");
                process::abort();
            }
        }));
    });
}

/// In a child, has threads work, calls `change`, has them work again, and starts more if `start`.
fn amidst(what: &str, start: bool, change: impl Fn()) {
    abort_children_that_panic();
    in_child(|| {
        WITH.set(what.to_owned()).unwrap();
        let made = Box::into_raw(Box::new(Shared::new()));
        // SAFETY: freed below, by when no thread uses it any more.
        let shared: &'static Shared = unsafe { &*made };
        // Its stack stays behind, for the next thread to use.
        thread::spawn(|| ()).join().unwrap();
        for _ in 0..2 {
            thread::spawn(|| shared.live());
        }
        // Both have started, which needs system calls, and are in the midst of it.
        while shared.begun.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        change();
        // Relaxed: as in `live`.
        shared.changed.store(true, Ordering::Relaxed);
        shared.live();
        let mut threads = 3;
        for _ in 0..if start { 2 } else { 0 } {
            let thread = thread::Builder::new().spawn(|| shared.live());
            threads += u64::from(thread.is_ok());
        }
        shared.check(threads);
        // What is made from here on works, or is refused.
        if let Ok(words) = PerCpu::new(|| Word64::new(7)) {
            words.add(1);
            assert_eq!(words.sum(), 7 * (words.populated() as u64 + 1) + 1);
        }
        if let Ok(domain) = Domain::new()
            && let Ok(tenant) = domain.local(|| Word64::new(0))
        {
            tenant.add(1);
            assert_eq!(tenant.sum(), 1);
        }
        // SAFETY: made above. All threads have said that they ended, and touch it no more.
        drop(unsafe { Box::from_raw(made) });
    });
}

#[test]
fn calls_that_are_refused_later_cost_no_update() {
    let calls = [
        ("membarrier", libc::SYS_membarrier),
        ("mmap", libc::SYS_mmap),
        ("munmap", libc::SYS_munmap),
        ("mbind", libc::SYS_mbind),
        ("madvise", libc::SYS_madvise),
        ("futex", libc::SYS_futex),
        ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
        ("getcpu", libc::SYS_getcpu),
        ("sched_getaffinity", libc::SYS_sched_getaffinity),
        ("sched_setaffinity", libc::SYS_sched_setaffinity),
        ("sched_yield", libc::SYS_sched_yield),
        ("gettid", libc::SYS_gettid),
        ("getpid", libc::SYS_getpid),
        ("rseq", libc::SYS_rseq),
        ("openat", libc::SYS_openat),
        ("clock_gettime", libc::SYS_clock_gettime),
        ("clone3", libc::SYS_clone3),
        ("clone", libc::SYS_clone),
    ];
    let mut failed = Vec::new();
    // musl's allocator maps all that it gives, so nothing goes on there without. And it unmaps the
    // stack of a detached thread that ends, which these are, with the area on it, which cannot be
    // unregistered any more: the kernel may end the process, as the native world's module says.
    let ends_musl = [libc::SYS_mmap, libc::SYS_rseq];
    let may_end = |call| cfg!(target_env = "musl") && ends_musl.contains(&call);
    for (name, call) in calls.into_iter().filter(|&(_, call)| !may_end(call)) {
        // glibc ends a process in which one of its own locks is refused to wait, as it does where
        // two threads allocate, start or end at one time.
        let errors = [0, libc::EPERM, libc::ENOSYS];
        let errors = if call == libc::SYS_futex { &errors[..1] } else { &errors };
        for &error in errors {
            // The libraries that start threads need these, and some end the process without.
            let start = match call {
                libc::SYS_mmap | libc::SYS_rseq => false,
                libc::SYS_clone | libc::SYS_clone3 => error != 0,
                _ => true,
            };
            let what = format!("{name} = {error}");
            if panic::catch_unwind(|| amidst(&what, start, || answer(call, None, error))).is_err() {
                failed.push(what);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_child_of_a_process_that_panics_goes_on() {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Relaxed: carries nothing but itself.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                drop(panic::catch_unwind(|| panic!("another test's panic")));
            }
        });
        let child = || amidst("no locked memory", true, || _ = limit(libc::RLIMIT_MEMLOCK, 0));
        let went_on = panic::catch_unwind(child).is_ok();
        over.store(true, Ordering::Relaxed);
        assert!(went_on);
    });
}

#[test]
fn limits_that_are_set_later_cost_no_update() {
    amidst("no locked memory", true, || _ = limit(libc::RLIMIT_MEMLOCK, 0));
    amidst("no more processes", true, || _ = limit(libc::RLIMIT_NPROC, 0));
}
