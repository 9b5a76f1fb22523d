//! Rust counters and C++ counters in one process, on the same threads and the same rseq areas.
#![cfg(all(beside, target_arch = "x86_64"))]

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, thread};

use coreline::IndexBy;
use coreline::percpu::Word64;
use coreline_world::native::{self, Registrar};

type Words = coreline::PerCpu<Word64>;

unsafe extern "C" {
    safe fn beside_add(delta: i64);
    safe fn beside_sum() -> i64;
    safe fn beside_mode() -> i32;
    safe fn beside_shared() -> u64;
    safe fn beside_signature() -> u32;
    safe fn beside_cpu_id_offset() -> isize;
    safe fn beside_armed_offset() -> isize;
    safe fn beside_own_cpu() -> i32;
    safe fn beside_marks() -> u32;
}

/// What [`beside_mode`] says of sections.
const SECTIONS: i32 = 2;
/// Says that a process runs one test again.
const AGAIN: &str = "CORELINE_CPP_AGAIN";

/// Runs the test of this name in a process of its own, with these settings; in that process, the
/// body.
fn in_a_process(test: &str, settings: &[(&str, &str)], body: fn()) {
    if env::var(AGAIN).is_ok_and(|name| name == test) {
        return body();
    }
    let mut again = Command::new(env::current_exe().unwrap());
    again.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(AGAIN, test);
    again.env_remove("CORELINE_RSEQ").envs(settings.iter().copied());
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{settings:?}: {text}");
}

/// Without the C library's registration.
const UNREGISTERED: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");

/// Whether coreline has proven sections to work. The header looks no further than at the
/// registration, so it may have sections where this says no.
fn has_sections() -> bool {
    native::probe().sections.is_ok()
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_signal(_signal: libc::c_int) {
    beside_add(3);
    // Relaxed: it is read when no timer runs any more.
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Signals this process at these intervals in microseconds; 0: no longer.
fn signal_every(micros: libc::suseconds_t) {
    let interval = libc::timeval { tv_sec: 0, tv_usec: micros };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the handler calls functions that are async-signal-safe; both values are live.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, core::ptr::null_mut()), 0);
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, core::ptr::null_mut()), 0);
    }
}

/// Threads add to both counters in turn, while handlers add to one.
fn both_count() {
    const ADDITIONS: i64 = 100_000;
    let words = Words::words(IndexBy::Cpu).unwrap();
    signal_every(300);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..ADDITIONS {
                    words.add(1);
                    beside_add(2);
                }
            });
        }
    });
    signal_every(0);
    // Relaxed: the timer is off, and handlers ran on threads that were joined, or on this one.
    let handled = i64::from(HANDLED.load(Ordering::Relaxed));
    assert_eq!(words.sum(), 6 * ADDITIONS as u64);
    assert_eq!(beside_sum(), 12 * ADDITIONS + 3 * handled);
    assert!(beside_mode() == SECTIONS || !has_sections());
}

#[test]
fn both_count_on_the_areas_of_the_c_library() {
    in_a_process("both_count_on_the_areas_of_the_c_library", &[], both_count);
}

#[test]
fn both_count_on_areas_of_their_own() {
    in_a_process("both_count_on_areas_of_their_own", &[UNREGISTERED], both_count);
}

#[test]
fn both_count_where_only_one_has_sections() {
    // The variable is read by both, so the Rust half decides before it is set.
    in_a_process("both_count_where_only_one_has_sections", &[], || {
        let words = Words::words(IndexBy::Cpu).unwrap();
        words.add(1);
        // SAFETY: this process has no other thread that reads the environment.
        unsafe { env::set_var("CORELINE_RSEQ", "off") };
        for _ in 0..1_000 {
            words.add(1);
            beside_add(1);
        }
        assert_eq!((words.sum(), beside_sum()), (1_001, 1_000));
        assert_ne!(beside_mode(), SECTIONS);
    });
}

/// Where the C library registers nothing, one registration serves both, whichever half made it.
#[test]
fn both_share_an_area_of_their_own() {
    in_a_process("both_share_an_area_of_their_own", &[UNREGISTERED], || {
        if !has_sections() {
            return;
        }
        assert_eq!(native::probe().registered_by, Some(Registrar::Coreline));
        let words = Words::words(IndexBy::Cpu).unwrap();
        // The first thread makes the slots of both.
        (0..1_000).for_each(|_| beside_add(1));
        assert_eq!(beside_mode(), SECTIONS);
        let shared = || (words.shared().load(Ordering::Relaxed), beside_shared());
        let on_a_thread =
            |f: &(dyn Fn() + Sync)| thread::scope(|scope| scope.spawn(f).join()).unwrap();
        // An addition that does not find its CPU's slot initialised goes to the shared word.
        let warm = || (0..64).for_each(|_| words.add(1));
        for rust_first in [true, false] {
            on_a_thread(&|| {
                assert!(beside_own_cpu() < 0);
                if rust_first {
                    words.add(1)
                } else {
                    beside_add(1)
                }
                assert!(
                    beside_own_cpu() >= 0,
                    "registered in an area that the other half cannot see"
                );
                warm();
                let before = shared();
                words.add(1);
                beside_add(1);
                assert_eq!(shared().1, before.1, "the C++ half found no slot");
                assert_eq!(shared().0, before.0, "the Rust half found no slot");
                assert_eq!(beside_marks(), 0);
            });
        }
    });
}

#[test]
fn what_both_know_of_the_kernel_is_the_same() {
    // The constants of the Rust half are private, so they are read in its source.
    let source = |file: &str| {
        let path = format!("{}/../crates/world/src/arch/{file}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).unwrap().replace('_', "")
    };
    let signature = format!("SIGNATURE: u32 = {:#010x};", beside_signature());
    assert!(source("x86_64/mod.rs").contains(&signature), "no {signature}");
    assert!(source("mod.rs").contains(&format!("CPUID: usize = {};", beside_cpu_id_offset())));
    assert_eq!(beside_armed_offset(), 8);
    let block = source("block.rs");
    // The symbol's name, and what lies where in the block.
    for known in [
        "\"corelinerseqblock\", length!()",
        "        80\n",
        "OWN: isize = 32;",
        "MARKS: isize = 64;",
    ] {
        assert!(block.contains(known), "no {known}");
    }
}
