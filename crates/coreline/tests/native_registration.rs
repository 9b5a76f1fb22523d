//! Threads that coreline registers for rseq itself, where the C library registers none.
//!
//! The C library's mind is made up when a process starts, so each case is a process: this program
//! again, with one test asked for, and glibc told to register nothing. (musl never does.)
#![cfg(all(target_os = "linux", not(feature = "portable")))]

#[path = "native/os.rs"]
mod os;

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::thread;

use coreline::percpu::Word64;
use coreline::{IndexBy, PerCpu};
use coreline_world::native::{self, NoSections, Registrar, RseqAbi};
use coreline_world::{Native, Place};

type Words = PerCpu<Word64>;

/// Runs the test of this name again without the C library's registration, unless this is that run
/// already. Then `body` gets words that sections work on, unless the kernel has no rseq.
fn without_libc(test: &str, body: fn(&Words)) {
    if os::is_again() {
        let words = Words::words(IndexBy::Cpu).unwrap();
        let machine = native::probe();
        if matches!(machine.sections, Err(NoSections::Refused(_) | NoSections::Processor)) {
            return;
        }
        assert_eq!(machine.sections, Ok(()));
        assert_eq!(machine.registered_by, Some(Registrar::Coreline));
        assert!(words.section().is_rseq());
        populate(&words);
        return body(&words);
    }
    let mut again = os::again(test);
    os::pass(again.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0").env_remove("CORELINE_RSEQ"));
}

/// Initialises the slots of all CPUs that may be used. (A thread that finds another one
/// initialising them adds to the shared word.)
fn populate(words: &Words) {
    let last = native::probe().allowed.unwrap().last().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(os::run_on(last.index()));
            words.add(0);
        });
    });
    assert!(words.populated() > last.index());
}

/// What was added by threads that had no index.
fn shared(words: &Words) -> u64 {
    // Relaxed: all threads that added were joined.
    words.shared().load(Ordering::Relaxed)
}

/// Whether the calling thread is registered, seen by an addition that needs no shared word.
fn adds_to_its_own(words: &Words) -> bool {
    let before = shared(words);
    words.add(1);
    shared(words) == before
}

#[test]
fn threads_register_themselves() {
    without_libc("threads_register_themselves", |words| {
        let machine = native::probe();
        assert_eq!(machine.rseq_abi, Some(RseqAbi::Legacy));
        assert_eq!(machine.mm_cid.is_some(), machine.feature_size >= 28);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    (0..10_000).for_each(|_| words.add(1));
                    assert!(Native::cpu().index() < words.indexes());
                    assert_eq!(Native::kernel_cid().is_some(), machine.mm_cid.is_some());
                });
            }
        });
        assert_eq!((words.sum(), shared(words)), (80_000, 0));
        if let Ok(by_cid) = Words::words(IndexBy::KernelCid) {
            thread::scope(|scope| {
                let add = || (0..10_000).for_each(|_| by_cid.add(1));
                for _ in 0..4 {
                    scope.spawn(add);
                }
            });
            assert_eq!(by_cid.sum(), 40_000);
        }
    });
}

/// The kernel writes to the area of a thread as long as it is registered. A detached thread of musl
/// runs on for a moment after its memory was unmapped, and would be killed there.
#[test]
fn threads_come_and_go() {
    const THREADS: u64 = 10_000;
    static WORDS: AtomicPtr<Words> = AtomicPtr::new(ptr::null_mut());
    static ADDED: AtomicU64 = AtomicU64::new(0);

    extern "C" fn add(_argument: *mut c_void) -> *mut c_void {
        // Acquire pairs with the release that published the words.
        // SAFETY: the words live until all threads have added.
        unsafe { &*WORDS.load(Ordering::Acquire) }.add(1);
        // Release pairs with the acquire below: the addition is done.
        ADDED.fetch_add(1, Ordering::Release);
        ptr::null_mut()
    }

    without_libc("threads_come_and_go", |words| {
        WORDS.store(ptr::from_ref(words).cast_mut(), Ordering::Release);
        let mut started = 0;
        while started < THREADS {
            // SAFETY: `add` ignores its argument; a thread that was started can be detached once.
            unsafe {
                let mut thread = mem::zeroed();
                let error =
                    libc::pthread_create(&raw mut thread, ptr::null(), add, ptr::null_mut());
                if error == 0 {
                    libc::pthread_detach(thread);
                    started += 1;
                } else {
                    assert_eq!(error, libc::EAGAIN, "after {started} threads");
                    thread::yield_now();
                }
            }
        }
        while ADDED.load(Ordering::Acquire) < THREADS {
            thread::yield_now();
        }
        assert_eq!((words.sum(), shared(words)), (THREADS, 0));
    });
}

#[test]
fn a_forked_child_stays_registered() {
    without_libc("a_forked_child_stays_registered", |words| {
        assert!(adds_to_its_own(words));
        let is_wrong = os::in_a_fork(|| {
            let mine = (0..1_000).all(|_| adds_to_its_own(words)) && words.sum() == 1_001;
            u8::from(!mine)
        });
        assert_eq!(is_wrong, 0, "the child had no index, or lost an addition");
        assert_eq!(words.sum(), 1);
    });
}

/// Memory that looks like an rseq area, for a registration by another library.
#[repr(C, align(32))]
struct Taken([u32; 8]);

#[test]
fn a_registration_that_is_taken_is_left_alone() {
    /// Under which no section of ours could be registered.
    const SIGNATURE: u32 = 0x1234_5678;
    const UNREGISTER: c_int = 1;
    without_libc("a_registration_that_is_taken_is_left_alone", |words| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut taken = Taken([0, u32::MAX, 0, 0, 0, 0, 0, 0]);
                let at = &raw mut taken;
                // SAFETY: the area outlives its registration.
                let rseq = |flags: c_int| unsafe {
                    libc::syscall(libc::SYS_rseq, at, size_of::<Taken>(), flags, SIGNATURE)
                };
                assert_eq!(rseq(0), 0);
                for _ in 0..1_000 {
                    assert!(!adds_to_its_own(words));
                }
                assert_eq!(Native::kernel_cid(), None);
                assert!(Native::cpu().index() < words.indexes());
                assert_eq!(rseq(UNREGISTER), 0);
                // A thread asks once.
                assert!(!adds_to_its_own(words));
            });
        });
        assert_eq!((words.sum(), shared(words)), (1_001, 1_001));
        assert!(adds_to_its_own(words), "other threads have theirs");
    });
}

#[test]
fn a_signal_handler_may_come_first() {
    static WORDS: AtomicPtr<Words> = AtomicPtr::new(ptr::null_mut());
    const ERRNO: c_int = 12345;

    extern "C" fn on_signal(_signal: c_int) {
        // Acquire pairs with the release that published the words.
        // SAFETY: the words outlive the signals.
        unsafe { &*WORDS.load(Ordering::Acquire) }.add(1);
    }

    without_libc("a_signal_handler_may_come_first", |words| {
        WORDS.store(ptr::from_ref(words).cast_mut(), Ordering::Release);
        os::on_signal(libc::SIGUSR1, on_signal);
        let ready = AtomicU32::new(0);
        thread::scope(|scope| {
            let (ready, first) = (&ready, move || {
                // SAFETY: a signal with a handler; `errno` is the thread's own.
                unsafe {
                    *libc::__errno_location() = ERRNO;
                    libc::raise(libc::SIGUSR1);
                    assert_eq!(*libc::__errno_location(), ERRNO);
                }
                words.add(1);
            });
            scope.spawn(first);
            // And at any place of a registration: signals rain on threads that just begin.
            for _ in 0..200 {
                ready.store(0, Ordering::Relaxed);
                let thread = scope.spawn(move || {
                    // SAFETY: asks for a number.
                    ready.store(unsafe { libc::gettid() }.cast_unsigned(), Ordering::Relaxed);
                    words.add(1);
                    while ready.load(Ordering::Relaxed) != u32::MAX {
                        thread::yield_now();
                    }
                });
                let mut signals = 0;
                while signals < 5 {
                    let victim = ready.load(Ordering::Relaxed);
                    if victim != 0 {
                        let process = process();
                        // SAFETY: the thread runs until it is told to stop.
                        unsafe {
                            libc::syscall(libc::SYS_tgkill, process, victim, libc::SIGUSR1);
                        }
                        signals += 1;
                    }
                }
                ready.store(u32::MAX, Ordering::Relaxed);
                thread.join().unwrap();
            }
        });
        assert_eq!(shared(words), 0);
        assert!(words.sum() >= 2 + 200 * 2, "{}", words.sum());
    });
}

fn process() -> c_int {
    // SAFETY: asks for a number.
    unsafe { libc::getpid() }
}

/// Destructors of a thread run in rounds, and each of them may use per-CPU memory.
#[test]
fn destructors_after_the_last_find_no_index() {
    static WORDS: AtomicPtr<Words> = AtomicPtr::new(ptr::null_mut());
    static KEY: AtomicU32 = AtomicU32::new(0);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    static OF_ITS_OWN: AtomicU64 = AtomicU64::new(0);
    const ROUNDS: u64 = 4;

    extern "C" fn again(value: *mut c_void) {
        // Acquire pairs with the release that published the words; the rest is relaxed, as it is
        // read after the thread was joined.
        // SAFETY: the words outlive the thread.
        let words = unsafe { &*WORDS.load(Ordering::Acquire) };
        OF_ITS_OWN.fetch_add(u64::from(adds_to_its_own(words)), Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the key is there. The value has the destructor called in the next round.
        unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), value) };
    }

    extern "C" fn begin(_argument: *mut c_void) -> *mut c_void {
        // SAFETY: the words outlive the thread.
        unsafe {
            assert!(adds_to_its_own(&*WORDS.load(Ordering::Acquire)));
            let key = KEY.load(Ordering::Relaxed);
            assert_eq!(libc::pthread_setspecific(key, ptr::dangling()), 0);
        }
        ptr::null_mut()
    }

    without_libc("destructors_after_the_last_find_no_index", |words| {
        WORDS.store(ptr::from_ref(words).cast_mut(), Ordering::Release);
        // SAFETY: the key is made after coreline's, so its destructor comes after coreline's in
        // each round; the thread is joined once.
        unsafe {
            let mut key = 0;
            assert_eq!(libc::pthread_key_create(&raw mut key, Some(again)), 0);
            KEY.store(key, Ordering::Relaxed);
            let mut thread = mem::zeroed();
            let error = libc::pthread_create(&raw mut thread, ptr::null(), begin, ptr::null_mut());
            assert_eq!(error, 0);
            assert_eq!(libc::pthread_join(thread, ptr::null_mut()), 0);
        }
        assert_eq!(CALLS.load(Ordering::Relaxed), ROUNDS);
        // In the last round coreline's destructor has run before.
        assert_eq!(OF_ITS_OWN.load(Ordering::Relaxed), ROUNDS - 1);
        assert_eq!((words.sum(), shared(words)), (1 + ROUNDS, 1));
    });
}
